// y[m][n] = x[m][k] W, W = s (q - z) in 4 bits, for few tokens.
//
// Idea. The weights are operand A of mma.sync.m16n8k16 (16 outputs), tokens the 8 columns of operand B: m <= 8 costs one
// multiply and nothing is padded to 16. A block owns its outputs and all of k, which its warps share, so no sum leaves it.
// Weights stream through registers, some steps ahead; the first ones before the wait for the kernel that makes x. They are
// unpacked to the exact integers q - z, and the scale multiplies the fp32 sum of a group: one rounding, in a fixed order.
//
// Bit card of a step (16 outputs x 128 k), g = lane / 4, t = lane % 4:
//   operand A   rows g, g + 8    k 32 block + 8 t + 4 word + {0 1 | 2 3}    4 bits each, one word a multiply
//   operand B   token g          k 32 block + 8 t + 0..7                    16 bytes, two multiplies
//   result      rows g, g + 8    tokens 2 t, 2 t + 1
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/dtype.hpp"
#include "common/ptx/global.cuh"
#include "common/ptx/griddepcontrol.cuh"
#include "common/ptx/mma.cuh"
#include "common/ptx/mma_accumulate.cuh"
#include "common/storage.cuh"
#include "variants/linear/unpack.cuh"
#include "variants/linear/w4a16_pipelined/layout.hpp"

namespace fwht::linear::pipelined {

struct Arguments {
  const std::byte* weights;  // as Layout says
  const void* x;
  void* y;
  Layout layout;
  int m, n, k;
  int lowest_zero;  // what a stored zero point of 0 stands for
};

/// The same layer for the tokens of one block.
template <Dtype dtype, int kTokens>
__device__ Arguments tokens_of_block(const Arguments& all) {
  using Element = typename Storage<dtype>::Element;
  const int first = static_cast<int>(blockIdx.y) * kTokens;
  Arguments a = all;
  a.x = static_cast<const Element*>(all.x) + std::int64_t{first} * all.k;
  a.y = static_cast<Element*>(all.y) + std::int64_t{first} * all.n;
  a.m = min(all.m - first, kTokens);
  return a;
}

/// The tiles and the steps of one warp.
template <int kForm>
struct Place {
  static constexpr Form form = kForms[kForm];

  int lane, g, t, row_warp, k_warp, tiles;  // tiles of this warp: fewer behind the last one
  std::int64_t tile;
  int step, steps_end;

  __device__ explicit Place(const Arguments& a) {
    const int warp = static_cast<int>(threadIdx.x >> 5);
    lane = static_cast<int>(threadIdx.x & 31);
    g = lane >> 2;
    t = lane & 3;
    row_warp = warp % form.row_warps;
    k_warp = warp / form.row_warps;
    tile = std::int64_t{blockIdx.x} * form.tiles() + row_warp * form.tiles_per_warp;
    const std::int64_t left = a.layout.tiles - tile;
    tiles = left < form.tiles_per_warp ? static_cast<int>(left) : form.tiles_per_warp;
    step = static_cast<int>(first_step(a.layout.steps, form.k_warps, k_warp));
    steps_end = tiles > 0 ? static_cast<int>(first_step(a.layout.steps, form.k_warps, k_warp + 1)) : step;
  }
};

/// A step's words, scales and zero points of one tile, as a lane holds them.
template <int kScales>
struct WeightStep {
  uint4 words[2];
  std::uint32_t scales[kScales], zeros[kScales];
};

/// Where a lane reads the next step of its warp's tiles. The places run, so that a load costs little address arithmetic.
template <int kScales, int kTiles>
struct WeightStream {
  const std::byte* words;
  const std::uint32_t* scales;  // of the whole layer
  const std::uint8_t* zeros;
  std::uint32_t row;                // of scales and zeros
  std::uint32_t next_tile[kTiles];  // steps between the warp's first tile and this one

  template <class PlaceOfWarp>
  __device__ WeightStream(const Arguments& a, const PlaceOfWarp& place) {
    const std::int64_t first = place.tile * a.layout.steps + place.step;
    words = a.weights + first * kStepBytes + place.lane * 16;
    scales = reinterpret_cast<const std::uint32_t*>(a.weights + a.layout.scales_at());
    zeros = reinterpret_cast<const std::uint8_t*>(a.weights + a.layout.zeros_at());
    row = static_cast<std::uint32_t>(first * 8 + place.g) * kScales;
#pragma unroll
    for (int r = 0; r < kTiles;
         ++r)  // where a layer ends with half a pair, its last tile stands in for the other
      next_tile[r] = static_cast<std::uint32_t>((r < place.tiles ? r : place.tiles - 1) * a.layout.steps);
  }

  __device__ void load(WeightStep<kScales> (&to)[kTiles]) {
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
      const std::uint32_t tile = r == 0 ? 0 : next_tile[r];
      const std::byte* at = words + std::size_t{tile} * kStepBytes;
      to[r].words[0] = ptx::ld_global_stream(at);
      to[r].words[1] = ptx::ld_global_stream(at + 512);
#pragma unroll
      for (int s = 0; s < kScales; ++s) {
        to[r].scales[s] = __ldg(scales + (row + tile * (8 * kScales) + s));
        to[r].zeros[s] = __ldg(zeros + (row + tile * (8 * kScales) + s));
      }
    }
    words += kStepBytes;
    row += 8 * kScales;
  }
};

/// Smaller groups need more registers than four blocks of 256 threads have.
constexpr int blocks_per_sm(const Form& form, int scales) {
  return scales > 1 && form.blocks_per_sm > 1 ? form.blocks_per_sm - 1 : form.blocks_per_sm;
}

template <int kTiles, int kColumns>
using Sums = float[kTiles][kColumns][4];

/// Operand B of a step: for each eight tokens and block of 32 k eight numbers of this lane's token. A running pointer each.
template <int kColumns>
struct Tokens {
  uint4 pieces[kColumns][4] = {};
  const std::byte* next[kColumns];
  bool there[kColumns];  // tokens beyond m stay zero

  template <class PlaceOfWarp>
  __device__ Tokens(const Arguments& a, const PlaceOfWarp& place) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int token = 8 * j + place.g;
      there[j] = token < a.m;
      next[j] = static_cast<const std::byte*>(a.x) +
                (std::int64_t{token} * a.k + place.step * kStepK + place.t * 8) * 2;
    }
  }

  __device__ void load(int block, bool wanted) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
      if (there[j] && wanted) pieces[j][block] = ptx::ld_global_keep(next[j] + block * 64);
  }
  /// To the next step.
  __device__ void advance() {
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
      next[j] += kStepK * 2;
  }
};

/// sums += s (q - z) x over one step; the tokens of the next step take the place of those that are used.
template <Dtype dtype, int kScales, int kTiles, int kColumns>
__device__ void multiply_step(Sums<kTiles, kColumns>& sums, const WeightStep<kScales> (&weights)[kTiles],
                              Tokens<kColumns>& x, int lowest_zero, bool more) {
  constexpr int kBlocksOfScale = 4 / kScales;
  Sums<kTiles, kColumns> part;
  Zeros<dtype> zeros[kTiles];
#pragma unroll
  for (int block = 0; block < 4; ++block) {  // 32 k each
    const int group = block / kBlocksOfScale;
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
      if (block % kBlocksOfScale == 0) {
        zeros[r] = Zeros<dtype>(weights[r].zeros[group], lowest_zero);
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
          part[r][j][0] = part[r][j][1] = part[r][j][2] = part[r][j][3] = 0.0F;
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4& words = weights[r].words[block / 2];
        const std::uint32_t word =
            block % 2 == 0 ? (half == 0 ? words.x : words.y) : (half == 0 ? words.z : words.w);
        std::uint32_t operand_a[4];
        unpack_word(word, zeros[r], operand_a);
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          const uint4& piece = x.pieces[j][block];
          const std::uint32_t operand_b[2] = {half == 0 ? piece.x : piece.z, half == 0 ? piece.y : piece.w};
          if constexpr (dtype == Dtype::f16)
            ptx::mma_sync_m16n8k16_f32_f16_accumulate(part[r][j], operand_a, operand_b);
          if constexpr (dtype == Dtype::bf16)
            ptx::mma_sync_m16n8k16_f32_bf16_accumulate(part[r][j], operand_a, operand_b);
        }
      }
      if (block % kBlocksOfScale == kBlocksOfScale - 1) {
        const float2 scale = half2_to_float2(weights[r].scales[group]);
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            sums[r][j][e] = fmaf(e < 2 ? scale.x : scale.y, part[r][j][e], sums[r][j][e]);
      }
    }
    x.load(block, more);
  }
  x.advance();
}

/// The shares of k added in order, rounded once.
template <Dtype dtype, int kForm, int kTiles, int kColumns>
__device__ void store_sums(const Sums<kTiles, kColumns>& sums, float* shared, const Place<kForm>& place,
                           const Arguments& a) {
  using Pair = typename Storage<dtype>::Pair;
  constexpr Form form = kForms[kForm];
  constexpr int kPitch = form.sums_pitch(), kRows = form.tiles() * kTileOutputs;
#pragma unroll
  for (int r = 0; r < kTiles; ++r)
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      float* to = shared + (place.k_warp * form.tokens + 8 * j + 2 * place.t) * kPitch +
                  (place.row_warp * kTiles + r) * kTileOutputs + place.g;
      to[0] = sums[r][j][0];
      to[kPitch] = sums[r][j][1];
      to[8] = sums[r][j][2];
      to[kPitch + 8] = sums[r][j][3];
    }
  __syncthreads();
  const std::int64_t first = std::int64_t{blockIdx.x} * kRows;
  auto* y = static_cast<typename Storage<dtype>::Element*>(a.y);
  for (int i = static_cast<int>(threadIdx.x); i < a.m * (kRows / 2); i += form.threads()) {
    const int token = i / (kRows / 2), row = i % (kRows / 2) * 2;
    if (first + row >= a.n) continue;
    float2 sum = {0.0F, 0.0F};
#pragma unroll
    for (int share = 0; share < form.k_warps; ++share) {
      const float2 more =
          *reinterpret_cast<const float2*>(shared + (share * form.tokens + token) * kPitch + row);
      sum.x += more.x;
      sum.y += more.y;
    }
    *reinterpret_cast<Pair*>(y + std::int64_t{token} * a.n + first + row) =
        Storage<dtype>::from_float2(sum.x, sum.y);
  }
}

/// kScales: groups in 128 k; kForm: of kForms. A grid of one block for every form.tiles() tiles and
/// form.tokens tokens.
template <Dtype dtype, int kScales, int kForm>
__global__ void __launch_bounds__(kForms[kForm].threads(), blocks_per_sm(kForms[kForm], kScales))
    pipelined(const __grid_constant__ Arguments all) {
  constexpr Form form = kForms[kForm];
  constexpr int kTiles = form.tiles_per_warp, kColumns = form.tokens / 8;
  extern __shared__ __align__(16) float shared[];
  const Arguments a = tokens_of_block<dtype, form.tokens>(all);
  const Place<kForm> place(a);
  WeightStream<kScales, kTiles> stream(a, place);
  WeightStep<kScales> weights[form.ahead][kTiles];
#pragma unroll
  for (int i = 0; i < form.ahead; ++i)
    if (place.step + i < place.steps_end)
      stream.load(weights[i]);  // weights depend on no kernel before this one

  ptx::griddepcontrol_wait();
  Tokens<kColumns> x(a, place);
#pragma unroll
  for (int block = 0; block < 4; ++block)
    x.load(block, place.step < place.steps_end);
  x.advance();

  Sums<kTiles, kColumns> sums = {};
  for (int base = place.step; base < place.steps_end; base += form.ahead) {
#pragma unroll
    for (int i = 0; i < form.ahead; ++i) {
      const int step = base + i;
      if (step < place.steps_end) {
        multiply_step<dtype, kScales, kTiles, kColumns>(sums, weights[i], x, a.lowest_zero,
                                                        step + 1 < place.steps_end);
        if (step + form.ahead < place.steps_end) stream.load(weights[i]);
      }
    }
  }
  ptx::griddepcontrol_launch_dependents();
  store_sums<dtype, kForm>(sums, shared, place, a);
}

}  // namespace fwht::linear::pipelined
