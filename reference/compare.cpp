#include "reference/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "common/host/parallel_for.hpp"
#include "reference/rounding.hpp"

namespace fwht::reference {
namespace {

/// Position of a number among the numbers of its format: neighbours differ by one, -0 and +0 share 0.
std::int64_t ordinal(Dtype dtype, double value) {
  if (is_integer(dtype)) return static_cast<std::int64_t>(value);
  const double magnitude = std::fabs(value);
  const auto bits = dtype == Dtype::f64 ? std::bit_cast<std::int64_t>(magnitude)
                                        : static_cast<std::int64_t>(encode(dtype, magnitude));
  return std::signbit(value) ? -bits : bits;
}

int ulp_bin(Dtype dtype, double got, double rounded) {
  if (got == rounded) return 0;
  const auto steps = static_cast<std::uint64_t>(std::llabs(ordinal(dtype, got) - ordinal(dtype, rounded)));
  return std::min(kUlpBins - 1, static_cast<int>(std::bit_width(steps)));
}

bool same_class_or_value(double want, double got) {
  return std::isnan(want) ? std::isnan(got) : got == want;
}

}  // namespace

/// Sums over a block of rows. add() is for one row; merge() for blocks in row order.
struct Comparison::Sums {
  ErrorStats stats;  // counts and extremes; the means are formed in Comparison::stats
  double error2 = 0.0, expected2 = 0.0, output2 = 0.0, cross = 0.0, signed_error = 0.0, row_sum = 0.0;
  std::int64_t matches = 0;
  bool predicted = true;
  Prediction prediction;

  Sums() { stats.rel_l2_min_row = std::numeric_limits<double>::infinity(); }

  void add_row(const Problem& problem, std::int64_t row, const double* expected, const void* output,
               const double* bounds, const ErrorLimits& limits);
  void merge(const Sums& other);

 private:
  struct Deviation {
    Position at;
    double expected, got, allowed;
  };
  void wrong(const Deviation& element) {
    if (stats.first_wrong.row >= 0) return;
    stats.first_wrong = element.at;
    stats.first_expected = element.expected;
    stats.first_got = element.got;
    stats.first_allowed = element.allowed;
  }
  bool right_class(const Deviation& element, double threshold);
};

/// Counts what is not a plain pair of finite numbers. True when the pair is finite and its error counts.
bool Comparison::Sums::right_class(const Deviation& element, double threshold) {
  const auto [at, expected, got, allowed] = element;
  if (!std::isfinite(got)) ++stats.nonfinite;
  const double magnitude = std::fabs(expected);
  const bool either =
      std::isfinite(expected) && magnitude + allowed >= threshold && magnitude - allowed <= threshold;
  if (either) ++stats.overflow_either;
  // A finite truth beyond the zone overflows: the right result is an infinity.
  const double want = std::isfinite(expected) && !either && magnitude >= threshold
                          ? std::copysign(std::numeric_limits<double>::infinity(), expected)
                          : expected;
  if (std::isfinite(want) && std::isfinite(got)) return true;
  if (same_class_or_value(want, got)) return false;
  if (either && std::isinf(got) && std::signbit(got) == std::signbit(expected)) return false;
  if (std::isnan(got)) {
    ++stats.unexpected_nan;
  } else if (std::isinf(got)) {
    ++stats.unexpected_infinity;
  } else {
    ++stats.missing_nonfinite;
  }
  wrong(element);
  return false;
}

void Comparison::Sums::add_row(const Problem& problem, std::int64_t row, const double* expected,
                               const void* output, const double* bounds, const ErrorLimits& limits) {
  const Format format = format_of(problem.dtype());
  const double threshold = overflow_threshold(format);
  double row_error2 = 0.0, row_expected2 = 0.0, worst_error = -1.0;
  Deviation worst{{row, -1}, 0.0, 0.0, 0.0};
  for (std::int64_t i = 0; i < problem.n(); ++i) {
    const double y = expected[i],
                 got = load_element(problem.dtype(), output, row * problem.out.row_stride + i);
    const double zone = bounds ? bounds[i] : std::fabs(y) * limits.overflow_slack;
    const Deviation element{{row, i}, y, got, zone};
    ++stats.elements;
    if (!right_class(element, threshold)) continue;
    const double error = got - y;
    ++stats.finite;
    row_error2 += error * error;
    row_expected2 += y * y;
    output2 += got * got;
    cross += error * y;
    signed_error += error;
    const int bin = ulp_bin(problem.dtype(), got, round_fast(format, y));
    ++stats.ulp_histogram[static_cast<std::size_t>(bin)];
    matches += bin == 0;
    if (std::fabs(error) > worst_error) {
      worst_error = std::fabs(error);
      worst = element;
    }
    if (bounds && !(std::fabs(error) <= bounds[i])) {  // a NaN bound is no permission
      ++stats.elementwise_violations;
      wrong(element);
    }
  }
  ++stats.rows;
  error2 += row_error2;
  expected2 += row_expected2;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double rel = row_error2 == 0.0      ? 0.0
                     : row_expected2 == 0.0 ? kInfinity
                                            : std::sqrt(row_error2 / row_expected2);
  stats.rel_l2_min_row = std::min(stats.rel_l2_min_row, rel);
  stats.rel_l2_max_row = std::max(stats.rel_l2_max_row, rel);
  row_sum += rel;
  const double order = static_cast<double>(problem.n()), rms = std::sqrt(row_expected2 / order);
  const double over_rms = worst_error <= 0.0 ? 0.0 : rms == 0.0 ? kInfinity : worst_error / rms;
  if (worst.at.column >= 0 && (stats.worst.row < 0 || over_rms > stats.max_error_over_rms)) {
    stats.max_error_over_rms = over_rms;
    stats.worst = worst.at;
    stats.worst_expected = worst.expected;
    stats.worst_got = worst.got;
  }
  if (limits.row_relative == kInfinity) return;
  const double allowed =
      limits.row_relative * std::sqrt(row_expected2) + limits.row_absolute * std::sqrt(order);
  if (std::sqrt(row_error2) <= allowed) return;
  ++stats.row_violations;
  if (stats.first_wrong_row < 0) {
    stats.first_wrong_row = row;
    stats.first_row_error = std::sqrt(row_error2);
    stats.first_row_allowed = allowed;
  }
}

void Comparison::Sums::merge(const Sums& other) {
  const ErrorStats& o = other.stats;
  stats.elements += o.elements;
  stats.finite += o.finite;
  stats.rows += o.rows;
  stats.nonfinite += o.nonfinite;
  stats.unexpected_nan += o.unexpected_nan;
  stats.unexpected_infinity += o.unexpected_infinity;
  stats.missing_nonfinite += o.missing_nonfinite;
  stats.overflow_either += o.overflow_either;
  stats.elementwise_violations += o.elementwise_violations;
  stats.row_violations += o.row_violations;
  for (std::size_t bin = 0; bin < kUlpBins; ++bin)
    stats.ulp_histogram[bin] += o.ulp_histogram[bin];
  stats.rel_l2_min_row = std::min(stats.rel_l2_min_row, o.rel_l2_min_row);
  stats.rel_l2_max_row = std::max(stats.rel_l2_max_row, o.rel_l2_max_row);
  if (o.worst.row >= 0 && (stats.worst.row < 0 || o.max_error_over_rms > stats.max_error_over_rms)) {
    stats.max_error_over_rms = o.max_error_over_rms;
    stats.worst = o.worst;
    stats.worst_expected = o.worst_expected;
    stats.worst_got = o.worst_got;
  }
  if (stats.first_wrong.row < 0 && o.first_wrong.row >= 0) {
    wrong({o.first_wrong, o.first_expected, o.first_got, o.first_allowed});
  }
  if (stats.first_wrong_row < 0 && o.first_wrong_row >= 0) {
    stats.first_wrong_row = o.first_wrong_row;
    stats.first_row_error = o.first_row_error;
    stats.first_row_allowed = o.first_row_allowed;
  }
  error2 += other.error2;
  expected2 += other.expected2;
  output2 += other.output2;
  cross += other.cross;
  signed_error += other.signed_error;
  row_sum += other.row_sum;
  matches += other.matches;
}

Verdict passed() {
  return {Judged::ok, ""};
}
Verdict incorrect(std::string message) {
  return {Judged::incorrect, std::move(message)};
}

Comparison::Comparison(const Problem& problem) : problem_(problem), sums_(std::make_unique<Sums>()) {}
Comparison::~Comparison() = default;

void Comparison::add(std::int64_t first_row, const Matrix& expected, const void* output,
                     const ErrorLimits& limits, int threads) {
  const std::int64_t rows = expected.rows();
  if (expected.cols() != problem_.n() || first_row < 0 || first_row + rows > problem_.rows) {
    throw BadRequest(fmt::format("expected values {} x {} for rows from {} do not fit the problem {}", rows,
                                 expected.cols(), first_row, to_string(problem_)));
  }
  if (limits.elementwise &&
      (limits.elementwise->rows() != rows || limits.elementwise->cols() != problem_.n())) {
    throw BadRequest(fmt::format("elementwise limits {} x {} for expected values {} x {}",
                                 limits.elementwise->rows(), limits.elementwise->cols(), rows, problem_.n()));
  }
  const std::int64_t rows_per_block = std::max<std::int64_t>(1, 16384 / problem_.n());
  const std::int64_t blocks = ceil_div(rows, rows_per_block);
  std::vector<Sums> partial(static_cast<std::size_t>(blocks));
  parallel_for(blocks, threads_or_default(threads), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      for (std::int64_t r = b * rows_per_block; r < std::min(rows, (b + 1) * rows_per_block); ++r) {
        const double* bounds = limits.elementwise ? limits.elementwise->row(r).data() : nullptr;
        partial[static_cast<std::size_t>(b)].add_row(problem_, first_row + r, expected.row(r).data(), output,
                                                     bounds, limits);
      }
    }
  });
  for (const Sums& block : partial)
    sums_->merge(block);
  if (!limits.prediction) {
    sums_->predicted = false;
  } else {
    sums_->prediction.error2 += limits.prediction->error2;
    sums_->prediction.error2_variance += limits.prediction->error2_variance;
    sums_->prediction.gain_variance += limits.prediction->gain_variance;
  }
}

ErrorStats Comparison::stats() const {
  const Sums& s = *sums_;
  ErrorStats stats = s.stats;
  if (stats.rows == 0) stats.rel_l2_min_row = 0.0;
  if (stats.rows > 0) stats.rel_l2_mean_row = s.row_sum / static_cast<double>(stats.rows);
  if (stats.finite == 0) return stats;
  const double count = static_cast<double>(stats.finite);
  stats.bit_match = static_cast<double>(s.matches) / count;
  stats.expected_rms = std::sqrt(s.expected2 / count);
  if (s.expected2 == 0.0) {
    stats.rel_l2 = s.error2 == 0.0 ? 0.0 : std::numeric_limits<double>::infinity();
    return stats;
  }
  stats.rel_l2 = std::sqrt(s.error2 / s.expected2);
  stats.gain = s.cross / s.expected2;
  stats.norm_gain = std::sqrt(s.output2 / s.expected2) - 1.0;
  stats.mean_signed_error = s.signed_error / count / stats.expected_rms;
  if (s.predicted && s.prediction.error2 > 0.0) {
    stats.predicted_rel_l2 = std::sqrt(s.prediction.error2 / s.expected2);
    stats.predicted_spread = 0.5 * std::sqrt(s.prediction.error2_variance) / s.prediction.error2;
    stats.predicted_gain_spread = std::sqrt(s.prediction.gain_variance) / s.expected2;
  }
  return stats;
}

ErrorStats compare(const Problem& problem, const Matrix& expected, const void* output,
                   const ErrorLimits& limits, int threads) {
  Comparison comparison(problem);
  comparison.add(0, expected, output, limits, threads);
  return comparison.stats();
}

Verdict judge_elements(const ErrorStats& stats, const Problem& problem) {
  if (stats.elements != problem.elements() || stats.rows != problem.rows) {
    return incorrect(fmt::format("{}: {} of {} elements were compared", to_string(problem), stats.elements,
                                 problem.elements()));
  }
  const std::int64_t wrong = stats.unexpected_nan + stats.unexpected_infinity + stats.missing_nonfinite +
                             stats.elementwise_violations;
  if (wrong > 0) {
    return incorrect(
        fmt::format("{}: row {} column {}: expected {:.9g} +- {:.3g}, got {:.9g}; {} of {} elements are "
                    "wrong ({} NaN and {} "
                    "infinite where they must not be, {} finite where NaN or an infinity must be, {} outside "
                    "their bound)",
                    to_string(problem), stats.first_wrong.row, stats.first_wrong.column, stats.first_expected,
                    stats.first_allowed, stats.first_got, wrong, stats.elements, stats.unexpected_nan,
                    stats.unexpected_infinity, stats.missing_nonfinite, stats.elementwise_violations));
  }
  if (stats.row_violations > 0) {
    return incorrect(
        fmt::format("{}: row {}: the 2-norm of the error is {:.4g}, the hard bound {:.4g}; {} of {} rows "
                    "exceed it; largest error at row {} column {}: expected {:.9g}, got {:.9g}",
                    to_string(problem), stats.first_wrong_row, stats.first_row_error, stats.first_row_allowed,
                    stats.row_violations, stats.rows, stats.worst.row, stats.worst.column,
                    stats.worst_expected, stats.worst_got));
  }
  return passed();
}

namespace {

template <class Want, class Got>
Verdict compare_exact_with(const Problem& problem, const Want& want, const Got& got_at) {
  std::int64_t wrong = 0;
  std::string first;
  for (std::int64_t r = 0; r < problem.rows; ++r) {
    for (std::int64_t i = 0; i < problem.n(); ++i) {
      const auto a = want(r, i), b = got_at(r, i);
      if (a == b || (std::isnan(static_cast<double>(a)) && std::isnan(static_cast<double>(b)))) continue;
      if (wrong++ == 0) first = fmt::format("row {} column {}: expected exactly {}, got {}", r, i, a, b);
    }
  }
  if (wrong == 0) return passed();
  return incorrect(
      fmt::format("{}: {}; {} of {} elements differ", to_string(problem), first, wrong, problem.elements()));
}

auto elements_of(const Problem& problem, const void* data) {
  return [&problem, data](std::int64_t r, std::int64_t i) {
    return load_element(problem.dtype(), data, r * problem.out.row_stride + i);
  };
}

}  // namespace

Verdict compare_exact(const Problem& problem, const void* want, const void* got) {
  const auto integers_of = [&](const void* data) {
    return [&problem, data](std::int64_t r, std::int64_t i) {  // double does not hold them all
      return static_cast<const std::int64_t*>(data)[r * problem.out.row_stride + i];
    };
  };
  if (problem.dtype() == Dtype::i64) return compare_exact_with(problem, integers_of(want), integers_of(got));
  return compare_exact_with(problem, elements_of(problem, want), elements_of(problem, got));
}

Verdict compare_exact(const Problem& problem, const Matrix& expected, const void* got) {
  if (expected.rows() != problem.rows || expected.cols() != problem.n()) {
    throw BadRequest(fmt::format("expected values {} x {} do not fit the problem {}", expected.rows(),
                                 expected.cols(), to_string(problem)));
  }
  const Format format = format_of(problem.dtype());
  return compare_exact_with(
      problem, [&](std::int64_t r, std::int64_t i) { return round_fast(format, expected(r, i)); },
      elements_of(problem, got));
}

}  // namespace fwht::reference
