// What the tensor-core kernels of Hopper do to a warp's fp32 accumulators behind the exact stage. Tiles are
// 16 x 8 accumulators of mma.sync or wgmma: four registers a thread, b0 in the register, b1-b2 in lane bits
// 0-1.
#pragma once

#include <cstdint>

#include "common/contract/dtype.hpp"
#include "common/device/ptx/fragments.hpp"
#include "common/device/ptx/mma.cuh"

namespace fwht::rows {

/// 1.0 in the storage format.
template <Dtype dtype>
constexpr std::uint32_t one() {
  return dtype == Dtype::f16 ? 0x3C00 : ptx::kBf16One;
}

/// Butterflies over the registers at the distances `first`, 2 `first`, ... below `end`, of the registers i
/// with (i & mask) == value. Between column tiles distances are multiples of 4.
template <int first, int end, int mask = 0, int value = 0, int registers>
__device__ void register_butterflies(float (&d)[registers]) {
#pragma unroll
  for (int half = first; half < end; half *= 2) {
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      if (i / half % 2 != 0 || (i & mask) != value) continue;
      const float a = d[i], b = d[i + half];
      d[i] = a + b;
      d[i + half] = a - b;
    }
  }
}

/// The butterfly between registers of the same number.
template <int registers>
__device__ void butterfly(float (&lower)[registers], float (&upper)[registers]) {
#pragma unroll
  for (int i = 0; i < registers; ++i) {
    const float a = lower[i], b = upper[i];
    lower[i] = a + b;
    upper[i] = a - b;
  }
}

/// The bf16 heads (truncated values) of two fp32 numbers, `low` in the lower half.
__device__ inline std::uint32_t bf16_heads(float low, float high) {
  return ptx::prmt<0x7632>(__float_as_uint(low), __float_as_uint(high));
}

/// Tiles as operands A of m16n8k16, every number as bf16 hi + lo, which is exact enough (16 bits): hi of the
/// lower and the upper eight rows, then lo. The remainder is exact, because the tensor core takes hi off by
/// -I. Step by step over all tiles, so that their latencies overlap.
template <int tiles>
__device__ void split(std::uint32_t (&halves)[tiles][4], float (&x)[tiles][4], std::uint32_t minus_identity) {
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile) {
    halves[tile][0] = bf16_heads(x[tile][0], x[tile][1]);
    halves[tile][1] = bf16_heads(x[tile][2], x[tile][3]);
  }
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile)
    ptx::mma_sync_m16n8k8_f32_bf16_accumulate(x[tile], halves[tile][0], halves[tile][1], minus_identity);
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile) {
    halves[tile][2] = ptx::cvt_rn_bf16x2_f32(x[tile][0], x[tile][1]);
    halves[tile][3] = ptx::cvt_rn_bf16x2_f32(x[tile][2], x[tile][3]);
  }
}

/// b0-b2 of tiles: hi and lo lie side by side in k, so that one product with H8 above H8 sums both.
template <int tiles>
__device__ void eight_point_stage(float (&x)[tiles][4], const std::uint32_t (&h8)[2],
                                  std::uint32_t minus_identity) {
  std::uint32_t halves[tiles][4];
  split(halves, x, minus_identity);
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile)
    ptx::mma_sync_m16n8k16_f32_bf16(x[tile], halves[tile], h8);
}

}  // namespace fwht::rows
