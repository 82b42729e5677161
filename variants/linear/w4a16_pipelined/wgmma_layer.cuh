// The layer for many tokens and outputs on Hopper: the same weights, shares and sums as pipelined_kernel.cuh, multiplied by wgmma.
//
// Idea. A tile of 16 outputs is one warp's part of operand A of m64nNk16, so four row warps are a warpgroup. Unpacked weights
// stay in registers; tokens are operand B in shared memory, which every warp of the block reads: two stages of one step each.
//
// Bit card of a stage (N tokens x 128 k), a row of 128 bytes for each token and 64 k, rows of 8 tokens swizzled:
//   k bits      32 block(bit 5) | 8 t (bits 3-4) | 4 half (bit 2) | 2 u (bit 1) | e (bit 0)
//   in a row    32 bytes (2 block + half) | 16 u | 4 t | 2 e: row 8 u + 2 t + e of the multiply that word (block, half) makes
#pragma once

#include "common/ptx/bulk_copy.cuh"
#include "common/ptx/wgmma.cuh"
#include "variants/linear/w4a16_pipelined/pipelined_kernel.cuh"

namespace fwht::linear::pipelined {

/// A thread's part of a step of tokens on the way from global memory to a stage.
template <Form form>
struct TokenStage {
  static constexpr int kVectors = form.tokens * 16 / form.threads();
  static_assert(kVectors * form.threads() == form.tokens * 16, "every thread brings as many vectors");

  uint4 vectors[kVectors] = {};
  const std::byte* next[kVectors];
  int to[kVectors];  // of the first word, in bytes; -1: a token beyond m, zero from the start

  __device__ TokenStage(const Arguments& a, const Place<form>& place) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int vector = i * form.threads() + static_cast<int>(threadIdx.x);
      const int token = vector / 8 % form.tokens, block = vector / (8 * form.tokens), in_row = vector % 8;
      next[i] = static_cast<const std::byte*>(a.x) +
                (std::int64_t{token} * a.k + place.step * kStepK + block * 64 + in_row * 8) * 2;
      to[i] = token < a.m ? stage_word(form.tokens, token, block * 64 + in_row * 8) : -1;
    }
  }

  __device__ void load() {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (to[i] >= 0) vectors[i] = ptx::ld_global_keep(next[i]);
      next[i] += kStepK * 2;
    }
  }

  __device__ void store(std::byte* stage) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (to[i] < 0) continue;
      const std::uint32_t words[4] = {vectors[i].x, vectors[i].y, vectors[i].z, vectors[i].w};
#pragma unroll
      for (int pair = 0; pair < 4;
           ++pair)  // half and u: two bits of the row's vector, which the swizzle is over
        *reinterpret_cast<std::uint32_t*>(stage + (to[i] ^ (pair << 4))) = words[pair];
    }
  }
};

/// Tokens beyond m are zero in both stages.
template <Form form>
__device__ void clear_stages(std::byte* stages) {
  for (int i = static_cast<int>(threadIdx.x) * 16; i < 2 * form.stage_bytes_of_tokens();
       i += form.threads() * 16)
    *reinterpret_cast<uint4*>(stages + i) = {};
}

/// Operand B at `address`: K-major, swizzled over 128 bytes (PTX ISA, "Matrix Descriptor Format").
__device__ inline std::uint64_t token_descriptor(std::uint32_t address) {
  return std::uint64_t{(address & 0x3FFFFU) >> 4} | std::uint64_t{1} << 16 | std::uint64_t{1024 >> 4} << 32 |
         std::uint64_t{1} << 62;
}

/// sums += s (q - z) x over one step whose tokens are at `stage`.
template <Dtype dtype, int kScales, Form form>
__device__ void multiply_stage(Sums<1, form.tokens / 8>& sums, const WeightStep<kScales>& weights,
                               std::uint32_t stage, int lowest_zero) {
  constexpr int kBlocksOfScale = 4 / kScales;
#pragma unroll
  for (int group = 0; group < kScales; ++group) {
    const Zeros<dtype> zeros(weights.zeros[group], lowest_zero);
    float part[form.tokens / 2];
    std::uint32_t operand_a[2 * kBlocksOfScale][4];
#pragma unroll
    for (int word = 0; word < 2 * kBlocksOfScale; ++word)
      unpack_word(word_of(weights.words, group * kBlocksOfScale + word / 2, word % 2), zeros,
                  operand_a[word]);
    ptx::wgmma_fence();
#pragma unroll
    for (int word = 0; word < 2 * kBlocksOfScale; ++word) {
      const int block = group * kBlocksOfScale + word / 2;
      const std::uint32_t at = stage + block / 2 * (form.tokens * 128) + (block % 2 * 2 + word % 2) * 32;
      ptx::wgmma_m64k16_b_k_major<dtype, form.tokens>(part, operand_a[word], token_descriptor(at), word != 0);
    }
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    ptx::pin_accumulators(part);
    const float2 scale = half2_to_float2(weights.scales[group]);
#pragma unroll
    for (int e = 0; e < form.tokens / 2; ++e)
      sums[0][e / 4][e % 4] = fmaf(e % 4 < 2 ? scale.x : scale.y, part[e], sums[0][e / 4][e % 4]);
  }
}

/// As multiply_layer; row warps are whole warpgroups and do not share k inside a block.
template <Dtype dtype, int kScales, Form form>
__device__ void multiply_layer_wgmma(const Arguments& all) {
  static_assert(form.row_warps % 4 == 0 && form.k_warps == 1 && form.tiles_per_warp == 1);
  extern __shared__ __align__(16) float shared[];
  auto* stages = reinterpret_cast<std::byte*>(shared);
  stages += (1024 - ptx::shared_address(stages) % 1024) % 1024;
  constexpr int kStage = form.stage_bytes_of_tokens();
  const Arguments a = tokens_of_block<dtype, form.tokens>(all);
  const Place<form> place(a);
  const int steps = place.steps_end - place.step;
  WeightStream<kScales, form> stream(a, place);
  WeightStep<kScales> weights[form.ahead][1];
#pragma unroll
  for (int i = 0; i < form.ahead; ++i)
    if (i < steps) stream.load(weights[i]);

  if (a.m < form.tokens) {
    clear_stages<form>(stages);
    __syncthreads();
  }
  ptx::griddepcontrol_wait();
  TokenStage<form> x(a, place);
  if (steps > 0) {
    x.load();
    x.store(stages);
    if (steps > 1) x.load();
  }
  ptx::fence_proxy_async_shared();
  __syncthreads();

  Sums<1, form.tokens / 8> sums = {};
  for (int base = 0; base < steps; base += form.ahead) {
#pragma unroll
    for (int i = 0; i < form.ahead; ++i) {
      const int step = base + i;
      if (step < steps) {
        if (step + 1 < steps) {  // nobody reads the other stage since the last barrier
          x.store(stages + (step + 1) % 2 * kStage);
          ptx::fence_proxy_async_shared();
        }
        if (step + 2 < steps) x.load();
        multiply_stage<dtype, kScales, form>(sums, weights[i][0],
                                             ptx::shared_address(stages) + step % 2 * kStage, a.lowest_zero);
        if (step + form.ahead < steps) stream.load(weights[i]);
        __syncthreads();
      }
    }
  }
  ptx::griddepcontrol_launch_dependents();
  store_sums<dtype, form>(sums, shared, place, a);
}

}  // namespace fwht::linear::pipelined
