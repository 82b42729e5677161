// From the largest |y| of a group to its scale, and from numbers and scale to codes: what each recipe of
// common/contract/encoding.hpp does, as one rule of plain numbers per family. So a kernel is compiled
// per family and not per recipe.
//
//   Family::f32    s = max(max(a, floor) / M, smallest), or a * (1 / M); to a power of two or fp16 on
//                  request; codes of y * (1 / s), y * (M / a) or y / s
//   Family::e8m0   s = 2^k from the bits of a; codes of y * 2^-k
//   Family::e4m3   the scale is a code itself, relative to a number given for the tensor
#pragma once

#include <cstdint>
#include <limits>

#include "common/contract/encoding.hpp"
#include "variants/kit/encode/codes.hpp"

namespace fwht::encoder {

enum class Family : std::uint8_t { f32, e8m0, e4m3 };

constexpr Family family_of(CodeFormat format) {
  if (format == CodeFormat::nvfp4) return Family::e4m3;
  const bool mx = format == CodeFormat::mxfp8 || format == CodeFormat::mxfp4;
  return mx ? Family::e8m0 : Family::f32;
}

/// Whether the kernels of storage_encoder.cuh take the encoding.
constexpr bool is_rounded_first(const Encoding& encoding) {
  const bool finds_scale_of_tensor =
      encoding.scales.kind == ScaleGranularity::Kind::tensor && writes_scales(encoding);
  return encoding.intermediate == Intermediate::storage && encoding.recipe != Recipe::quarot &&
         !finds_scale_of_tensor;
}

/// Elements that share a scale within a row of n, as the kernels see it.
constexpr std::int64_t group_in_row(const Encoding& encoding, std::int64_t n) {
  return encoding.scales.kind == ScaleGranularity::Kind::group ? encoding.scales.group : n;
}

/// Which number codes are rounded from.
enum class Codes : std::uint8_t {
  by_reciprocal,  ///< y * (1 / s)
  by_ratio,       ///< y * (M / a)
  by_quotient     ///< y / s
};

/// What a kernel is compiled for.
///
/// @tparam rounded_  numbers are rounded to the storage type first, and the rule is one of
///   storage_encoder.cuh
/// @tparam group_    elements that share an fp32 scale, at least
template <Element element_, Family family_, bool whole_row_, bool rounded_ = false, int group_ = 32>
struct Form {
  static constexpr Element element = element_;
  static constexpr Family family = family_;
  static constexpr bool whole_row = whole_row_;
  static constexpr bool rounded = rounded_;
  static constexpr int group = family == Family::f32 ? group_ : family == Family::e8m0 ? 32 : 16;
  static constexpr int bits = element == Element::e4m3 || element == Element::int8 ? 8 : 4;
  static constexpr int words = bits / 4;  // of a vector
};

/// A recipe as numbers.
struct Rule {
  // Family::f32
  float floor = 0.0F;                           // a smaller maximum counts as this
  float limit = 448.0F, per_limit = 1 / 448.F;  // M and 1 / M
  float smallest = 0.0F;                        // of s
  bool divides = true;                          // s = a / M, not a * (1 / M)
  bool power_of_two = false;                    // s is rounded up to 2^k
  bool in_f16 = false;                          // s, and y / s, are rounded to fp16
  Codes codes = Codes::by_reciprocal;
  // Family::e8m0
  std::uint32_t round_up = 0;  // added to the bits of the maximum before its exponent is taken
  std::uint32_t below = 0;     // taken from the exponent
  // Family::e4m3
  float code_of_maximum = 0.0F, number_of_code = 0.0F;  // g / 6, 1 / g
  // per tensor
  bool given = false;  // so there is nothing to find out
  float given_factor = 1.0F;
};

/// What follows from the number of the tensor. Kernels work it out themselves where only the device knows it.
/// One operation each, so that nothing is contracted.
///
/// @param inverse  1 / tensor_scale
constexpr void take_tensor_scale(Rule& rule, float tensor_scale, float inverse) {
  rule.given_factor = rule.number_of_code = inverse;
  rule.code_of_maximum = tensor_scale * (1.0F / 6.0F);
}
constexpr void take_tensor_scale(Rule& rule, float tensor_scale) {
  take_tensor_scale(rule, tensor_scale, 1.0F / tensor_scale);
}

/// Whether a rule of the form may have Rule::given: Recipe::vllm_static alone has.
template <class Form>
inline constexpr bool kMayBeGiven = Form::element == Element::e4m3&& Form::family == Family::f32;

/// Whether a rule of the form may have a number of the tensor, which only the device may know.
template <class Form>
inline constexpr bool kMayHaveTensorScale = kMayBeGiven<Form> || Form::family == Family::e4m3;

/// @param tensor_scale  Operands::tensor_scale
inline Rule rule_of(const Encoding& encoding, float tensor_scale) {
  constexpr std::uint32_t kUp = 0x7FFFFFU;  // to the next power of two, unless it is one
  const Element element = element_of(encoding.format);
  Rule rule;
  rule.limit = element == Element::e4m3   ? 448.0F
               : element == Element::e2m1 ? 6.0F
               : element == Element::int8 ? 127.0F
                                          : 7.0F;
  rule.per_limit = 1.0F / rule.limit;
  rule.power_of_two = encoding.scale_type == ScaleType::ue8m0;
  const std::uint32_t top_exponent = element == Element::e4m3 ? 8 : 2;  // of M
  switch (encoding.recipe) {
    case Recipe::vllm_token:
      rule.smallest = 1.0F / (448.0F * 512.0F);
      rule.codes = Codes::by_quotient;
      break;
    case Recipe::vllm_group:
      rule.floor = 1e-10F;
      rule.codes = Codes::by_quotient;
      break;
    case Recipe::vllm_static:
      rule.given = true;
      take_tensor_scale(rule, tensor_scale);
      break;
    case Recipe::sglang_group:
      rule.floor = 1e-10F;
      rule.divides = false;
      rule.codes = Codes::by_ratio;
      break;
    case Recipe::deepgemm:
      rule.floor = 1e-4F;
      rule.divides = false;
      break;
    case Recipe::deepseek_v32:
      rule.floor = 1e-4F;
      rule.divides = false;
      rule.codes = Codes::by_quotient;
      break;
    case Recipe::symmetric:
      rule.codes = Codes::by_ratio;
      break;
    case Recipe::floor:
      rule.below = top_exponent;
      break;
    case Recipe::rceil:
      rule.round_up = kUp;
      rule.divides = false;
      break;
    case Recipe::even:
      rule.round_up = 0x200000U;
      rule.below = top_exponent;
      break;
    case Recipe::te:
      take_tensor_scale(rule, tensor_scale);
      break;
    case Recipe::quarot:
      rule.in_f16 = true;
      rule.codes = Codes::by_quotient;
      break;
    case Recipe::vllm_tensor:
    case Recipe::sglang_token:
    case Recipe::none:
      break;
  }
  return rule;
}

/// The scale of a group.
struct Scale {
  float number = 0.0F;     // Family::f32: s
  float factor = 0.0F;     // codes are rounded from y * factor
  std::uint32_t code = 0;  // Family::e8m0, e4m3: what is stored
};

constexpr bool is_in_middle(float x) {
  return x >= 0x1p-64F && x <= 0x1p64F;
}

/// Whether the short arithmetic is exact for a group: no step leaves the range of normal numbers, not even
/// where a power of two up to 2^32 is taken out of the numbers and put into the factor. `maximum` is at least
/// Rule::floor.
template <Family family>
FWHT_WARP_CODE bool is_ordinary(const Rule& rule, float maximum) {
  const bool in_range = is_in_middle(maximum);
  // In fp16 s = a / 7 must be a normal number: then |y| / s does not exceed 7.5 either.
  if (family == Family::f32) return in_range && (!rule.in_f16 || (maximum >= 0x1p-10F && maximum <= 0x1p16F));
  if (family == Family::e8m0) return in_range || maximum == 0.0F;
  return is_in_middle(rule.number_of_code) && maximum <= std::numeric_limits<float>::max();
}

/// @tparam ordinary  is_ordinary(maximum)
template <Family family, bool ordinary>
FWHT_WARP_CODE Scale scale_of(const Rule& rule, float maximum) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  Scale scale;
  if constexpr (family == Family::f32) {
    float s = multiply(maximum, rule.per_limit);
    if (rule.divides)
      s = ordinary ? quotient(maximum, rule.limit, rule.per_limit) : divide(maximum, rule.limit);
    s = larger(s, rule.smallest);
    if (rule.power_of_two) s = float_of((bits_of(s) + 0x7FFFFFU) & 0x7F800000U);
    if (rule.in_f16) s = rounded_to_f16(s);
    const bool ratio = rule.codes == Codes::by_ratio;
    const float above = ratio ? rule.limit : 1.0F, below = ratio ? maximum : s;
    scale.number = s;
    if constexpr (ordinary) {
      const float r = corrected_reciprocal(below, approximate_reciprocal(below));
      scale.factor = ratio ? quotient(above, below, r) : r;
    } else {
      scale.factor = below == 0.0F ? 0.0F : smaller(divide(above, below), kLargest);
    }
  } else if constexpr (family == Family::e8m0) {
    std::uint32_t bits = bits_of(rule.divides ? maximum : multiply(maximum, rule.per_limit));
    if (!rule.divides && bits <= 0x400000U) bits = 0;  // 2^-127 and less
    const std::uint32_t exponent = (bits + rule.round_up) >> 23;
    scale.code = (exponent > rule.below ? exponent : rule.below) - rule.below;
    scale.factor = maximum == 0.0F ? 0.0F : float_of((254U - scale.code) << 23);
    if (!ordinary && maximum > kLargest) scale.code = 0xFF, scale.factor = 0.0F;
  } else {
    scale.code = e4m3_code(multiply(maximum, rule.code_of_maximum));
    const float s = multiply(number_of_e4m3(scale.code), rule.number_of_code);
    const float r =
        ordinary ? corrected_reciprocal(s, approximate_reciprocal(s)) : smaller(divide(1.0F, s), kLargest);
    scale.factor = scale.code == 0 ? 0.0F : r;
  }
  return scale;
}

/// Family::e4m3: whether the code of the scale saturated, so that products may be as large as they like.
/// Where it is subnormal and was rounded down they stay below 9.
FWHT_WARP_CODE bool code_is_saturated(const Scale& scale) {
  return scale.code == 0x7EU;
}

// ---- codes

/// What to round, exactly, whatever the numbers are.
template <class Form>
FWHT_WARP_CODE float number_to_round(const Rule& rule, const Scale& scale, float y) {
  const float q = Form::family == Family::f32 && rule.codes == Codes::by_quotient ? divide(y, scale.number)
                                                                                  : multiply(y, scale.factor);
  if (Form::element == Element::e2m1) return q != q ? std::numeric_limits<float>::infinity() : q;
  if (Form::element == Element::e4m3) return q;
  if (Form::element == Element::int4 && rule.in_f16) {  // a scale that lost digits lets y / s exceed -7
    const float in_f16 = rounded_to_f16(q);
    return in_f16 != in_f16 ? 0.0F : fminf(fmaxf(in_f16, -8.0F), 7.0F);
  }
  const float most = rule.limit;
  return q != q ? 0.0F : fminf(fmaxf(q, -most), most);
}

template <class Form>
FWHT_WARP_CODE void codes_of_numbers(const float (&q)[8], std::uint32_t (&words)[Form::words]) {
  if constexpr (Form::element == Element::e4m3) {
    words[0] = e4m3_codes(q[0], q[1], q[2], q[3]), words[1] = e4m3_codes(q[4], q[5], q[6], q[7]);
  } else if constexpr (Form::element == Element::int8) {
    words[0] = int8_codes(q[0], q[1], q[2], q[3]), words[1] = int8_codes(q[4], q[5], q[6], q[7]);
  } else if constexpr (Form::element == Element::int4) {
    words[0] = int4_codes(q);
  } else {
    words[0] = e2m1_codes<true>(q, 1.0F);
  }
}

/// @tparam clamps  e2m1: whether products may exceed 6
template <class Form, bool by_quotient, bool clamps>
FWHT_WARP_CODE void codes_of(const Scale& scale, const float (&y)[8], std::uint32_t (&words)[Form::words]) {
  if constexpr (Form::element == Element::e2m1) {
    words[0] = e2m1_codes<clamps>(y, scale.factor);
  } else {
    float q[8];
    FWHT_UNROLL
    for (int e = 0; e < 8; ++e)
      q[e] = by_quotient ? quotient(y[e], scale.number, scale.factor) : multiply(y[e], scale.factor);
    if (by_quotient && Form::element == Element::int4) {  // in fp16, as the rule says
      FWHT_UNROLL
      for (int e = 0; e < 8; ++e)
        q[e] = rounded_to_f16(q[e]);
    }
    codes_of_numbers<Form>(q, words);
  }
}

}  // namespace fwht::encoder
