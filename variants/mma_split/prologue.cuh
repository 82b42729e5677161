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

#include "common/device/ptx/pairs.cuh"
#include "common/device/storage.cuh"
#include "variants/kit/row_access.cuh"
#include "variants/kit/row_signs.hpp"
#include "variants/mma_split/page_places.cuh"
#include "variants/mma_split/prologue.hpp"

namespace fwht::mma_split {

/// Eight consecutive numbers of a table of cosines and sines.
__device__ inline void load_eight(const float* from, float (&to)[8]) {
  const float4 low = __ldg(reinterpret_cast<const float4*>(from));
  const float4 high = __ldg(reinterpret_cast<const float4*>(from) + 1);
  to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
  to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
}

/// Rows are transformed as they are.
template <Tile tile, Access access>
struct NoPrologue {
  template <class Arguments>
  __device__ NoPrologue(const Arguments&, const RowAccess<tile, access>&, int) {}
  __device__ void apply(const RowAccess<tile, access>&, std::uint32_t (&)[tile.vectors][4]) const {}
  __device__ void load(const RowAccess<tile, access>& io, int v, std::uint32_t (&words)[4]) const {
    io.load(v, words);
  }
};

/// What the arguments ask for: branches that every lane of the launch takes alike. What a prologue reads
/// beside the rows is asked for before anything waits for them.
template <Tile tile, Access access>
class RowPrologue {
 public:
  template <class Arguments>
  __device__ RowPrologue(const Arguments& arguments, const RowAccess<tile, access>& io, int self)
      : asked_(arguments.prologue), self_(self), places_(arguments.places, io) {}

  /// All threads of a block come here where its warps share a row.
  __device__ void apply(const RowAccess<tile, access>& io, std::uint32_t (&words)[tile.vectors][4]) {
    std::uint32_t signs[kVectorsOfRow];
    const bool has_signs = asked_.signs != nullptr;
    if (has_signs) {
#pragma unroll
      for (int v = 0; v < kVectorsOfRow; ++v)
        signs[v] = signs_at(io.column(v));
    }
    if (asked_.kind == Prologue::Kind::rms_norm) {
      normalize_all(io, words);
    } else if (asked_.kind == Prologue::Kind::rope) {
      turn_all(io, words);
    }
    if (has_signs) {
#pragma unroll
      for (int v = 0; v < tile.vectors; ++v)
        multiply_by_signs(signs[v % kVectorsOfRow], words[v]);
    }
  }

  /// One vector again, after apply() has seen all of them. All lanes of a warp come here together.
  __device__ void load(const RowAccess<tile, access>& io, int v, std::uint32_t (&words)[4]) const {
    io.load(v, words);
    if (asked_.kind == Prologue::Kind::rms_norm) {
      std::uint32_t weights[4];
      load_weights(io.column(v), weights);
      normalize(weights, factor_[v / kVectorsOfRow], words);
    }
    if (asked_.kind == Prologue::Kind::rope && v % kVectorsOfRow == 0 && has_start_of_row()) {
      if (asked_.interleaved) {
        turn<true>(io.column(0), angles_of(io, v), words);
      } else {
        turn<false>(io.column(0), angles_of(io, v), words);
      }
    }
    if (asked_.signs != nullptr) multiply_by_signs(signs_at(io.column(v)), words);
  }

  /// Where the rows of the lane go.
  __device__ const PlacesOfRows<tile, access>& places() const {
    return places_;
  }

 private:
  static constexpr int kVectorsOfRow = tile.vectors_of_row();
  static constexpr int kRows = tile.vectors / kVectorsOfRow, kSteps = log2_floor(kRows);

  __device__ static void widen(const std::uint32_t (&words)[4], float (&x)[8]) {
    unpack<tile.dtype>(make_uint4(words[0], words[1], words[2], words[3]), x);
  }
  __device__ static void narrow(const float (&x)[8], std::uint32_t (&words)[4]) {
#pragma unroll
    for (int w = 0; w < 4; ++w)
      words[w] = tile.dtype == Dtype::f16 ? ptx::cvt_rn_f16x2_f32(x[2 * w], x[2 * w + 1])
                                          : ptx::cvt_rn_bf16x2_f32(x[2 * w], x[2 * w + 1]);
  }

  __device__ void normalize_all(const RowAccess<tile, access>& io, std::uint32_t (&words)[tile.vectors][4]) {
    constexpr bool kAhead = kVectorsOfRow <= 4;  // or registers are short
    std::uint32_t weights[kVectorsOfRow][4];
    if constexpr (kAhead) {
#pragma unroll
      for (int v = 0; v < kVectorsOfRow; ++v)
        load_weights(io.column(v), weights[v]);
    }
    find_factors(words);
#pragma unroll
    for (int v = 0; v < tile.vectors; ++v) {
      std::uint32_t(&of_vector)[4] = weights[v % kVectorsOfRow];
      if constexpr (!kAhead) load_weights(io.column(v), of_vector);
      normalize(of_vector, factor_[v / kVectorsOfRow], words[v]);
    }
  }
  /// A lane has elements of several rows, and so have the lanes beside it: after as many steps as halve the
  /// rows to one, each has the sum of one row, and works out one factor.
  __device__ void find_factors(const std::uint32_t (&words)[tile.vectors][4]) {
    float sum[tile.vectors];
#pragma unroll
    for (int v = 0; v < tile.vectors; ++v) {
      float x[8];
      widen(words[v], x);
      sum[v] = 0.0F;
#pragma unroll
      for (int e = 0; e < 8; ++e)
        sum[v] = __fmaf_rn(x[e], x[e], sum[v]);
    }
    const int lane = rows::lane_of_warp();
    if constexpr (kVectorsOfRow == 1) {
      add_halves<0>(sum, lane);
#pragma unroll
      for (int bit = kSteps; bit < tile.lane_bits(); ++bit)
        sum[0] = add_neighbour(sum[0], sum[0], bit);
      const float factor = factor_of(sum[0]);
#pragma unroll
      for (int row = 0; row < kRows; ++row)
        factor_[row] = __shfl_sync(0xFFFFFFFFU, factor, (lane & ~(kRows - 1)) | row);
    } else {
#pragma unroll
      for (int v = 0; v < tile.vectors; ++v) {
#pragma unroll
        for (int bit = 0; bit < tile.lane_bits(); ++bit)
          sum[v] = add_neighbour(sum[v], sum[v], bit);
      }
#pragma unroll
      for (int step = 1; step < kVectorsOfRow; step *= 2) {
#pragma unroll
        for (int v = 0; v < tile.vectors; v += 2 * step)
          sum[v] = __fadd_rn(sum[v], sum[v + step]);
      }
#pragma unroll
      for (int row = 0; row < kRows; ++row)
        factor_[row] = factor_of(sum_over_warps(sum[row * kVectorsOfRow]));
    }
  }
  __device__ static float add_neighbour(float kept, float given, int bit) {
    return __fadd_rn(kept, __shfl_xor_sync(0xFFFFFFFFU, given, 1 << bit));
  }
  /// Of pairs of sums, one in each lane of a pair of lanes.
  template <int step>
  __device__ static void add_halves(float (&sum)[tile.vectors], int lane) {
    if constexpr (step < kSteps) {
      const bool upper = (lane >> step & 1) != 0;
#pragma unroll
      for (int i = 0; i < kRows >> (step + 1); ++i)
        sum[i] =
            add_neighbour(upper ? sum[2 * i + 1] : sum[2 * i], upper ? sum[2 * i] : sum[2 * i + 1], step);
      add_halves<step + 1>(sum, lane);
    }
  }
  __device__ float sum_over_warps(float sum) const {
    constexpr int kWarps = tile.warps_per_row;
    if constexpr (kWarps > 1) {
      __shared__ float of_warps[kWarps];
      if (rows::lane_of_warp() == 0) of_warps[self_] = sum;
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

  /// Of the eight elements from `column` on.
  __device__ void load_weights(int column, std::uint32_t (&words)[4]) const {
    const uint4 eight =
        __ldg(reinterpret_cast<const uint4*>(static_cast<const std::uint16_t*>(asked_.weight) + column));
    words[0] = eight.x, words[1] = eight.y, words[2] = eight.z, words[3] = eight.w;
  }
  __device__ std::uint32_t signs_at(int column) const {
    return __ldg(asked_.signs + column / 8);
  }

  __device__ static void normalize(const std::uint32_t (&weights)[4], float factor,
                                   std::uint32_t (&words)[4]) {
    float x[8];
    widen(words, x);
#pragma unroll
    for (float& number : x)
      number = __fmul_rn(number, factor);
    narrow(x, words);
    // Rounded as an fp32 product would be: that is exact, but where it becomes zero either way.
#pragma unroll
    for (int w = 0; w < 4; ++w)
      words[w] = ptx::mul_rn_x2<tile.dtype>(words[w], weights[w]);
  }

  __device__ bool has_start_of_row() const {
    return tile.warps_per_row == 1 || self_ == 0;
  }
  /// The embedding lies in the first vector of a row. Positions of all rows are asked for first; one behind
  /// the other they would take as long as the rows themselves.
  __device__ void turn_all(const RowAccess<tile, access>& io, std::uint32_t (&words)[tile.vectors][4]) const {
    if (!has_start_of_row()) return;
    const float* angles[kRows];
#pragma unroll
    for (int row = 0; row < kRows; ++row)
      angles[row] = angles_of(io, row * kVectorsOfRow);
    if (asked_.interleaved) {
#pragma unroll
      for (int row = 0; row < kRows; ++row)
        turn<true>(io.column(0), angles[row], words[row * kVectorsOfRow]);
    } else {
#pragma unroll
      for (int row = 0; row < kRows; ++row)
        turn<false>(io.column(0), angles[row], words[row * kVectorsOfRow]);
    }
  }
  /// Cosines and sines of the row of vector v, or some of the table where it does not exist.
  __device__ const float* angles_of(const RowAccess<tile, access>& io, int v) const {
    if (!io.exists(v)) return asked_.cos_sin;
    return asked_.cos_sin + asked_.positions[io.row_of_batch(v) / asked_.heads] * asked_.width;
  }
  /// Columns behind the embedding are turned by angles of others, and that is not taken: without branches
  /// the compiler has the loads of several rows in flight.
  template <bool interleaved>
  __device__ void turn(int column, const float* angles, std::uint32_t (&words)[4]) const {
    const int half = asked_.width / 2;
    std::uint32_t turned[4];
    if constexpr (interleaved) {
      turn_neighbours(angles + (column / 2 & (half - 1)), half, words, turned);
    } else {
      turn_halves(angles + (column & (half - 1)), half, (column & half) != 0, words, turned);
    }
#pragma unroll
    for (int w = 0; w < 4; ++w)
      words[w] = column < asked_.width ? turned[w] : words[w];
  }
  __device__ static void turn_neighbours(const float* cosines, int half, const std::uint32_t (&words)[4],
                                         std::uint32_t (&turned_words)[4]) {
    const float4 c = __ldg(reinterpret_cast<const float4*>(cosines));
    const float4 s = __ldg(reinterpret_cast<const float4*>(cosines + half));
    const float cs[4] = {c.x, c.y, c.z, c.w}, ss[4] = {s.x, s.y, s.z, s.w};
    float x[8], turned[8];
    widen(words, x);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      turned[2 * i] = __fsub_rn(__fmul_rn(x[2 * i], cs[i]), __fmul_rn(x[2 * i + 1], ss[i]));
      turned[2 * i + 1] = __fadd_rn(__fmul_rn(x[2 * i + 1], cs[i]), __fmul_rn(x[2 * i], ss[i]));
    }
    narrow(turned, turned_words);
  }
  __device__ static void turn_halves(const float* cosines, int half, bool upper,
                                     const std::uint32_t (&words)[4], std::uint32_t (&turned_words)[4]) {
    std::uint32_t partner[4];
#pragma unroll
    for (int w = 0; w < 4; ++w)
      partner[w] = __shfl_xor_sync(0xFFFFFFFFU, words[w], half / 8);
    float x[8], y[8], c[8], s[8], turned[8];
    load_eight(cosines, c);
    load_eight(cosines + half, s);
    widen(words, x);
    widen(partner, y);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float other = __fmul_rn(y[e], s[e]);
      turned[e] = __fadd_rn(__fmul_rn(x[e], c[e]), upper ? other : -other);
    }
    narrow(turned, turned_words);
  }

  /// @param signs  of signs_at()
  __device__ static void multiply_by_signs(std::uint32_t signs, std::uint32_t (&words)[4]) {
#pragma unroll
    for (int w = 0; w < 4; ++w)
      words[w] ^= rows::pair_of_spread(rows::spread_signs(signs), w);
  }

  const PrologueArguments& asked_;  // in the kernel's argument
  int self_;
  PlacesOfRows<tile, access> places_;
  float factor_[kRows];
};

}  // namespace fwht::mma_split
