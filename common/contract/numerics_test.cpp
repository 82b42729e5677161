#include "common/contract/variant.hpp"

#include <gtest/gtest.h>

namespace fwht {
namespace {

TEST(Numerics, SingleRoundingIsOneStepOverAllBits) {
  const Problem problem = make_problem(Dtype::f16, 128, 3);
  const Numerics numerics = single_rounding(Sums::fp32, problem);
  ASSERT_EQ(numerics.steps.size(), 1U);
  EXPECT_EQ(numerics.steps[0].bits, (std::vector<int>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(numerics.roundings(), 1);
  EXPECT_EQ(numerics.constant(), static_cast<float>(problem.scale));
  EXPECT_NEAR(numerics.gain_error(problem.scale), -1.71e-8, 1e-10);
  EXPECT_NEAR(numerics.sum_rms(), 0.46 * std::sqrt(7.0), 1e-15);
  EXPECT_EQ(numerics.sum_bias(), 0.0);
  EXPECT_EQ(numerics.promises.intermediate_growth, 128.0);
  EXPECT_EQ(single_rounding(Sums::fp64, problem).gain_error(problem.scale), 0.0);
  EXPECT_TRUE(single_rounding(Sums::fp32, make_problem(Dtype::f32, 1, 1)).steps[0].bits.empty());
}

TEST(Numerics, SumsOverTheSteps) {
  Step block;
  block.bits = {0, 1, 2, 3};
  block.sums = Sums::tensor_f32;
  block.constant = 0.25;
  block.sum_rms = 3.0;
  block.sum_bias = kTruncationBias;
  Step kept;
  kept.bits = {4};
  kept.rounds = false;
  Step last = block;
  last.bits = {5};
  last.block_bits = {0, 1, 2};
  last.constant = 181.0 / 256.0;
  last.sum_rms = 4.0;
  Numerics numerics;
  numerics.steps = {block, kept, last};
  EXPECT_EQ(numerics.roundings(), 2);
  EXPECT_EQ(numerics.constant(), 0.25 * 181.0 / 256.0);
  EXPECT_NEAR(numerics.gain_error(0.25 * std::sqrt(0.5)), -1.0682e-4, 1e-8);
  EXPECT_EQ(numerics.gain_error(0.0), 0.0);
  EXPECT_EQ(numerics.sum_rms(), 5.0);
  EXPECT_EQ(numerics.sum_bias(), 2 * kTruncationBias);
  EXPECT_TRUE(last.is_tensor_block());
  EXPECT_FALSE(kept.is_tensor_block());
  EXPECT_EQ(block.levels(), 4);
  EXPECT_NE(block, last);
}

}  // namespace
}  // namespace fwht
