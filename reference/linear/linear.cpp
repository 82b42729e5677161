#include "reference/linear/linear.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/host/parallel_for.hpp"
#include "reference/inputs.hpp"
#include "reference/operator_data.hpp"
#include "reference/operators.hpp"
#include "reference/rounding.hpp"

namespace fwht::reference {
namespace {

/// Four random words for an index of a stream.
std::array<std::uint32_t, 4> words_at(std::uint64_t seed, std::uint32_t stream, std::uint64_t index) {
  return philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), stream, 0},
                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

void fill_words(std::vector<std::uint32_t>& words, std::uint64_t seed, std::uint32_t stream) {
  for (std::size_t i = 0; i < words.size(); i += 4) {
    const auto four = words_at(seed, stream, i / 4);
    for (std::size_t j = i; j < std::min(i + 4, words.size()); ++j)
      words[j] = four[j - i];
  }
}

double unit(std::uint32_t word) {
  return (word + 0.5) * 0x1p-32;
}

}  // namespace

GptqWeights random_weights(const LinearProblem& problem, LinearData data, std::uint64_t seed) {
  validate(problem);
  GptqWeights weights;
  weights.n = problem.n;
  weights.k = problem.k;
  weights.group = problem.group;
  weights.zero_points = problem.zero_points;
  weights.qweight.resize(static_cast<std::size_t>(problem.k / 8 * problem.n));
  fill_words(weights.qweight, seed, 1);
  if (!problem.symmetric())
    weights.qzeros.resize(static_cast<std::size_t>(problem.groups() * (problem.n / 8)));
  fill_words(weights.qzeros, seed, 2);
  weights.scales.resize(static_cast<std::size_t>(problem.groups() * problem.n));
  for (std::size_t i = 0; i < weights.scales.size(); ++i) {
    const std::uint32_t word = words_at(seed, 3, i)[0];
    const double scale =
        data == LinearData::normal ? 0.004 + 0.008 * unit(word) : std::ldexp(1.0, int(word % 3) - 1);
    weights.scales[i] = static_cast<std::uint16_t>(encode(Dtype::f16, scale));
  }
  if (problem.act_order) {
    weights.g_idx.resize(static_cast<std::size_t>(problem.k));
    for (std::size_t i = 0; i < weights.g_idx.size(); ++i)
      weights.g_idx[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) / problem.group_rows());
    for (std::size_t i = weights.g_idx.size(); i > 1; --i)  // Fisher and Yates
      std::swap(weights.g_idx[i - 1], weights.g_idx[words_at(seed, 4, i)[0] % i]);
  }
  const Operator& op = problem.rotation;
  if (op.has_signs()) {
    weights.signs.resize(static_cast<std::size_t>((op.n() + 31) / 32));
    fill_words(weights.signs, seed, 6);
    if (op.n() % 32 != 0) weights.signs.back() &= (1U << op.n() % 32) - 1;
  }
  weights.dense = dense_entries(op, problem.dtype, DenseRows::as_long_as_signs);
  return weights;
}

std::vector<std::byte> random_tokens(const LinearProblem& problem, LinearData data, std::uint64_t seed) {
  const std::int64_t count = problem.m * problem.k;
  std::vector<std::byte> x(static_cast<std::size_t>(count * bytes_of(problem.dtype)));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto words = words_at(seed, 5, static_cast<std::uint64_t>(i));
    double value = static_cast<double>(words[0] % 5) - 2.0;
    if (data == LinearData::normal)
      value = std::sqrt(-2.0 * std::log(unit(words[0]))) * std::cos(2.0 * M_PI * unit(words[1]));
    store_element(problem.dtype, x.data(), i, value);
  }
  return x;
}

Matrix rotated_tokens(const LinearProblem& problem, const void* x, const void* signs, const void* dense) {
  Matrix tokens(problem.m, problem.k);
  for (std::int64_t r = 0; r < problem.m; ++r)
    for (std::int64_t i = 0; i < problem.k; ++i)
      tokens(r, i) = load_element(problem.dtype, x, r * problem.k + i);
  if (!problem.rotates()) return tokens;
  const std::int64_t order = problem.rotation_order();
  Matrix blocks = Eigen::Map<const Matrix>(tokens.data(), problem.m * problem.k / order, order);
  ExactOperator(problem.rotation, problem.dtype, signs, dense)
      .apply(blocks, 1.0 / std::sqrt(static_cast<double>(order)), 1);
  return Eigen::Map<const Matrix>(blocks.data(), problem.m, problem.k);
}

WeightRounding weights_of(const Numerics& numerics) {
  return numerics.steps.empty() ? WeightRounding::once : numerics.steps.back().weights;
}

double weight_of(WeightRounding rounding, Dtype dtype, double scale, int q, int zero) {
  switch (rounding) {
    case WeightRounding::none:
      break;
    case WeightRounding::published:
      return round_to(Dtype::f16, q * scale - round_to(Dtype::f16, zero * scale));
    case WeightRounding::once:
      return round_to(dtype, scale * (q - zero));
  }
  return scale * (q - zero);
}

GptqWeights quantize_to_nearest(const std::vector<double>& values, std::int64_t n, std::int64_t k,
                                std::int64_t group) {
  GptqWeights shape;
  shape.n = n;
  shape.k = k;
  shape.group = group;
  const std::int64_t rows = shape.group_rows(), groups = shape.groups();
  std::vector<std::uint8_t> q(static_cast<std::size_t>(n * k)), z(static_cast<std::size_t>(groups * n));
  std::vector<std::uint16_t> scales(static_cast<std::size_t>(groups * n));
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t c = 0; c < n; ++c) {
      double low = 0.0, high = 0.0;  // 0 stays a weight
      for (std::int64_t i = g * rows; i < (g + 1) * rows; ++i) {
        low = std::min(low, values[static_cast<std::size_t>(i * n + c)]);
        high = std::max(high, values[static_cast<std::size_t>(i * n + c)]);
      }
      const double scale = std::max(round_to(Dtype::f16, (high - low) / 15.0), 0x1p-14);
      const double zero = std::clamp(std::nearbyint(-low / scale), 1.0, 15.0);
      scales[static_cast<std::size_t>(g * n + c)] = static_cast<std::uint16_t>(encode(Dtype::f16, scale));
      z[static_cast<std::size_t>(g * n + c)] = static_cast<std::uint8_t>(zero);
      for (std::int64_t i = g * rows; i < (g + 1) * rows; ++i) {
        const double code = std::nearbyint(values[static_cast<std::size_t>(i * n + c)] / scale) + zero;
        q[static_cast<std::size_t>(i * n + c)] = static_cast<std::uint8_t>(std::clamp(code, 0.0, 15.0));
      }
    }
  }
  return pack_gptq(n, k, group, ZeroPoints::v1, q, z, std::move(scales));
}

std::vector<std::int64_t> sample_columns(std::int64_t n, std::int64_t most) {
  const std::int64_t count = std::clamp<std::int64_t>(most, 2, n);
  std::vector<std::int64_t> columns;
  for (std::int64_t i = 0; i < count; ++i)
    columns.push_back(i * (n - 1) / (count - 1));
  return columns;
}

LinearTruth linear_truth(const LinearProblem& problem, const GptqWeights& weights, const void* x,
                         WeightRounding rounding, std::vector<std::int64_t> columns, int threads) {
  const bool rounds = rounding != WeightRounding::none;
  LinearTruth truth;
  if (columns.empty()) {
    columns.resize(static_cast<std::size_t>(problem.n));
    std::iota(columns.begin(), columns.end(), std::int64_t{0});
  }
  truth.columns = std::move(columns);
  const auto count = static_cast<std::int64_t>(truth.columns.size());
  const Matrix tokens = rotated_tokens(problem, x, weights.signs.empty() ? nullptr : weights.signs.data(),
                                       weights.dense.empty() ? nullptr : weights.dense.data());
  truth.exact.resize(problem.m, count);
  truth.root_squares.resize(problem.m, count);
  truth.of_rounded_weights.resize(problem.m, count);
  const Matrix squares = tokens.array().square().matrix();
  parallel_for(count, threads, [&](std::int64_t begin, std::int64_t end) {
    Eigen::VectorXd w(problem.k), rounded(problem.k);
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t c = truth.columns[static_cast<std::size_t>(at)];
      for (std::int64_t i = 0; i < problem.k; ++i) {
        const std::int64_t g = weights.group_of(i);
        const double scale = weights.scale(g, c);
        const int q = weights.q(i, c), zero = weights.zero(g, c);
        w(i) = scale * (q - zero);
        if (rounds) rounded(i) = weight_of(rounding, problem.dtype, scale, q, zero);
      }
      truth.exact.col(at) = tokens * w;
      truth.root_squares.col(at) = (squares * w.array().square().matrix()).array().sqrt().matrix();
      truth.of_rounded_weights.col(at) = truth.exact.col(at);
      if (rounds) truth.of_rounded_weights.col(at) = tokens * rounded;
    }
  });
  return truth;
}

LinearJudged judge_linear(const Numerics& numerics, const LinearProblem& problem, const LinearTruth& truth,
                          const void* y, LinearData data) {
  const bool known = !numerics.steps.empty();
  const Step product = known ? numerics.steps.back() : Step{};
  const bool atomic = product.sums == Sums::atomic_f16;
  const Matrix& center = truth.of_rounded_weights;
  const Format format = format_of(problem.dtype);
  const double u = format.unit_roundoff();
  // Roundings of partial sums to 16 bits, in units of one rounding of the result: every partial sum, and
  // every running sum but the first and the last (which is the result's own rounding). The j-th running sum
  // has j / S of the variance.
  const double s = product.parts;
  const double atomics = atomic ? (s + 1.0) / 2.0 - 1.0 / s : 0.0;
  double of_x = 0.0;  // mean square of what is rounded before the product, in u^2
  for (const Step& step : numerics.steps)
    if (step.rounds && &step != &numerics.steps.back()) of_x += step.rounding_rms * step.rounding_rms;
  LinearJudged judged;
  double error2 = 0.0, norm2 = 0.0, roundings2 = 0.0, predicted2 = 0.0;
  for (Eigen::Index c = 0; c < center.cols(); ++c) {
    const std::int64_t column = truth.columns[static_cast<std::size_t>(c)];
    for (Eigen::Index r = 0; r < center.rows(); ++r) {
      const double got = load_element(problem.dtype, y, r * problem.n + column);
      const double exact = truth.exact(r, c), at = center(r, c), spread = truth.root_squares(r, c);
      const double ulp = ulp_of(format, at);
      // Six standard deviations of what is rounded to 16 bits before the end; a tensor core cuts off at most
      // 2^-23 of a running sum in each multiply; and fp32 sums of groups.
      const double inner = atomics * kRoundingRms * kRoundingRms + of_x;
      const double allowed =
          0.5 * ulp + 6.0 * std::sqrt(inner) * u * std::hypot(spread, at) +
          (0x1p-18 + product.chained * 0x1p-23 + product.unit_changes * 0x1.8p-23) * std::hypot(spread, at) +
          0x1p-22 * std::fabs(at);
      if (known && !(std::fabs(got - at) <= allowed)) {
        judged.verdict =
            incorrect(fmt::format("token {}, column {}: {} expected, got {}, error {:.3g}, allowed {:.3g}", r,
                                  column, at, got, std::fabs(got - at), allowed));
        return judged;
      }
      error2 += (got - exact) * (got - exact);
      norm2 += exact * exact;
      const double rounding2 = ulp * ulp / 12.0;
      roundings2 += rounding2;
      predicted2 +=
          (at - exact) * (at - exact) + (1.0 + atomics) * rounding2 + of_x * u * u * spread * spread;
    }
  }
  LinearErrors& errors = judged.errors;
  errors.elements = center.size();
  errors.rel_l2 = norm2 > 0.0 ? std::sqrt(error2 / norm2) : error2 > 0.0 ? INFINITY : 0.0;
  errors.one_rounding = norm2 > 0.0 ? std::sqrt(roundings2 / norm2) : 0.0;
  errors.predicted = norm2 > 0.0 ? std::sqrt(predicted2 / norm2) : 0.0;
  judged.verdict = passed();
  if (!known) {
    if (!(errors.rel_l2 <= kUnknownErrors * errors.predicted))
      judged.verdict =
          incorrect(fmt::format("rel_l2 is {:.3g}; {:.3g}, {} times the prediction, is allowed",
                                errors.rel_l2, kUnknownErrors * errors.predicted, kUnknownErrors));
    return judged;
  }
  if (data == LinearData::normal && errors.elements >= 2048) {
    const double width =
        (atomic ? 0.05 : 0.01) + 6.0 * 1.153 / std::sqrt(static_cast<double>(errors.elements));
    const double ratio = errors.rel_l2 / errors.predicted;
    if (!(ratio >= 1.0 - width && ratio <= 1.0 + width)) {
      judged.verdict =
          incorrect(fmt::format("rel_l2 {:.4g} is {:.4f} of the predicted {:.4g}, {:.4f} is allowed",
                                errors.rel_l2, ratio, errors.predicted, width));
    }
  }
  return judged;
}

}  // namespace fwht::reference
