#include "reference/linear/linear.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace fwht::reference {
namespace {

LinearProblem small(std::int64_t m, std::int64_t rotation = 0) {
  LinearProblem problem;
  problem.m = m;
  problem.n = 64;
  problem.k = 256;
  if (rotation != 0) problem.rotation = Operator::sylvester(rotation);
  return problem;
}

std::vector<std::byte> rounded(const LinearProblem& problem, const Matrix& exact) {
  std::vector<std::byte> y(static_cast<std::size_t>(problem.bytes_written()));
  for (std::int64_t i = 0; i < problem.m * problem.n; ++i)
    store_element(problem.dtype, y.data(), i, exact(i / problem.n, i % problem.n));
  return y;
}

TEST(LinearTruth, IsTheSumOverAllRows) {
  const LinearProblem problem = small(2);
  const GptqWeights weights = random_weights(problem, LinearData::integers, 1);
  const auto x = random_tokens(problem, LinearData::integers, 2);
  const LinearTruth truth = linear_truth(problem, weights, x.data(), WeightRounding::none, {3, 63});
  for (std::int64_t r = 0; r < 2; ++r) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < 256; ++i)
      sum += weights.weight(i, 63) * load_element(Dtype::f16, x.data(), r * 256 + i);
    EXPECT_EQ(truth.exact(r, 1), sum);
  }
}

TEST(LinearTruth, RotatesByTheSylvesterMatrix) {
  const LinearProblem problem = small(1, 4);
  const auto x = random_tokens(problem, LinearData::integers, 2);
  const Matrix rotated = rotated_tokens(problem, x.data());
  const auto at = [&](std::int64_t i) { return load_element(Dtype::f16, x.data(), i); };
  EXPECT_EQ(rotated(0, 4), (at(4) + at(5) + at(6) + at(7)) / 2);
  EXPECT_EQ(rotated(0, 5), (at(4) - at(5) + at(6) - at(7)) / 2);
  EXPECT_EQ(rotated(0, 7), (at(4) - at(5) - at(6) + at(7)) / 2);
}

TEST(LinearJudge, AcceptsOneRoundingAndNothingCoarser) {
  const LinearProblem problem = small(64);
  const GptqWeights weights = random_weights(problem, LinearData::normal, 1);
  const auto x = random_tokens(problem, LinearData::normal, 2);
  const LinearTruth truth = linear_truth(problem, weights, x.data());
  const auto right = rounded(problem, truth.exact);
  const LinearJudged judged = judge_linear(layer_numerics(problem), problem, truth, right.data());
  EXPECT_TRUE(judged.verdict) << judged.verdict.message;
  EXPECT_NEAR(judged.errors.rel_l2, judged.errors.one_rounding, 0.03 * judged.errors.one_rounding);

  auto wrong = right;  // one element two units off
  store_element(problem.dtype, wrong.data(), 4095, load_element(problem.dtype, right.data(), 4095) * 1.002);
  EXPECT_FALSE(judge_linear(layer_numerics(problem), problem, truth, wrong.data()).verdict);
  store_element(problem.dtype, wrong.data(), 4095, NAN);
  EXPECT_FALSE(judge_linear(layer_numerics(problem), problem, truth, wrong.data()).verdict);

  // Weights rounded to fp16 are not exact, and exact weights are not rounded ones: both models are two-sided.
  Numerics published = layer_numerics(problem);
  published.steps.back().weights = WeightRounding::published;
  const LinearTruth coarser = linear_truth(problem, weights, x.data(), WeightRounding::published);
  const auto of_rounded = rounded(problem, coarser.of_rounded_weights);
  EXPECT_FALSE(judge_linear(layer_numerics(problem), problem, truth, of_rounded.data()).verdict);
  EXPECT_TRUE(judge_linear(published, problem, coarser, of_rounded.data()).verdict);
  EXPECT_FALSE(judge_linear(published, problem, coarser, right.data()).verdict);
}

TEST(LinearJudge, AtomicSumsHaveThePredictedError) {
  // Partial sums added in fp16 in some order, by the host: the model of the published kernel.
  LinearProblem problem = small(32);
  problem.k = 2048;
  const GptqWeights weights = random_weights(problem, LinearData::normal, 5);
  const auto x = random_tokens(problem, LinearData::normal, 6);
  const LinearTruth truth = linear_truth(problem, weights, x.data(), WeightRounding::published);
  const Matrix tokens = rotated_tokens(problem, x.data());
  for (const int splits : {4, 8, 16}) {
    Matrix sums = Matrix::Zero(problem.m, problem.n);
    for (int s = 0; s < splits; ++s) {
      for (std::int64_t c = 0; c < problem.n; ++c) {
        Eigen::VectorXd w = Eigen::VectorXd::Zero(problem.k);
        for (std::int64_t i = 0; i < problem.k; ++i) {
          if (i / 128 % splits == s)
            w(i) = weight_of(WeightRounding::published, Dtype::f16, weights.scale(i / 128, c),
                             weights.q(i, c), weights.zero(i / 128, c));
        }
        const Eigen::VectorXd part = tokens * w;
        for (std::int64_t r = 0; r < problem.m; ++r)
          sums(r, c) = round_to(Dtype::f16, sums(r, c) + round_to(Dtype::f16, part(r)));
      }
    }
    Numerics numerics = layer_numerics(problem);
    Step& product = numerics.steps.back();
    product.weights = WeightRounding::published;
    product.sums = Sums::atomic_f16;
    product.parts = splits;
    const LinearJudged judged = judge_linear(numerics, problem, truth, rounded(problem, sums).data());
    EXPECT_TRUE(judged.verdict) << splits << ": " << judged.verdict.message;
    product.parts = splits == 4 ? 16 : 4;  // the dependence on the number of splits is part of the model
    EXPECT_FALSE(judge_linear(numerics, problem, truth, rounded(problem, sums).data()).verdict) << splits;
  }
}

TEST(QuantizeToNearest, StaysWithinHalfAStep) {
  std::vector<double> values(256 * 8);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(static_cast<double>(i) * 0.7) * 0.05;
  const GptqWeights weights = quantize_to_nearest(values, 8, 256, 128);
  for (std::int64_t i = 0; i < 256; ++i) {
    for (std::int64_t c = 0; c < 8; ++c) {
      const double step = weights.scale(i / 128, c);
      EXPECT_LE(std::fabs(weights.weight(i, c) - values[static_cast<std::size_t>(i * 8 + c)]), 0.52 * step);
    }
  }
}

}  // namespace
}  // namespace fwht::reference
