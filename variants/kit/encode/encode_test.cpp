// The arithmetic of the epilogues that write codes, run on the host, against the plain definitions of
// reference/quantize.hpp.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/host/error.hpp"
#include "reference/quantize.hpp"
#include "variants/kit/encode/output.hpp"

namespace fwht::encoder {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Bit patterns of fp32 that matter to a rounding: around every number of eight leading bits and the middles
/// between them, subnormals, infinities, NaN, and many at random; both signs.
std::vector<float> probes() {
  std::vector<float> all{0.0F, -0.0F, kInfinity, -kInfinity, kNan, -kNan, std::numeric_limits<float>::max()};
  for (std::uint32_t top = 0; top < 0x7F80U; ++top) {
    for (const std::uint32_t rest : {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      all.push_back(float_of(top << 16 | rest));
      all.push_back(-all.back());
    }
  }
  std::mt19937 random(1);
  for (int i = 0; i < 1 << 19; ++i)
    all.push_back(float_of(static_cast<std::uint32_t>(random())));
  return all;
}

std::string hex_of(float x) {
  return std::to_string(bits_of(x)) + " (" + std::to_string(x) + ")";
}

// Beside numbers of every kind: NaN, negative and saturated ones reach no other code.
TEST(EncoderCodes, E4m3InSoftwareRoundsToTheNearestCodeInEveryPlace) {
  const std::vector<float> all = probes();
  for (std::size_t i = 0; i < all.size(); ++i) {
    float x[4];
    std::uint32_t want = 0;
    for (std::size_t place = 0; place < 4; ++place) {
      x[place] = all[(i + place * 7919) % all.size()];
      want |= static_cast<std::uint32_t>(reference::to_e4m3(x[place])) << 8 * place;
    }
    ASSERT_EQ(e4m3_in_software(x[0], x[1], x[2], x[3]), want) << hex_of(x[0]);
    ASSERT_EQ(e4m3_code(x[0]), reference::to_e4m3(x[0])) << hex_of(x[0]);
  }
}

TEST(EncoderCodes, FourE4m3CodesLieInOrder) {
  EXPECT_EQ(e4m3_codes(1.0F, -2.0F, 448.0F, -0.0F), 0x807EC038U);
}

TEST(EncoderCodes, EveryE4m3CodeReadsBack) {
  for (std::uint32_t code = 0; code < 0x7F; ++code)
    EXPECT_EQ(static_cast<double>(number_of_e4m3(code)),
              reference::from_e4m3(static_cast<std::uint8_t>(code)));
}

TEST(EncoderCodes, E2m1RoundsToTheNearestCodeInEveryPlace) {
  const std::vector<float> all = probes();
  for (std::size_t i = 0; i + 8 <= all.size(); i += 8) {
    float y[8];
    bool below_seven = true;
    for (std::size_t e = 0; e < 8; ++e) {
      y[e] = std::isnan(all[i + e]) ? kInfinity : all[i + e];  // the caller takes care of NaN
      below_seven &= std::fabs(y[e]) < 7.0F;
    }
    const std::uint32_t clamped = e2m1_codes<true>(y, 1.0F);
    for (int e = 0; e < 8; ++e)
      ASSERT_EQ(clamped >> (4 * e) & 15U, reference::to_e2m1(y[e])) << hex_of(y[e]) << " at " << e;
    if (below_seven) {
      ASSERT_EQ(e2m1_codes<false>(y, 1.0F), clamped);
    }
  }
  // Most of the probes exceed 7: the same with those scaled down.
  for (std::size_t i = 0; i + 8 <= all.size(); i += 8) {
    float y[8];
    for (std::size_t e = 0; e < 8; ++e) {
      y[e] = float_of((bits_of(all[i + e]) & 0x807FFFFFU) | (0x7EU + (bits_of(all[i + e]) >> 23) % 4) << 23);
      if (std::fabs(y[e]) >= 7.0F) y[e] *= 0.5F;
    }
    const std::uint32_t codes = e2m1_codes<false>(y, 1.0F);
    for (int e = 0; e < 8; ++e)
      ASSERT_EQ(codes >> (4 * e) & 15U, reference::to_e2m1(y[e])) << hex_of(y[e]) << " at " << e;
  }
}

TEST(EncoderCodes, IntegersRoundToTheNearestEven) {
  std::mt19937 random(2);
  for (int i = 0; i < 1 << 18; ++i) {
    float x[8];
    for (float& each : x)  // halves are ties
      each = i % 2 == 0 ? static_cast<float>(static_cast<int>(random() % 509) - 254) / 2
                        : static_cast<float>(random()) / 0x1p32F * 254.0F - 127.0F;
    const std::uint32_t codes = int8_codes(x[0], x[1], x[2], x[3]);
    for (int e = 0; e < 4; ++e)
      ASSERT_EQ(static_cast<std::int8_t>(codes >> (8 * e) & 0xFFU),
                reference::to_integer(static_cast<double>(x[e]), -128, 127))
          << x[e];
    for (float& each : x)
      each = std::fmod(each, 7.5F);
    const std::uint32_t half_bytes = int4_codes(x);
    for (int e = 0; e < 8; ++e)
      ASSERT_EQ(half_bytes >> (4 * e) & 15U,
                static_cast<std::uint32_t>(reference::to_integer(static_cast<double>(x[e]), -8, 7)) & 15U)
          << x[e];
  }
}

TEST(EncoderArithmetic, ReciprocalsAreCorrectlyRoundedFromApproximations) {
  for (std::uint32_t m = 0; m < 1U << 23; ++m) {
    const float x = float_of(0x3F800000U | m), exact = 1.0F / x;
    ASSERT_EQ(corrected_reciprocal(x, exact), exact) << x;
    if (m == 0x7FFFFFU) continue;  // see arithmetic.hpp
    ASSERT_EQ(corrected_reciprocal(x, float_of(bits_of(exact) - 1)), exact) << x;
    ASSERT_EQ(corrected_reciprocal(x, float_of(bits_of(exact) + 1)), exact) << x;
  }
}

TEST(EncoderArithmetic, QuotientsAreCorrectlyRounded) {
  for (const float b : {448.0F, 127.0F, 7.0F, 6.0F}) {
    for (std::uint32_t m = 0; m < 1U << 23; ++m) {
      const float a = float_of(0x3F800000U | m);
      ASSERT_EQ(quotient(a, b, 1.0F / b), a / b) << a << " / " << b;
    }
  }
  std::mt19937 random(3);
  for (int i = 0; i < 1 << 22; ++i) {
    const float a = float_of(0x3F800000U | (random() & 0x7FFFFFU)),
                b = float_of(0x3F800000U | (random() & 0x7FFFFFU));
    ASSERT_EQ(quotient(a, b, 1.0F / b), a / b) << a << " / " << b;
    ASSERT_EQ(quotient(-a, b, 1.0F / b), -a / b) << a << " / " << b;
  }
  EXPECT_TRUE(std::signbit(quotient(-0.0F, 3.0F, 1.0F / 3.0F)));
}

// ---- recipes

struct RecipeCase {
  const char* text;
  std::int64_t n;
  float tensor_scale;
};
constexpr RecipeCase kRecipes[] = {
    {"e4m3:row", 128, 1.0F},
    {"e4m3:row,sglang_token", 128, 1.0F},
    {"e4m3:128", 128, 1.0F},
    {"e4m3:128,ue8m0", 128, 1.0F},
    {"e4m3:128,sglang_group", 128, 1.0F},
    {"e4m3:128,deepgemm", 128, 1.0F},
    {"e4m3:128,ue8m0,deepgemm", 128, 1.0F},
    {"e4m3:128,deepseek_v32", 128, 1.0F},
    {"e4m3:tensor,vllm_static", 128, 0.37F},
    {"int8:row", 128, 1.0F},
    {"int4:32", 128, 1.0F},
    {"int4:64,quarot", 128, 1.0F},
    {"mxfp8", 128, 1.0F},
    {"mxfp8:rceil", 128, 1.0F},
    {"mxfp4", 128, 1.0F},
    {"mxfp4:rceil", 128, 1.0F},
    {"mxfp4:even", 128, 1.0F},
    {"nvfp4", 128, 448.0F * 6 / 5.0F},
    {"nvfp4", 128, 1e-30F},
    {"nvfp4", 128, 3e30F},
};

/// The scale as it is stored and the codes of eight numbers, as the epilogue has them.
template <class Form>
void encode_as_device(const Encoding& encoding, float tensor_scale, float largest, const float (&y)[8],
                      std::uint32_t& stored, std::uint32_t (&codes)[8], bool& short_way) {
  const Rule rule = rule_of(encoding, tensor_scale);
  const float maximum = larger(largest, rule.floor);
  bool has_nan = false;
  for (const float each : y)
    has_nan |= std::isnan(each);
  short_way = rule.given || (is_ordinary<Form::family>(rule, maximum) && !has_nan);
  Scale scale;
  if (rule.given) {
    scale.factor = rule.given_factor;
  } else {
    scale = short_way ? scale_of<Form::family, true>(rule, maximum)
                      : scale_of<Form::family, false>(rule, maximum);
  }
  std::uint32_t words[Form::words];
  if (!short_way) {
    float q[8];
    for (int e = 0; e < 8; ++e)
      q[e] = number_to_round<Form>(rule, scale, y[e]);
    codes_of_numbers<Form>(q, words);
  } else if (rule.codes == Codes::by_quotient && Form::family == Family::f32) {
    codes_of<Form, true, false>(scale, y, words);
  } else if (Form::family == Family::e4m3 && code_is_saturated(scale)) {
    codes_of<Form, false, true>(scale, y, words);
  } else {
    codes_of<Form, false, false>(scale, y, words);
  }
  for (int e = 0; e < 8; ++e)
    codes[e] = words[e * Form::bits / 32] >> (e * Form::bits % 32) & ((1U << Form::bits) - 1);
  stored = Form::family == Family::f32 ? bits_of(scale.number) : scale.code;
  if (rule.in_f16) stored = f16_bits_of(scale.number);
  if (!short_way || rule.given) return;
  // The same of numbers without a last factor of 32, which goes into that of the group.
  float x[8];
  for (int e = 0; e < 8; ++e)
    x[e] = y[e] / 32;
  const Scale folded{scale.number / 32, scale.factor * 32, scale.code};
  std::uint32_t again[Form::words];
  if (rule.codes == Codes::by_quotient && Form::family == Family::f32) {
    codes_of<Form, true, false>(folded, x, again);
  } else if (Form::family == Family::e4m3 && code_is_saturated(scale)) {
    codes_of<Form, false, true>(folded, x, again);
  } else {
    codes_of<Form, false, false>(folded, x, again);
  }
  for (int w = 0; w < Form::words; ++w)
    EXPECT_EQ(again[w], words[w]) << largest;
}

template <class Body>
void with_form(CodeFormat format, const Body& body) {
  switch (format) {
    case CodeFormat::plain:
      FAIL();
    case CodeFormat::e4m3:
      return body.template operator()<Form<Element::e4m3, Family::f32, false>>();
    case CodeFormat::int8:
      return body.template operator()<Form<Element::int8, Family::f32, false>>();
    case CodeFormat::int4:
      return body.template operator()<Form<Element::int4, Family::f32, false>>();
    case CodeFormat::mxfp8:
      return body.template operator()<Form<Element::e4m3, Family::e8m0, false>>();
    case CodeFormat::mxfp4:
      return body.template operator()<Form<Element::e2m1, Family::e8m0, false>>();
    case CodeFormat::nvfp4:
      return body.template operator()<Form<Element::e2m1, Family::e4m3, false>>();
  }
}

TEST(EncoderRecipes, FormsThatAskForNoNumberOfTheTensorHaveNoRecipeWithOne) {
  using Kind = ScaleGranularity::Kind;
  int with_number = 0;
  for (const CodeFormat format : {CodeFormat::e4m3, CodeFormat::int8, CodeFormat::int4, CodeFormat::mxfp8,
                                  CodeFormat::mxfp4, CodeFormat::nvfp4}) {
    for (const Kind kind : {Kind::tensor, Kind::row, Kind::group}) {
      for (int recipe = 0; recipe <= static_cast<int>(Recipe::te); ++recipe) {
        Encoding encoding = make_encoding(format, {kind, kind == Kind::group ? 32 : 0});
        encoding.recipe = static_cast<Recipe>(recipe);
        try {
          validate(encoding, 128);
        } catch (const BadRequest&) {
          continue;
        }
        with_number += needs_tensor_scale(encoding) ? 1 : 0;
        with_form(format, [&]<class Form>() {
          EXPECT_TRUE(kMayHaveTensorScale<Form> || !needs_tensor_scale(encoding)) << to_string(encoding);
          EXPECT_TRUE(kMayBeGiven<Form> || !rule_of(encoding, 1.0F).given) << to_string(encoding);
        });
      }
    }
  }
  EXPECT_GE(with_number, 2);
}

TEST(EncoderRecipes, ScalesAndCodesAreThoseOfTheReference) {
  const std::vector<float> all = probes();
  for (const RecipeCase& each : kRecipes) {
    const Encoding encoding = parse_encoding(each.text);
    validate(encoding, each.n);
    int short_ways = 0, long_ways = 0;
    with_form(encoding.format, [&]<class Form>() {
      std::mt19937 random(4);
      for (std::size_t i = 0; i < all.size(); i += 3) {
        float y[8] = {std::isnan(all[i]) ? kNan
                                         : all[i]};  // fmax minds signaling ones, and no sum gives them
        for (int e = 1; e < 8; ++e)                  // of the same size, ties among them
          y[e] = e % 2 == 0 ? y[0] * static_cast<float>(e) / 8
                            : y[0] * (static_cast<float>(random()) / 0x1p31F - 1.0F);
        float largest = 0.0F;
        for (const float one : y)
          largest = std::fmax(largest, std::fabs(one));
        std::uint32_t stored = 0, codes[8];
        bool short_way = false;
        encode_as_device<Form>(encoding, each.tensor_scale, largest, y, stored, codes, short_way);
        ++(short_way ? short_ways : long_ways);
        const reference::GroupScale want = reference::scale_of(encoding, largest, each.tensor_scale);
        if (writes_scales(encoding)) {
          ASSERT_EQ(stored, want.stored) << each.text << " of " << hex_of(largest);
        }
        for (int e = 0; e < 8; ++e)
          ASSERT_EQ(codes[e], reference::code_of(encoding, want, y[e]))
              << each.text << " " << hex_of(y[e]) << " beside " << hex_of(largest);
      }
    });
    EXPECT_EQ(short_ways > 0, each.tensor_scale > 1e-9F && each.tensor_scale < 1e9F) << each.text;
    EXPECT_EQ(long_ways > 0, writes_scales(encoding)) << each.text;
  }
}

// ---- what is offered

TEST(EncoderSupport, SaysWhatIsNotOffered) {
  const auto why = [](const std::string& text) { return supports(parse_problem(text)).why_not; };
  EXPECT_EQ(why("bf16/n4096/r8/out>e4m3:row"), "");
  EXPECT_EQ(why("bf16/n64/r8/out>mxfp4"), "");
  EXPECT_EQ(why("bf16/n128/r8/out>e4m3:128,t1024"), "");
  const auto refusal = [](const std::string& encoding, const std::string& reason) {
    return "the encoding " + encoding + " is not offered by this variant: " + reason;
  };
  EXPECT_EQ(why("bf16/n1024/r8/out>e4m3:512"),
            refusal("e4m3:512", "group=512 must be a power of two from 32 to 256"));
  EXPECT_EQ(why("bf16/n64/r8/out>e4m3:128"),
            refusal("e4m3:128", "group=128 must be a power of two from 32 to 64"));
  EXPECT_EQ(why("bf16/n128/r8/out>e4m3:row,t1024"),
            refusal("e4m3:row,t1024", "1024 elements share a scale, and a row has n=128"));
  EXPECT_EQ(why("bf16/n128/r8/ld132/out>e4m3:row"),
            refusal("e4m3:row", "row_stride=132 of the input must be a multiple of 8 below 2^32"));
  EXPECT_EQ(why("bf16/n128/r8/out>e4m3:tensor"), "");
  EXPECT_EQ(why("f16/n128/r8/out>int4:row,quarot"), "");
}

TEST(EncoderOutput, GroupsTokensAndPaddingAreCounted) {
  Problem problem = parse_problem("bf16/n128/r24/out>mxfp8:packed,t1024");
  std::uint8_t byte = 0;
  Operands operands;
  operands.out = operands.scales = &byte;
  Output out = output_of(problem, operands, 32, 1.0F);
  EXPECT_EQ(out.lanes, 4);
  EXPECT_EQ(out.log_group, 5);
  EXPECT_EQ(out.rows_per_token, 8);
  EXPECT_EQ(out.scale_rows, 3);
  EXPECT_EQ(out.scale_columns, 32);
  EXPECT_EQ(out.row_bytes, 128U);
  EXPECT_TRUE(out.pads);  // 3 tokens to 4
  problem = parse_problem("bf16/n128/r32/out>mxfp8:packed,t1024");
  EXPECT_FALSE(output_of(problem, operands, 32, 1.0F).pads);
  problem = parse_problem("bf16/n128/r3/out>e4m3:128,mn/f32");
  EXPECT_FALSE(output_of(problem, operands, 128, 1.0F).pads);  // this layout's padding is not written
  EXPECT_FALSE(output_of(problem, operands, 128, 1.0F).rounds_first);
}

TEST(EncoderOutput, LastFactorsThatArePowersOfTwoAreFoldedIntoTheFactorOfAGroup) {
  const Rule rule = rule_of(parse_encoding("e4m3:128"), 1.0F);
  EXPECT_TRUE(folds(rule, Dtype::bf16, 32.0F));
  EXPECT_FALSE(folds(rule, Dtype::bf16, 0.7F));
  EXPECT_FALSE(folds(rule, Dtype::bf16, 0x1p40F));
  EXPECT_TRUE(folds(rule, Dtype::f16, 1.0F));
  EXPECT_FALSE(folds(rule, Dtype::f16, 2.0F)) << "subnormal numbers of f16 lie on a grid that does not scale";
  const Encoding given = parse_encoding("e4m3:tensor,vllm_static");
  EXPECT_TRUE(folds(rule_of(given, 0.01F), Dtype::bf16, 32.0F));
  EXPECT_FALSE(folds(rule_of(given, 1e-30F), Dtype::bf16, 32.0F));
}

}  // namespace
}  // namespace fwht::encoder
