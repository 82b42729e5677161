#include "variants/naive/naive.hpp"

#include <gtest/gtest.h>

#include <set>

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
  EXPECT_EQ(stage_factors(Dtype::f16, 2, 0.5), (std::vector<float>{0.5F}));
  EXPECT_EQ(stage_factors(Dtype::f16, 4, 0.5), (std::vector<float>{1.0F, 0.5F}));
  EXPECT_EQ(stage_factors(Dtype::f16, 8, 1.0), (std::vector<float>{1.0F, 0.5F, 2.0F}));
  EXPECT_EQ(stage_factors(Dtype::f16, 16, 0.25), (std::vector<float>{1.0F, 0.5F, 1.0F, 0.5F}));
  EXPECT_EQ(stage_factors(Dtype::f16, 32, 0.25), (std::vector<float>{1.0F, 0.5F, 1.0F, 0.5F, 1.0F}));
  EXPECT_EQ(stage_factors(Dtype::bf16, 16, 0.25), (std::vector<float>{1.0F, 1.0F, 1.0F, 0.25F}));
  for (int log_n = 1; log_n <= 30; ++log_n) {
    const std::int64_t n = std::int64_t{1} << log_n;
    double product = 1.0;
    for (const float factor : stage_factors(Dtype::f16, n, 0.25))
      product *= factor;
    EXPECT_DOUBLE_EQ(product, 0.25);
    EXPECT_LE(intermediate_growth(Dtype::f16, n), std::sqrt(2.0 * static_cast<double>(n)) * (1 + 1e-12)) << n;
  }
}

TEST(Naive, EveryStageOfAnOperatorMeetsEachElementOnce) {
  for (const char* text : {"12x64", "28x16", "4x12", "12x2x20x2", "16xd6", "d5tx16"}) {
    const Operator op = parse_operator(text);
    std::int64_t product = 1;
    for (const FactorStage& stage : factor_stages(op)) {
      product *= stage.order;
      std::vector<int> seen(static_cast<std::size_t>(op.n()));
      for (std::int64_t column = 0; column < op.n() / stage.order; ++column) {
        for (int digit = 0; digit < stage.order; ++digit)
          ++seen.at(static_cast<std::size_t>(stage.first_of(column) + digit * stage.stride));
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << text;
    }
    EXPECT_EQ(product, op.n()) << text;
  }
}

TEST(Naive, EveryStageIsAStepThatRounds) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    const Problem problem = make_problem(dtype, 512, 1);
    const Numerics numerics = numerics_of(problem);
    const std::vector<float> factors = stage_factors(dtype, 512, problem.scale);
    ASSERT_EQ(numerics.steps.size(), factors.size());
    for (std::size_t s = 0; s < factors.size(); ++s) {
      EXPECT_EQ(numerics.steps[s].bits, std::vector<int>{static_cast<int>(s)});
      EXPECT_EQ(numerics.steps[s].constant, factors[s]);
      EXPECT_TRUE(numerics.steps[s].rounds);
    }
  }
  EXPECT_EQ(numerics_of(make_problem(Dtype::f32, 512, 1)).roundings(), 1) << "storing fp32 loses nothing";
}

}  // namespace
}  // namespace fwht::naive
