// Sketches of vectors that a block holds, and the first and the last pass of longer ones.
//
// Idea: the kernels of the variant `passes` with other loads and stores. A load multiplies by a packed sign
// and reads elements behind the end as zeros; a store keeps the chosen coefficients alone, whose places a bit
// set with a count in front of each word tells. A warp has 32 neighbours in loads and stores (two times 16 of
// 8 bytes), so all its lanes read one word of the table, and what they store lies together.
//
// Bit cards: those of `RowTile` and `PassTile`, in tile.hpp and tile_kernels.cuh.
#pragma once

#include "common/device/launcher.hpp"
#include "common/host/static_dispatch.hpp"
#include "variants/library/ready_kernel.cuh"
#include "variants/library/sketched_rows.hpp"

namespace fwht::walsh {

using passes::PassTile;
using passes::RowTile;

/// act(k, j, word) for j = element_of(k), k < count. Words are read some at a time, ahead of stores that they
/// would have to wait for one by one.
template <int count, class Side, class ElementOf, class Act>
__device__ void with_words(const Side& side, const ElementOf& element_of, const Act& act) {
  constexpr int kTogether = 4;
#pragma unroll
  for (int first = 0; first < count; first += kTogether) {
    decltype(side.word(0)) words[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i)
      words[i] = side.word(element_of(first + i));
#pragma unroll
    for (int i = 0; i < kTogether; ++i)
      act(first + i, element_of(first + i), words[i]);
  }
}

/// Half of those of whole rows, with whose registers places spill.
template <class Number>
constexpr int blocks_of_sketched_rows(int threads) {
  return std::max(passes::blocks_of_rows<Number>(threads) / 2, 1);
}

template <class Number, int log_elements, class Source, class Sink>
__global__ void __launch_bounds__(1 << (log_elements - 5),
                                  blocks_of_sketched_rows<Number>(1 << (log_elements - 5)))
    sketched_rows(__grid_constant__ const Source source, __grid_constant__ const Sink sink, int log_of_rows,
                  std::int64_t vectors, Number scale) {
  constexpr RowTile tile{log_elements, sizeof(Number)};
  constexpr int kLast = tile.rounds() - 1;
  const int log_n = log_elements == passes::kSmallestRowTile ? log_of_rows : log_elements;
  const int thread = static_cast<int>(threadIdx.x), in_vector = (1 << log_n) - 1;
  const std::int64_t first = std::int64_t{blockIdx.x} << (log_elements - log_n);
  Number* const shared = reinterpret_cast<Number*>(passes::exchange_of_block);
  const auto base = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  constexpr bool kIsAlone = log_elements != passes::kSmallestRowTile;  // one vector, which exists
  const auto exists = [&](int element) { return kIsAlone || first + (element >> log_n) < vectors; };
  // A warp loads what it has in the first two rounds.
  with_words<32>(
      source, [&](int i) { return tile.loaded(thread, i, 0) & in_vector; },
      [&](int i, int j, auto word) {
        const int element = tile.loaded(thread, i, 0);
        const SketchPlace place = source.place(word, j);
        const auto at = tile.word(element);
        if (place.exists && exists(element)) {
          ptx::cp_async_ca_shared_global<sizeof(Number)>(
              base + static_cast<std::uint32_t>(at * sizeof(Number)),
              vector_of(source, first + (element >> log_n)) + place.offset);
        } else {
          shared[at] = 0;
        }
      });
  ptx::cp_async_wait_all();
  __syncwarp();
  Number x[32][1];
  passes::move_round<tile, 0, false>(x, shared, thread);
  const auto word_of_32 = source.word(thread << 5 & in_vector);
#pragma unroll
  for (int k = 0; k < 32; ++k)
    x[k][0] = source.with_sign(word_of_32, k & in_vector, x[k][0]);
  passes::register_butterflies<0>(x, log_n);
  passes::later_rounds<tile>(x, shared, thread, log_n);
  with_words<32>(
      sink, [&](int k) { return tile.element(kLast, thread, k) & in_vector; },
      [&](int k, int j, auto word) {
        const int element = tile.element(kLast, thread, k);
        const SketchPlace place = sink.place(word, j);
        if (place.exists && exists(element))
          vector_of(sink, first + (element >> log_n))[place.offset] =
              sink.with_sign(word, j, x[k][0] * scale);
      });
}

/// The rounds of a tile of a pass between loads and stores.
template <PassTile tile, class Number>
__device__ void transform_loaded(Number (&x)[tile.registers()][1], Number* shared, int thread) {
  if constexpr (tile.whole_row) passes::lane_butterflies<tile.log_columns>(x);
  passes::register_butterflies<tile.first_new_bit(0)>(x);
  if constexpr (tile.rounds() >= 2) {
    passes::exchange<tile, 0>(x, shared, thread);
    passes::register_butterflies<tile.first_new_bit(1)>(x);
  }
  if constexpr (tile.rounds() >= 3) {
    passes::exchange<tile, 1>(x, shared, thread);
    passes::register_butterflies<tile.first_new_bit(2)>(x);
  }
}

/// Half of those of passes, with whose registers places spill.
constexpr int blocks_of_sketch(int threads) {
  return std::max(passes::blocks_per_sm(threads) / 2, 1);
}

template <class Number, int bits>
constexpr PassTile source_tile() {
  return sketch_source_tile(passes::word_of_number<Number>(), bits);
}
template <class Number, int bits, class Source>
__global__ void __launch_bounds__(sketch_source_threads(source_tile<Number, bits>()),
                                  blocks_of_sketch(sketch_source_threads(source_tile<Number, bits>())))
    sketch_source(__grid_constant__ const Source source, Number* sums, int log_n) {
  constexpr PassTile tile = source_tile<Number, bits>();
  constexpr int kLast = tile.rounds() - 1, kTiles = sketch_source_threads(tile) / tile.threads();
  const int part = static_cast<int>(threadIdx.x) / tile.threads();
  const int thread = static_cast<int>(threadIdx.x) % tile.threads();
  Number* const shared = reinterpret_cast<Number*>(passes::exchange_of_block) + part * tile.shared_words();
  const std::int64_t index = std::int64_t{blockIdx.x} * kTiles + part, vector = index >> (log_n - bits);
  Number x[tile.registers()][1];
  const auto* const from = vector_of(source, vector);
  with_words<tile.registers()>(
      source, [&](int k) { return sketch_source_element(tile, index, log_n, 0, thread, k); },
      [&](int k, int j, auto word) {
        const SketchPlace place = source.place(word, j);
        x[k][0] = place.exists ? source.with_sign(word, j, __ldg(from + place.offset)) : Number(0);
      });
  transform_loaded<tile>(x, shared, thread);
  Number* const to = sums + (vector << log_n);
#pragma unroll
  for (int k = 0; k < tile.registers(); ++k)
    to[sketch_source_element(tile, index, log_n, kLast, thread, k)] = x[k][0];
}

template <class Number, int bits>
constexpr PassTile sink_tile() {
  return sketch_sink_tile(passes::word_of_number<Number>(), bits);
}
template <class Number, int bits, class Sink>
__global__ void __launch_bounds__(sink_tile<Number, bits>().threads(),
                                  blocks_of_sketch(sink_tile<Number, bits>().threads()))
    sketch_sink(const Number* sums, __grid_constant__ const Sink sink, int log_n, Number scale) {
  constexpr PassTile tile = sink_tile<Number, bits>();
  constexpr int kLast = tile.rounds() - 1;
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t index = blockIdx.x, vector = index >> (log_n - tile.log_elements());
  const Number* const from = sums + (vector << log_n);
  Number x[tile.registers()][1];
#pragma unroll
  for (int k = 0; k < tile.registers(); ++k)
    passes::load(from + sketch_sink_element(tile, index, log_n, 0, thread, k), x[k]);
  transform_loaded<tile>(x, reinterpret_cast<Number*>(passes::exchange_of_block), thread);
  auto* const to = vector_of(sink, vector);
  with_words<tile.registers()>(
      sink, [&](int k) { return sketch_sink_element(tile, index, log_n, kLast, thread, k); },
      [&](int k, int j, auto word) {
        const SketchPlace place = sink.place(word, j);
        if (place.exists) to[place.offset] = sink.with_sign(word, j, x[k][0] * scale);
      });
}

/// launch_part(source, sink) of a sketch or of its transpose.
template <class Number, class Launch>
void with_sides(const SketchedVectors& work, const Launch& launch_part) {
  const auto* const in = static_cast<const Number*>(work.in);
  auto* const out = static_cast<Number*>(work.out);
  if (work.transposed) {
    launch_part(ChosenElements<const Number>{in, static_cast<int>(work.rows), work.table},
                SignedElements<Number>{out, static_cast<int>(work.length), work.table});
  } else {
    launch_part(SignedElements<const Number>{in, static_cast<int>(work.length), work.table},
                ChosenElements<Number>{out, static_cast<int>(work.rows), work.table});
  }
}

template <class Number>
void launch_rows_of_sketch(const SketchedVectors& work, const DeviceInfo& device, Stream stream) {
  constexpr passes::Word kWord = passes::word_of_number<Number>();
  const RowTile tile = passes::row_tile(kWord, work.log_n, false);
  with_sides<Number>(work, [&]<class Source, class Sink>(const Source& source, const Sink& sink) {
    using Kernel = void (*)(Source, Sink, int, std::int64_t, Number);
    const auto kernel = dispatch_int<passes::kSmallestRowTile, kLargestSketchedRow>(
        tile.log_elements,
        [](auto log_elements) -> Kernel { return sketched_rows<Number, log_elements(), Source, Sink>; });
    make_ready(kernel, tile.threads(), tile.shared_bytes(), device);
    launch(kernel,
           {.blocks = ceil_div(work.vectors, std::int64_t{1} << (tile.log_elements - work.log_n)),
            .threads = tile.threads(),
            .shared = tile.shared_bytes()},
           stream, source, sink, work.log_n, work.vectors, static_cast<Number>(work.scale));
  });
}

template <class Number, class Source>
auto source_kernel(int row_bits) -> void (*)(Source, Number*, int) {
  switch (row_bits) {
    case 9:  // of 2^14 elements of 8 bytes, where no block holds them
      if constexpr (sizeof(Number) == 8) return sketch_source<Number, 9, Source>;
      [[fallthrough]];
    case 10:
      return sketch_source<Number, 10, Source>;
    case 12:
      return sketch_source<Number, 12, Source>;
    default:
      return sketch_source<Number, 13, Source>;
  }
}

template <class Number>
void launch_source_of_sketch(const SketchedVectors& work, int row_bits, void* sums, const DeviceInfo& device,
                             Stream stream) {
  const PassTile tile = sketch_source_tile(passes::word_of_number<Number>(), row_bits);
  const int threads = sketch_source_threads(tile), tiles = threads / tile.threads();
  with_sides<Number>(work, [&]<class Source, class Sink>(const Source& source, const Sink&) {
    const auto kernel = source_kernel<Number, Source>(row_bits);
    make_ready(kernel, threads, tiles * tile.shared_bytes(), device);
    launch(kernel,
           {.blocks = (work.vectors << (work.log_n - row_bits)) / tiles,
            .threads = threads,
            .shared = tiles * tile.shared_bytes()},
           stream, source, static_cast<Number*>(sums), work.log_n);
  });
}

template <class Number>
void launch_sink_of_sketch(const SketchedVectors& work, int bits, const void* sums, const DeviceInfo& device,
                           Stream stream) {
  const PassTile tile = sketch_sink_tile(passes::word_of_number<Number>(), bits);
  with_sides<Number>(work, [&]<class Source, class Sink>(const Source&, const Sink& sink) {
    using Kernel = void (*)(const Number*, Sink, int, Number);
    const auto kernel = dispatch_int<passes::kFewestAxisBits, kMostSketchedBits>(
        bits, [](auto of_pass) -> Kernel { return sketch_sink<Number, of_pass(), Sink>; });
    make_ready(kernel, tile.threads(), tile.shared_bytes(), device);
    launch(kernel,
           {.blocks = work.vectors << (work.log_n - tile.log_elements()),
            .threads = tile.threads(),
            .shared = tile.shared_bytes()},
           stream, static_cast<const Number*>(sums), sink, work.log_n, static_cast<Number>(work.scale));
  });
}

}  // namespace fwht::walsh
