// y[m][n] = x[m][k] W, W = s (q - z) in 4 bits, for few tokens.
//
// Idea. The weights are operand A of mma.sync.m16n8k16 (16 outputs), tokens the 8 columns of operand B: m <=
// 8 costs one multiply and nothing is padded to 16. A block, or a cluster of blocks, owns its outputs and all
// of k, which its warps share, so no sum leaves it. Weights stream through registers, some steps ahead; the
// first ones before the wait for the kernel that makes x. They are unpacked to exact integers, and the scale
// multiplies the fp32 sum of a group: one rounding, in a fixed order.
//
// Who owns which weights: the picture in docs/linear.md.
//
// multiply_layer, at the end, is the kernel: Place says who owns what, WeightStream and Tokens bring it,
// multiply_step multiplies, store_sums adds the shares.
//
// Bit card of a step (16 outputs x 128 k), g = lane / 4, t = lane % 4:
//   operand A   rows g, g + 8    k 32 block + 8 t + 4 word + {0 1 | 2 3}    4 bits each, one word a multiply
//   operand B   token g          k 32 block + 8 t + 0..7                    16 bytes, two multiplies
//   result      rows g, g + 8    tokens 2 t, 2 t + 1
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/contract/dtype.hpp"
#include "common/device/ptx/cluster.cuh"
#include "common/device/ptx/global.cuh"
#include "common/device/ptx/griddepcontrol.cuh"
#include "common/device/ptx/mbarrier.cuh"
#include "common/device/ptx/mma.cuh"
#include "common/device/ptx/mma_accumulate.cuh"
#include "common/device/storage.cuh"
#include "variants/linear/unpack.cuh"
#include "variants/linear/w4a16_pipelined/layout.hpp"
#include "variants/linear/w4a16_pipelined/rotate_tokens.cuh"

namespace fwht::linear::pipelined {

struct Arguments {
  const std::byte* weights;  // as Layout says
  const void* x;
  void* y;
  Layout layout;
  int m, n, k;
  int lowest_zero;  // what a stored zero point of 0 stands for
  bool programmatic = false;
  int order = 1;  // of the rotation, and what its sums are multiplied by
  float factor = 1.0F;
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
template <Form form>
struct Place {
  int lane, g, t, row_warp, k_warp, tiles;  // tiles of this warp: fewer behind the last one
  std::int64_t row_block, tile;
  int rank, step, steps_end;

  __device__ explicit Place(const Arguments& a) {
    int warp = static_cast<int>(threadIdx.x >> 5);
    if constexpr (form.wgmma) warp = __shfl_sync(~0U, warp, 0);  // the compiler sees that a warp agrees
    lane = static_cast<int>(threadIdx.x & 31);
    g = lane >> 2;
    t = lane & 3;
    row_warp = warp % form.row_warps;
    k_warp = warp / form.row_warps;
    row_block = blockIdx.x / form.cluster;
    rank = static_cast<int>(blockIdx.x % form.cluster);
    tile = row_block * form.tiles() + row_warp * form.tiles_per_warp;
    const std::int64_t left = a.layout.tiles - tile;
    tiles = left < form.tiles_per_warp ? static_cast<int>(left) : form.tiles_per_warp;
    if (form.wgmma &&
        left < 1) {  // all warps of a warpgroup multiply: the last tile stands in, its result goes nowhere
      tile = a.layout.tiles - 1;
      tiles = 1;
    }
    const int share = rank * form.k_warps + k_warp;
    step = static_cast<int>(first_step(a.layout.steps, form.shares(), share));
    steps_end = tiles > 0 ? static_cast<int>(first_step(a.layout.steps, form.shares(), share + 1)) : step;
  }
};

/// A step's words, scales and zero points of one tile, as a lane holds them.
template <int kScales>
struct WeightStep {
  uint4 words[2];
  std::uint32_t scales[kScales], zeros[kScales];
};

/// Where a lane reads the next step of its warp's tiles. The places run, so that a load costs little address
/// arithmetic.
template <int kScales, Form form>
struct WeightStream {
  static constexpr int kTiles = form.tiles_per_warp;

  const std::byte* words;
  const std::uint32_t* scales;  // of the whole layer
  const std::uint8_t* zeros;
  std::uint32_t row;                // of scales and zeros
  std::uint32_t next_tile[kTiles];  // steps between the warp's first tile and this one

  __device__ WeightStream(const Arguments& a, const Place<form>& place) {
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
        // The line holds those of the next steps too: all of it on its way to the L2.
        to[r].scales[s] = ptx::ld_global_line(scales + (row + tile * (8 * kScales) + s));
        to[r].zeros[s] = ptx::ld_global_line(zeros + (row + tile * (8 * kScales) + s));
      }
    }
    words += kStepBytes;
    row += 8 * kScales;
  }
};

/// fp32 results of a warp: of each tile and each eight tokens, as its lanes hold them.
template <int tiles, int columns>
using Accumulators = float[tiles][columns][4];
template <Launch launch>
using Sums = Accumulators<launch.tiles(), launch.columns()>;

/// Operand B of a step: for each eight tokens and block of 32 k eight numbers of this lane's token. Each is
/// read through its own advancing pointer, so the loop needs no address arithmetic.
template <int kColumns, bool in_shared_memory>
struct Tokens {
  uint4 pieces[kColumns][4] = {};
  const std::byte* next[kColumns];
  bool there[kColumns];  // tokens beyond m stay zero

  /// `x`: [tokens][pitch], from step `first_step` on.
  template <class PlaceOfWarp>
  __device__ Tokens(const void* x, std::int64_t pitch, int first_step, int tokens, const PlaceOfWarp& place) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int token = 8 * j + place.g;
      there[j] = token < tokens;
      next[j] = static_cast<const std::byte*>(x) +
                (token * pitch + (place.step - first_step) * kStepK + place.t * 8) * 2;
    }
  }

  /// The first step, if there is one.
  __device__ void begin(bool wanted) {
#pragma unroll
    for (int block = 0; block < 4; ++block)
      load(block, wanted);
    advance();
  }
  __device__ void load(int block, bool wanted) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      if (!there[j] || !wanted) continue;
      if constexpr (in_shared_memory)
        pieces[j][block] = *reinterpret_cast<const uint4*>(next[j] + block * 64);
      else
        pieces[j][block] = ptx::ld_global_keep(next[j] + block * 64);
    }
  }
  /// To the next step.
  __device__ void advance() {
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
      next[j] += kStepK * 2;
  }
};

/// Where a block's tokens are: as they were given, or its slice of k, rotated, in shared memory.
template <Dtype dtype, Form form>
struct Operands {
  using Element = typename Storage<dtype>::Element;

  const void* x;
  std::int64_t pitch;
  int first_step = 0;
  float* shared;

  __device__ Operands(const Arguments& a, float* memory, const Place<form>& place)
      : x(a.x), pitch(a.k), shared(memory) {
    if constexpr (form.rotates) {
      const int slice = a.k / form.cluster;
      first_step = static_cast<int>(pipelined::first_step(a.layout.steps, form.cluster, place.rank));
      x = reinterpret_cast<std::byte*>(shared) + form.stage_bytes(slice);
      pitch = rotated_pitch(slice);
    }
  }

  __device__ void rotate(const Arguments& a, const Place<form>& place) const {
    if constexpr (form.rotates) {
      auto* rotated = const_cast<Element*>(static_cast<const Element*>(x));
      rotate_tokens<dtype, form>({shared, rotated, a.m, a.k / form.cluster},
                                 static_cast<const Element*>(a.x) + first_step * kStepK, a.k, place.rank,
                                 a.order, a.factor);
    }
  }
};

template <Dtype dtype>
__device__ void multiply(float (&d)[4], const std::uint32_t (&a)[4], const uint4& piece, int half) {
  const std::uint32_t b[2] = {half == 0 ? piece.x : piece.z, half == 0 ? piece.y : piece.w};
  if constexpr (dtype == Dtype::f16) ptx::mma_sync_m16n8k16_f32_f16_accumulate(d, a, b);
  if constexpr (dtype == Dtype::bf16) ptx::mma_sync_m16n8k16_f32_bf16_accumulate(d, a, b);
}

__device__ inline std::uint32_t word_of(const uint4 (&words)[2], int block, int half) {
  const uint4& vector = words[block / 2];
  return block % 2 == 0 ? (half == 0 ? vector.x : vector.y) : (half == 0 ? vector.z : vector.w);
}

/// sums += s (q - z) x over one step; the tokens of the next step take the place of those that are used.
template <Launch launch>
__device__ void multiply_step(Sums<launch>& sums, const WeightStep<launch.scales> (&weights)[launch.tiles()],
                              Tokens<launch.columns(), launch.form.rotates>& x, int lowest_zero, bool more) {
  constexpr Dtype dtype = launch.dtype;
  constexpr int kTiles = launch.tiles(), kColumns = launch.columns(), kBlocksOfScale = 4 / launch.scales;
  // Tiles side by side hide the latency of a multiply where there are few tokens, and cost registers where
  // there are many.
  constexpr int kTogether = kColumns == 1 ? kTiles : 1;
#pragma unroll
  for (int first = 0; first < kTiles; first += kTogether) {
    Accumulators<kTogether, kColumns> part;
    Zeros<dtype> zeros[kTogether];
#pragma unroll
    for (int block = 0; block < 4; ++block) {  // 32 k each
      const int group = block / kBlocksOfScale;
      const bool begins = block % kBlocksOfScale == 0, ends = block % kBlocksOfScale == kBlocksOfScale - 1;
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const WeightStep<launch.scales>& tile = weights[first + i];
        if (begins) {
          zeros[i] = Zeros<dtype>(tile.zeros[group], lowest_zero);
#pragma unroll
          for (int j = 0; j < kColumns; ++j)
            part[i][j][0] = part[i][j][1] = part[i][j][2] = part[i][j][3] = 0.0F;
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          std::uint32_t operand_a[4];
          unpack_word(word_of(tile.words, block, half), zeros[i], operand_a);
#pragma unroll
          for (int j = 0; j < kColumns; ++j)
            multiply<dtype>(part[i][j], operand_a, x.pieces[j][block], half);
        }
        if (!ends) continue;
        const float2 scale = half2_to_float2(tile.scales[group]);
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            sums[first + i][j][e] = fmaf(e < 2 ? scale.x : scale.y, part[i][j][e], sums[first + i][j][e]);
      }
      if (first + kTogether == kTiles) x.load(block, more);
    }
  }
  x.advance();
}

/// Until every block of the cluster, or every warp of a block that is alone, is here.
template <Form form>
__device__ void wait_for_all() {
  if constexpr (form.cluster > 1) {
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
  } else {
    __syncthreads();
  }
}

/// The shares of k added in order, rounded once. Every block of a cluster adds some outputs.
template <Launch launch>
__device__ void store_sums(const Sums<launch>& sums, float* shared, const Place<launch.form>& place,
                           const Arguments& a) {
  constexpr Form form = launch.form;
  constexpr int kTiles = launch.tiles(), kColumns = launch.columns();
  constexpr int kPitch = form.sums_pitch(), kRows = form.tiles() * kTileOutputs;
  using Stored = Storage<launch.dtype>;
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
  wait_for_all<form>();
  const std::int64_t first = place.row_block * kRows;
  auto* y = static_cast<typename Stored::Element*>(a.y);
  for (int i = place.rank * form.threads() + static_cast<int>(threadIdx.x); i < a.m * (kRows / 2);
       i += form.threads() * form.cluster) {
    const int token = i / (kRows / 2), row = i % (kRows / 2) * 2;
    if (first + row >= a.n) continue;
    float2 sum = {0.0F, 0.0F};
#pragma unroll
    for (int share = 0; share < form.shares(); ++share) {
      const float* from = shared + (share % form.k_warps * form.tokens + token) * kPitch + row;
      float2 more;
      if constexpr (form.cluster > 1)
        more = ptx::ld_shared_cluster_v2(ptx::mapa(ptx::shared_address(from), share / form.k_warps));
      else
        more = *reinterpret_cast<const float2*>(from);
      sum.x += more.x;
      sum.y += more.y;
    }
    *reinterpret_cast<typename Stored::Pair*>(y + std::int64_t{token} * a.n + first + row) =
        Stored::from_float2(sum.x, sum.y);
  }
  if constexpr (form.cluster > 1) wait_for_all<form>();  // others may still read this block's sums
}

template <Launch launch>
__device__ void multiply_layer(const Arguments& all) {
  constexpr Form form = launch.form;
  extern __shared__ __align__(16) float shared[];
  const Arguments a = tokens_of_block<launch.dtype, form.tokens>(all);
  const Place<form> place(a);
  const int steps = place.steps_end - place.step;
  WeightStream<launch.scales, form> stream(a, place);
  WeightStep<launch.scales> weights[form.ahead][launch.tiles()];
  const Operands<launch.dtype, form> tokens(a, shared, place);
  Tokens<launch.columns(), form.rotates> x(tokens.x, tokens.pitch, tokens.first_step, a.m, place);
  // Weights depend on no kernel before this one; x comes behind what is asked for before it.
  const bool x_first = form.x_first && !a.programmatic;
  if (x_first) x.begin(steps > 0);
#pragma unroll
  for (int i = 0; i < form.ahead; ++i)
    if (i < steps) stream.load(weights[i]);
  if (!x_first) {
    ptx::griddepcontrol_wait();
    tokens.rotate(a, place);
    x.begin(steps > 0);
  }

  Sums<launch> sums = {};
  for (int base = 0; base < steps; base += form.ahead) {
#pragma unroll
    for (int i = 0; i < form.ahead; ++i) {
      const int step = base + i;
      if (step < steps) {
        multiply_step<launch>(sums, weights[i], x, a.lowest_zero, step + 1 < steps);
        if (step + form.ahead < steps) stream.load(weights[i]);
      }
    }
  }
  ptx::griddepcontrol_launch_dependents();
  store_sums<launch>(sums, shared, place, a);
}

}  // namespace fwht::linear::pipelined
