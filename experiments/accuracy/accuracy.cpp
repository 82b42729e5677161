#include "experiments/accuracy/accuracy.hpp"

#include <fmt/format.h>

#include "common/bits.hpp"

namespace fwht::accuracy {

using reference::Checked;
using reference::InputClass;
using support::csv_number;
using support::CsvRow;

namespace {

CsvRow describe(const Variant& variant, const Samples& samples, const char* status,
                const std::string& message) {
  return {{"variant", std::string(variant.name)},
          {"source", "measured"},
          {"dtype", std::string(name_of(samples.what().dtype))},
          {"n", std::to_string(samples.what().n)},
          {"input", std::string(reference::name_of(samples.what().input))},
          {"seeds", fmt::format("{}", fmt::join(samples.seeds(), ";"))},
          {"elements", std::to_string(samples.problem().elements())},
          {"status", status},
          {"message", message}};
}

}  // namespace

std::vector<std::int64_t> summary_lengths() {
  return {16, 64, 128, 256, 1024, 2048, 4096, 16384, 32768};
}

std::vector<InputClass> summary_inputs() {
  return {InputClass::normal, InputClass::uniform, InputClass::outlier_channels, InputClass::massive_channel,
          InputClass::fa3_mixture};
}

std::int64_t rows_per_seed(std::int64_t n, std::int64_t elements) {
  return ceil_div(elements, n);
}

Problem problem_of(const Case& c, std::int64_t rows, std::size_t seeds) {
  return make_problem(c.dtype, c.n, rows * static_cast<std::int64_t>(seeds));
}

Samples::Samples(const Case& c, std::int64_t rows, std::vector<std::uint64_t> seeds)
    : case_(c), rows_per_seed_(rows), seeds_(std::move(seeds)), problem_(problem_of(c, rows, seeds_.size())) {
  raw_.resize(static_cast<std::size_t>(problem_.span_bytes()));
  const Problem part = problem_of(c, rows, 1);
  for (std::size_t i = 0; i < seeds_.size(); ++i) {
    void* data = raw_.data() + static_cast<std::int64_t>(i) * part.span_bytes();
    reference::write_input(part, c.input, seeds_[i], data);
    inputs_.push_back(reference::load_rows(part, data));
    expected_.push_back(reference::expected(part, data));
  }
}

Checked Samples::check(const Plan& plan, support::Slices& slices) const {
  slices.fill(raw_.data(), static_cast<std::int64_t>(raw_.size()));
  plan.execute(slices.in(0), slices.out(0));
  synchronize(slices.memory());
  std::vector<std::byte> output(raw_.size());
  slices.output().download(output.data(), output.size());

  const NumericModel model = plan.numerics();
  reference::Comparison comparison(problem_);
  for (std::size_t i = 0; i < seeds_.size(); ++i) {
    const reference::Limits limits =
        reference::limits_for(model, problem_of(case_, rows_per_seed_, 1), case_.input, inputs_[i]);
    comparison.add(static_cast<std::int64_t>(i) * rows_per_seed_, expected_[i], output.data(), limits);
  }
  Checked checked;
  checked.stats = comparison.stats();
  checked.verdict = reference::judge(checked.stats, model, problem_, case_.input);
  if (checked.verdict && !slices.output().guards_intact()) {
    checked.verdict = reference::incorrect("memory in front of or behind the data was written");
  }
  return checked;
}

CsvRow measured_row(const Variant& variant, const Samples& samples, const NumericModel& model,
                    const Checked& checked) {
  const reference::ErrorStats& stats = checked.stats;
  const double predicted = reference::predicted_rel_l2(model, samples.problem(), stats.expected_rms);
  CsvRow row = describe(variant, samples, checked.verdict ? "ok" : "incorrect",
                        checked.verdict ? "" : checked.verdict.message);
  row["rel_l2"] = csv_number(stats.rel_l2);
  row["rel_l2_min_row"] = csv_number(stats.rel_l2_min_row);
  row["rel_l2_mean_row"] = csv_number(stats.rel_l2_mean_row);
  row["rel_l2_max_row"] = csv_number(stats.rel_l2_max_row);
  row["predicted_rel_l2"] = csv_number(predicted);
  row["ratio"] = csv_number(stats.rel_l2 / predicted);
  row["max_error_over_rms"] = csv_number(stats.max_error_over_rms);
  row["gain"] = csv_number(stats.gain);
  row["predicted_gain"] = csv_number(reference::measured_gain(model, samples.problem()));
  row["mean_signed_error"] = csv_number(stats.mean_signed_error);
  row["bit_match"] = csv_number(stats.bit_match);
  row["nonfinite"] = std::to_string(stats.nonfinite);
  return row;
}

CsvRow failed_row(const Variant& variant, const Samples& samples, const std::string& message) {
  return describe(variant, samples, "failed", message);
}

std::string accuracy_key(const CsvRow& row) {
  return fmt::format("{}/{}/{}/{}/{}", row.at("variant"), row.at("source"), row.at("dtype"), row.at("n"),
                     row.at("input"));
}

std::string accuracy_key(const Variant& variant, const Case& c) {
  return fmt::format("{}/measured/{}/{}/{}", variant.name, name_of(c.dtype), c.n,
                     reference::name_of(c.input));
}

}  // namespace fwht::accuracy
