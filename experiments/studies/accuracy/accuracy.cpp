#include "experiments/studies/accuracy/accuracy.hpp"

#include <fmt/format.h>

#include <cmath>

#include "common/host/bits.hpp"
#include "reference/lattice.hpp"
#include "reference/operators.hpp"

namespace fwht::accuracy {

using harness::csv_number;
using harness::CsvRow;
using reference::InputClass;

namespace {

/// Of the judged part, whose truth is `expected`.
reference::ErrorLimits limits_of(const Numerics& numerics, const Problem& problem, InputClass input_class,
                                 const reference::Matrix& input, const reference::Matrix& expected) {
  if (problem.op.is_sylvester()) return reference::limits_for(numerics, problem, input_class, input);
  const reference::ExactOperator exact(problem.op, problem.dtype(), nullptr, nullptr);
  return reference::operator_limits(numerics, problem, input_class, exact, input, expected);
}

/// What holds for any row.
reference::HardBound hard_bound_of(const Numerics& numerics, const Problem& problem,
                                   const reference::ErrorLimits& limits) {
  if (problem.op.is_sylvester()) return reference::hard_bound(numerics, problem);
  return {limits.row_relative, limits.row_absolute};
}

/// Rounding errors that are independent given the data, so that the sum of their variances predicts the
/// error.
bool roundings_are_independent(InputClass input) {
  return reference::is_smooth(input) || input == InputClass::massive_channel;
}

}  // namespace

std::int64_t rows_per_seed(std::int64_t n, std::int64_t elements, std::size_t seeds) {
  return ceil_div(elements, n * static_cast<std::int64_t>(seeds));
}

Problem problem_of(const AccuracyCase& c, std::int64_t rows, std::size_t seeds) {
  return make_problem(c.dtype, operator_for(c.n), rows * static_cast<std::int64_t>(seeds));
}

Samples::Samples(const AccuracyCase& c, std::int64_t rows, std::vector<std::uint64_t> seeds)
    : case_(c),
      rows_per_seed_(rows),
      seeds_(std::move(seeds)),
      problem_(problem_of(c, rows, seeds_.size())),
      judged_(problem_of(c, std::min(rows, ceil_div(kJudged, c.n)), 1)) {
  raw_.resize(static_cast<std::size_t>(problem_.span_bytes()));
  const Problem part = problem_of(c, rows, 1);
  for (std::size_t i = 0; i < seeds_.size(); ++i) {
    reference::write_input(part, c.input, seeds_[i],
                           raw_.data() + static_cast<std::int64_t>(i) * part.span_bytes());
  }
  expected_ = reference::expected(problem_, raw_.data());
}

Samples::Measured Samples::judge(const harness::Performer::Result& result) const {
  Measured measured;
  measured.numerics = result.numerics;
  const reference::Matrix input = reference::load_rows(judged_, raw_.data());
  const reference::Matrix judged_truth = expected_.topRows(judged_.rows);
  const reference::ErrorLimits limits = limits_of(result.numerics, judged_, case_.input, input, judged_truth);
  const reference::HardBound hard = hard_bound_of(result.numerics, problem_, limits);
  reference::ErrorLimits rows;
  rows.row_relative = hard.relative;
  rows.row_absolute = hard.absolute;
  rows.overflow_slack = hard.relative;
  reference::Comparison all(problem_);
  all.add(0, expected_, result.output.data(), rows);
  measured.stats = all.stats();

  reference::Comparison part(judged_);
  part.add(0, judged_truth, result.output.data(), limits);
  const reference::ErrorStats judged = part.stats();
  measured.verdict = reference::judge(judged, result.numerics, judged_, case_.input);
  if (measured.verdict) measured.verdict = reference::judge_elements(measured.stats, problem_);
  if (measured.verdict && !result.guards_intact)
    measured.verdict = reference::incorrect("memory in front of or behind the data was written");

  if (!roundings_are_independent(case_.input) || judged.expected_rms == 0.0) return measured;
  // Other operators: the prediction of one rounding, where there is one.
  if (!problem_.op.is_sylvester() && !limits.prediction) return measured;
  const reference::Prediction prediction =
      limits.prediction ? *limits.prediction
                        : reference::running_variance(result.numerics, judged_, input).prediction;
  const double squares = judged.expected_rms * judged.expected_rms * static_cast<double>(judged.finite);
  measured.predicted_for_data =
      std::hypot(std::sqrt(prediction.error2 / squares), reference::predicted_gain(result.numerics, judged_));
  measured.gain_spread = std::sqrt(prediction.gain_variance * static_cast<double>(judged.finite) /
                                   static_cast<double>(std::max<std::int64_t>(1, measured.stats.finite))) /
                         squares;
  return measured;
}

double ratio_window(std::int64_t elements) {
  return 0.02 + 6.0 * 1.153 / std::sqrt(static_cast<double>(elements));
}

CsvRow identity_of(const harness::Performer& performer, const AccuracyCase& c) {
  return {{"variant", std::string(performer.name())},
          {"source", std::string(harness::name_of(performer.source()))},
          {"dtype", std::string(name_of(c.dtype))},
          {"n", std::to_string(c.n)},
          {"input", std::string(reference::name_of(c.input))}};
}

CsvRow measured_row(const Samples& samples, const Samples::Measured& measured) {
  const reference::ErrorStats& stats = measured.stats;
  const double predicted =
      reference::predicted_rel_l2(measured.numerics, samples.problem(), stats.expected_rms);
  const auto ratio = [&](std::optional<double> to) {
    return csv_number(to && *to > 0.0 ? std::optional(stats.rel_l2 / *to) : std::nullopt);
  };
  return {{"seeds", fmt::format("{}", fmt::join(samples.seeds(), ";"))},
          {"elements", std::to_string(samples.problem().elements())},
          {"status", measured.verdict ? "ok" : "incorrect"},
          {"message", measured.verdict ? "" : measured.verdict.message},
          {"rel_l2", csv_number(stats.rel_l2)},
          {"rel_l2_min_row", csv_number(stats.rel_l2_min_row)},
          {"rel_l2_mean_row", csv_number(stats.rel_l2_mean_row)},
          {"rel_l2_max_row", csv_number(stats.rel_l2_max_row)},
          {"predicted_rel_l2", csv_number(predicted)},
          {"ratio", ratio(predicted)},
          {"predicted_for_data", csv_number(measured.predicted_for_data)},
          {"ratio_for_data", ratio(measured.predicted_for_data)},
          {"window", csv_number(ratio_window(stats.finite))},
          {"max_error_over_rms", csv_number(stats.max_error_over_rms)},
          {"gain", csv_number(stats.gain)},
          {"predicted_gain",
           csv_number(samples.what().input == InputClass::normal && samples.problem().op.is_sylvester()
                          ? reference::normal_data_gain(measured.numerics, samples.problem())
                          : reference::measured_gain(measured.numerics, samples.problem()))},
          {"gain_spread", csv_number(measured.gain_spread)},
          {"mean_signed_error", csv_number(stats.mean_signed_error)},
          {"bit_match", csv_number(stats.bit_match)},
          {"ulp_histogram", fmt::format("{}", fmt::join(stats.ulp_histogram, ";"))},
          {"nonfinite", std::to_string(stats.nonfinite)},
          {"unexpected_nan", std::to_string(stats.unexpected_nan)},
          {"unexpected_infinity", std::to_string(stats.unexpected_infinity)},
          {"missing_nonfinite", std::to_string(stats.missing_nonfinite)}};
}

}  // namespace fwht::accuracy
