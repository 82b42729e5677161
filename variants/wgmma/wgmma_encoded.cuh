// wgmma: the end of a row that is written as codes of eight bits and scales.
//
// A warp has a contiguous piece of the row, 16 rows of D of N columns; lane = 4 g + t, j = log2(N / 8):
//
//   b0 register | b1-b2 t | b3-b5 g | b6 odd tile of a pair | b7..b(5+j) pair | b(6+j) upper eight rows
//
// So a pair of tiles has two groups of 128, one in the lower and one in the upper eight rows, two words of rounded
// numbers per lane each. Of the 2^(j-3) groups of the piece lane i works out the scale of group i. Of two lanes t,
// t ^ 1 one takes the four codes of both in the even tile, the other those in the odd tile: one shuffle, and a warp
// stores 128 bytes.
#pragma once

#include "common/ptx/named_barrier.cuh"
#include "variants/encode/storage_encoder.cuh"
#include "variants/wgmma/wgmma_pipeline.cuh"
#include "variants/wgmma/wgmma_stages.cuh"

namespace fwht::wgmma {

template <class Form>
struct EncodedOutput {
  using Arguments = EncodedRowBatch;

  template <int columns, class Choice>
  struct Writer {
    static_assert(Form::bits == 8 && Form::family == encoder::Family::f32 && Form::rounded);
    static constexpr int kPairs = columns / 16, kGroups = 2 * kPairs, kBytes = 16 * columns;
    static constexpr int kLogGroups = kGroups == 32 ? 5 : 4;
    static constexpr int kWarps = 4 * Choice::launch.parts();
    static_assert(kGroups == 1 << kLogGroups);

    const encoder::Output& output;
    int lane;
    float* maxima;             // of the team's warps, twice
    std::byte* out = nullptr;  // the warp's piece of codes
    int turn = 0;              // so that nobody writes what another warp still reads

    /// `all_staging` has room for a row of the storage type and so for maxima.
    __device__ static Writer of(const EncodedRowBatch& batch, std::byte* all_staging, int block_warp,
                                int lane) {
      return {batch.output, lane, reinterpret_cast<float*>(all_staging) + block_warp / kWarps * 2 * kWarps};
    }
    // Codes leave straight from registers: nothing is staged.
    __device__ void send_deferred() const {}
    __device__ void wait_until_sent() const {}
    __device__ void end_row() const {}

    /// Stage 3, maxima, scales, codes.
    template <Dtype dtype, int chains, bool joined, int registers, class Constants>
    __device__ void finish_row(float (&d)[registers], const Constants& constants, int row, int upper_m) {
      std::uint32_t pairs[kGroups][2];  // of a group in the even and in the odd tile
      finish_pairs<dtype, chains, joined>(d, all_finite(d), constants, lane,
                                          [&](int pair, const std::uint32_t(&words)[4]) {
#pragma unroll
                                            for (int q = 0; q < 4; ++q)
                                              pairs[pair + q / 2 * kPairs][q % 2] = words[q];
                                          });
      float maximum = 0.0F;  // whole row: of all; otherwise of group `lane`
      encoder::Scale scale;
      encoder::ShortFactor factor{__float_as_uint(output.rule.given_factor), 0};
      bool is_short = true;
      if (!output.rule.given) {
        maximum = Form::whole_row ? row_maximum<dtype>(pairs, upper_m) : maximum_of_group<dtype>(pairs);
        maximum = encoder::larger(maximum, output.rule.floor);
        encoder::short_scale<Form, dtype>(output.rule, output.brief, maximum, 1.0F, scale, factor);
        float first, second;
        encoder::unpack_pair<dtype>(pairs[0][0], first, second);
        const bool has_nan =
            first != first;  // a NaN among the data is in every other element of the row at least
        is_short = __all_sync(0xFFFFFFFFU, encoder::is_short<Form::family>(output.rule, maximum) && !has_nan);
      }
      if (!is_short) [[unlikely]] {
        scale = encoder::scale_of_any<Form>(output.rule, maximum);
        store_any<dtype>(pairs, scale);
      } else if (Form::element == Element::e4m3 && output.rule.codes == encoder::Codes::by_quotient) {
        store_codes<dtype, true>(pairs, factor);
      } else {
        store_codes<dtype, false>(pairs, factor);
      }
      store_scales(scale, row, upper_m);
    }

   private:
    using Pairs = std::uint32_t[kGroups][2];

    template <Dtype dtype>
    __device__ float maximum_of_group(const Pairs& pairs) const {
      encoder::LargestPair<dtype> largest[kGroups];
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
        largest[group] = {ptx::max_xorsign_abs_x2<dtype>(pairs[group][0], pairs[group][1])};
      encoder::spread_maxima<kLogGroups>(largest, lane);
      encoder::maxima_of_lanes<1>(largest, kGroups, 32);
      return encoder::largest_of_pair(largest[0]);
    }

    template <Dtype dtype>
    __device__ float row_maximum(const Pairs& pairs, int upper_m) {
      encoder::LargestPair<dtype> of_lane{ptx::max_xorsign_abs_x2<dtype>(pairs[0][0], pairs[0][1])};
#pragma unroll
      for (int group = 1; group < kGroups; ++group) {
        const std::uint32_t of_group = ptx::max_xorsign_abs_x2<dtype>(pairs[group][0], pairs[group][1]);
        of_lane.pair = ptx::max_xorsign_abs_x2<dtype>(of_lane.pair, of_group);
      }
      float largest =
          __uint_as_float(__reduce_max_sync(0xFFFFFFFFU, __float_as_uint(encoder::largest_of_pair(of_lane))));
      float* const of_warps = maxima + turn * kWarps;
      if (lane == 0) of_warps[upper_m] = largest;
      ptx::bar_sync(1 + static_cast<int>(threadIdx.x) / (32 * kWarps), 32 * kWarps);
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp)
        largest = fmaxf(largest, of_warps[warp]);
      turn ^= 1;
      return largest;
    }

    template <Dtype dtype>
    __device__ static void numbers_of(const std::uint32_t (&pairs)[2], float (&y)[4]) {
      encoder::unpack_pair<dtype>(pairs[0], y[0], y[1]);
      encoder::unpack_pair<dtype>(pairs[1], y[2], y[3]);
    }

    __device__ void store_word(int group, std::uint32_t word) const {
      const bool odd = (lane & 1) != 0;
      const std::uint32_t other = __shfl_xor_sync(0xFFFFFFFFU, word, 1);
      const std::uint32_t four = __byte_perm(word, other, odd ? 0x3276 : 0x5410);
      *reinterpret_cast<std::uint32_t*>(out + encoded_place(lane) + kEncodedGroup * group) = four;
    }

    /// A group's factor in all lanes.
    template <bool by_quotient>
    __device__ static encoder::ShortFactor of_group(const encoder::ShortFactor& factor, int group) {
      if constexpr (Form::whole_row) return factor;
      return {__shfl_sync(0xFFFFFFFFU, factor.bits, group),
              by_quotient ? __shfl_sync(0xFFFFFFFFU, factor.rest, group) : 0U};
    }

    template <Dtype dtype, bool by_quotient>
    __device__ void store_codes(const Pairs& pairs, const encoder::ShortFactor& factor) const {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        float y[4];
        numbers_of<dtype>(pairs[group], y);
        store_word(group, encoder::short_codes_of_four<Form, dtype, by_quotient>(
                              of_group<by_quotient>(factor, group), y));
      }
    }

    template <Dtype dtype>
    __device__ void store_any(const Pairs& pairs, const encoder::Scale& scale) const {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const float number = Form::whole_row ? scale.number : __shfl_sync(0xFFFFFFFFU, scale.number, group);
        const float factor = Form::whole_row ? scale.factor : __shfl_sync(0xFFFFFFFFU, scale.factor, group);
        float y[4];
        numbers_of<dtype>(pairs[group], y);
        std::uint32_t word = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i)
          word |= encoder::code_of_any<Form>(output.rule, number, factor, y[i]) << (8 * i);
        store_word(group, word);
      }
    }

    __device__ void store_scales(const encoder::Scale& scale, int row, int upper_m) const {
      if (!output.rule.given && (Form::whole_row ? lane == 0 && upper_m == 0 : lane < kGroups)) {
        encoder::store_scale<Form>(
            output, scale, encoder::position_of(output, row, Form::whole_row ? 0 : upper_m * kGroups + lane));
      }
      if (!output.pads || upper_m != 0) return;
      const int per_token = output.rows_per_token;
      if (lane == 0 && row % per_token == 0) encoder::pad_columns(output, row / per_token);
      if (row + 1 == output.scale_rows * per_token) encoder::pad_rows(output, lane, 32);
    }
  };
};

}  // namespace fwht::wgmma
