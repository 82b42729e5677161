#include "experiments/linear/linear.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "reference/inputs.hpp"
#include "reference/linear/linear.hpp"

namespace fwht::linear_layers {
namespace {

using reference::InputClass;
using reference::Matrix;

constexpr std::int64_t kInputs = 4096, kOutputs = 256, kTokens = 32, kGroup = 128;

/// Random rows of a class, FP64.
Matrix random_rows(InputClass input, std::int64_t rows, std::uint64_t seed) {
  const Problem problem = make_problem(Dtype::f16, kInputs, rows);
  std::vector<std::byte> raw(static_cast<std::size_t>(problem.span_bytes()));
  reference::write_input(problem, input, seed, raw.data());
  return reference::load_rows(problem, raw.data());
}

/// Each row multiplied by H / sqrt(order) in blocks; its own inverse.
void rotate(Matrix& rows, std::int64_t order) {
  for (std::int64_t h = 1; h < order; h *= 2) {
    for (std::int64_t i = 0; i < rows.cols(); ++i) {
      if ((i / h) % 2 == 1) continue;
      const Eigen::VectorXd a = rows.col(i), b = rows.col(i + h);
      rows.col(i) = a + b;
      rows.col(i + h) = a - b;
    }
  }
  rows /= std::sqrt(static_cast<double>(order));
}

/// Weights (a row an output) rounded to 4 bits.
Matrix rounded_to_4_bits(const Matrix& weights) {
  std::vector<double> values(static_cast<std::size_t>(kInputs * kOutputs));
  for (std::int64_t c = 0; c < kOutputs; ++c)
    for (std::int64_t i = 0; i < kInputs; ++i)
      values[static_cast<std::size_t>(i * kOutputs + c)] = weights(c, i);
  const GptqWeights quantized = reference::quantize_to_nearest(values, kOutputs, kInputs, kGroup);
  Matrix result(kOutputs, kInputs);
  for (std::int64_t c = 0; c < kOutputs; ++c)
    for (std::int64_t i = 0; i < kInputs; ++i)
      result(c, i) = quantized.weight(i, c);
  return result;
}

/// Tokens (a row each) in int8 with one scale a token.
Matrix rounded_to_int8(Matrix tokens) {
  for (Eigen::Index r = 0; r < tokens.rows(); ++r) {
    const double scale = std::max(tokens.row(r).cwiseAbs().maxCoeff() / 127.0, 1e-30);
    for (Eigen::Index i = 0; i < tokens.cols(); ++i)
      tokens(r, i) = std::nearbyint(tokens(r, i) / scale) * scale;
  }
  return tokens;
}

harness::CsvRow compared(InputClass weight_class, InputClass token_class, std::int64_t order) {
  Matrix weights = random_rows(weight_class, kOutputs, 1) * 0.02,
         tokens = random_rows(token_class, kTokens, 2);
  const Matrix exact = tokens * weights.transpose();
  rotate(weights, order);
  rotate(tokens, order);
  const Matrix rounded = rounded_to_4_bits(weights);
  const auto error = [&](const Matrix& x, const Matrix& w) {
    return harness::csv_number((x * w.transpose() - exact).norm() / exact.norm());
  };
  const Matrix tokens8 = rounded_to_int8(tokens);
  return {{"weight_rel_l2", harness::csv_number((rounded - weights).norm() / weights.norm())},
          {"rel_l2_w4a16", error(tokens, rounded)},
          {"rel_l2_a8", error(tokens8, weights)},
          {"rel_l2_w4a8", error(tokens8, rounded)}};
}

}  // namespace

std::vector<harness::Task> rotation_tasks() {
  std::vector<harness::Task> all;
  for (const InputClass weights : {InputClass::normal, InputClass::student3, InputClass::outlier_channels}) {
    for (const InputClass tokens :
         {InputClass::normal, InputClass::outlier_channels, InputClass::massive_channel}) {
      for (const std::int64_t order : {std::int64_t{1}, std::int64_t{128}, std::int64_t{1024}, kInputs}) {
        all.push_back(
            {{{"weights", std::string(reference::name_of(weights))},
              {"input", std::string(reference::name_of(tokens))},
              {"rotation", std::to_string(order == 1 ? 0 : order)}},
             1,
             [=] { return std::vector{compared(weights, tokens, order)}; },
             fmt::format("{} weights, {} tokens, {}", reference::name_of(weights), reference::name_of(tokens),
                         order == 1 ? "no rotation" : fmt::format("rotation {}", order))});
      }
    }
  }
  return all;
}

}  // namespace fwht::linear_layers
