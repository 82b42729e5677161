#include "common/host/bits.hpp"

#include <gtest/gtest.h>

#include <bit>

namespace fwht {
namespace {

TEST(Bits, PowersOfTwo) {
  EXPECT_FALSE(is_power_of_two(0));
  EXPECT_FALSE(is_power_of_two(-8));
  EXPECT_FALSE(is_power_of_two(12));
  for (int shift = 0; shift < 63; ++shift) {
    const std::int64_t n = std::int64_t{1} << shift;
    EXPECT_TRUE(is_power_of_two(n));
    EXPECT_EQ(log2_floor(n), shift);
    if (shift > 1) {
      EXPECT_FALSE(is_power_of_two(n - 1));
      EXPECT_FALSE(is_power_of_two(n + 1));
      EXPECT_EQ(log2_floor(n - 1), shift - 1);
      EXPECT_EQ(log2_floor(n + 1), shift);
    }
  }
}

TEST(Bits, CeilDiv) {
  EXPECT_EQ(ceil_div(0, 8), 0);
  EXPECT_EQ(ceil_div(1, 8), 1);
  EXPECT_EQ(ceil_div(8, 8), 1);
  EXPECT_EQ(ceil_div(9, 8), 2);
  EXPECT_EQ(ceil_div((std::int64_t{1} << 40) + 1, 256), (std::int64_t{1} << 32) + 1);
}

TEST(Bits, ParityCountsEverySingleBit) {
  for (int bit = 0; bit < 64; ++bit)
    EXPECT_EQ(parity(std::uint64_t{1} << bit), 1) << bit;
  EXPECT_EQ(parity(0), 0);
  EXPECT_EQ(parity(~std::uint64_t{0}), 0);
  std::uint64_t v = 0x9E3779B97F4A7C15U;
  for (int i = 0; i < 1000; ++i) {
    v = v * 6364136223846793005U + 1442695040888963407U;
    ASSERT_EQ(parity(v), std::popcount(v) % 2) << v;
  }
}

// The order of the rows is the definition of the transform: natural (Hadamard), not sequency (Walsh).
TEST(Bits, HadamardSignIsSylvesterInNaturalOrder) {
  constexpr int kH4[4][4] = {{1, 1, 1, 1}, {1, -1, 1, -1}, {1, 1, -1, -1}, {1, -1, -1, 1}};
  for (unsigned i = 0; i < 4; ++i) {
    for (unsigned j = 0; j < 4; ++j)
      EXPECT_EQ(hadamard_sign(i, j), kH4[i][j]) << i << ' ' << j;
  }
  // H_2n = [[H_n, H_n], [H_n, -H_n]]
  for (unsigned n = 1; n <= 32; n *= 2) {
    for (unsigned i = 0; i < n; ++i) {
      for (unsigned j = 0; j < n; ++j) {
        ASSERT_EQ(hadamard_sign(i, n + j), hadamard_sign(i, j));
        ASSERT_EQ(hadamard_sign(n + i, j), hadamard_sign(i, j));
        ASSERT_EQ(hadamard_sign(n + i, n + j), -hadamard_sign(i, j));
      }
    }
  }
}

}  // namespace
}  // namespace fwht
