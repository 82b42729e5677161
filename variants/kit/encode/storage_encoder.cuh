// The epilogue of row_encoder.cuh where numbers are rounded to the storage type first, as they are by
// default: the rounded numbers stay in pairs, so maxima take one instruction for two of them, and codes the
// short ways of short_codes.hpp.
//
// Bit card: as row_encoder.cuh. A lane holds vectors of eight consecutive elements, four words each.
#pragma once

#include <cstdint>
#include <limits>

#include "variants/kit/encode/row_encoder.cuh"
#include "variants/kit/encode/short_codes.hpp"

namespace fwht::encoder {

// ---- numbers

/// x, or factor * x, rounded to pairs.
template <Dtype dtype, bool multiplies, int vectors>
__device__ __forceinline__ void round_to_pairs(float factor, const float (&x)[vectors][8],
                                               std::uint32_t (&pairs)[vectors][4]) {
  const auto number = [&](int v, int e) { return multiplies ? multiply(x[v][e], factor) : x[v][e]; };
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const float low = number(v, 2 * w), high = number(v, 2 * w + 1);
      pairs[v][w] =
          dtype == Dtype::bf16 ? ptx::cvt_rn_bf16x2_f32(low, high) : ptx::cvt_rn_f16x2_f32(low, high);
    }
  }
}

// ---- maxima

/// Signs are left in until the end.
template <Dtype dtype>
__device__ __forceinline__ LargestPair<dtype> largest_of_vector(const std::uint32_t (&pairs)[4]) {
  return {ptx::max_xorsign_abs_x2<dtype>(ptx::max_xorsign_abs_x2<dtype>(pairs[0], pairs[1]),
                                         ptx::max_xorsign_abs_x2<dtype>(pairs[2], pairs[3]))};
}

/// Of both halves; of NaN alone, NaN.
template <Dtype dtype>
__device__ __forceinline__ float largest_of_pair(LargestPair<dtype> largest) {
  float low, high;
  unpack_pair<dtype>(largest.pair, low, high);
  return fmaxf(fabsf(low), fabsf(high));
}

/// Largest |y| of the groups that the lane has scales of; see find_maxima() for `meet`.
template <class Form, class Shared, Dtype dtype, int vectors, class Meet>
__device__ __forceinline__ void find_maxima_of_pairs(const Output& out,
                                                     const std::uint32_t (&pairs)[vectors][4], int lane,
                                                     float (&maximum)[Shared::kScales], const Meet& meet) {
  LargestPair<dtype> of_group[Shared::kGroups];
#pragma unroll
  for (int g = 0; g < Shared::kGroups; ++g) {
    of_group[g] = largest_of_vector<dtype>(pairs[g * Shared::kVectorsOfScale]);
#pragma unroll
    for (int v = 1; v < Shared::kVectorsOfScale; ++v)
      of_group[g] = larger_of(of_group[g], largest_of_vector<dtype>(pairs[g * Shared::kVectorsOfScale + v]));
  }
  if constexpr (Form::whole_row && Shared::kGroups == 1) {
    // Numbers that are not negative are ordered like their bits.
    const std::uint32_t bits = __float_as_uint(fmaxf(largest_of_pair(of_group[0]), 0.0F));
    maximum[0] = meet(__uint_as_float(__reduce_max_sync(0xFFFFFFFFU, bits)));
  } else {
    spread_maxima<Shared::kSteps>(of_group, lane);
    maxima_of_lanes<Form, Shared::kOwners, Shared::kScales>(out, of_group);
#pragma unroll
    for (int s = 0; s < Shared::kScales; ++s)
      maximum[s] = largest_of_pair(of_group[s]);
  }
}

/// The same, not less than the rule's floor: of y, for scale_of_any().
template <class Form, class Shared, Dtype dtype, int vectors, class Meet>
__device__ __forceinline__ void find_exact_maxima(const Output& out, const std::uint32_t (&pairs)[vectors][4],
                                                  int lane, float (&maximum)[Shared::kScales],
                                                  const Meet& meet) {
  find_maxima_of_pairs<Form, Shared, dtype>(out, pairs, lane, maximum, meet);
#pragma unroll
  for (int s = 0; s < Shared::kScales; ++s)
    maximum[s] = larger(maximum[s], Form::family == Family::f32 ? out.rule.floor : 0.0F);
}

// ---- groups that the short arithmetic does not fit

/// Codes of a vector, whatever its numbers are, the first in the lowest bits. Values go by registers: what
/// calls take by reference would lie in memory on every way.
template <class Form, Dtype dtype>
__device__ __noinline__ std::uint64_t codes_of_any(const Rule& rule, float scale, float factor,
                                                   std::uint64_t low, std::uint64_t high) {
  std::uint64_t codes = 0;
#pragma unroll 1
  for (int e = 0; e < 8; ++e) {
    float y, next;
    unpack_pair<dtype>(static_cast<std::uint32_t>(low), y, next);
    const float q[8] = {number_to_round<Form>(rule, {scale, factor, 0}, y)};
    std::uint32_t words[Form::words];
    codes_of_numbers<Form>(q, words);
    codes |= std::uint64_t{words[0] & ((1U << Form::bits) - 1)} << (e * Form::bits);
    low = low >> 16 | high << 48;
    high >>= 16;
  }
  return codes;
}
template <class Form, Dtype dtype>
__device__ __forceinline__ void any_codes_of_vector(const Rule& rule, const Scale& scale,
                                                    const std::uint32_t (&pairs)[4],
                                                    std::uint32_t (&codes)[Form::words]) {
  const std::uint64_t all =
      codes_of_any<Form, dtype>(rule, scale.number, scale.factor, std::uint64_t{pairs[1]} << 32 | pairs[0],
                                std::uint64_t{pairs[3]} << 32 | pairs[2]);
#pragma unroll
  for (int w = 0; w < Form::words; ++w)
    codes[w] = static_cast<std::uint32_t>(all >> (32 * w));
}

// ---- all of it

/// Codes of vectors `first` to `end` under scales that are all short.
template <class Form, class Shared, Dtype dtype, int first, int end, bool by_quotient, bool clamps,
          int vectors>
__device__ __forceinline__ void short_codes_of_vectors(const ShortFactor (&factor)[Shared::kScales],
                                                       const std::uint32_t (&pairs)[vectors][4], int lane,
                                                       std::uint32_t (&codes)[vectors][Form::words]) {
#pragma unroll
  for (int v = first; v < end; ++v) {
    ShortFactor of_vector = factor[Shared::scale_of(v)];
    if constexpr (Shared::kSteps > 0) {
      const int owner = Shared::owner_of(v, lane);
      of_vector.bits = __shfl_sync(0xFFFFFFFFU, of_vector.bits, owner);
      if constexpr (by_quotient) of_vector.rest = __shfl_sync(0xFFFFFFFFU, of_vector.rest, owner);
    }
    short_codes<Form, dtype, by_quotient, clamps>(of_vector, pairs[v], codes[v]);
  }
}

/// The same where some scales take the quotient, which costs two operations a number: two vectors at a time,
/// as most of these need it not.
///
/// @param quotients  the lanes that have such scales
template <class Form, class Shared, Dtype dtype, int first = 0, int vectors>
__device__ __forceinline__ void codes_by_quotient(const ShortFactor (&factor)[Shared::kScales],
                                                  const std::uint32_t (&pairs)[vectors][4], int lane,
                                                  std::uint32_t quotients,
                                                  std::uint32_t (&codes)[vectors][Form::words]) {
  constexpr int kEnd = first + 2 < vectors ? first + 2 : vectors;
  constexpr std::uint32_t kOwners = Shared::owners_of(first) | Shared::owners_of(kEnd - 1);
  if ((quotients & kOwners) != 0) {
    short_codes_of_vectors<Form, Shared, dtype, first, kEnd, true, false>(factor, pairs, lane, codes);
  } else {
    short_codes_of_vectors<Form, Shared, dtype, first, kEnd, false, false>(factor, pairs, lane, codes);
  }
  if constexpr (kEnd < vectors)
    codes_by_quotient<Form, Shared, dtype, kEnd>(factor, pairs, lane, quotients, codes);
}

/// The largest |y| of each group or row, and the scales that follow from them.
template <int count>
struct ScalesOfMaxima {
  float maximum[count];
  Scale scale[count];
  ShortFactor factor[count];
  // What the warp is asked, see ask_warp().
  bool are_short = true;
  bool take_quotient = false, saturate = false;
  std::uint32_t quotients = 0;  // the lanes of which some take it
};

template <class Form, Dtype dtype, int count>
__device__ __forceinline__ void scales_of_maxima(const Output& out, ScalesOfMaxima<count>& scales) {
  const Rule rule = rule_in_kernel<Form, true>(out);
  if (Form::family == Family::e4m3 && out.tensor_scale != nullptr)
    scales.are_short &= is_in_middle(rule.number_of_code);  // ShortRule::most does not know it
#pragma unroll
  for (int s = 0; s < count; ++s) {
    const float floor = Form::family == Family::f32 ? rule.floor : 0.0F;
    const float maximum = larger(scales.maximum[s], floor);
    scales.maximum[s] = maximum;
    scales.are_short &= is_short<Form::family>(rule, out.brief, maximum);
    scales.take_quotient |= short_scale<Form, dtype>(
        rule, out.brief, maximum, approximate_reciprocal(maximum), scales.scale[s], scales.factor[s]);
    if constexpr (Form::family == Family::e4m3) scales.saturate |= code_is_saturated(scales.scale[s]);
  }
}
template <class Form, int count>
__device__ __forceinline__ void given_scales(const Output& out, ScalesOfMaxima<count>& scales) {
  const float factor = rule_in_kernel<Form, true>(out).given_factor;
  scales.are_short &= given_is_short(out, factor);
#pragma unroll
  for (int s = 0; s < count; ++s)
    scales.factor[s].bits = bits_of(factor);
}

/// Makes its answers those of the warp.
template <class Form, int count>
__device__ __forceinline__ void ask_warp(ScalesOfMaxima<count>& scales) {
  scales.are_short = __all_sync(0xFFFFFFFFU, scales.are_short);
  if constexpr (kMayTakeQuotient<Form>) scales.quotients = __ballot_sync(0xFFFFFFFFU, scales.take_quotient);
  if constexpr (Form::family == Family::e4m3) scales.saturate = __any_sync(0xFFFFFFFFU, scales.saturate);
}

/// Whether the first of a vector's numbers is NaN.
template <Dtype dtype>
__device__ __forceinline__ bool starts_with_nan(const std::uint32_t (&pairs)[4]) {
  float first, second;
  unpack_pair<dtype>(pairs[0], first, second);
  return first != first;
}

/// One address, and constant distances where the vectors lie in one row.
template <class Form, int vectors, class Where>
__device__ __forceinline__ void store_codes(const Output& out,
                                            const std::uint32_t (&codes)[vectors][Form::words],
                                            const Where& where) {
  const auto codes_at = places_of_codes<Form>(out, where);
#pragma unroll
  for (int v = 0; v < vectors; ++v)
    ptx::st_global_if(where.exists(v), codes_at(v), codes[v]);
}

/// Whether pairs of numbers are multiplied by `last` in any case: a branch would take longer than a few
/// products.
template <int vectors>
inline constexpr bool kAlwaysMultiplies = vectors <= 2;

/// Codes of pairs and their stores, then the scales.
///
/// @param scales        behind ask_warp(), or given
/// @param exactly       takes pairs, scales and codes, for groups that are not short: makes their scales and
///   codes and returns
///                      false, or writes them too and returns true
template <class Form, Dtype dtype, int vectors_of_row, int vectors, int count, class Where, class Exactly>
__device__ __forceinline__ void encode_pairs(const Output& out, std::uint32_t (&pairs)[vectors][4],
                                             ScalesOfMaxima<count>& scales, const Where& where,
                                             const Exactly& exactly) {
  using Shared = Sharing<Form, vectors, vectors_of_row>;
  static_assert(count == Shared::kScales);
  const int lane = where.lane();
  std::uint32_t codes[vectors][Form::words];
  const auto short_ones = [&]<bool clamps>() {
    short_codes_of_vectors<Form, Shared, dtype, 0, vectors, false, clamps>(scales.factor, pairs, lane, codes);
  };
  if (!scales.are_short) [[unlikely]] {
    if (exactly(pairs, scales, codes)) return;
  } else if (scales.saturate) {
    if constexpr (Form::family == Family::e4m3) short_ones.template operator()<true>();
  } else if (scales.quotients != 0) {
    if constexpr (kMayTakeQuotient<Form>) {
#pragma unroll
      for (int s = 0; s < Shared::kScales; ++s)  // no rest: y f + y 0
        if (scales.take_quotient) add_rest(scales.scale[s], scales.factor[s]);
      codes_by_quotient<Form, Shared, dtype>(scales.factor, pairs, lane, scales.quotients, codes);
    }
  } else {
    short_ones.template operator()<false>();
  }

  store_codes<Form>(out, codes, where);
  if (!is_given<Form, vectors_of_row>(out))
    store_scales<Form, Shared, vectors_of_row>(out, scales.scale, where);
}

/// For encode_pairs(): scales and codes of pairs that are y, under the largest |y|.
template <class Form, Dtype dtype, int vectors_of_row, int vectors, int count>
__device__ __forceinline__ void exact_codes(const Output& out, int lane,
                                            const std::uint32_t (&pairs)[vectors][4],
                                            ScalesOfMaxima<count>& scales,
                                            std::uint32_t (&codes)[vectors][Form::words]) {
  using Shared = Sharing<Form, vectors, vectors_of_row>;
#pragma unroll
  for (int s = 0; s < Shared::kScales; ++s) {
    if (is_given<Form, vectors_of_row>(out)) {
      scales.scale[s].factor = given_factor_of_any<Form>(out);
    } else {
      scales.scale[s] = scale_of_any<Form>(out, scales.maximum[s]);
    }
  }
#pragma unroll
  for (int v = 0; v < vectors; ++v)
    any_codes_of_vector<Form, dtype>(out.rule, scale_of_vector<Shared, true>(scales.scale, v, lane), pairs[v],
                                     codes[v]);
}

/// Codes and scales of a lane's vectors of x, the sums of the transform, by exact arithmetic alone.
/// Parameters as those of encode_rounded().
template <class Form, Dtype dtype, int vectors_of_row, int vectors, class Where, class Meet>
__device__ __forceinline__ void encode_exactly(const Output& out, const float (&x)[vectors][8],
                                               const Where& where, const Meet& meet) {
  using Shared = Sharing<Form, vectors, vectors_of_row>;
  ScalesOfMaxima<Shared::kScales> scales;
  std::uint32_t pairs[vectors][4], codes[vectors][Form::words];
  round_to_pairs<dtype, true>(out.last, x, pairs);
  if (!is_given<Form, vectors_of_row>(out))
    find_exact_maxima<Form, Shared, dtype>(out, pairs, where.lane(), scales.maximum, meet);
  exact_codes<Form, dtype, vectors_of_row>(out, where.lane(), pairs, scales, codes);
  store_codes<Form>(out, codes, where);
  if (!is_given<Form, vectors_of_row>(out))
    store_scales<Form, Shared, vectors_of_row>(out, scales.scale, where);
}

/// Codes and scales of a lane's vectors of x, the sums of the transform; y = last * x, rounded, is what is
/// encoded. With Output::last_of_numbers = 1 they are y already. Parameters as those of encode(). Rules with
/// Rule::in_f16 and scales of the whole tensor are left to that one.
///
/// @tparam again    whether `exactly` works x out again
/// @param finite    in this lane, as far as it is known
/// @param exactly   else, and where groups are not short: encodes all of the warp's rows
template <class Form, Dtype dtype, int vectors_of_row, bool again, int vectors, class Where, class Meet,
          class Exactly>
__device__ __forceinline__ void encode_rounded(const Output& out, float (&x)[vectors][8], const Where& where,
                                               bool finite, const Meet& meet, const Exactly& exactly) {
  using Shared = Sharing<Form, vectors, vectors_of_row>;
  std::uint32_t pairs[vectors][4];
  if (kAlwaysMultiplies<vectors> || out.last_of_numbers != 1.0F) {
    round_to_pairs<dtype, true>(out.last_of_numbers, x, pairs);
  } else {
    round_to_pairs<dtype, false>(1.0F, x, pairs);
  }

  ScalesOfMaxima<Shared::kScales> scales;
  scales.are_short = finite;
  if (is_given<Form, vectors_of_row>(out)) {
    given_scales<Form>(out, scales);
    if (again) scales.are_short = __all_sync(0xFFFFFFFFU, scales.are_short);
  } else {
    find_maxima_of_pairs<Form, Shared, dtype>(out, pairs, where.lane(), scales.maximum, meet);
    scales_of_maxima<Form, dtype>(out, scales);
    // A NaN among the data is in every element of its row, and in no maximum.
    if (where.asks_for_nan()) {
#pragma unroll
      for (int v = 0; v < vectors; v += vectors_of_row)
        scales.are_short &= !starts_with_nan<dtype>(pairs[v]);
    }
    ask_warp<Form>(scales);
  }
  encode_pairs<Form, dtype, vectors_of_row>(
      out, pairs, scales, where, [&](auto& pairs_of_y, auto& scales_of_y, auto& codes) {
        if constexpr (again) {
          exactly();
        } else {
          exact_codes<Form, dtype, vectors_of_row>(out, where.lane(), pairs_of_y, scales_of_y, codes);
        }
        return again;
      });
}

}  // namespace fwht::encoder
