// Codes of numbers of 16 bits, which numbers rounded to the storage type are: fewer instructions than codes
// of any fp32 numbers, and the same bits. A pair is two such numbers in a word, the first one in the lower
// half.
//
//   y / s to e4m3        y r + y rest, rounded once, with r = 1 / s rounded down and rest = 1 / s - r.
//                        Numbers of 8 or 11 bits are so far from the middles between codes, or on them, that
//                        this and the quotient have the same code. For bf16, and most significands of the
//                        maximum, y r alone gives the same bits, if r is the right neighbour of 1 / s; a
//                        table says which.
//   y (127 / a) to int8  one fused multiply-add, for bf16: only y = a / 2 comes near the middle of two
//                        integers, and a factor that is one unit larger decides as the rounded product does.
//   y 2^k                for bf16 exact in bf16: two products per instruction. To e2m1, it is part of the
//                        three roundings, additions to 128, 130, 134, whose last place is 1.
//
// short_codes_test.cpp compares all significands of y and a with the plain arithmetic.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/contract/dtype.hpp"
#include "variants/kit/encode/scales.hpp"

#ifdef __CUDACC__
#include "common/device/ptx/pairs.cuh"
#endif

namespace fwht::encoder {

// ---- pairs

/// Both numbers as fp32.
template <Dtype dtype>
FWHT_WARP_CODE void unpack_pair(std::uint32_t pair, float& low, float& high) {
  if constexpr (dtype == Dtype::bf16) {
    low = float_of(pair << 16);
    high = float_of(pair & 0xFFFF0000U);
  } else {
#ifdef __CUDA_ARCH__
    ptx::cvt_f32_f16x2(pair, low, high);
#else
    low = f16_to_float(static_cast<std::uint16_t>(pair & 0xFFFFU));
    high = f16_to_float(static_cast<std::uint16_t>(pair >> 16));
#endif
  }
}

/// a b + c of bf16 pairs, rounded once.
FWHT_WARP_CODE std::uint32_t multiply_add_bf16(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
#ifdef __CUDA_ARCH__
  return ptx::fma_rn_bf16x2(a, b, c);
#else
  const auto of_half = [&](int shift) {
    const auto number = [&](std::uint32_t pair) {
      return static_cast<double>(float_of((pair >> shift & 0xFFFFU) << 16));
    };
    const double exact = number(a) * number(b) + number(c);
    int exponent = 0;
    const double significand = std::frexp(exact, &exponent);
    const double rounded = std::ldexp(std::nearbyint(std::ldexp(significand, 8)), exponent - 8);
    return (bits_of(static_cast<float>(exact == 0.0 ? exact : rounded)) >> 16) << shift;
  };
  return of_half(0) | of_half(16);
#endif
}

/// a b of bf16 pairs: with -0 added, a zero keeps its sign.
FWHT_WARP_CODE std::uint32_t multiply_bf16(std::uint32_t a, std::uint32_t b) {
  return multiply_add_bf16(a, b, 0x80008000U);
}

FWHT_WARP_CODE std::uint32_t magnitudes_bf16(std::uint32_t a) {
#ifdef __CUDA_ARCH__
  return ptx::abs_x2<Dtype::bf16>(a);
#else
  return a & 0x7FFF7FFFU;
#endif
}

/// The smallest of the signed halves.
FWHT_WARP_CODE std::uint32_t smallest_halves(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
#ifdef __CUDA_ARCH__
  return __vimin3_s16x2(a, b, c);
#else
  const auto of_half = [&](int shift) {
    const auto half = [&](std::uint32_t word) { return static_cast<std::int16_t>(word >> shift & 0xFFFFU); };
    std::int16_t least = half(a) < half(b) ? half(a) : half(b);
    least = least < half(c) ? least : half(c);
    return std::uint32_t{static_cast<std::uint16_t>(least)} << shift;
  };
  return of_half(0) | of_half(16);
#endif
}

/// Bytes of a and b, as select_bytes has them, that are 0xFF where the byte's highest bit is set and else 0.
template <std::uint32_t selector>
FWHT_WARP_CODE std::uint32_t select_signs(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  std::uint32_t signs;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(signs) : "r"(a), "r"(b), "n"(selector | 0x8888U));
  return signs;
#else
  const std::uint32_t bytes = select_bytes(a, b, selector);
  return (bytes >> 7 & 0x01010101U) * 0xFFU;
#endif
}

/// Bit 3 of half byte i is the sign of number i of four pairs.
FWHT_WARP_CODE std::uint32_t signs_of_pairs(const std::uint32_t (&pairs)[4]) {
  const std::uint32_t first = select_signs<0x7351>(pairs[0], pairs[1]),
                      second = select_signs<0x7351>(pairs[2], pairs[3]);
  const std::uint32_t even = select_bytes(first, second, 0x5410), odd = select_bytes(first, second, 0x7632);
  return (even & 0x08080808U) | (odd & 0x80808080U);
}

// ---- codes

/// e2m1 codes of y times a power of two for eight numbers of bf16: the three sums of codes.hpp, each with the
/// product in it. All products below 15.
FWHT_WARP_CODE std::uint32_t e2m1_codes_of_bf16(const std::uint32_t (&pairs)[4], std::uint32_t factor) {
  constexpr std::uint32_t kTenth = 0x3DCC3DCCU;  // 51 / 512: 5 of them are less than a half, 5 + 2^-5 more
  const std::uint32_t twice = multiply_bf16(factor, 0x40004000U), tenth = multiply_bf16(factor, kTenth);
  std::uint32_t codes[4];  // in the bytes 0 and 2, on top of 0x43004300
  FWHT_UNROLL
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t y = magnitudes_bf16(pairs[i]);
    codes[i] = smallest_halves(multiply_add_bf16(y, twice, 0x43004300U),   // 2 c + 128
                               multiply_add_bf16(y, factor, 0x43024302U),  // c + 130
                               multiply_add_bf16(y, tenth, 0x43064306U));  // 134, or 135 from c > 5 on
  }
  const auto of_two_pairs = [&](int i) {
    const std::uint32_t magnitudes = select_bytes(codes[i], codes[i + 1], 0x6240);
    return magnitudes | (select_signs<0x7351>(pairs[i], pairs[i + 1]) & 0x08080808U);
  };
  const std::uint32_t first = of_two_pairs(0), second = of_two_pairs(2);
  const std::uint32_t even = select_bytes(first, second, 0x5410), odd = select_bytes(first, second, 0x7632);
  return odd * 16 + even;
}

/// What the numbers of a group are multiplied by.
struct ShortFactor {
  /// fp32; for numbers of bf16 and powers of two a pair of bf16
  std::uint32_t bits = 0;
  /// e4m3, Codes::by_quotient: what 1 / s exceeds the factor by, fp32
  std::uint32_t rest = 0;
};

template <class Form, Dtype dtype>
inline constexpr bool kMultipliesPairs = Form::family == Family::e8m0&& dtype == Dtype::bf16;

/// Whether codes are made of magnitudes in pairs.
template <class Form, Dtype dtype>
inline constexpr bool kNeedsMagnitudes = kMultipliesPairs<Form, dtype>&& Form::element == Element::e2m1;

/// Whether numbers may be divided by the scale, and not only multiplied.
template <class Form>
inline constexpr bool kMayTakeQuotient = Form::element == Element::e4m3&& Form::family == Family::f32;

/// A rule as numbers that take the place of branches.
struct ShortRule {
  // Family::e8m0
  float per_limit = 1.0F;  // 1 / M where the bits of a / M are wanted, else 1
  // Family::e4m3
  float most = -1.0F;  // of what is short; -1: nothing is
  // Family::f32
  float correction = 0.0F;                   // 1 / M where s = a / M, or 0
  std::uint32_t up = 0, keep = 0xFFFFFFFFU;  // s = (s + up) & keep on its bits
  std::uint32_t ratio = 0;                   // the factor is above / below: bits of a here, of s elsewhere
  float above = 1.0F;                        // M or 1
  bool inverts_exponent = false;             // s is a power of two, and the factor 1 / s
  // Where the maximum or s is this one, the significand does not tell whether the quotient is needed. -1: it
  // never is.
  float at_maximum = -1.0F, at_scale = -1.0F;
  std::uint32_t nudges[8] = {};  // see nudge_of()
};

/// For numbers of bf16 one factor does what y / s to e4m3 does, for most significands of the maximum: 1 / s
/// rounded, or the number before or behind it. Two bits for each of the 128 significands, the first on top,
/// two's complement; -2: none does.
inline constexpr std::uint32_t kNudgesOfQuotients[8] = {0x00400C00U, 0x0000D000U, 0x03090404U,
                                                        0x14088001U, 0x01840090U, 0x88100000U,
                                                        0x00000300U, 0x00004500U};  // s = a / 448
inline constexpr std::uint32_t kNudgesOfProducts[8] = {0x00400000U, 0x0000D003U, 0x03013434U,
                                                       0xD400830DU, 0xC1070010U, 0x000F3CCCU,
                                                       0x00000300U, 0x0000C500U};  // s = a * (1 / 448)
FWHT_WARP_CODE std::int32_t nudge_of(const std::uint32_t (&nudges)[8], float maximum) {
  const std::uint32_t bits = bits_of(maximum);
  return static_cast<std::int32_t>(nudges[bits >> 20 & 7U] << (bits >> 15 & 30U)) >> 30;
}

inline ShortRule short_rule_of(const Rule& rule) {
  ShortRule brief;
  if (!rule.divides) brief.per_limit = rule.per_limit;
  if (is_in_middle(rule.number_of_code)) brief.most = std::numeric_limits<float>::max();
  if (rule.divides) brief.correction = rule.per_limit;
  if (rule.power_of_two) brief.up = 0x7FFFFFU, brief.keep = 0x7F800000U;
  brief.inverts_exponent = rule.power_of_two && rule.codes != Codes::by_ratio;
  if (rule.codes == Codes::by_ratio) brief.ratio = 0xFFFFFFFFU, brief.above = rule.limit;
  if (rule.codes == Codes::by_quotient && !rule.power_of_two) {
    for (int i = 0; i < 8; ++i)
      brief.nudges[i] = rule.divides ? kNudgesOfQuotients[i] : kNudgesOfProducts[i];
    brief.at_maximum = rule.floor, brief.at_scale = rule.smallest;
  }
  return brief;
}

/// Groups of zeros are ordinary here: whatever the scale, their codes are zeros.
template <Family family>
FWHT_WARP_CODE bool is_short(const Rule& rule, const ShortRule& brief, float maximum) {
  if (family == Family::e8m0) return is_ordinary<family>(rule, maximum);
  if (family == Family::e4m3) return maximum <= brief.most;
  return is_in_middle(maximum) || maximum == 0.0F;  // Rule::in_f16 is not rounded first
}

/// Scale and factor of a group; whether its numbers take the quotient, see add_rest().
///
/// @param maximum  is_short()
/// @param inverse  of the maximum, within a unit in the last place
template <class Form, Dtype dtype>
FWHT_WARP_CODE bool short_scale(const Rule& rule, const ShortRule& brief, float maximum, float inverse,
                                Scale& scale, ShortFactor& factor) {
  bool takes_quotient = false;
  if constexpr (Form::family == Family::e4m3) {
    scale = scale_of<Family::e4m3, true>(rule, maximum);
    factor.bits = bits_of(scale.factor);
  } else if constexpr (Form::family == Family::e8m0) {
    const std::uint32_t exponent = (bits_of(multiply(maximum, brief.per_limit)) + rule.round_up) >> 23;
    scale.code = (exponent > rule.below ? exponent : rule.below) - rule.below;
    scale.factor = maximum == 0.0F ? 0.0F : float_of((254U - scale.code) << 23);
    factor.bits = bits_of(scale.factor);
    if constexpr (kMultipliesPairs<Form, dtype>) factor.bits = select_bytes(factor.bits, 0, 0x3232);
  } else {
    const float a_by_m = multiply(maximum, rule.per_limit);
    const float excess = fused_multiply_add(a_by_m, rule.limit, -maximum);
    const float s = larger(fused_multiply_add(-excess, brief.correction, a_by_m), rule.smallest);
    scale.number = float_of((bits_of(s) + brief.up) & brief.keep);
    // The factor is near M / a in any case, so it need not wait for s: twice a better one, and the power of
    // two by its exponent. Groups at Rule::smallest, whose s is another, take the quotient.
    const auto by_rule = [&](float of_ratio, float otherwise) {
      return float_of((bits_of(of_ratio) & brief.ratio) | (bits_of(otherwise) & ~brief.ratio));
    };
    const float near = multiply(rule.limit, inverse);
    const float below = by_rule(maximum, scale.number), per_below = by_rule(inverse, near);
    const float better = fused_multiply_add(fused_multiply_add(-below, near, brief.above), per_below, near);
    float f = fused_multiply_add(fused_multiply_add(-below, better, brief.above), per_below, better);
    if (brief.inverts_exponent) f = float_of((254U << 23) - bits_of(scale.number));
    if constexpr (Form::element == Element::e4m3 && dtype == Dtype::bf16) {
      const std::int32_t nudge = nudge_of(brief.nudges, maximum);
      takes_quotient = nudge == -2 || maximum == brief.at_maximum || scale.number == brief.at_scale;
      if (!takes_quotient) f = float_of(bits_of(f) + static_cast<std::uint32_t>(nudge));
    } else if constexpr (Form::element == Element::e4m3) {
      takes_quotient = rule.codes == Codes::by_quotient;
    }
    if constexpr (Form::element == Element::int8 && dtype == Dtype::bf16) {
      const bool ties = multiply(maximum, f) == rule.limit;
      if (ties && fused_multiply_add(maximum, f, -rule.limit) < 0.0F) f = float_of(bits_of(f) + 1);
    }
    if (maximum == 0.0F) f = 0.0F;
    factor.bits = bits_of(f);
  }
  return takes_quotient;
}

/// The factor of a group for the quotient: 1 / s rounded down, and its rest.
FWHT_WARP_CODE void add_rest(const Scale& scale, ShortFactor& factor) {
  if (factor.bits == 0) return;
  const float s = scale.number;
  float f = corrected_reciprocal(s, approximate_reciprocal(s));
  if (fused_multiply_add(s, f, -1.0F) > 0.0F) f = float_of(bits_of(f) - 1);
  factor.bits = bits_of(f);
  factor.rest = bits_of(multiply(fused_multiply_add(-s, f, 1.0F), f));
}

/// Four codes of eight bits under a scale that is_short(); see short_codes().
template <class Form, Dtype dtype, bool by_quotient>
FWHT_WARP_CODE std::uint32_t short_codes_of_four(const ShortFactor& factor, const float (&y)[4]) {
  const float first = float_of(factor.bits), rest = float_of(factor.rest);
  if constexpr (Form::element == Element::int8 && dtype == Dtype::bf16) {
    std::uint32_t integers[4];
    FWHT_UNROLL
    for (int e = 0; e < 4; ++e)
      integers[e] = bits_of(fused_multiply_add(y[e], first, 0x1.8p23F));
    return gather_bytes<0>(integers[0], integers[1], integers[2], integers[3]);
  } else {
    float q[4];
    FWHT_UNROLL
    for (int e = 0; e < 4; ++e)
      q[e] = by_quotient ? fused_multiply_add(y[e], first, multiply(y[e], rest)) : multiply(y[e], first);
    return Form::element == Element::e4m3 ? e4m3_codes(q[0], q[1], q[2], q[3])
                                          : int8_codes(q[0], q[1], q[2], q[3]);
  }
}

/// Codes of eight numbers under a scale that is_short().
///
/// @tparam by_quotient  e4m3: Codes::by_quotient
/// @tparam clamps       e2m1, numbers that are not multiplied in pairs: whether products may exceed 6
template <class Form, Dtype dtype, bool by_quotient, bool clamps>
FWHT_WARP_CODE void short_codes(const ShortFactor& factor, const std::uint32_t (&pairs)[4],
                                std::uint32_t (&words)[Form::words]) {
  if constexpr (kNeedsMagnitudes<Form, dtype>) {
    words[0] = e2m1_codes_of_bf16(pairs, factor.bits);
  } else if constexpr (kMultipliesPairs<Form, dtype>) {
    float q[8];
    FWHT_UNROLL
    for (int i = 0; i < 4; ++i)
      unpack_pair<Dtype::bf16>(multiply_bf16(pairs[i], factor.bits), q[2 * i], q[2 * i + 1]);
    codes_of_numbers<Form>(q, words);
  } else {
    const float first = float_of(factor.bits);
    float y[8];
    FWHT_UNROLL
    for (int i = 0; i < 4; ++i)
      unpack_pair<dtype>(pairs[i], y[2 * i], y[2 * i + 1]);
    if constexpr (Form::element == Element::e2m1) {
      words[0] = e2m1_magnitudes<clamps>(y, first) | signs_of_pairs(pairs);
    } else if constexpr (Form::bits == 8) {
      const float lower[4] = {y[0], y[1], y[2], y[3]}, upper[4] = {y[4], y[5], y[6], y[7]};
      words[0] = short_codes_of_four<Form, dtype, by_quotient>(factor, lower);
      words[1] = short_codes_of_four<Form, dtype, by_quotient>(factor, upper);
    } else {
      FWHT_UNROLL
      for (int e = 0; e < 8; ++e)
        y[e] = multiply(y[e], first);
      codes_of_numbers<Form>(y, words);
    }
  }
}

}  // namespace fwht::encoder
