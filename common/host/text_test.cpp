#include "common/host/text.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace fwht {
namespace {

TEST(Text, PartsOfEveryKind) {
  const std::string owned = "owned";
  const std::string_view view = "view";
  const char* pointer = "pointer";
  EXPECT_EQ(concat(), "");
  EXPECT_EQ(concat("n=", 12, ", ", owned, ' ', view, ' ', pointer), "n=12, owned view pointer");
  EXPECT_EQ(concat(std::numeric_limits<std::int64_t>::min(), '/', std::numeric_limits<std::uint64_t>::max()),
            "-9223372036854775808/18446744073709551615");
  EXPECT_EQ(concat(std::int8_t{-1}, std::uint8_t{65}), "-165");  // numbers, not characters
}

TEST(Text, Helpers) {
  EXPECT_EQ(hex(0), "0x0");
  EXPECT_EQ(hex(std::numeric_limits<std::uintptr_t>::max()), fmt::format("{:#x}", ~std::uintptr_t{0}));
  EXPECT_EQ(joined(std::vector<std::string>{}, ", "), "");
  EXPECT_EQ(joined(std::vector<int>{1, 2, 3}, ", "), "1, 2, 3");
  for (double number : {0.0, 0.012345, 1.2345e-7, 1.0, 99.96, 123456.0, -0.5})
    EXPECT_EQ(rounded(number, 3), fmt::format("{:.3g}", number));
}

/// Results folders and messages of earlier versions hold numbers as fmt writes them.
TEST(Text, NumbersReadAsThoseOfFmt) {
  std::vector<double> numbers = {0.0,  -0.0, 1.0,  -1.0, 0.1,  1.0 / 3,  1e-4,     9.9999e-5,
                                 1e-5, 1e15, 1e16, 1e17, 1e22, 123456.0, 1048576., 9999999999999998.0};
  for (int exponent = -1074; exponent < 1024; ++exponent)
    numbers.push_back(std::ldexp(1.0, exponent));
  std::mt19937_64 bits(1);
  for (int i = 0; i < 20000; ++i) {
    const double mantissa = std::uniform_real_distribution<double>(-10, 10)(bits);
    numbers.push_back(mantissa * std::pow(10.0, static_cast<double>(bits() % 40) - 20));
  }
  numbers.push_back(std::numeric_limits<double>::infinity());
  numbers.push_back(-std::numeric_limits<double>::infinity());
  numbers.push_back(std::numeric_limits<double>::quiet_NaN());
  numbers.push_back(std::numeric_limits<double>::max());
  for (double number : numbers)
    ASSERT_EQ(concat(number), fmt::format("{}", number));
}

}  // namespace
}  // namespace fwht
