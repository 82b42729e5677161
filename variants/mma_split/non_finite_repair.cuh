// mma_split: what a kernel does about infinities and NaN.
//
// hi + lo turns an infinity into NaN (Inf - Inf), and zeros of block-diagonal matrices (n = 64, 128) carry it
// into neighbouring rows. But then every output of the vector is NaN, and so is its sum with others, so a
// look at one register a lane and row tells (four for bf16, see split_failed), before anything is stored. The
// warp then reads its data again and does every vector and every row alone, with zeros in place of the
// neighbours, by butterflies where the tensor cores fail. What fails is decided vector by vector (256
// elements), so the bits do not depend on the launch there either.
//
// The exact paths are functions of their own: inlined they lie in the middle of the code that every launch
// has to fetch, and take registers from it. They read the data again instead of keeping them until it is
// known that they are needed.
#pragma once

#include <cstdint>

#include "variants/mma_split/device_warp.cuh"
#include "variants/mma_split/prologue.cuh"

namespace fwht::mma_split {

/// The exact path of a warp that holds whole rows: every row alone. take(io, v, x, mine) has x, vector v of
/// the lane, where that belongs to the row.
template <Tile tile, Access access, class Prologue, class Take>
__device__ __forceinline__ void transform_rows_alone(const Batch& batch, const Prologue& prologue,
                                                     int warp_of_block, const Take& take) {
  constexpr int kVectors = tile.vectors_of_row();
  const DeviceWarp<tile> warp(batch, nullptr);
  const RowAccess<tile, access> io(batch, warp_of_block);
#pragma unroll 1
  for (int first = 0; first < tile.vectors; first += kVectors) {
#pragma unroll 1
    for (int row = 0; row < (1 << tile.log_rows_per_warp_vector()); ++row) {
      float x[kVectors][8];
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        std::uint32_t data[4];
        float one[1][8];
        prologue.load(io, first + v, data);
        transform_alone<tile>(warp, row, data, one);
#pragma unroll
        for (int e = 0; e < 8; ++e)
          x[v][e] = one[0][e];
      }
      rows::vector_butterflies<tile.vector_bits()>(x);
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
        take(io, first + v, x[v], warp.lane() >> tile.lane_bits() == row);
    }
  }
}

/// The rows in the storage type, to memory.
template <Tile tile, Access access, class Prologue>
__device__ __noinline__ void store_rows_alone(const Batch& batch, Prologue prologue, int warp_of_block) {
  transform_rows_alone<tile, access>(
      batch, prologue, warp_of_block,
      [&](const RowAccess<tile, access>& io, int v, const float(&x)[8], bool mine) {
        std::uint32_t words[4];
        rows::round_to_words<tile.dtype>(batch, x, words);
        if (mine) io.store(v, words);
      });
}

/// The rows in fp32, as a warp has them before they are scaled.
template <Tile tile, Access access, class Prologue>
__device__ __noinline__ void take_rows_alone(const Batch& batch, Prologue prologue, int warp_of_block,
                                             float (&rows)[tile.vectors][8]) {
  transform_rows_alone<tile, access>(
      batch, prologue, warp_of_block,
      [&](const RowAccess<tile, access>&, int v, const float(&x)[8], bool mine) {
#pragma unroll
        for (int e = 0; e < 8; ++e)
          if (mine) rows[v][e] = x[e];
      });
}

/// The exact path of a warp that shares its row: up to the exchange, one vector after the other, by way of
/// the words of the exchange buffer that this warp alone writes before the barrier.
template <Tile tile, Access access, class Prologue>
__device__ __noinline__ void put_again(const Batch& batch, Prologue prologue, float* exchange, int self) {
  DeviceWarp<tile> warp(batch, exchange);
  const RowAccess<tile, access> io(batch, self);
#pragma unroll 1
  for (int v = 0; v < tile.vectors; ++v) {
    std::uint32_t words[4];
    float one[1][8];
    prologue.load(io, v, words);
    transform_alone<tile>(warp, 0, words, one);
    rows::put_vector(warp, self, v, one[0]);
  }
  float x[tile.vectors][8];
#pragma unroll
  for (int v = 0; v < tile.vectors; ++v)
    rows::take_vector(warp, self, v, x[v]);
  rows::vector_butterflies<tile.vector_bits()>(x);
  rows::exchange_put(warp, self, x);
}

/// The normal path pays a comparison and a vote; nothing is looked at between the loads and the additions
/// over the vectors of a lane.
struct NonFiniteRepair {
  /// Whether this lane's results say that the transform failed.
  template <Tile tile>
  __device__ static bool needed(const DeviceWarp<tile>& warp, const float (&x)[tile.vectors][8]) {
    return split_failed<tile.vector_bits()>(warp, x);
  }

  /// A warp that holds whole rows: if any lane's results failed, does and stores its rows exactly, and says
  /// so.
  template <Tile tile, Access access, class Prologue>
  __device__ static bool stored_rows(const Batch& batch, const DeviceWarp<tile>& warp,
                                     const Prologue& prologue, int self, bool failed) {
    if (!warp.any(failed)) [[likely]]
      return false;
    store_rows_alone<tile, access>(batch, prologue, self);
    return true;
  }

  /// The same, but the exact rows come back in x.
  template <Tile tile, Access access, class Prologue>
  __device__ static bool take_rows(const Batch& batch, const DeviceWarp<tile>& warp, const Prologue& prologue,
                                   int self, float (&x)[tile.vectors][8], bool failed) {
    if (!warp.any(failed)) [[likely]]
      return false;
    float again[tile.vectors][8];  // so that only these live in memory
    take_rows_alone<tile, access>(batch, prologue, self, again);
#pragma unroll
    for (int v = 0; v < tile.vectors; ++v) {
#pragma unroll
      for (int e = 0; e < 8; ++e)
        x[v][e] = again[v][e];
    }
    return true;
  }

  /// A warp that shares its row: hands out its vectors, the exact ones if it failed, and meets the others.
  /// With fewer than four vectors each warp votes before it stores; with more, a vote would wait for all
  /// tensor-core chains of the warp, so the barrier counts the votes. If lanes exchange data afterwards, one
  /// more vote makes the branch uniform, so that no shuffle needs a guard.
  ///
  /// @tparam Writer  kLanesTalk; kLogOfFirstStage: where it is not 0, rows that failed are the writer's
  ///                 affair, and the result says whether this one did
  template <Tile tile, Access access, class Writer, class Prologue>
  __device__ static bool put_and_meet(const Batch& batch, DeviceWarp<tile>& warp, const Prologue& prologue,
                                      int self, const float (&x)[tile.vectors][8], bool failed) {
    constexpr bool kTakesFailed = Writer::template kLogOfFirstStage<tile>.value != 0;
    float* const exchange = rows::exchange_of_block();
    if constexpr (tile.vectors < 4) {
      static_assert(!kTakesFailed);
      if (warp.any(failed)) [[unlikely]] {
        put_again<tile, access>(batch, prologue, exchange, self);
      } else {
        rows::exchange_put(warp, self, x);
      }
      __syncthreads();
      return false;
    } else {
      rows::exchange_put(warp, self, x);
      const bool any_failed = __syncthreads_or(failed);
      const bool row_failed = Writer::kLanesTalk ? warp.any(any_failed) : any_failed;
      if (!kTakesFailed && row_failed) [[unlikely]] {
        if (warp.any(failed)) put_again<tile, access>(batch, prologue, exchange, self);
        __syncthreads();
      }
      return kTakesFailed && row_failed;
    }
  }
};

}  // namespace fwht::mma_split
