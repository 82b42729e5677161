// wgmma: the arithmetic that all its kernels share: the exact stage on raw data, the butterflies between
// registers, and the last stage on the tensor core with fp32 as hi + lo. wgmma.cu has the bit card.
#pragma once

#include <cstdint>

#include "common/device/ptx/bulk_copy.cuh"
#include "common/device/ptx/fragments.hpp"
#include "common/device/ptx/mbarrier.cuh"
#include "common/device/ptx/mma.cuh"
#include "common/device/ptx/wgmma.cuh"
#include "common/device/ptx/wgmma_descriptor.hpp"
#include "common/device/storage.cuh"
#include "common/host/bits.hpp"
#include "variants/kit/split_stage.cuh"
#include "variants/wgmma/wgmma_kernels.hpp"

namespace fwht::wgmma {

constexpr std::uint32_t kBothSigns = 0x80008000;

/// The constants of stage 3: H16 as the B operand of m16n8k16 (two tiles of 8 columns), times the scale where
/// it goes there, and -I8 for m16n8k8, which subtracts the bf16 head of an accumulator from it exactly.
/// `held`: in registers, for many rows. Otherwise the compiler works them out anew for every row, and copies
/// equal words to where an operand wants its pair.
template <Scaling scaling, bool held>
struct Stage3Constants {
  std::uint32_t hadamard[2][2], minus_identity;
  float scale;  // of sums that have not seen `hadamard`

  __device__ Stage3Constants(int lane, float factor) : scale(factor) {
    const std::uint32_t one = scaling == Scaling::constants ? __float_as_uint(factor) >> 16 : ptx::kBf16One;
    const std::uint32_t block = ptx::sylvester_fragment(one, lane);
    hadamard[0][0] = hadamard[0][1] = hadamard[1][0] = block;
    hadamard[1][1] = block ^ kBothSigns;
    minus_identity = ptx::minus_identity_fragment(lane);
    if constexpr (held) {
      asm volatile("" : "+r"(minus_identity));
#pragma unroll
      for (int i = 0; i < 4; ++i)
        asm volatile("" : "+r"(hadamard[i >> 1][i & 1]));
    }
  }
  __device__ float last_factor() const {
    return scaling == Scaling::constants ? 1.0F : scale;
  }
};

/// The A operand in registers: fragments of all k steps. Upper bits of m are the warp (and warpgroup): they
/// only flip whole fragments. Of the four 8x8 blocks of a fragment one is negative: that of rows 8-15 and
/// columns 8-15, unless the rows are wanted in another order or with other signs.
template <Dtype dtype, int k_steps>
struct Fragments {
  std::uint32_t a[k_steps][4];

  __device__ Fragments(int lane, int upper_m, int negative = 3) {
    const std::uint32_t block = ptx::sylvester_fragment(rows::one<dtype>(), lane);
#pragma unroll
    for (int s = 0; s < k_steps; ++s) {
      const std::uint32_t flip = parity(upper_m & s) ? kBothSigns : 0U;
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        a[s][r] = block ^ flip ^ (r == negative ? kBothSigns : 0U);
        // Without this the compiler recomputes fragments between the wgmmas and serialises them (C7520).
        asm volatile("" : "+r"(a[s][r]));
      }
    }
  }
  __device__ const std::uint32_t (&operand(int s) const)[4] {
    return a[s];
  }
};

/// The A operand as a table in shared memory, which spares registers: the matrix of order 64, and for rows of
/// several warpgroups (`parts`) its negative behind it, which upper bits of k ask for.
template <Dtype dtype, int parts, int threads>
struct HadamardTable {
  std::uint32_t address;
  int part;  // upper bits of m: the warpgroup of the row

  /// All `threads` threads of the block fill it together; a barrier must follow.
  __device__ HadamardTable(std::byte* table, int upper_m)
      : address(ptx::shared_address(table)), part(parts == 1 ? 0 : upper_m >> 2) {
    constexpr int kTables = parts == 1 ? 1 : 2;
    for (int i = static_cast<int>(threadIdx.x); i < kTables * 512; i += threads) {
      const int m = i & 63, upper_k = i >> 6 & 7;
      const std::uint32_t flip = (parity(m >> 3 & upper_k) ^ (i >> 9)) ? kBothSigns : 0U;
      std::uint32_t words[4];
#pragma unroll
      for (int t = 0; t < 4; ++t)
        words[t] = ptx::sylvester_fragment(rows::one<dtype>(), 4 * (m & 7) + t) ^ flip;
      *reinterpret_cast<uint4*>(table + (i >> 9) * kTableBytes + table_offset(m, 8 * upper_k)) =
          make_uint4(words[0], words[1], words[2], words[3]);
    }
    ptx::fence_proxy_async_shared();
  }
  __device__ std::uint64_t operand(int s) const {
    const int negated = parity(part & (s >> 2)) ? kTableBytes : 0;
    return ptx::matrix_descriptor(address + negated + (s & 3) * kTableStepBytes, kTableLeadingBytes,
                                  kTableStrideBytes);
  }
};

/// The A operand of a launch, see Launch::table.
template <Dtype dtype, Launch launch>
__device__ auto hadamard_operand([[maybe_unused]] std::byte* table, [[maybe_unused]] int lane, int upper_m) {
  if constexpr (launch.table) {
    return HadamardTable<dtype, launch.parts(), launch.threads()>(table, upper_m);
  } else {
    return Fragments<dtype, launch.tile().k_steps()>(lane, upper_m);
  }
}

/// Stage 1 for a row at shared address `row`; before_step(s) waits for what step s reads.
template <Dtype dtype, Launch launch, class Hadamard, class Before>
__device__ void exact_stage(float (&d)[launch.tile().columns() / 2], const Hadamard& hadamard,
                            std::uint32_t row, Before before_step) {
  constexpr Tile tile = launch.tile();
#pragma unroll
  for (int s = 0; s < tile.k_steps(); ++s) {
    before_step(s);
    ptx::wgmma_m64k16<dtype, tile.columns()>(
        d, hadamard.operand(s),
        ptx::matrix_descriptor(row + s * tile.k_step_bytes(), tile.leading_bytes(), tile.stride_bytes()),
        s > 0);
  }
  ptx::wgmma_commit_group();
}

/// Stage 3 on the tensor core for `chains` column-tile pairs at once, step by step, so that their latencies
/// overlap: x = hi + lo exactly enough (16 bits), both through the same H16.
template <int chains, class Constants>
__device__ void tensor_pairs(float (&x)[chains][2][4], const Constants& constants) {
  std::uint32_t hi[chains][4], lo[chains][4];
#pragma unroll
  for (int c = 0; c < chains; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      hi[c][i] = rows::bf16_heads(x[c][i >> 1][2 * (i & 1)], x[c][i >> 1][2 * (i & 1) + 1]);
  }
#pragma unroll
  for (int c = 0; c < chains; ++c) {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      ptx::mma_sync_m16n8k8_f32_bf16_accumulate(x[c][tile], hi[c][2 * tile], hi[c][2 * tile + 1],
                                                constants.minus_identity);
    }
  }
#pragma unroll
  for (int c = 0; c < chains; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      lo[c][i] = ptx::cvt_rn_bf16x2_f32(x[c][i >> 1][2 * (i & 1)], x[c][i >> 1][2 * (i & 1) + 1]);
  }
#pragma unroll
  for (int c = 0; c < chains; ++c) {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile)
      ptx::mma_sync_m16n8k16_f32_bf16(x[c][tile], hi[c], constants.hadamard[tile]);
  }
#pragma unroll
  for (int c = 0; c < chains; ++c) {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile)
      ptx::mma_sync_m16n8k16_f32_bf16_accumulate(x[c][tile], lo[c], constants.hadamard[tile]);
  }
}

/// b0-b2 of a tile by plain sums, for rows that hold an Inf or a NaN: b0 between registers, b1 and b2 between
/// lanes.
__device__ inline void plain_tile(float (&d)[4], int lane) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const float a = d[i], b = d[i + 1];
    d[i] = a + b;
    d[i + 1] = a - b;
  }
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const float sign = lane & bit ? -1.0F : 1.0F;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      d[i] = fmaf(sign, d[i], __shfl_xor_sync(0xFFFFFFFFU, d[i], bit));
  }
}

template <Dtype dtype>
__device__ std::uint32_t pack_pair(float x, float y) {
  const auto pair = Storage<dtype>::from_float2(x, y);
  return reinterpret_cast<const std::uint32_t&>(pair);
}

/// The words of a finished column-tile pair: bit 0 of the index is the odd tile (b6), bit 1 the upper eight
/// rows. A scale that is no power of two comes last: integers stay integers through the hi + lo pairs, and
/// subnormal data does not sink below the range of bf16 before it is rounded.
template <Dtype dtype>
__device__ void scaled_words(std::uint32_t (&words)[4], const float (&x)[2][4], float scale) {
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const float* pair = x[q & 1] + 2 * (q >> 1);
    words[q] = pack_pair<dtype>(pair[0] * scale, pair[1] * scale);
  }
}

/// Whether nothing in a warp's 16 rows of D is Inf or NaN: after stage 2 every register of the first tile
/// pair depends on all columns of its lane group.
template <int registers>
__device__ bool all_finite(const float (&d)[registers]) {
  bool finite = true;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    finite &= isfinite(d[i]);
  return __all_sync(0xFFFFFFFFU, finite);
}

/// Stage 3 of one warp's 16 rows of D, `most_chains` column-tile pairs at once. `writer` takes each
/// of them in turn.
template <Dtype dtype, int most_chains, bool joined = false, int registers, class Constants, class Writer>
__device__ void finish_pairs(float (&d)[registers], bool finite, const Constants& constants, int lane,
                             const Writer& writer) {
  constexpr int kPairs = registers / 8, kChains = kPairs < most_chains ? kPairs : most_chains;
  // Two loops, not a choice inside one: the tensor chains of several pairs must stay in one basic block to
  // overlap.
  if (finite) {
#pragma unroll
    for (int pair = 0; pair < kPairs; pair += kChains) {
      float x[kChains][2][4];
#pragma unroll
      for (int i = 0; i < 8 * kChains; ++i)
        x[i / 8][i / 4 % 2][i % 4] = d[8 * pair + i];
      if constexpr (joined) {
        // mma.sync and fp32 additions overlap only in part: two products less are worth eight additions for
        // b6.
        rows::eight_point_stage(reinterpret_cast<float(&)[2 * kChains][4]>(x), constants.hadamard[0],
                                constants.minus_identity);
      } else {
        tensor_pairs(x, constants);
      }
#pragma unroll
      for (int c = 0; c < kChains; ++c) {
        std::uint32_t words[4];
        scaled_words<dtype>(words, x[c], constants.last_factor());
        writer.write(pair + c, words);
      }
    }
  } else {
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      float x[2][4];
#pragma unroll
      for (int i = 0; i < 8; ++i)
        x[i / 4][i % 4] = d[8 * pair + i];
      if (!joined) rows::butterfly(x[0], x[1]);  // b6
      plain_tile(x[0], lane);
      plain_tile(x[1], lane);
      std::uint32_t words[4];
      scaled_words<dtype>(words, x, constants.scale);
      writer.write(pair, words);
    }
  }
}

}  // namespace fwht::wgmma
