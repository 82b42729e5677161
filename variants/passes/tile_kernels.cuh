// passes: one pass over some index bits of long fp32 vectors, and two passes in one launch.
//
// Idea: a pass takes up to eleven of the index bits, 2^bits rows, 2^shift elements apart, of 64, 128 or 256
// neighbouring bytes. Each thread holds 32 elements; one exchange through shared memory is between the first
// bits and the last. So two passes do 2^26 and three 2^31, each at the rate of a copy or little below.
//
// Bit card of a pass over the bits b_s .. b_(s+A-1), tile of 32 columns (16: a warp has two rows; 64: b0 and
// four row bits in registers):
//   round            registers               lanes    warps
//   1: b_s ..        b_s .. b_(s+4)          b0-b4    b_(s+5) .. b_(s+A-1)
//   2: b_(s+5) ..    b_(s+A-5) .. b_(s+A-1)  b0-b4    b_s .. b_(s+A-6)
// The lowest pass has s = 5 and transforms b0-b4 between lanes first. All passes take their bits in ascending
// order: bit for bit the plain host loop.
#pragma once

#include <cstdint>

#include "common/device/ptx/acquire.cuh"
#include "common/device/ptx/griddepcontrol.cuh"
#include "variants/kit/warp_program.hpp"
#include "variants/passes/schedule.hpp"

namespace fwht::passes {

/// What a pass works on: `in` may be `out`.
struct LongVectors {
  const float* in;
  float* out;
  std::int64_t row_stride;  // elements from one vector to the next
  int log_n;
  int shift;    // the lowest bit of the pass; log_columns for whole rows
  float scale;  // of the results
};

extern __shared__ float4 exchange_of_block[];

/// Where a tile begins, counted through all vectors.
template <PassTile tile>
__device__ std::int64_t first_element(const LongVectors& vectors, int shift, std::int64_t index) {
  const int log_tiles = vectors.log_n - tile.log_elements();
  const std::int64_t row = index >> log_tiles;
  return row * vectors.row_stride + tile.first_element(index - (row << log_tiles), shift);
}

/// Loads pass by the L1: in a launch of two passes other multiprocessors wrote what is read.
template <int width>
__device__ void load(const float* from, float (&x)[width]) {
  if constexpr (width == 2) {
    const float2 pair = __ldcg(reinterpret_cast<const float2*>(from));
    x[0] = pair.x, x[1] = pair.y;
  } else {
    x[0] = __ldcg(from);
  }
}

/// `streams`: nobody reads it soon, so that it need not stay in the L2.
template <bool streams, int width>
__device__ void store(float* to, const float (&x)[width]) {
  if constexpr (width == 2) {
    *reinterpret_cast<float2*>(to) = make_float2(x[0], x[1]);
  } else if constexpr (streams) {
    __stcs(to, x[0]);
  } else {
    *to = x[0];
  }
}

/// Bits first .. register_bits-1 of the register number, ascending.
template <int first, int registers, int width>
__device__ void register_butterflies(float (&x)[registers][width]) {
#pragma unroll
  for (int half = 1 << first; half < registers; half *= 2) {
#pragma unroll
    for (int k = 0; k < registers; ++k) {
      if (k & half) continue;
#pragma unroll
      for (int v = 0; v < width; ++v) {
        const float a = x[k][v], b = x[k | half][v];
        x[k][v] = a + b;
        x[k | half][v] = a - b;
      }
    }
  }
}

/// sign * x + other is one rounding: the product is exact.
template <int bits, int registers>
__device__ void lane_butterflies(float (&x)[registers][1]) {
#pragma unroll
  for (int bit = 0; bit < bits; ++bit) {
    const float sign = (threadIdx.x >> bit & 1) != 0 ? -1.0F : 1.0F;
#pragma unroll
    for (int k = 0; k < registers; ++k)
      x[k][0] = fmaf(sign, x[k][0], __shfl_xor_sync(0xFFFFFFFFU, x[k][0], 1 << bit));
  }
}

template <PassTile tile, int round, int registers, int width>
__device__ void exchange(float (&x)[registers][width], float* shared, int thread) {
  const int column = tile.column_of(thread);
#pragma unroll
  for (int k = 0; k < registers; ++k) {
    float* to = shared + tile.word(tile.first_row(round, thread) + (k << tile.low_bit(round)), column);
    if constexpr (width == 2) {
      *reinterpret_cast<float2*>(to) = make_float2(x[k][0], x[k][1]);
    } else {
      *to = x[k][0];
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < registers; ++k) {
    const float* from =
        shared + tile.word(tile.first_row(round + 1, thread) + (k << tile.low_bit(round + 1)), column);
    if constexpr (width == 2) {
      const float2 pair = *reinterpret_cast<const float2*>(from);
      x[k][0] = pair.x, x[k][1] = pair.y;
    } else {
      x[k][0] = *from;
    }
  }
}

/// Tile `index` of a pass, by `tile.threads()` threads. loaded(x) is called with a sum of the first round.
template <PassTile tile, bool streams, class Loaded>
__device__ void transform_tile(const LongVectors& vectors, int shift, std::int64_t index, float scale,
                               float* shared, int thread, const Loaded& loaded) {
  constexpr int kLast = tile.rounds() - 1;
  const std::int64_t first = first_element<tile>(vectors, shift, index) + tile.column_of(thread);
  float x[tile.registers()][tile.width()];
  {
    const float* from = vectors.in + first + (std::int64_t{tile.first_row(0, thread)} << shift);
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
  float* to = vectors.out + first + (std::int64_t{tile.first_row(kLast, thread)} << shift);
#pragma unroll
  for (int k = 0; k < tile.registers(); ++k) {
#pragma unroll
    for (int v = 0; v < tile.width(); ++v)
      x[k][v] *= scale;
    store<streams>(to + (std::int64_t{k} << (shift + tile.low_bit(kLast))), x[k]);
  }
}

/// 64 registers a thread hold 32 elements and their addresses; more blocks hide more of the memory's time.
constexpr int blocks_per_sm(int threads) {
  return std::min(1024 / threads, 32);
}

/// One pass. A block has threads / tile.threads() tiles.
template <int bits, int log_columns, bool whole_row, int threads, bool lets_next_in>
__global__ void __launch_bounds__(threads, blocks_per_sm(threads))
    pass(__grid_constant__ const LongVectors vectors) {
  constexpr PassTile tile{bits, log_columns, whole_row};
  constexpr int kTiles = threads / tile.threads();
  ptx::griddepcontrol_wait();
  const int part = static_cast<int>(threadIdx.x) / tile.threads();
  const int thread = static_cast<int>(threadIdx.x) % tile.threads();
  float* shared = reinterpret_cast<float*>(exchange_of_block) + part * tile.shared_words();
  transform_tile<tile, false>(vectors, vectors.shift, std::int64_t{blockIdx.x} * kTiles + part, vectors.scale,
                              shared, thread, [](float loaded) {
                                if constexpr (lets_next_in)
                                  ptx::griddepcontrol_launch_dependents_behind(__float_as_uint(loaded),
                                                                               gridDim.y - 1);
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
template <int row_bits, int second_bits, int threads>
__global__ void __launch_bounds__(threads, blocks_per_sm(threads))
    two_passes(__grid_constant__ const LongVectors vectors, const float* between, Counters counters,
               int log_items, std::int64_t items, std::int64_t chunks) {
  constexpr PassTile first{row_bits, 5, true}, second{second_bits, 5, false};
  __shared__ unsigned ticket;
  if (threadIdx.x == 0) ticket = atomicAdd(counters.ticket, 1U);
  __syncthreads();
  const PairWork work = work_of(ticket, log_items, chunks);
  const std::int64_t item = (work.chunk << log_items) + work.item;
  if (item >= items) return;  // behind the end of a last chunk that is not full
  float* shared = reinterpret_cast<float*>(exchange_of_block);
  const auto nothing = [](float) {};
  if (!work.second) {
    constexpr int kTiles = threads / first.threads();
    const int part = static_cast<int>(threadIdx.x) / first.threads();
    transform_tile<first, false>(vectors, first.log_columns, item * kTiles + part, 1.0F,
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
  LongVectors again = vectors;
  again.in = between;
  transform_tile<second, true>(again, vectors.shift, item * kTiles + part, vectors.scale,
                               shared + part * second.shared_words(),
                               static_cast<int>(threadIdx.x) % second.threads(), nothing);
}

}  // namespace fwht::passes
