// Linear layers: data to feed them, the FP64 truth, and the judgement that follows from a plan's numerics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/contract/linear/variant.hpp"
#include "reference/compare.hpp"

namespace fwht::reference {

enum class LinearData {
  normal,   ///< x from N(0, 1), scales uniform in 0.004 .. 0.012, q and z uniform
  integers  ///< x in -2 .. 2, scales 2^-1 .. 2^1: every partial sum is exact in fp32
};

/// Random weights of the problem's shape; a pure function of shape, seed and data. Zero points take every
/// value that the format holds. With act_order g_idx is a random order of the groups' rows. Signs of the
/// rotation are random; its dense factors are P - 2 J / m, P a cycle, times sqrt(m), rounded to the dtype.
GptqWeights random_weights(const LinearProblem& problem, LinearData data, std::uint64_t seed);

/// x[m][k] in the problem's dtype.
std::vector<std::byte> random_tokens(const LinearProblem& problem, LinearData data, std::uint64_t seed);

/// x as the weights meet it: multiplied by Op / sqrt(order) where the problem rotates. FP64, m x k. Signs and
/// dense factors as a transform's operands have them.
Matrix rotated_tokens(const LinearProblem& problem, const void* x, const void* signs = nullptr,
                      const void* dense = nullptr);

/// Round-to-nearest quantization, asymmetric per group and column: q = round(w / s) + z from the group's
/// extremes, s in fp16. `weights` is [k][n] row-major. The baseline of every quantization method.
GptqWeights quantize_to_nearest(const std::vector<double>& weights, std::int64_t n, std::int64_t k,
                                std::int64_t group);

/// FP64 results for some columns of y, all tokens: matrices of m x columns.size().
struct LinearTruth {
  std::vector<std::int64_t> columns;
  Matrix exact;
  Matrix of_rounded_weights;  ///< with W as the numerics round it; the same as `exact` where they do not
  Matrix root_squares;        ///< sqrt(sum over k of (w x)^2): what errors of partial sums are measured by
};
LinearTruth linear_truth(const LinearProblem& problem, const GptqWeights& weights, const void* x,
                         WeightRounding rounding = WeightRounding::none,
                         std::vector<std::int64_t> columns = {}, int threads = 1);

/// About `most` columns, the first and the last among them; all when there are no more.
std::vector<std::int64_t> sample_columns(std::int64_t n, std::int64_t most);

struct LinearErrors {
  std::int64_t elements = 0;
  double rel_l2 = 0.0;
  double one_rounding = 0.0;  ///< rel_l2 of the exact result rounded once
  double predicted = 0.0;     ///< rel_l2 that the numerics predict for this very data
};
inline constexpr double kUnknownErrors = 8.0;

struct LinearJudged {
  Verdict verdict;
  LinearErrors errors;
};

/// Every element of the truth's columns against a bound that follows from the numerics. And for normal data
/// with many elements rel_l2 against its prediction, both ways: 1 % (5 % with fp16 atomics, whose order is
/// not known) and six standard deviations. `y` is [m][n] in the problem's dtype. Numerics without steps:
/// rel_l2 alone, by kUnknownErrors times the prediction.
LinearJudged judge_linear(const Numerics& numerics, const LinearProblem& problem, const LinearTruth& truth,
                          const void* y, LinearData data = LinearData::normal);

/// How the product's weights are rounded; once where nothing is known of the arithmetic.
WeightRounding weights_of(const Numerics& numerics);
double weight_of(WeightRounding rounding, Dtype dtype, double scale, int q, int zero);

}  // namespace fwht::reference
