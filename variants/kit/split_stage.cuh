// What kernels on tensor cores do to a warp's fp32 accumulators behind the exact stage. Tiles are
// 16 x 8 accumulators of mma.sync or wgmma: four registers a thread, b0 in the register, b1-b2 in lane bits
// 0-1.
#pragma once

#include <cstdint>

#include "common/contract/dtype.hpp"
#include "common/device/ptx/fragments.hpp"
#include "common/device/ptx/mma.cuh"
#include "common/device/ptx/mma_accumulate.cuh"
#include "common/device/ptx/shared.cuh"
#include "variants/kit/matrix_rows.hpp"

namespace fwht::rows {

/// 1.0 in the storage format.
template <Dtype dtype>
constexpr std::uint32_t one() {
  return dtype == Dtype::f16 ? 0x3C00 : ptx::kBf16One;
}

/// In both halves of a register.
template <Dtype dtype>
constexpr std::uint32_t two_ones() {
  return one<dtype>() * 0x10001U;
}

/// d += a b on operands in the storage type, as the exact stage does.
template <Dtype dtype>
__device__ void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  if constexpr (dtype == Dtype::f16) {
    ptx::mma_sync_m16n8k16_f32_f16_accumulate(d, a, b);
  } else {
    ptx::mma_sync_m16n8k16_f32_bf16_accumulate(d, a, b);
  }
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

/// Constants of the products of stage 2.
struct Stage2Constants {
  std::uint32_t hadamard[2], minus_identity;

  __device__ explicit Stage2Constants(int lane) : Stage2Constants(lane, lane) {}
  /// With the columns of the result in another order: `of_lane` is the lane whose fragment this one takes.
  __device__ Stage2Constants(int lane, int of_lane)
      : hadamard{ptx::sylvester_fragment(ptx::kBf16One, of_lane), 0},
        minus_identity(ptx::minus_identity_fragment(lane)) {
    asm volatile("" : "+r"(hadamard[0]), "+r"(minus_identity));
    hadamard[1] = hadamard[0];
  }
};

template <Dtype dtype>
__device__ std::uint32_t rounded_pair(float low, float high) {
  return dtype == Dtype::f16 ? ptx::cvt_rn_f16x2_f32(low, high) : ptx::cvt_rn_bf16x2_f32(low, high);
}

/// Scale and the one rounding, of two column tiles.
template <Dtype dtype, class Exit>
__device__ void put(Exit& exit, int tile, const float (&x)[4], const float (&y)[4], float scale) {
  const std::uint32_t words[4] = {
      rounded_pair<dtype>(x[0] * scale, x[1] * scale), rounded_pair<dtype>(x[2] * scale, x[3] * scale),
      rounded_pair<dtype>(y[0] * scale, y[1] * scale), rounded_pair<dtype>(y[2] * scale, y[3] * scale)};
  exit.put(tile, words);
}

/// The end of stage 2: b0-b2, up to four column tiles at once so that their latencies overlap.
template <Dtype dtype, class Exit, int registers>
__device__ void finish(float (&d)[registers], const Stage2Constants& constants, float scale, Exit& exit) {
  static_assert(registers % 8 == 0);
  constexpr int kTogether = registers % 16 == 0 ? 4 : 2;
#pragma unroll
  for (int tile = 0; tile < registers / 4; tile += kTogether) {
    float x[kTogether][4];
#pragma unroll
    for (int i = 0; i < 4 * kTogether; ++i)
      x[i / 4][i % 4] = d[4 * tile + i];
    eight_point_stage(x, constants.hadamard, constants.minus_identity);
#pragma unroll
    for (int i = 0; i < kTogether; i += 2)
      put<dtype>(exit, tile + i, x[i], x[i + 1], scale);
  }
}

/// So many words of a table, that of a second matrix, to shared address `to`, by `threads` threads, of which
/// this is number `thread`. Eight loads are on their way at once, so that few rows wait for memory once.
template <int words>
__device__ void load_table(const std::uint32_t* from, std::uint32_t to, int thread, int threads) {
  constexpr int kAtOnce = 8;
  static_assert(words % 4 == 0);
#pragma unroll 1
  for (int first = 4 * thread; first < words; first += 4 * kAtOnce * threads) {
    uint4 loaded[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = first + 4 * i * threads;
      if (at < words) loaded[i] = __ldg(reinterpret_cast<const uint4*>(from + at));
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = first + 4 * i * threads;
      if (at < words) ptx::st_shared_v4(to + 4 * at, {loaded[i].x, loaded[i].y, loaded[i].z, loaded[i].w});
    }
  }
}

/// The same with a second matrix, whose words lie at shared address `table`: every group of `second` columns
/// is an operand A, hi and lo side by side in k. `together` groups at once share the words.
template <Dtype dtype, int second, int together, class Exit, int registers>
__device__ void finish_by_second(float (&d)[registers], std::uint32_t table, const Stage2Constants& constants,
                                 float scale, Exit& exit, int lane) {
  constexpr int kTiles = second / 8, kGroups = registers / 4 / kTiles;
  static_assert(kGroups % together == 0);
#pragma unroll
  for (int first = 0; first < kGroups * kTiles; first += together * kTiles) {
    std::uint32_t halves[together * kTiles][4];
    float x[together * kTiles][4];
#pragma unroll
    for (int i = 0; i < 4 * together * kTiles; ++i)
      x[i / 4][i % 4] = d[4 * first + i];
    split(halves, x, constants.minus_identity);
#pragma unroll
    for (int to = 0; to < kTiles; ++to) {
      std::uint32_t words[4 * second_quads(second)];
#pragma unroll
      for (int quad = 0; quad < second_quads(second); ++quad) {
        ptx::ld_shared_v4(reinterpret_cast<std::uint32_t(&)[4]>(words[4 * quad]),
                          table + 4 * second_word_index(second, to, 4 * quad, lane));
      }
#pragma unroll
      for (int from = 0; from < kTiles; ++from) {
        const std::uint32_t b[2] = {words[from], words[from]};  // for hi and for lo
#pragma unroll
        for (int g = 0; g < together; ++g) {
          float(&sums)[4] = reinterpret_cast<float(&)[4]>(d[4 * (first + g * kTiles + to)]);
          if (from == 0) {
            ptx::mma_sync_m16n8k16_f32_bf16(sums, halves[g * kTiles], b);
          } else {
            ptx::mma_sync_m16n8k16_f32_bf16_accumulate(sums, halves[g * kTiles + from], b);
          }
        }
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < registers / 4; tile += 2)
    put<dtype>(exit, tile, reinterpret_cast<float(&)[4]>(d[4 * tile]),
               reinterpret_cast<float(&)[4]>(d[4 * tile + 4]), scale);
}

}  // namespace fwht::rows
