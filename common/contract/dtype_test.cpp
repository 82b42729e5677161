#include "common/contract/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace fwht {
namespace {

TEST(Dtype, EverySixteenBitPatternSurvivesDecodeAndEncode) {
  for (Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const double value = decode(dtype, bits);
      if (std::isnan(value)) continue;
      ASSERT_EQ(encode(dtype, value), bits) << name_of(dtype);
      const auto half = static_cast<std::uint16_t>(bits);
      ASSERT_EQ(dtype == Dtype::f16 ? f16_to_float(half) : bf16_to_float(half), value);
      ASSERT_EQ(dtype == Dtype::f16 ? float_to_f16(float(value)) : float_to_bf16(float(value)), half);
    }
  }
}

// Between two neighbours the midpoint goes to the even one, anything else to the nearer one.
TEST(Dtype, RoundsToNearestEven) {
  for (Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    const std::uint32_t infinity = encode(dtype, INFINITY);
    for (std::uint32_t bits = 0; bits + 1 < infinity; ++bits) {
      const double low = decode(dtype, bits), high = decode(dtype, bits + 1), middle = 0.5 * (low + high);
      ASSERT_EQ(encode(dtype, middle), bits % 2 == 0 ? bits : bits + 1);
      ASSERT_EQ(encode(dtype, std::nextafter(middle, 0.0)), bits);
      ASSERT_EQ(encode(dtype, std::nextafter(middle, INFINITY)), bits + 1);
    }
  }
}

TEST(Dtype, FloatConversionsAgreeWithTheDoubleOnes) {
  std::mt19937 generator(1);
  for (int i = 0; i < 1'000'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(generator()));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(f16_to_float(float_to_f16(value))));
      ASSERT_TRUE(std::isnan(bf16_to_float(float_to_bf16(value))));
      continue;
    }
    ASSERT_EQ(float_to_f16(value), encode(Dtype::f16, value)) << value;
    ASSERT_EQ(float_to_bf16(value), encode(Dtype::bf16, value)) << value;
    ASSERT_EQ(encode(Dtype::f32, value), std::bit_cast<std::uint32_t>(value));
  }
  EXPECT_EQ(encode(Dtype::f16, 65519.999), encode(Dtype::f16, 65504.0));
  EXPECT_TRUE(std::isinf(decode(Dtype::f16, encode(Dtype::f16, 65520.0))));
}

TEST(Dtype, IntegersAreStoredAsTheyAre) {
  std::int32_t small[2] = {};
  std::int64_t large[2] = {};
  for (const double value : {0.0, 1.0, -1.0, 2147483647.0, -2147483648.0}) {
    store_element(Dtype::i32, small, 1, value);
    store_element(Dtype::i64, large, 1, value * 0x1p20);
    EXPECT_EQ(small[1], static_cast<std::int64_t>(value));
    EXPECT_EQ(load_element(Dtype::i32, small, 1), value);
    EXPECT_EQ(load_element(Dtype::i64, large, 1), value * 0x1p20);
  }
  EXPECT_EQ(small[0] + large[0], 0) << "the neighbour";
  EXPECT_EQ(parse_dtype("i32"), Dtype::i32);
  EXPECT_EQ(parse_dtype(name_of(Dtype::i64)), Dtype::i64);
  for (const Dtype dtype : kEveryDtype)
    EXPECT_EQ(is_integer(dtype), name_of(dtype).starts_with("i"));
}

TEST(Dtype, UnitRoundoff) {
  EXPECT_EQ(format_of(Dtype::f16).unit_roundoff(), 0x1p-11);
  EXPECT_EQ(format_of(Dtype::bf16).unit_roundoff(), 0x1p-8);
  EXPECT_EQ(format_of(Dtype::f32).unit_roundoff(), 0x1p-24);
  EXPECT_EQ(format_of(Dtype::bf16).max_finite, decode(Dtype::bf16, 0x7F7F));
}

}  // namespace
}  // namespace fwht
