// The conversions against their definition (nearest of a sorted list of numbers, ties to the even code), the
// recipes against their tables and against what they guarantee, the layouts against small cases by hand.
#include "reference/quantize.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "common/host/parallel_for.hpp"

namespace fwht::reference {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();

Encoding encoding_of(std::string_view text) {
  return parse_encoding(text);
}
float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

/// The non-negative numbers of a format in the order of their codes, by the definition of the format.
std::vector<double> numbers(int exponent_bits, int mantissa_bits, int bias, int count) {
  std::vector<double> values;
  for (int code = 0; code < count; ++code) {
    const int exponent = code >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
    EXPECT_LT(exponent, 1 << exponent_bits);
    const double significand = std::ldexp(mantissa, -mantissa_bits) + (exponent > 0 ? 1.0 : 0.0);
    values.push_back(std::ldexp(significand, std::max(exponent, 1) - bias));
  }
  return values;
}
const std::vector<double>& e4m3_numbers() {
  static const std::vector<double> values = numbers(4, 3, 7, 127);
  return values;
}
const std::vector<double>& e2m1_numbers() {
  static const std::vector<double> values = numbers(2, 1, 1, 8);
  return values;
}

/// Bits of the first float whose code is at least k, for k = 1 ..; the floats of code k lie between two of
/// them. The middle of two neighbours is a float; it belongs to the even code.
std::vector<std::uint32_t> first_floats(const std::vector<double>& values) {
  std::vector<std::uint32_t> first;
  for (std::size_t k = 1; k < values.size(); ++k) {
    const double middle = (values[k - 1] + values[k]) / 2;
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(middle));
    EXPECT_EQ(static_cast<double>(static_cast<float>(middle)), middle);
    first.push_back(k % 2 == 0 ? bits : bits + 1);
  }
  return first;
}

/// Compares `convert` with the list for the non-negative floats begin, begin + step, ..., up to infinity.
std::int64_t wrong_codes(std::uint8_t (*convert)(float), const std::vector<double>& values,
                         std::uint32_t begin, std::uint32_t end, std::uint32_t step, std::uint8_t sign) {
  const std::vector<std::uint32_t> first = first_floats(values);
  auto next = std::upper_bound(first.begin(), first.end(), begin);
  std::int64_t wrong = 0;
  for (std::uint64_t bits = begin; bits < end; bits += step) {
    while (next != first.end() && bits >= *next)
      ++next;
    const auto want = static_cast<std::uint8_t>(next - first.begin());
    const float value = float_of(static_cast<std::uint32_t>(bits));
    wrong += convert(value) != want;
    wrong += convert(-value) != (want | sign);
  }
  return wrong;
}

constexpr std::uint32_t kInfinityBits = 0x7F800000U;

TEST(Conversions, CodesStandForTheNumbersOfTheFormat) {
  ASSERT_EQ(e4m3_numbers().back(), 448.0);
  ASSERT_EQ(e4m3_numbers()[1], 0x1p-9);
  EXPECT_EQ(e2m1_numbers(), (std::vector<double>{0, 0.5, 1, 1.5, 2, 3, 4, 6}));
  for (std::uint8_t code = 0; code < 127; ++code) {
    EXPECT_EQ(from_e4m3(code), e4m3_numbers()[code]);
    EXPECT_EQ(from_e4m3(code | 0x80), -e4m3_numbers()[code]);
    EXPECT_EQ(to_e4m3(static_cast<float>(from_e4m3(code))), code);
  }
  for (std::uint8_t code = 0; code < 16; ++code) {
    EXPECT_EQ(from_e2m1(code), (code & 8 ? -1 : 1) * e2m1_numbers()[code & 7]);
    EXPECT_EQ(to_e2m1(static_cast<float>(from_e2m1(code))), code);
  }
  EXPECT_TRUE(std::isnan(from_e4m3(0x7F)) && std::isnan(from_e4m3(0xFF)) && std::isnan(from_e8m0(255)));
  EXPECT_EQ(from_e8m0(0), 0x1p-127);
  EXPECT_EQ(from_e8m0(127), 1.0);
  EXPECT_EQ(from_e8m0(254), 0x1p127);
}

// Both sides of every threshold, and the ends.
TEST(Conversions, SwitchExactlyAtTheMiddle) {
  for (const auto& [convert, values] : {std::pair{&to_e4m3, &e4m3_numbers()}, {&to_e2m1, &e2m1_numbers()}}) {
    const std::vector<std::uint32_t> first = first_floats(*values);
    for (std::size_t k = 0; k < first.size(); ++k) {
      EXPECT_EQ(convert(float_of(first[k])), k + 1);
      EXPECT_EQ(convert(float_of(first[k] - 1)), k);
    }
    const auto largest = static_cast<std::uint8_t>(values->size() - 1);
    EXPECT_EQ(convert(kInfinity), largest);
    EXPECT_EQ(convert(kLargest), largest);
    EXPECT_EQ(convert(0.0F), 0);
    EXPECT_EQ(convert(float_of(1)), 0);
  }
  EXPECT_EQ(to_e4m3(-0.0F), 0x80);
  EXPECT_EQ(to_e2m1(-0.0F), 0x8);
  EXPECT_EQ(to_e4m3(-kInfinity), 0xFE);
  EXPECT_EQ(to_e2m1(-kInfinity), 0xF);
  EXPECT_EQ(to_e4m3(kNan), 0x7F);
  EXPECT_EQ(to_e4m3(-kNan), 0x7F);
  EXPECT_EQ(to_e2m1(kNan), 7);
  EXPECT_EQ(to_e2m1(-kNan), 7);
}

TEST(Conversions, EveryThousandthFloat) {
  EXPECT_EQ(wrong_codes(to_e4m3, e4m3_numbers(), 0, kInfinityBits, 1009, 0x80), 0);
  EXPECT_EQ(wrong_codes(to_e2m1, e2m1_numbers(), 0, kInfinityBits, 1009, 0x8), 0);
  // The comparison can fail: truncation, and a list with one number moved.
  const auto truncates = [](float x) { return to_e2m1(std::nextafter(x, 0.0F)); };
  EXPECT_GT(wrong_codes(truncates, e2m1_numbers(), 0x3E800000U - 4, 0x3FFFFFFFU, 1, 0x8), 0);
  std::vector<double> moved = e4m3_numbers();
  moved[60] += 0x1p-9;
  EXPECT_GT(wrong_codes(to_e4m3, moved, 0, kInfinityBits, 1009, 0x80), 0);
}

// A minute on one core; run with --gtest_also_run_disabled_tests when a conversion changes.
TEST(Conversions, DISABLED_EveryFiniteFloat) {
  std::atomic<std::int64_t> wrong = 0;
  const int pieces = 1024;
  parallel_for(pieces, static_cast<int>(std::thread::hardware_concurrency()),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t piece = begin; piece < end; ++piece) {
                   const auto from = static_cast<std::uint32_t>(piece * kInfinityBits / pieces);
                   const auto to = static_cast<std::uint32_t>((piece + 1) * kInfinityBits / pieces);
                   wrong += wrong_codes(to_e4m3, e4m3_numbers(), from, to, 1, 0x80);
                   wrong += wrong_codes(to_e2m1, e2m1_numbers(), from, to, 1, 0x8);
                 }
               });
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Conversions, IntegersRoundToEvenAndSaturate) {
  for (int i = -300 * 64; i <= 300 * 64; ++i) {
    const double value = i / 64.0, below = std::floor(value);
    double want =
        value - below > 0.5 || (value - below == 0.5 && std::fmod(below, 2.0) != 0.0) ? below + 1 : below;
    want = std::min(std::max(want, -128.0), 127.0);
    EXPECT_EQ(to_integer(value, -128, 127), static_cast<int>(want)) << value;
  }
  EXPECT_EQ(to_integer(7.4, -8, 7), 7);
  EXPECT_EQ(to_integer(1e30, -8, 7), 7);
  EXPECT_EQ(to_integer(-1e30, -8, 7), -8);
  EXPECT_EQ(to_integer(std::nan(""), -8, 7), 0);
}

// ------------------------------------------------------------ recipes

float scale_number(std::string_view text, float largest, float tensor_scale = 1.0F) {
  return float_of(scale_of(encoding_of(text), largest, tensor_scale).stored);
}
std::uint32_t scale_byte(std::string_view text, float largest, float tensor_scale = 1.0F) {
  return scale_of(encoding_of(text), largest, tensor_scale).stored;
}
int code(std::string_view text, float largest, float value, float tensor_scale = 1.0F) {
  const Encoding encoding = encoding_of(text);
  return code_of(encoding, scale_of(encoding, largest, tensor_scale), value);
}

TEST(Recipes, RoundNumbersGiveTheScalesOfTheirFormulas) {
  for (const char* text : {"e4m3:row", "e4m3:row,sglang_token", "e4m3:tensor", "e4m3:128",
                           "e4m3:128,deepgemm", "e4m3:128,deepseek_v32", "e4m3:128,sglang_group"}) {
    EXPECT_EQ(scale_number(text, 896.0F), 2.0F) << text;
    EXPECT_EQ(code(text, 896.0F, 896.0F), 0x7E) << text;
    EXPECT_EQ(code(text, 896.0F, -896.0F), 0xFE) << text;
    EXPECT_EQ(code(text, 896.0F, 2.0F), 0x38) << text;  // 1.0
    EXPECT_EQ(code(text, 896.0F, -0.0F), 0x80) << text;
  }
  EXPECT_EQ(scale_number("int8:row", 254.0F), 2.0F);
  EXPECT_EQ(code("int8:row", 254.0F, -254.0F), 0x81);  // -127: -128 is never written
  EXPECT_EQ(code("int8:row", 254.0F, 5.0F), 2);        // 2.5 to even
  EXPECT_EQ(code("int8:row", 254.0F, -7.0F), 0xFC);    // -3.5 to even
  EXPECT_EQ(scale_number("int4:128", 14.0F), 2.0F);
  EXPECT_EQ(code("int4:128", 14.0F, -14.0F), 0x9);
  EXPECT_EQ(scale_byte("int4:row,quarot", 14.0F), 0x4000U);            // 2 in fp16
  EXPECT_EQ(code("int4:row,quarot", 14.0F, -3.0F), 0xE);               // -1.5 to even
  EXPECT_EQ(code("e4m3:tensor,vllm_static", 0.0F, 3.0F, 2.0F), 0x3C);  // 1.5
}

// a / 448 and a * (1 / 448) are two numbers, and so are y / s and y * (1 / s): recipes that differ only there
// are told apart.
TEST(Recipes, OneRoundingMoreIsAnotherRecipe) {
  std::int64_t scales_differ = 0, codes_differ = 0, ratio_differs = 0;
  const Encoding vllm = encoding_of("e4m3:128"), v32 = encoding_of("e4m3:128,deepseek_v32"),
                 gemm = encoding_of("e4m3:128,deepgemm"), sglang = encoding_of("e4m3:128,sglang_group");
  for (int i = 0; i < 2000; ++i) {
    const float a = 1.0F + static_cast<float>(i) * 0x1p-12F, y = a * (static_cast<float>(i % 997) / 997.0F);
    const GroupScale s = scale_of(v32, a), r = scale_of(gemm, a);
    scales_differ += scale_of(vllm, a).stored != s.stored;
    EXPECT_EQ(s.stored, r.stored);
    for (std::size_t k = 0; k < 126; ++k) {  // at the thresholds
      const double middle = (e4m3_numbers()[k] + e4m3_numbers()[k + 1]) / 2;
      const auto value = static_cast<float>(middle * static_cast<double>(s.factor));
      codes_differ += code_of(v32, s, value) != code_of(gemm, r, value);
      ratio_differs += code_of(sglang, scale_of(sglang, a), value) != code_of(gemm, r, value);
    }
    EXPECT_LE(std::abs(code_of(vllm, scale_of(vllm, a), y) - code_of(v32, s, y)), 1);
  }
  EXPECT_GT(scales_differ, 500);
  EXPECT_GT(codes_differ, 500);
  EXPECT_GT(ratio_differs, 500);
}

TEST(Recipes, ZeroGroups) {
  EXPECT_EQ(scale_number("e4m3:row", 0.0F), 1.0F / 229376.0F);
  EXPECT_EQ(scale_number("e4m3:128", 0.0F), 1e-10F / 448.0F);
  EXPECT_EQ(scale_number("e4m3:row,sglang_token", 0.0F), 0.0F);
  EXPECT_EQ(scale_number("e4m3:tensor", 0.0F), 0.0F);
  EXPECT_EQ(scale_number("e4m3:128,sglang_group", 0.0F), 1e-10F * (1.0F / 448.0F));
  EXPECT_EQ(scale_number("e4m3:128,deepgemm", 0.0F), 1e-4F * (1.0F / 448.0F));
  EXPECT_EQ(scale_number("e4m3:128,ue8m0,deepgemm", 0.0F), 0x1p-22F);
  EXPECT_EQ(scale_byte("e4m3:128,ue8m0,packed,deepgemm", 0.0F), 127U - 22U);
  for (const char* text : {"int8:row", "int4:128"})
    EXPECT_EQ(scale_number(text, 0.0F), 0.0F);
  for (const char* text :
       {"mxfp8", "mxfp8:rceil", "mxfp4", "mxfp4:rceil", "mxfp4:even", "nvfp4", "int4:row,quarot"})
    EXPECT_EQ(scale_byte(text, 0.0F), 0U) << text;
  for (const char* text :
       {"e4m3:row", "e4m3:128", "e4m3:row,sglang_token", "e4m3:128,sglang_group", "e4m3:128,deepgemm",
        "e4m3:128,ue8m0", "int8:row", "int4:128", "int4:row,quarot", "mxfp8", "mxfp4:rceil", "nvfp4"}) {
    const bool keeps_sign = element_of(encoding_of(text).format) == Element::e4m3 ||
                            element_of(encoding_of(text).format) == Element::e2m1;
    const int minus_zero = keeps_sign ? 1 << (code_bits(encoding_of(text).format) - 1) : 0;
    EXPECT_EQ(code(text, 0.0F, 0.0F), 0) << text;
    EXPECT_EQ(code(text, 0.0F, -0.0F), minus_zero) << text;
  }
}

TEST(Recipes, NanAndInfinity) {
  for (const char* text : {"e4m3:row", "e4m3:row,sglang_token", "e4m3:128,sglang_group", "e4m3:128,deepgemm",
                           "e4m3:128,ue8m0", "mxfp8", "mxfp8:rceil"}) {
    EXPECT_EQ(code(text, kInfinity, 3.0F), 0) << text;
    EXPECT_EQ(code(text, kInfinity, -3.0F), 0x80) << text;
    EXPECT_EQ(code(text, kInfinity, -kInfinity), 0x7F) << text;
    EXPECT_EQ(code(text, 5.0F, kNan), 0x7F) << text;
    EXPECT_EQ(code(text, 0.0F, kNan), 0x7F) << text;
  }
  EXPECT_EQ(scale_number("e4m3:row", kInfinity), kInfinity);
  EXPECT_EQ(scale_number("e4m3:128,ue8m0", kInfinity), kInfinity);
  EXPECT_EQ(scale_byte("e4m3:128,ue8m0,packed", kInfinity), 255U);
  EXPECT_EQ(scale_number("int8:row", kInfinity), kInfinity);
  for (const char* text : {"int8:row", "int4:128", "int4:row,quarot"}) {
    EXPECT_EQ(code(text, kInfinity, 3.0F), 0) << text;
    EXPECT_EQ(code(text, kInfinity, kInfinity), 0) << text;
    EXPECT_EQ(code(text, 5.0F, kNan), 0) << text;
  }
  for (const char* text : {"mxfp4", "mxfp4:rceil", "mxfp4:even"}) {
    EXPECT_EQ(scale_byte(text, kInfinity), 255U) << text;
    EXPECT_EQ(code(text, kInfinity, 3.0F), 0) << text;
    EXPECT_EQ(code(text, kInfinity, -kInfinity), 7) << text;
    EXPECT_EQ(code(text, 5.0F, kNan), 7) << text;
  }
  // The block scale saturates, so infinite values do too.
  EXPECT_EQ(scale_byte("nvfp4", kInfinity), 0x7EU);
  EXPECT_EQ(code("nvfp4", kInfinity, -kInfinity), 0xF);
  EXPECT_EQ(code("nvfp4", 5.0F, kNan), 7);
}

TEST(Recipes, FactorsThatOverflowAreTheLargestNumber) {
  const float tiny = 0x1p-140F;
  for (const char* text : {"e4m3:row,sglang_token", "e4m3:tensor", "int8:row", "int4:128"})
    EXPECT_EQ(scale_of(encoding_of(text), tiny).factor, kLargest) << text;
  EXPECT_EQ(scale_of(encoding_of("e4m3:tensor,vllm_static"), 0.0F, 0x1p-140F).factor, kLargest);
  // A block of NVFP4 that rounds to the scale zero has the codes zero.
  EXPECT_EQ(scale_byte("nvfp4", 0x1p-9F), 0U);
  EXPECT_EQ(code("nvfp4", 0x1p-9F, -0x1p-9F), 8);
}

/// Magnitudes over the whole range of fp32: every exponent, significands at both ends, in the middle and
/// between.
std::vector<float> magnitudes() {
  std::vector<float> values;
  for (std::uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (const std::uint32_t significand :
         {0U, 1U, 2U, 0x1FFFFFU, 0x200000U, 0x3FFFFFU, 0x400000U, 0x400001U, 0x5FFFFFU, 0x600000U, 0x600001U,
          0x7FFFFEU, 0x7FFFFFU, 0x123456U, 0x555555U, 0x6EDCBAU}) {
      if (const float value = float_of(exponent << 23 | significand); value > 0.0F) values.push_back(value);
    }
  }
  return values;
}

// What each MX recipe promises of its power of two, checked in exact arithmetic.
TEST(Recipes, PowersOfTwoAreWhatTheRecipesPromise) {
  for (const float a : magnitudes()) {
    const auto exact = static_cast<double>(a);
    for (const auto& [floor, rceil, largest, exponent] :
         {std::tuple{"mxfp4", "mxfp4:rceil", 6.0, 4.0}, {"mxfp8", "mxfp8:rceil", 448.0, 256.0}}) {
      const std::uint32_t low = scale_byte(floor, a), up = scale_byte(rceil, a);
      // floor: 2^k * 2^e <= a < 2^(k + 1) * 2^e, unless the byte is at its end.
      if (low > 0) {
        EXPECT_LE(from_e8m0(static_cast<std::uint8_t>(low)) * exponent, exact);
      }
      EXPECT_LT(exact, 2 * from_e8m0(static_cast<std::uint8_t>(low)) * exponent) << floor << a;
      // rceil: the smallest power of two not below the fp32 quotient.
      const auto quotient = static_cast<double>(a * (1.0F / static_cast<float>(largest)));
      EXPECT_GE(from_e8m0(static_cast<std::uint8_t>(up)), quotient);
      if (up > 0) {
        EXPECT_LT(from_e8m0(static_cast<std::uint8_t>(up - 1)), quotient);
      }
      // No code saturates: the largest value is at most the largest number, and half a unit of fp32.
      EXPECT_LE(exact / from_e8m0(static_cast<std::uint8_t>(up)), largest * (1 + 0x1p-23));
    }
    // even: floor of the value rounded to two bits; one step above floor exactly from 1.75 * 2^j on.
    int exponent = 0;
    const bool up = 2 * std::frexp(exact, &exponent) >= 1.75;
    const int want = std::max(exponent - 1 + (up ? 1 : 0) - 2 + 127, 0);
    EXPECT_EQ(scale_byte("mxfp4:even", a), static_cast<std::uint32_t>(want)) << a;
    // ue8m0: the smallest power of two not below the scale.
    const double plain = static_cast<double>(scale_number("e4m3:128", a)),
                 power = static_cast<double>(scale_number("e4m3:128,ue8m0", a));
    EXPECT_GE(power, plain);
    EXPECT_LT(power, 2 * plain);
    int ignored = 0;
    EXPECT_EQ(std::frexp(power, &ignored), 0.5);
    EXPECT_EQ(scale_byte("e4m3:128,ue8m0,packed", a),
              std::bit_cast<std::uint32_t>(static_cast<float>(power)) >> 23);
  }
}

// y / 2^k and y * 2^-k are one number, so recipes with a power of two agree on codes where they agree on k.
TEST(Recipes, CodesUnderAPowerOfTwoAreExactQuotients) {
  const Encoding encoding = encoding_of("e4m3:128,ue8m0");
  for (const float a : magnitudes()) {
    const GroupScale scale = scale_of(encoding, a);
    const float s = float_of(scale.stored);
    for (const float part : {1.0F, 0.7F, 0.51F, -0.03F})
      EXPECT_EQ(code_of(encoding, scale, a * part), to_e4m3(a * part / s));
  }
}

TEST(Recipes, Nvfp4FollowsItsFormula) {
  // Largest of the tensor 6 * 448 / g: with g = 1 a block of largest value 3 has the scale 0.5.
  EXPECT_EQ(from_e4m3(static_cast<std::uint8_t>(scale_byte("nvfp4", 3.0F))), 0.5);
  EXPECT_EQ(code("nvfp4", 3.0F, 3.0F), 7);
  EXPECT_EQ(code("nvfp4", 3.0F, -0.75F), 0xB);  // -1.5
  EXPECT_EQ(code("nvfp4", 3.0F, 0.125F), 0);    // 0.25, half way to 0.5: to even
  // The block with the largest value of the tensor has the largest scale.
  const float most = 37.0F, g = 448.0F * 6.0F / most;
  EXPECT_EQ(scale_byte("nvfp4", most, g), 0x7EU);
  EXPECT_EQ(code("nvfp4", most, most, g), 7);
  EXPECT_NEAR(value_of(encoding_of("nvfp4"), 7, 0x7E, g), 37.0, 1e-5);
  for (const float a : magnitudes()) {  // the block scale is a * g / 6 within half a step
    if (a < 0x1p-4F || a > 0x1p8F) continue;
    const double want = static_cast<double>(a) * 2.0 / 6.0;
    EXPECT_NEAR(from_e4m3(static_cast<std::uint8_t>(scale_byte("nvfp4", a, 2.0F))), want, want * 0.0626);
  }
}

// PyTorch on a GPU evaluates a / 7 as a * (1 / 7) in fp32 and rounds to fp16. For fp16 numbers that is the
// rounded quotient, so one recipe serves both; and fp16 quotients by way of fp32 are the rounded quotients.
TEST(Recipes, QuarotHasOneScaleOnCpuAndGpu) {
  for (std::uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const float a = f16_to_float(static_cast<std::uint16_t>(bits));
    EXPECT_EQ(float_to_f16(a / 7.0F), float_to_f16(a * (1.0F / 7.0F)));
    EXPECT_EQ(float_to_f16(a / 7.0F), encode(Dtype::f16, static_cast<double>(a) / 7.0));
    const float y = f16_to_float(static_cast<std::uint16_t>(bits * 31 % 0x7C00)),
                s = f16_to_float(static_cast<std::uint16_t>(bits | 1));
    EXPECT_EQ(round_to(Dtype::f16, static_cast<double>(y / s)),
              round_to(Dtype::f16, static_cast<double>(y) / static_cast<double>(s)));
  }
}

// ------------------------------------------------------------ whole problems

std::vector<float> ramp(const Problem& problem) {
  std::vector<float> values(static_cast<std::size_t>(problem.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto k = static_cast<int>(i % 61);
    values[i] = static_cast<float>(k - 30) * 0.25F * static_cast<float>(1 + i / 16 % 5);
  }
  return values;
}
Array floats(const Problem& problem) {
  return {Dtype::f32, problem.n()};
}
int byte_at(const std::vector<std::byte>& bytes, std::size_t at) {
  return static_cast<int>(bytes.at(at));
}

TEST(Quantize, TheEvenElementHasTheLowHalfByte) {
  const Problem problem = parse_problem("f32/n4/r1>int4:row");
  const std::vector<float> values{7.0F, -7.0F, 1.0F, 2.0F};
  const Encoded encoded = quantize(problem, floats(problem), values.data());
  EXPECT_EQ(byte_at(encoded.codes, 0), 0x97);
  EXPECT_EQ(byte_at(encoded.codes, 1), 0x21);
  const Problem fp4 = parse_problem("f32/n32/r1>mxfp4");
  std::vector<float> block(32, 0.0F);
  block[0] = -0.5F;
  block[1] = 6.0F;
  EXPECT_EQ(byte_at(quantize(fp4, floats(fp4), block.data()).codes, 0), 0x79);
}

TEST(Quantize, ScalesLieWhereTheLayoutSays) {
  for (const char* text :
       {"f32/n64/r5>e4m3:16", "f32/n64/r5>e4m3:16,mn", "f32/n64/r5>e4m3:16,ue8m0,packed",
        "f32/n96/r5>mxfp8:128x4", "f32/n96/r130>nvfp4:128x4", "f32/n32/r12>mxfp4:128x4,t128",
        "f32/n16/r8>e4m3:32", "f32/n16/r8>e4m3:row,t64", "f32/n64/r5>int4:16"}) {
    const Problem problem = parse_problem(text);
    const Encoding& encoding = problem.encoding;
    const std::vector<float> values = ramp(problem);
    const Encoded encoded = quantize(problem, floats(problem), values.data());
    ASSERT_EQ(static_cast<std::int64_t>(encoded.scales.size()), problem.scale_bytes_out());
    const std::int64_t token = token_length(encoding, problem.n());
    const std::int64_t group =
        encoding.scales.kind == ScaleGranularity::Kind::row ? token : encoding.scales.group;
    const ScaleShape shape = scale_shape(encoding, problem.rows, problem.n());
    std::vector<std::byte> want(encoded.scales.size());
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      for (std::int64_t column = 0; column < shape.columns; ++column) {
        float largest = 0.0F;
        for (std::int64_t i = 0; i < group; ++i)
          largest = std::max(largest,
                             std::fabs(values[static_cast<std::size_t>(row * token + column * group + i)]));
        const std::uint32_t stored = scale_of(encoding, largest).stored;
        const std::int64_t at = scale_position(encoding.layout, row, column, shape.rows, shape.columns);
        for (int byte = 0; byte < scale_bytes(encoding); ++byte)
          want[static_cast<std::size_t>(at * scale_bytes(encoding) + byte)] =
              static_cast<std::byte>(stored >> 8 * byte);
      }
    }
    EXPECT_EQ(encoded.scales, want) << text;
  }
}

// Codes times scale is the value within half a step of the element, everywhere that nothing saturates.
TEST(Quantize, DequantizedValuesAreNear) {
  struct Case {
    const char* text;
    double relative, absolute;  // of the value, of the largest of the group
  };
  for (const Case& each : {Case{"f32/n64/r6>e4m3:row", 0x1p-4, 0x1p-9 / 448},
                           {"f32/n64/r6>e4m3:16", 0x1p-4, 0x1p-9 / 448},
                           {"f32/n64/r6>e4m3:16,ue8m0,packed", 0x1p-4, 0x1p-9 / 224},
                           {"f32/n64/r6>e4m3:tensor", 0x1p-4, 1e-4},
                           {"f32/n64/r6>int8:row", 0, 0.501 / 127},
                           {"f32/n64/r6>int8:32,mn", 0, 0.501 / 127},
                           {"f32/n64/r6>int4:16", 0, 0.501 / 7},
                           {"f32/n64/r6>mxfp8:rceil", 0x1p-4, 0x1p-9 / 224},
                           {"f32/n64/r6>mxfp4:rceil,128x4", 0.25, 0.25 / 3},
                           {"f32/n64/r6>nvfp4:128x4", 0.27, 0.27 / 6},
                           {"f32/n16/r12>e4m3:row,t64", 0x1p-4, 0x1p-9 / 448},
                           {"f32/n64/r6/ldo80>int4:16", 0, 0.501 / 7}}) {
    const Problem problem = parse_problem(each.text);
    const std::vector<float> values = ramp(problem);
    const Encoded encoded = quantize(problem, floats(problem), values.data());
    const Matrix back = dequantize(problem, encoded.codes.data(), encoded.scales.data());
    const std::int64_t token = token_length(problem.encoding, problem.n());
    const std::int64_t group =
        problem.encoding.scales.kind == ScaleGranularity::Kind::group    ? problem.encoding.scales.group
        : problem.encoding.scales.kind == ScaleGranularity::Kind::tensor ? problem.elements()
                                                                         : token;
    for (std::int64_t e = 0; e < problem.elements(); ++e) {
      float largest = 0.0F;
      for (std::int64_t i = e / group * group; i < (e / group + 1) * group; ++i)
        largest = std::max(largest, std::fabs(values[static_cast<std::size_t>(i)]));
      const auto want = static_cast<double>(values[static_cast<std::size_t>(e)]);
      EXPECT_LE(
          std::fabs(back(e / problem.n(), e % problem.n()) - want),
          std::max(each.relative * std::fabs(want), each.absolute * static_cast<double>(largest)) * 1.0001)
          << each.text << " element " << e;
    }
  }
}

TEST(Quantize, ReadsStoredValuesAndSkipsGaps) {
  const Problem problem = parse_problem("bf16/n16/r3/ld24/ldo32>e4m3:row");
  std::vector<std::uint16_t> stored(3 * 24, 0x7FC0);  // NaN between rows
  for (int row = 0; row < 3; ++row) {
    for (int i = 0; i < 16; ++i)
      stored[static_cast<std::size_t>(row * 24 + i)] = float_to_bf16(static_cast<float>(i - 8) * 56.0F);
  }
  const Encoded encoded = quantize(problem, problem.in, stored.data());
  ASSERT_EQ(encoded.codes.size(), 2U * 32 + 16);
  for (std::size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(byte_at(encoded.codes, row * 32), 0xFE);
    EXPECT_EQ(byte_at(encoded.codes, row * 32 + 8), 0);
    if (row < 2) {
      EXPECT_EQ(byte_at(encoded.codes, row * 32 + 16), 0);
    }
  }
}

TEST(Quantize, ThreadsDoNotMatter) {
  const Problem problem = parse_problem("f32/n64/r70>nvfp4:128x4");
  const std::vector<float> values = ramp(problem);
  const Encoded one = quantize(problem, floats(problem), values.data(), 3.0F, 1),
                many = quantize(problem, floats(problem), values.data(), 3.0F, 3);
  EXPECT_EQ(one.codes, many.codes);
  EXPECT_EQ(one.scales, many.scales);
}

}  // namespace
}  // namespace fwht::reference
