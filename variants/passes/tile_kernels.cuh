// passes: one pass over some index bits of long vectors, and two passes in one launch.
//
// Idea: a pass takes up to eleven of the index bits, 2^bits rows, 2^shift elements apart, of 64, 128 or 256
// neighbouring bytes. Each thread holds 32 elements (16 of 8 bytes); one exchange through shared memory is
// between the first bits and the last. So two passes do 2^26 and three 2^31, each at the rate of a copy or
// little below.
//
// Bit card of a pass over the bits b_s .. b_(s+A-1), tile of 32 columns. Of 16 columns a warp has two rows.
// Of 64, registers hold b0 and four row bits; of 8 bytes, four row bits, so there are up to three rounds.
//   round            registers               lanes    warps
//   1: b_s ..        b_s .. b_(s+4)          b0-b4    b_(s+5) .. b_(s+A-1)
//   2: b_(s+5) ..    b_(s+A-5) .. b_(s+A-1)  b0-b4    b_s .. b_(s+A-6)
// The lowest pass has s = 5 (of 8 bytes 4) and transforms the bits below between lanes first. All passes take
// their bits in ascending order: bit for bit the plain host loop.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/device/ptx/acquire.cuh"
#include "common/device/ptx/cp_async.cuh"
#include "common/device/ptx/griddepcontrol.cuh"
#include "common/device/storage.cuh"
#include "variants/kit/start_skew.cuh"
#include "variants/kit/warp_program.hpp"
#include "variants/passes/schedule.hpp"

namespace fwht::passes {

/// As the functions of CUDA take it.
using Integer64 = unsigned long long;

/// What a pass works on: `in` may be `out`. Integers are unsigned, so that their sums wrap. In and Out are
/// the types in memory. Where only one of them is Number, that side is a workspace, whose vectors have no
/// gaps.
template <class Number, class In = Number, class Out = Number>
struct LongVectors {
  const In* in;
  Out* out;
  std::int64_t row_stride;  // elements from one vector to the next
  int log_n;
  int shift;     // the lowest bit of the pass; log_columns for whole rows
  Number scale;  // of the results; none for integers

  __device__ std::int64_t in_stride() const { return stride_of<In>(); }
  __device__ std::int64_t out_stride() const { return stride_of<Out>(); }

 private:
  template <class Side>
  __device__ std::int64_t stride_of() const {
    if constexpr (!std::is_same_v<In, Out> && std::is_same_v<Side, Number>) return std::int64_t{1} << log_n;
    return row_stride;
  }
};

/// Two neighbours in one access.
template <class Stored>
struct PairOfStored {
  using Type = uint2;
};
template <>
struct PairOfStored<float> {
  using Type = float2;
};
template <>
struct PairOfStored<__half> {
  using Type = __half2;
};
template <>
struct PairOfStored<__nv_bfloat16> {
  using Type = __nv_bfloat162;
};
template <class Stored>
using PairOf = typename PairOfStored<Stored>::Type;

/// From what memory has to what sums are of, and back with one rounding.
template <class Number, class Stored>
__device__ Number widened(Stored x) {
  if constexpr (std::is_same_v<Stored, __half>) {
    return Storage<Dtype::f16>::to_float(x);
  } else if constexpr (std::is_same_v<Stored, __nv_bfloat16>) {
    return Storage<Dtype::bf16>::to_float(x);
  } else {
    return x;
  }
}
template <class Stored, class Number>
__device__ Stored rounded(Number x) {
  if constexpr (std::is_same_v<Stored, __half>) {
    return Storage<Dtype::f16>::from_float(x);
  } else if constexpr (std::is_same_v<Stored, __nv_bfloat16>) {
    return Storage<Dtype::bf16>::from_float(x);
  } else {
    return x;
  }
}

extern __shared__ float4 exchange_of_block[];

/// Where a tile of vectors `stride` apart begins, counted through all of them.
template <PassTile tile>
__device__ std::int64_t first_element(int log_n, std::int64_t stride, int shift, std::int64_t index) {
  const int log_tiles = log_n - tile.log_elements();
  const std::int64_t row = index >> log_tiles;
  return row * stride + tile.first_element(index - (row << log_tiles), shift);
}

/// Loads pass by the L1: in a launch of two passes other multiprocessors wrote what is read.
template <int width, class Stored, class Number>
__device__ void load(const Stored* from, Number (&x)[width]) {
  if constexpr (width == 2) {
    const auto pair = __ldcg(reinterpret_cast<const PairOf<Stored>*>(from));
    x[0] = widened<Number>(pair.x), x[1] = widened<Number>(pair.y);
  } else {
    x[0] = widened<Number>(__ldcg(from));
  }
}

/// `streams`: nobody reads it soon, so that it need not stay in the L2.
template <bool streams, int width, class Stored, class Number>
__device__ void store(Stored* to, const Number (&x)[width]) {
  if constexpr (width == 2) {
    *reinterpret_cast<PairOf<Stored>*>(to) = {rounded<Stored>(x[0]), rounded<Stored>(x[1])};
  } else if constexpr (streams) {
    __stcs(to, rounded<Stored>(x[0]));
  } else {
    *to = rounded<Stored>(x[0]);
  }
}

/// Bits first .. end-1 of the register number, ascending.
template <int first, class Number, int registers, int width>
__device__ void register_butterflies(Number (&x)[registers][width], int end = 31) {
#pragma unroll
  for (int bit = first; 1 << bit < registers; ++bit) {
    if (bit >= end) break;
    const int half = 1 << bit;
#pragma unroll
    for (int k = 0; k < registers; ++k) {
      if (k & half) continue;
#pragma unroll
      for (int v = 0; v < width; ++v) {
        const Number a = x[k][v], b = x[k | half][v];
        x[k][v] = a + b;
        x[k | half][v] = a - b;
      }
    }
  }
}

/// sign * x + other, which is one rounding: the product is exact.
__device__ inline float added(float sign, float x, float other) {
  return fmaf(sign, x, other);
}
__device__ inline double added(double sign, double x, double other) {
  return fma(sign, x, other);
}
__device__ inline std::uint32_t added(std::uint32_t sign, std::uint32_t x, std::uint32_t other) {
  return sign * x + other;
}
/// Not by a multiplication of 64 bits, which is one of several instructions.
__device__ inline Integer64 added(Integer64 sign, Integer64 x, Integer64 other) {
  return other + (sign == 1 ? x : 0 - x);
}

template <int bits, class Number, int registers>
__device__ void lane_butterflies(Number (&x)[registers][1]) {
#pragma unroll
  for (int bit = 0; bit < bits; ++bit) {
    const Number sign = (threadIdx.x >> bit & 1) != 0 ? Number(-1) : Number(1);
#pragma unroll
    for (int k = 0; k < registers; ++k)
      x[k][0] = added(sign, x[k][0], __shfl_xor_sync(0xFFFFFFFFU, x[k][0], 1 << bit));
  }
}

template <PassTile tile, int round, class Number, int registers, int width>
__device__ void exchange(Number (&x)[registers][width], Number* shared, int thread) {
  const int column = tile.column_of(thread);
#pragma unroll
  for (int k = 0; k < registers; ++k) {
    Number* to = shared + tile.word(tile.first_row(round, thread) + (k << tile.low_bit(round)), column);
    if constexpr (width == 2) {
      *reinterpret_cast<PairOf<Number>*>(to) = {x[k][0], x[k][1]};
    } else {
      *to = x[k][0];
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < registers; ++k) {
    const Number* from =
        shared + tile.word(tile.first_row(round + 1, thread) + (k << tile.low_bit(round + 1)), column);
    if constexpr (width == 2) {
      const auto pair = *reinterpret_cast<const PairOf<Number>*>(from);
      x[k][0] = pair.x, x[k][1] = pair.y;
    } else {
      x[k][0] = *from;
    }
  }
}

/// Tile `index` of a pass, by `tile.threads()` threads. loaded(x) is called with a sum of the first round.
template <PassTile tile, bool streams, class Number, class In, class Out, class Loaded>
__device__ void transform_tile(const LongVectors<Number, In, Out>& vectors, int shift, std::int64_t index,
                               Number scale, Number* shared, int thread, const Loaded& loaded) {
  constexpr int kLast = tile.rounds() - 1;
  const std::int64_t first =
      first_element<tile>(vectors.log_n, vectors.in_stride(), shift, index) + tile.column_of(thread);
  Number x[tile.registers()][tile.width()];
  {
    const In* from = vectors.in + first + (std::int64_t{tile.first_row(0, thread)} << shift);
#pragma unroll
    for (int k = 0; k < tile.registers(); ++k)
      load(from + (std::int64_t{k} << (shift + tile.low_bit(0))), x[k]);
  }
  if constexpr (tile.whole_row) lane_butterflies<tile.log_columns>(x);
  register_butterflies<tile.first_new_bit(0)>(x);
  loaded(x[0][0]);
  if constexpr (kLast >= 1) {
    exchange<tile, 0>(x, shared, thread);
    register_butterflies<tile.first_new_bit(1)>(x);
  }
  // What a thread writes into the exchange now it has read from there.
  if constexpr (kLast >= 2) {
    exchange<tile, 1>(x, shared, thread);
    register_butterflies<tile.first_new_bit(2)>(x);
  }
  std::int64_t first_out = first;
  if constexpr (!std::is_same_v<In, Out>)
    first_out =
        first_element<tile>(vectors.log_n, vectors.out_stride(), shift, index) + tile.column_of(thread);
  Out* to = vectors.out + first_out + (std::int64_t{tile.first_row(kLast, thread)} << shift);
#pragma unroll
  for (int k = 0; k < tile.registers(); ++k) {
    if constexpr (std::is_floating_point_v<Number>) {
#pragma unroll
      for (int v = 0; v < tile.width(); ++v)
        x[k][v] *= scale;
    }
    store<streams>(to + (std::int64_t{k} << (shift + tile.low_bit(kLast))), x[k]);
  }
}

__device__ inline std::uint32_t bits_of(float x) {
  return __float_as_uint(x);
}
__device__ inline std::uint64_t bits_of(double x) {
  return static_cast<std::uint64_t>(__double_as_longlong(x));
}
__device__ inline std::uint32_t bits_of(std::uint32_t x) {
  return x;
}
__device__ inline std::uint64_t bits_of(Integer64 x) {
  return x;
}

/// 64 registers a thread hold 32 elements and their addresses; more blocks hide more of the memory's time.
constexpr int blocks_per_sm(int threads) {
  return std::min(1024 / threads, 32);
}

/// Tiles of 2^5 rows of 8 bytes would spill in 64 registers.
template <class Number, int bits>
constexpr int blocks_of_pass(int threads) {
  return sizeof(Number) == 8 && bits == 5 ? 24 : blocks_per_sm(threads);
}

/// One pass. A block has threads / tile.threads() tiles.
template <class Number, int bits, int log_columns, bool whole_row, int threads, bool lets_next_in,
          class In = Number, class Out = Number>
__global__ void __launch_bounds__(threads, blocks_of_pass<Number, bits>(threads))
    pass(__grid_constant__ const LongVectors<Number, In, Out> vectors) {
  constexpr PassTile tile{bits, log_columns, whole_row, sizeof(Number) == 8 ? 4 : 5};
  constexpr int kTiles = threads / tile.threads();
  ptx::griddepcontrol_wait();
  const int part = static_cast<int>(threadIdx.x) / tile.threads();
  const int thread = static_cast<int>(threadIdx.x) % tile.threads();
  Number* shared = reinterpret_cast<Number*>(exchange_of_block) + part * tile.shared_words();
  transform_tile<tile, false>(vectors, vectors.shift, std::int64_t{blockIdx.x} * kTiles + part, vectors.scale,
                              shared, thread, [](Number loaded) {
                                if constexpr (lets_next_in)
                                  ptx::griddepcontrol_launch_dependents_behind(
                                      static_cast<std::uint32_t>(bits_of(loaded)), gridDim.y - 1);
                              });
}

/// One pass over the highest bits of rows that are gathered by source_place. A block is a tile. Runs of
/// 2^bits elements of the input, as far as the orderings keep them together, go through shared memory.
template <class Number, int bits, class In = Number>
__global__ void __launch_bounds__(1 << bits, blocks_per_sm(1 << bits))
    ordered_pass(__grid_constant__ const LongVectors<Number, In, Number> vectors, Ordering in, Ordering out) {
  constexpr int kLogColumns = sizeof(Number) == 8 ? 4 : 5;
  constexpr PassTile tile{bits, kLogColumns, false, kLogColumns};
  constexpr int kLast = tile.rounds() - 1, kRows = 1 << bits;
  static_assert(tile.threads() == 1 << bits && tile.width() == 1 && kLast >= 1);
  ptx::griddepcontrol_wait();
  const int thread = static_cast<int>(threadIdx.x);
  Number* shared = reinterpret_cast<Number*>(exchange_of_block);
  const int log_tiles = vectors.log_n - tile.log_elements();
  const std::int64_t vector = std::int64_t{blockIdx.x} >> log_tiles;
  const std::int64_t first = tile.first_element(blockIdx.x - (vector << log_tiles), vectors.shift);
  Number x[tile.registers()][1];
  const int row = static_cast<int>(reverse_bits(static_cast<std::uint64_t>(thread % kRows), bits));
#pragma unroll
  for (int k = 0; k < tile.registers(); ++k) {
    const std::int64_t place =
        first + (std::int64_t{row} << vectors.shift) + k;  // column k: a block is 2^bits threads
    load(vectors.in + vector * vectors.in_stride() + source_place(in, out, place, vectors.log_n), x[k]);
  }
#pragma unroll
  for (int k = 0; k < tile.registers(); ++k)
    shared[tile.gathered_word(row, k)] = x[k][0];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < tile.registers(); ++k)
    x[k][0] = shared[tile.gathered_word(tile.first_row(0, thread) + (k << tile.low_bit(0)),
                                        tile.column_of(thread))];
  register_butterflies<tile.first_new_bit(0)>(x);
  __syncthreads();  // the exchange has other places
  exchange<tile, 0>(x, shared, thread);
  register_butterflies<tile.first_new_bit(1)>(x);
  if constexpr (kLast >= 2) {
    exchange<tile, 1>(x, shared, thread);
    register_butterflies<tile.first_new_bit(2)>(x);
  }
  Number* to = vectors.out + vector * vectors.out_stride() + first + tile.column_of(thread) +
               (std::int64_t{tile.first_row(kLast, thread)} << vectors.shift);
#pragma unroll
  for (int k = 0; k < tile.registers(); ++k)
    store<false>(to + (std::int64_t{k} << (vectors.shift + tile.low_bit(kLast))), x[k]);
}

/// Whole rows: what one kernel transforms.
template <class Number>
struct WholeRows {
  const Number* in;
  Number* out;
  std::int64_t rows, row_stride;
  int log_n;
  Number scale;   // of the results; none for integers
  bool in_units;  // 16 bytes of a row are aligned
  Turns turns;
  unsigned first_blocks;  // that take turns
  // Of rows that are permuted: what a bit of the thread's number, and what an access, put into the word.
  int word_of_thread[10], word_of_access[32];
};

/// Where the elements of a block's tile are in memory.
template <RowTile tile>
struct TileInRows {
  std::int64_t stride, first_row, left;  // rows from the first one on
  int log_n;
  bool together;  // all neighbours: one row, or short ones without gaps, none of them missing

  __device__ TileInRows(std::int64_t row_stride, std::int64_t rows, int log_n_)
      : stride(row_stride), log_n(log_n_) {
    const int log_rows = tile.log_elements - log_n;
    first_row = std::int64_t{blockIdx.x} << log_rows;
    left = rows - first_row;
    together = log_rows == 0 || (stride == std::int64_t{1} << log_n && left >= std::int64_t{1} << log_rows);
  }
  /// of_element(e, offset) for e = first + step(i), i < count, of the elements that exist.
  template <int count, class Step, class OfElement>
  __device__ void each(int first, const Step& step, const OfElement& of_element) const {
    const std::int64_t start = first_row * stride;
    if (together) {
#pragma unroll
      for (int i = 0; i < count; ++i)
        of_element(i, start + first + step(i));
      return;
    }
    if constexpr (tile.log_elements == kSmallestRowTile) {
#pragma unroll
      for (int i = 0; i < count; ++i) {
        const int element = first + step(i), row = element >> log_n;
        if (row < left) of_element(i, start + row * stride + (element & ((1 << log_n) - 1)));
      }
    }
  }
};

template <class Number>
using UnitOf =
    std::conditional_t<sizeof(Number) == 4, std::conditional_t<std::is_same_v<Number, float>, float4, uint4>,
                       std::conditional_t<std::is_same_v<Number, double>, double2, ulonglong2>>;

__device__ inline void wait_for_turn(const Turns& turns, unsigned first_blocks) {
  if (turns.clocks == 0 || blockIdx.x >= first_blocks) return;
  rows::spend_clocks(blockIdx.x % turns.groups * turns.clocks);
}

/// Rows to shared memory, where they are after cp_async_wait_all.
template <RowTile tile, class Number>
__device__ void load_rows(const WholeRows<Number>& rows, int log_n, Number* shared, int thread) {
  const auto base = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  const TileInRows<tile> places(rows.row_stride, rows.rows, log_n);
  const auto copied = [&](auto log_width, int first_word, auto added_word) {
    constexpr int kBytes = sizeof(Number) << log_width();
    const auto step = [log_width](int i) { return tile.loaded(0, i, log_width()); };
    places.template each<(32 >> log_width())>(
        tile.loaded(thread, 0, log_width()), step, [&](int i, std::int64_t offset) {
          const std::uint32_t to =
              base + static_cast<std::uint32_t>((first_word ^ added_word(i)) * sizeof(Number));
          if constexpr (kBytes == 16) {
            ptx::cp_async_cg_shared_global_16(to, rows.in + offset);
          } else {
            ptx::cp_async_ca_shared_global<kBytes>(to, rows.in + offset);
          }
        });
  };
  constexpr std::integral_constant<int, 0> kOne;
  constexpr std::integral_constant<int, tile.log_unit()> kUnit;
  if constexpr (tile.ordered) {
    int word = 0;
#pragma unroll
    for (int bit = 0; 1 << bit < tile.threads(); ++bit)
      word ^= (thread >> bit & 1) != 0 ? rows.word_of_thread[bit] : 0;
    copied(kOne, word, [&](int i) { return rows.word_of_access[i]; });
  } else if (rows.in_units) {
    copied(kUnit, tile.word(tile.loaded(thread, 0, kUnit())),
           [](int i) { return tile.word(tile.loaded(0, i, tile.log_unit())); });
  } else {
    copied(kOne, tile.word(tile.loaded(thread, 0, 0)), [](int i) { return tile.word(tile.loaded(0, i, 0)); });
  }
}

/// Registers to shared memory, or from there: register k is at place(k).
template <bool stores, class Number, int count, class Place>
__device__ void move_numbers(Number (&x)[count][1], const Place& place) {
#pragma unroll
  for (int k = 0; k < count; ++k) {
    Number* const at = place(k);
    if constexpr (stores) {
      *at = x[k][0];
    } else {
      x[k][0] = *at;
    }
  }
}

/// The same in accesses of 16 bytes: as many registers are at place(k) and behind it.
template <bool stores, class Number, int count, class Place>
__device__ void move_units(Number (&x)[count][1], const Place& place) {
  using Unit = UnitOf<Number>;
  constexpr int kWidth = sizeof(Unit) / sizeof(Number);
#pragma unroll
  for (int k = 0; k < count; k += kWidth) {
    Unit* const at = reinterpret_cast<Unit*>(place(k));
    if constexpr (kWidth == 4 && stores) {
      *at = {x[k][0], x[k + 1][0], x[k + 2][0], x[k + 3][0]};
    } else if constexpr (kWidth == 4) {
      const Unit unit = *at;
      x[k][0] = unit.x, x[k + 1][0] = unit.y, x[k + 2][0] = unit.z, x[k + 3][0] = unit.w;
    } else if constexpr (stores) {
      *at = {x[k][0], x[k + 1][0]};
    } else {
      const Unit unit = *at;
      x[k][0] = unit.x, x[k + 1][0] = unit.y;
    }
  }
}

/// What a thread has in a round, from shared memory or there.
template <RowTile tile, int round, bool stores, class Number>
__device__ void move_round(Number (&x)[32][1], Number* shared, int thread) {
  const int first = tile.word(tile.element(round, thread, 0));
  if constexpr (round == 0 && !tile.ordered) {
    move_units<stores>(x, [&](int k) { return shared + (first ^ tile.word(k)); });
  } else {
    move_numbers<stores>(x, [&](int k) { return shared + (first ^ tile.word(tile.element(round, 0, k))); });
  }
}

/// What follows the first round.
template <RowTile tile, class Number>
__device__ void later_rounds(Number (&x)[32][1], Number* shared, int thread, int log_n) {
  move_round<tile, 0, true>(x, shared, thread);
  __syncwarp();
  move_round<tile, 1, false>(x, shared, thread);
  register_butterflies<0>(x, log_n - 5);
  if constexpr (tile.rounds() == 3) {
    move_round<tile, 1, true>(x, shared, thread);
    __syncthreads();
    move_round<tile, 2, false>(x, shared, thread);
    register_butterflies<tile.upper().first_new_bit(1)>(x);
  }
}

/// All rounds over what lies in shared memory as `loaded`. A thread ends with what it has in the last one.
template <RowTile loaded, class Number>
__device__ void transform_rows(Number (&x)[32][1], Number* shared, int thread, int log_n) {
  move_round<loaded, 0, false>(x, shared, thread);
  register_butterflies<0>(x, log_n);
  later_rounds<RowTile{loaded.log_elements, loaded.number_bytes}>(x, shared, thread, log_n);
}

/// 128 registers a thread hold 32 elements of 8 bytes.
template <class Number>
constexpr int blocks_of_rows(int threads) {
  return std::min((sizeof(Number) == 8 ? 512 : 1024) / threads, 32);
}

/// Whole rows in one pass. A block is a tile: one row, or as many short ones as 2^10 elements are. Shared
/// memory holds them between the rounds, each of which transforms five bits in registers, in ascending order.
template <class Number, int log_elements, bool ordered>
__global__ void __launch_bounds__(1 << (log_elements - 5), blocks_of_rows<Number>(1 << (log_elements - 5)))
    whole_rows(__grid_constant__ const WholeRows<Number> rows) {
  constexpr RowTile tile{log_elements, sizeof(Number)}, loaded{log_elements, sizeof(Number), ordered};
  constexpr int kLast = tile.rounds() - 1;
  // Known when the kernel is compiled but for short rows.
  const int log_n = log_elements == kSmallestRowTile ? rows.log_n : log_elements;
  const int thread = static_cast<int>(threadIdx.x);
  Number* shared = reinterpret_cast<Number*>(exchange_of_block);
  ptx::griddepcontrol_wait();
  wait_for_turn(rows.turns, rows.first_blocks);
  load_rows<loaded>(rows, log_n, shared, thread);
  ptx::cp_async_wait_all();
  // In order, a warp has itself what it has loaded.
  if constexpr (ordered) {
    __syncthreads();
  } else {
    __syncwarp();
  }
  Number x[32][1];
  transform_rows<loaded>(x, shared, thread, log_n);
  const TileInRows<tile> places(rows.row_stride, rows.rows, log_n);
  places.template each<32>(
      tile.element(kLast, thread, 0), [](int k) { return tile.element(kLast, 0, k); },
      [&](int k, std::int64_t offset) {
        if constexpr (std::is_floating_point_v<Number>) x[k][0] *= rows.scale;
        rows.out[offset] = x[k][0];
      });
}

/// The counters of a launch of two passes, all 0 when it starts.
struct Counters {
  unsigned* ticket;
  unsigned* done;  // of every chunk: blocks that have done their part of the first pass
};

/// Two passes, chunk by chunk (work_of): what the first leaves, the second finds in the L2. A block draws a
/// ticket and waits only for blocks that drew before it, so that any number of resident blocks gets on.
/// `between` is vectors.out: under one name the compiler keeps the addresses of all loads for the stores.
template <class Number, int row_bits, int second_bits, int threads>
__global__ void __launch_bounds__(threads, blocks_per_sm(threads))
    two_passes(__grid_constant__ const LongVectors<Number> vectors, const Number* between, Counters counters,
               int log_items, std::int64_t items, std::int64_t chunks) {
  constexpr PassTile first{row_bits, 5, true}, second{second_bits, 5, false};
  __shared__ unsigned ticket;
  if (threadIdx.x == 0) ticket = atomicAdd(counters.ticket, 1U);
  __syncthreads();
  const PairWork work = work_of(ticket, log_items, chunks);
  const std::int64_t item = (work.chunk << log_items) + work.item;
  if (item >= items) return;  // behind the end of a last chunk that is not full
  Number* shared = reinterpret_cast<Number*>(exchange_of_block);
  const auto nothing = [](Number) {};
  if (!work.second) {
    constexpr int kTiles = threads / first.threads();
    const int part = static_cast<int>(threadIdx.x) / first.threads();
    transform_tile<first, false>(vectors, first.log_columns, item * kTiles + part, Number(1),
                                 shared + part * first.shared_words(),
                                 static_cast<int>(threadIdx.x) % first.threads(), nothing);
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(counters.done + work.chunk, 1U);
    }
    return;
  }
  if (threadIdx.x == 0) {
    const std::int64_t of_chunk = std::int64_t{1} << log_items, left = items - (work.chunk << log_items);
    const auto all = static_cast<unsigned>(left < of_chunk ? left : of_chunk);
    while (ptx::ld_acquire_gpu(counters.done + work.chunk) != all) {
    }
  }
  __syncthreads();
  constexpr int kTiles = threads / second.threads();
  const int part = static_cast<int>(threadIdx.x) / second.threads();
  LongVectors<Number> again = vectors;
  again.in = between;
  transform_tile<second, true>(again, vectors.shift, item * kTiles + part, vectors.scale,
                               shared + part * second.shared_words(),
                               static_cast<int>(threadIdx.x) % second.threads(), nothing);
}

}  // namespace fwht::passes
