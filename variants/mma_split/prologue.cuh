// mma_split: prologues, between the loads of a lane's vectors and the first tensor-core stage.
//
//   rms     q = sum of x^2: eight elements of a vector by FMA, then neighbours: lanes, vectors, warps; q is
//           in every lane of the row. x <- rounded(rounded(x r) weight), r = 1 / sqrt(q / n + epsilon)
//   rope    halves of `width` lie width / 16 lanes apart: one shuffle per word brings the partners
//   signs   one XOR per word
//
// Bit card: b0-b2 register, b3-b7 lane, above: vectors of the lane, then warps. Sums go over the bits in this
// order, so their bits do not depend on the launch.
#pragma once

#include "common/device/storage.cuh"
#include "variants/kit/row_access.cuh"
#include "variants/kit/signs.hpp"
#include "variants/mma_split/prologue.hpp"

namespace fwht::mma_split {

using rows::Access;
using rows::RowAccess;
using rows::Tile;

/// Rows are transformed as they are.
template <Tile tile, Access access>
struct NoPrologue {
  template <class Arguments>
  __device__ NoPrologue(const Arguments&, const std::uint32_t (&)[tile.vectors][4], int) {}
  __device__ void apply(const RowAccess<tile, access>&, std::uint32_t (&)[tile.vectors][4]) const {}
  __device__ void load(const RowAccess<tile, access>& io, int v, std::uint32_t (&words)[4]) const {
    io.load(v, words);
  }
};

/// What the arguments ask for: branches that every lane of the launch takes alike.
template <Tile tile, Access access>
class RowPrologue {
 public:
  /// All threads of a block come here where its warps share a row.
  template <class Arguments>
  __device__ RowPrologue(const Arguments& arguments, const std::uint32_t (&words)[tile.vectors][4], int self)
      : asked_(arguments.prologue) {
    if (asked_.kind == Prologue::Kind::rms_norm) find_factors(words, self);
  }

  __device__ void apply(const RowAccess<tile, access>& io, std::uint32_t (&words)[tile.vectors][4]) const {
    if (asked_.kind == Prologue::Kind::rms_norm) {
#pragma unroll
      for (int v = 0; v < tile.vectors; ++v)
        normalize(io.column(v), factor_[v / kVectorsOfRow], words[v]);
    } else if (asked_.kind == Prologue::Kind::rope) {
#pragma unroll
      for (int v = 0; v < tile.vectors; ++v)
        turn(io, v, words[v]);
    }
    if (asked_.signs != nullptr) {
#pragma unroll
      for (int v = 0; v < tile.vectors; ++v)
        multiply_by_signs(io.column(v), words[v]);
    }
  }

  /// One vector again, after the constructor has seen all of them. All lanes of a warp come here together.
  __device__ void load(const RowAccess<tile, access>& io, int v, std::uint32_t (&words)[4]) const {
    io.load(v, words);
    if (asked_.kind == Prologue::Kind::rms_norm) normalize(io.column(v), factor_[v / kVectorsOfRow], words);
    if (asked_.kind == Prologue::Kind::rope) turn(io, v, words);
    if (asked_.signs != nullptr) multiply_by_signs(io.column(v), words);
  }

 private:
  static constexpr int kVectorsOfRow = tile.vectors_of_row();
  static constexpr int kRows = tile.vectors / kVectorsOfRow;

  __device__ static void widen(const std::uint32_t (&words)[4], float (&x)[8]) {
    unpack<tile.dtype>(make_uint4(words[0], words[1], words[2], words[3]), x);
  }
  __device__ static void narrow(const float (&x)[8], std::uint32_t (&words)[4]) {
#pragma unroll
    for (int w = 0; w < 4; ++w)
      words[w] = tile.dtype == Dtype::f16 ? ptx::cvt_rn_f16x2_f32(x[2 * w], x[2 * w + 1])
                                          : ptx::cvt_rn_bf16x2_f32(x[2 * w], x[2 * w + 1]);
  }

  __device__ void find_factors(const std::uint32_t (&words)[tile.vectors][4], int self) {
    float sum[tile.vectors];
#pragma unroll
    for (int v = 0; v < tile.vectors; ++v) {
      float x[8];
      widen(words[v], x);
      sum[v] = 0.0F;
#pragma unroll
      for (int e = 0; e < 8; ++e)
        sum[v] = __fmaf_rn(x[e], x[e], sum[v]);
#pragma unroll
      for (int bit = 0; bit < tile.lane_bits(); ++bit)
        sum[v] = __fadd_rn(sum[v], __shfl_xor_sync(0xFFFFFFFFU, sum[v], 1 << bit));
    }
#pragma unroll
    for (int step = 1; step < kVectorsOfRow; step *= 2) {
#pragma unroll
      for (int v = 0; v < tile.vectors; v += 2 * step)
        sum[v] = __fadd_rn(sum[v], sum[v + step]);
    }
#pragma unroll
    for (int row = 0; row < kRows; ++row)
      factor_[row] = factor_of(sum_over_warps(sum[row * kVectorsOfRow], self));
  }
  __device__ static float sum_over_warps(float sum, int self) {
    constexpr int kWarps = tile.warps_per_row;
    if constexpr (kWarps > 1) {
      __shared__ float of_warps[kWarps];
      if (rows::lane_of_warp() == 0) of_warps[self] = sum;
      __syncthreads();
      float sums[kWarps];
#pragma unroll
      for (int w = 0; w < kWarps; ++w)
        sums[w] = of_warps[w];
#pragma unroll
      for (int step = 1; step < kWarps; step *= 2) {
#pragma unroll
        for (int w = 0; w < kWarps; w += 2 * step)
          sums[w] = __fadd_rn(sums[w], sums[w + step]);
      }
      sum = sums[0];
    }
    return sum;
  }
  __device__ float factor_of(float sum) const {
    constexpr float kPerElement = 1.0F / static_cast<float>(1 << tile.log_n);
    return __fdiv_rn(1.0F, __fsqrt_rn(__fadd_rn(__fmul_rn(sum, kPerElement), asked_.epsilon)));
  }

  __device__ void normalize(int column, float factor, std::uint32_t (&words)[4]) const {
    float x[8], weight[8];
    widen(words, x);
#pragma unroll
    for (int e = 0; e < 8; ++e)
      x[e] = __fmul_rn(x[e], factor);
    narrow(x, words);
    widen(words, x);
    unpack<tile.dtype>(
        __ldg(reinterpret_cast<const uint4*>(static_cast<const std::uint16_t*>(asked_.weight) + column)),
        weight);
#pragma unroll
    for (int e = 0; e < 8; ++e)
      x[e] = __fmul_rn(x[e], weight[e]);
    narrow(x, words);
  }

  /// Eight consecutive numbers of the table.
  __device__ static void load_eight(const float* from, float (&to)[8]) {
    const float4 low = __ldg(reinterpret_cast<const float4*>(from));
    const float4 high = __ldg(reinterpret_cast<const float4*>(from) + 1);
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
    to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
  }

  __device__ void turn(const RowAccess<tile, access>& io, int v, std::uint32_t (&words)[4]) const {
    const int column = io.column(v), half = asked_.width / 2;
    std::uint32_t partner[4];
    if (!asked_.interleaved) {
#pragma unroll
      for (int w = 0; w < 4; ++w)
        partner[w] = __shfl_xor_sync(0xFFFFFFFFU, words[w], half / 8);
    }
    if (column >= asked_.width || !io.exists(v)) return;
    const float* const cosines =
        asked_.cos_sin + asked_.positions[io.row_of_batch(v) / asked_.heads] * asked_.width;
    float x[8], turned[8];
    widen(words, x);
    if (asked_.interleaved) {
      const float4 c = __ldg(reinterpret_cast<const float4*>(cosines + column / 2));
      const float4 s = __ldg(reinterpret_cast<const float4*>(cosines + half + column / 2));
      const float cs[4] = {c.x, c.y, c.z, c.w}, ss[4] = {s.x, s.y, s.z, s.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        turned[2 * i] = __fsub_rn(__fmul_rn(x[2 * i], cs[i]), __fmul_rn(x[2 * i + 1], ss[i]));
        turned[2 * i + 1] = __fadd_rn(__fmul_rn(x[2 * i + 1], cs[i]), __fmul_rn(x[2 * i], ss[i]));
      }
    } else {
      float y[8], c[8], s[8];
      widen(partner, y);
      load_eight(cosines + (column & (half - 1)), c);
      load_eight(cosines + half + (column & (half - 1)), s);
      const bool upper = (column & half) != 0;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const float other = __fmul_rn(y[e], s[e]);
        turned[e] = __fadd_rn(__fmul_rn(x[e], c[e]), upper ? other : -other);
      }
    }
    narrow(turned, words);
  }

  __device__ void multiply_by_signs(int column, std::uint32_t (&words)[4]) const {
    const std::uint32_t eight = __ldg(asked_.signs + column / 8);
#pragma unroll
    for (int w = 0; w < 4; ++w)
      words[w] ^= rows::pair_signs(eight, w);
  }

  const PrologueArguments& asked_;  // in the kernel's argument
  float factor_[kRows];
};

}  // namespace fwht::mma_split
