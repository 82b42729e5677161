// The short ways to codes of rounded numbers, for all significands of a group's largest number and of its
// others, against the plain arithmetic.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "reference/quantize.hpp"
#include "variants/kit/encode/output.hpp"

namespace fwht::encoder {
namespace {

constexpr int bits_of_significand(Dtype dtype) {
  return dtype == Dtype::bf16 ? 8 : 11;
}

/// 1, ... below 2.
std::vector<float> significands(Dtype dtype) {
  std::vector<float> all;
  const int count = 1 << (bits_of_significand(dtype) - 1);
  for (int i = 0; i < count; ++i)
    all.push_back(1.0F + static_cast<float>(i) / static_cast<float>(count));
  return all;
}

std::uint32_t pair_of(Dtype dtype, float low, float high) {
  const auto bits = [&](float x) -> std::uint32_t {
    return dtype == Dtype::bf16 ? float_to_bf16(x) : float_to_f16(x);
  };
  return bits(low) | bits(high) << 16;
}

/// The short way's codes of eight numbers.
template <class Form, Dtype dtype>
std::vector<std::uint32_t> codes_in_short(const Rule& rule, float maximum, const float (&y)[8],
                                          float& scale_number, std::uint32_t& scale_code) {
  const float a = larger(maximum, rule.floor);
  EXPECT_TRUE(is_short<Form::family>(rule, short_rule_of(rule), a)) << a;
  Scale scale;
  ShortFactor factor;
  const bool takes_quotient = short_scale<Form, dtype>(rule, short_rule_of(rule), a, 1.0F / a, scale, factor);
  scale_number = scale.number, scale_code = scale.code;
  std::uint32_t pairs[4], words[Form::words];
  for (int i = 0; i < 4; ++i)
    pairs[i] = pair_of(dtype, y[2 * i], y[2 * i + 1]);
  const auto quotient = [&](std::uint32_t(&of_words)[Form::words]) {
    ShortFactor with_rest = factor;
    add_rest(scale, with_rest);
    short_codes<Form, dtype, true, false>(with_rest, pairs, of_words);
  };
  if (takes_quotient) {
    quotient(words);
  } else if (Form::family == Family::e4m3 && code_is_saturated(scale)) {
    short_codes<Form, dtype, false, true>(factor, pairs, words);
  } else {
    short_codes<Form, dtype, false, false>(factor, pairs, words);
  }
  if (kMayTakeQuotient<Form> && rule.codes == Codes::by_quotient) {  // as where others of the warp take it
    std::uint32_t same[Form::words];
    quotient(same);
    for (int w = 0; w < Form::words; ++w)
      EXPECT_EQ(same[w], words[w]) << maximum;
  }
  std::vector<std::uint32_t> codes;
  for (int e = 0; e < 8; ++e)
    codes.push_back(words[e * Form::bits / 32] >> (e * Form::bits % 32) & ((1U << Form::bits) - 1));
  return codes;
}

/// Groups whose largest number has any significand, or every `step`th, with all numbers of as many digits
/// from there to `powers` powers of two below.
template <class Form, Dtype dtype>
void compare_all_significands(const char* text, float tensor_scale, int exponent, int powers,
                              std::size_t step = 1) {
  const Encoding encoding = parse_encoding(text);
  const Rule rule = rule_of(encoding, tensor_scale);
  const std::vector<float> all = significands(dtype);
  long wrong = 0;
  for (std::size_t i = 0; i < all.size(); i += step) {
    const float largest = std::ldexp(all[i], exponent);
    const reference::GroupScale want = reference::scale_of(encoding, largest, tensor_scale);
    for (int power = 0; power <= powers; ++power) {
      for (std::size_t first = 0; first < all.size(); first += 8) {
        float y[8];
        for (std::size_t e = 0; e < 8; ++e) {
          y[e] = std::ldexp(all[first + e], exponent - power) * (e % 2 == 0 ? 1.0F : -1.0F);
          if (std::fabs(y[e]) > largest) y[e] = largest;
          if (dtype == Dtype::f16)
            y[e] = f16_to_float(float_to_f16(y[e]));  // subnormal ones have fewer digits
        }
        if (power == powers) y[3] = -0.0F, y[4] = 0.0F;
        float number = 0.0F;
        std::uint32_t code = 0;
        const std::vector<std::uint32_t> codes = codes_in_short<Form, dtype>(rule, largest, y, number, code);
        const std::uint32_t stored = Form::family == Family::f32 ? bits_of(number) : code;
        if (stored != want.stored && wrong++ < 4)
          ADD_FAILURE() << text << ": scale " << stored << " for " << want.stored << " of " << largest;
        for (std::size_t e = 0; e < 8; ++e) {
          if (codes[e] != reference::code_of(encoding, want, y[e]) && wrong++ < 4)
            ADD_FAILURE() << text << ": " << y[e] << " beside " << largest << " gives " << codes[e];
        }
      }
    }
  }
  EXPECT_EQ(wrong, 0) << text;
}

using E4m3 = Form<Element::e4m3, Family::f32, false, true>;
using Int8 = Form<Element::int8, Family::f32, false, true>;
using Int4 = Form<Element::int4, Family::f32, false, true>;
using Mxfp8 = Form<Element::e4m3, Family::e8m0, false, true>;
using Mxfp4 = Form<Element::e2m1, Family::e8m0, false, true>;
using Nvfp4 = Form<Element::e2m1, Family::e4m3, false, true>;

constexpr const char* kE4m3[] = {"e4m3:row",
                                 "e4m3:row,sglang_token",
                                 "e4m3:128",
                                 "e4m3:128,ue8m0",
                                 "e4m3:128,sglang_group",
                                 "e4m3:128,deepgemm",
                                 "e4m3:128,ue8m0,deepgemm",
                                 "e4m3:128,deepseek_v32"};

TEST(EncoderShortCodes, E4m3OfBf16) {
  for (const char* text : kE4m3) {
    for (const int exponent : {3, -12, -34, -60})  // above and below each recipe's floor
      compare_all_significands<E4m3, Dtype::bf16>(text, 1.0F, exponent, 20);
  }
}

TEST(EncoderShortCodes, E4m3OfF16) {
  for (const char* text : kE4m3) {
    const bool by_quotient = rule_of(parse_encoding(text), 1.0F).codes == Codes::by_quotient;
    compare_all_significands<E4m3, Dtype::f16>(text, 1.0F, 3, 19, by_quotient ? 1 : 15);
  }
}

TEST(EncoderShortCodes, IntegersOfBf16) {
  compare_all_significands<Int8, Dtype::bf16>("int8:row", 1.0F, 0, 10);
  compare_all_significands<Int4, Dtype::bf16>("int4:32", 1.0F, 0, 6);
}

TEST(EncoderShortCodes, IntegersOfF16) {
  compare_all_significands<Int8, Dtype::f16>("int8:row", 1.0F, 0, 10, 15);
  compare_all_significands<Int4, Dtype::f16>("int4:32", 1.0F, 0, 6, 15);
}

TEST(EncoderShortCodes, MicroscalingFormats) {
  for (const char* text : {"mxfp8", "mxfp8:rceil"}) {
    for (const int exponent : {0, 63, -63})
      compare_all_significands<Mxfp8, Dtype::bf16>(text, 1.0F, exponent, 20);
    compare_all_significands<Mxfp8, Dtype::f16>(text, 1.0F, 3, 20, 15);
  }
  for (const char* text : {"mxfp4", "mxfp4:rceil", "mxfp4:even"}) {
    for (const int exponent : {0, 63, -63})
      compare_all_significands<Mxfp4, Dtype::bf16>(text, 1.0F, exponent, 8);
    compare_all_significands<Mxfp4, Dtype::f16>(text, 1.0F, 3, 8, 15);
  }
  for (const float tensor_scale : {448.0F * 6 / 5.0F, 1e-9F, 3e9F}) {
    compare_all_significands<Nvfp4, Dtype::bf16>("nvfp4", tensor_scale, 1, 8);
    compare_all_significands<Nvfp4, Dtype::f16>("nvfp4", tensor_scale, 1, 8, 15);
  }
}

TEST(EncoderShortCodes, GroupsOfZerosAreShort) {
  const float y[8] = {0.0F, -0.0F, 0.0F, 0.0F, -0.0F, 0.0F, 0.0F, 0.0F};
  for (const char* text : kE4m3) {
    const Encoding encoding = parse_encoding(text);
    float number = 1.0F;
    std::uint32_t code = 0;
    const auto codes = codes_in_short<E4m3, Dtype::bf16>(rule_of(encoding, 1.0F), 0.0F, y, number, code);
    EXPECT_EQ(bits_of(number), reference::scale_of(encoding, 0.0F, 1.0F).stored) << text;
    EXPECT_EQ(codes, (std::vector<std::uint32_t>{0, 0x80, 0, 0, 0x80, 0, 0, 0})) << text;
  }
  float number = 1.0F;
  std::uint32_t code = 0;
  EXPECT_EQ(
      (codes_in_short<Int8, Dtype::bf16>(rule_of(parse_encoding("int8:row"), 1.0F), 0.0F, y, number, code)),
      std::vector<std::uint32_t>(8, 0));
  EXPECT_EQ(number, 0.0F);
  EXPECT_EQ(
      (codes_in_short<Mxfp4, Dtype::bf16>(rule_of(parse_encoding("mxfp4"), 1.0F), 0.0F, y, number, code)),
      (std::vector<std::uint32_t>{0, 8, 0, 0, 8, 0, 0, 0}));
}

/// Branches of a rule and the numbers in their place: the same scale and factor for every number of 16 bits
/// and every floor, from any reciprocal that the hardware may return.
TEST(EncoderShortCodes, ScalesAreThoseOfTheRule) {
  for (const char* text : kE4m3) {
    const Rule rule = rule_of(parse_encoding(text), 1.0F);
    const ShortRule brief = short_rule_of(rule);
    std::vector<float> maxima{1e-10F, 1e-4F};
    for (int exponent : {-20, -3, 0, 1, 17}) {
      for (float significand : significands(Dtype::f16))
        maxima.push_back(std::ldexp(significand, exponent));
    }
    for (float maximum : maxima) {
      const Scale want = scale_of<Family::f32, true>(rule, maximum);
      for (std::uint32_t units : {0xFFFFFFFFU, 0U, 1U}) {
        const float inverse = float_of(bits_of(1.0F / maximum) + units);
        Scale scale;
        ShortFactor factor;
        short_scale<Form<Element::int8, Family::f32, false, true>, Dtype::f16>(rule, brief, maximum, inverse,
                                                                               scale, factor);
        ASSERT_EQ(scale.number, want.number) << text << " " << maximum;
        if (want.number == rule.smallest) continue;  // such groups take the quotient
        ASSERT_EQ(factor.bits, bits_of(want.factor)) << text << " " << maximum << " " << inverse;
      }
    }
  }
}

}  // namespace
}  // namespace fwht::encoder
