// The layer for many tokens on Hopper: the same weights, shares and sums as pipelined_kernel.cuh, multiplied
// by wgmma.
//
// Idea. A tile of 16 outputs is one warp's part of operand A of m64nNk16, so four row warps are a warpgroup.
// Unpacked weights stay in registers; tokens are operand B in shared memory, once for all row warps of a
// block. A kernel in front (stage_tokens) has written them as they lie there, so bulk copies bring them, some
// steps ahead, and no warp waits for another one's weights.
//
// Bit card of a stage (N tokens x 128 k), a row of 128 bytes for each token and 64 k, rows of 8 tokens
// swizzled:
//   k bits      32 block(bit 5) | 8 t (bits 3-4) | 4 half (bit 2) | 2 u (bit 1) | e (bit 0)
//   in a row    32 bytes (2 block + half) | 16 u | 4 t | 2 e: row 8 u + 2 t + e of the multiply that word
//               (block, half) makes
#pragma once

#include "common/device/ptx/bulk_copy.cuh"
#include "common/device/ptx/wgmma.cuh"
#include "common/device/ptx/wgmma_descriptor.hpp"
#include "variants/linear/w4a16_pipelined/pipelined_kernel.cuh"

namespace fwht::linear::pipelined {

/// One share's stages of tokens and their barriers in shared memory; all numbers are the same for a whole
/// warp.
template <Form form>
struct TokenStages {
  static constexpr int kBytes = form.stage_bytes_of_tokens(), kAll = form.k_warps * form.x_stages;
  std::uint32_t first, barriers;

  __device__ TokenStages(const void* shared, int share) {
    const std::uint32_t base = (ptx::shared_address(shared) + 1023) / 1024 * 1024;
    first = base + share * (form.x_stages * kBytes);
    barriers = base + kAll * kBytes + share * (form.x_stages * 8);
  }
  __device__ std::uint32_t stage(int i) const { return first + i * kBytes; }
  /// Tokens are there; every warp has used them.
  __device__ std::uint32_t full(int i) const { return barriers + i * 8; }
  __device__ std::uint32_t used(int i) const { return barriers + (kAll + i) * 8; }

  /// By one thread of the share.
  __device__ void begin() const {
    for (int i = 0; i < form.x_stages; ++i) {
      ptx::mbarrier_init(full(i), 1);
      ptx::mbarrier_init(used(i), form.row_warps);
    }
    ptx::fence_mbarrier_init();
  }
  __device__ void bring(int i, const std::byte* from) const {
    ptx::mbarrier_arrive_expect_tx(full(i), kBytes);
    ptx::bulk_copy_global_to_shared(stage(i), from, kBytes, full(i));
  }
};

/// A place in a ring of `places` stages, and the phase that a step there completes. Not the kit's, whose
/// `advance` compiles to other code here.
template <int places>
struct RingPlace {
  int place = 0;
  std::uint32_t phase = 0;
  __device__ void advance() {
    const bool again = place + 1 == places;
    place = again ? 0 : place + 1;
    phase ^= again ? 1U : 0U;
  }
};

/// Operand B at `address`: K-major, rows of 8 tokens, swizzled over 128 bytes.
__device__ inline std::uint64_t token_descriptor(std::uint32_t address) {
  return ptx::matrix_descriptor(address, 16, 1024, ptx::Swizzle::bytes_128);
}

/// sums += s (q - z) x over one step whose tokens are at `stage`, once full(); unpacked() when the words are
/// needed no longer.
template <Launch launch, class Full, class Unpacked>
__device__ void multiply_stage(Sums<launch>& sums, const WeightStep<launch.scales>& weights,
                               std::uint32_t stage, int lowest_zero, const Full& full,
                               const Unpacked& unpacked) {
  constexpr Form form = launch.form;
  constexpr Dtype dtype = launch.dtype;
  constexpr int kScales = launch.scales;
  // Half of a group's words are unpacked while the other half is multiplied.
  constexpr int kWordsOfScale = 8 / kScales, kBatch = kWordsOfScale < 4 ? kWordsOfScale : 4;
  const std::uint64_t tokens = token_descriptor(__shfl_sync(~0U, stage, 0));
  std::uint32_t scales[kScales];
#pragma unroll
  for (int group = 0; group < kScales; ++group)
    scales[group] = weights.scales[group];
#pragma unroll
  for (int group = 0; group < kScales; ++group) {
    const Zeros<dtype> zeros(weights.zeros[group], lowest_zero);
    float part[form.tokens / 2];
    std::uint32_t operand_a[kWordsOfScale][4];
#pragma unroll
    for (int first = 0; first < kWordsOfScale; first += kBatch) {
#pragma unroll
      for (int i = first; i < first + kBatch; ++i) {
        const int word = group * kWordsOfScale + i;
        unpack_word(word_of(weights.words, word / 2, word % 2), zeros, operand_a[i]);
      }
      if (group == 0 && first == 0) full();
      if (group == kScales - 1 && first + kBatch == kWordsOfScale) unpacked();
      ptx::wgmma_fence();
#pragma unroll
      for (int i = first; i < first + kBatch; ++i) {
        const int word = group * kWordsOfScale + i, block = word / 2;
        const int at = block / 2 * (form.tokens * 128) + (block % 2 * 2 + word % 2) * 32;
        ptx::wgmma_m64k16_b_k_major<dtype, form.tokens>(part, operand_a[i], tokens + at / 16, i != 0);
      }
      ptx::wgmma_commit_group();
    }
    ptx::wgmma_wait_group<0>();
    ptx::pin_accumulators(part);
    const float2 scale = half2_to_float2(scales[group]);
#pragma unroll
    for (int e = 0; e < form.tokens / 2; ++e)
      sums[0][e / 4][e % 4] = fmaf(e % 4 < 2 ? scale.x : scale.y, part[e], sums[0][e / 4][e % 4]);
  }
}

/// As multiply_layer; row warps are whole warpgroups, and all.x is what stage_tokens wrote.
template <Launch launch>
__device__ void multiply_layer_wgmma(const Arguments& all) {
  constexpr Form form = launch.form;
  static_assert(form.row_warps % 4 == 0 && form.tiles_per_warp == 1 && form.x_stages > 2);
  extern __shared__ __align__(16) float shared[];
  const Arguments a = tokens_of_block<launch.dtype, form.tokens>(all);
  const Place<form> place(a);
  const int steps = place.steps_end - place.step;
  WeightStream<launch.scales, form> stream(a, place);
  WeightStep<launch.scales> weights[form.ahead][1];
#pragma unroll
  for (int i = 0; i < form.ahead; ++i)
    if (i < steps) stream.load(weights[i]);

  const TokenStages<form> stages(shared, place.k_warp);
  const bool brings = place.row_warp == 0 && place.lane == 0;
  const auto* x = static_cast<const std::byte*>(a.x) + std::int64_t{place.step} * stages.kBytes;
  if (brings) {
    stages.begin();
    ptx::griddepcontrol_wait();
    for (int i = 0; i < min(form.x_stages, steps); ++i)
      stages.bring(i, x + i * stages.kBytes);
  }
  __syncthreads();

  Sums<launch> sums = {};
  RingPlace<form.x_stages> at, free;
  for (int base = 0; base < steps; base += form.ahead) {
#pragma unroll
    for (int i = 0; i < form.ahead; ++i) {
      const int step = base + i;
      if (step < steps) {
        multiply_stage<launch>(
            sums, weights[i][0], stages.stage(at.place), a.lowest_zero,
            [&] { ptx::mbarrier_wait_parity(stages.full(at.place), at.phase); },
            [&] {
              if (step + form.ahead < steps) stream.load(weights[i]);
            });
        if (place.lane == 0) ptx::mbarrier_arrive(stages.used(at.place));
        at.advance();
        if (step > 0) {  // the stage before this one is asked for again once the other warps have left it
          const int again = step - 1 + form.x_stages;
          if (brings && again < steps) {
            ptx::mbarrier_wait_parity(stages.used(free.place), free.phase);
            stages.bring(free.place, x + std::int64_t{again} * stages.kBytes);
          }
          free.advance();
        }
      }
    }
  }
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  __syncthreads();  // the sums take the place of the stages
  store_sums<launch>(sums, shared, place, a);
}

}  // namespace fwht::linear::pipelined
