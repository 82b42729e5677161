#include "variants/naive/naive.hpp"

#include <gtest/gtest.h>

#include <set>

#include "common/bits.hpp"

namespace fwht::naive {
namespace {

TEST(Naive, EveryStagePairsEachElementOnce) {
  for (int log_n = 1; log_n <= 12; ++log_n) {
    const std::int64_t n = std::int64_t{1} << log_n;
    for (int bit = 0; bit < log_n; ++bit) {
      std::set<std::int64_t> seen;
      for (std::int64_t pair = 0; pair < n / 2; ++pair) {
        const std::int64_t low = lower_partner(pair, bit);
        ASSERT_EQ(low & (std::int64_t{1} << bit), 0);
        ASSERT_LT(low + (std::int64_t{1} << bit), n);
        ASSERT_TRUE(seen.insert(low).second);
        ASSERT_TRUE(seen.insert(low + (std::int64_t{1} << bit)).second);
      }
      ASSERT_EQ(static_cast<std::int64_t>(seen.size()), n);
    }
  }
}

TEST(Naive, FactorsMultiplyToTheScaleAndKeepIntermediatesSmall) {
  for (int log_n = 1; log_n <= 30; ++log_n) {
    const std::int64_t n = std::int64_t{1} << log_n;
    double product = 1.0;
    for (const float factor : stage_factors(Dtype::f16, n, 0.25))
      product *= factor;
    EXPECT_DOUBLE_EQ(product, 0.25);
    EXPECT_LE(intermediate_growth(Dtype::f16, n), std::sqrt(2.0 * static_cast<double>(n)) * (1 + 1e-12)) << n;
  }
}

}  // namespace
}  // namespace fwht::naive
