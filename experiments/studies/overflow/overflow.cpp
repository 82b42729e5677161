#include "experiments/studies/overflow/overflow.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/contract/variant.hpp"
#include "reference/emulation.hpp"
#include "reference/inputs.hpp"
#include "reference/rounding.hpp"

namespace fwht::overflow {

using harness::csv_number;
using harness::CsvRow;
using reference::Matrix;

namespace {

constexpr double kLimit = 65504.0;
constexpr std::int64_t kLengths[] = {128, 1024, 32768};

std::int64_t rows_for(std::int64_t n) {
  return std::max<std::int64_t>(4, 16384 / n);
}

/// Octaves two apart where only precision is at stake, half octaves around the limit.
std::vector<double> norms_over_limit() {
  std::vector<double> norms;
  for (int e = -24; e < -6; e += 2)
    norms.push_back(std::ldexp(1.0, e));
  for (int half = -12; half <= 16; ++half)
    norms.push_back(std::exp2(0.5 * half));
  return norms;
}

}  // namespace

std::string_view name_of(ScalePlacement placement) {
  return placement == ScalePlacement::before ? "scale_before" : "scale_after_in_f16";
}

std::vector<std::byte> make_rows(const Problem& problem, RowShape shape, double norm) {
  Matrix values = Matrix::Zero(problem.rows, problem.n());
  if (shape == RowShape::normal) values = reference::generate(problem, reference::InputClass::normal, 1);
  const std::int64_t block = std::min<std::int64_t>(256, problem.n() / 2);
  for (std::int64_t r = 0; r < problem.rows; ++r) {
    if (shape == RowShape::constant) values.row(r).setOnes();
    if (shape == RowShape::block) values.row(r).segment(block * (r % (problem.n() / block)), block).setOnes();
    if (shape == RowShape::one_hot) values(r, (37 * r) % problem.n()) = 1.0;
    values.row(r) *= norm / values.row(r).norm();
  }
  if (values.cwiseAbs().maxCoeff() > kLimit) return {};
  std::vector<std::byte> raw(static_cast<std::size_t>(problem.span_bytes()));
  reference::store_rows(problem, values, raw.data());
  return raw;
}

std::vector<std::byte> transform(ScalePlacement placement, const Problem& problem,
                                 const std::vector<std::byte>& rows) {
  std::vector<std::byte> out(rows.size());
  if (placement == ScalePlacement::before) {
    const Matrix scaled = reference::load_rows(problem, rows.data()) * problem.scale;
    reference::store_rows(problem, scaled, out.data());
    Problem unscaled = problem;
    unscaled.scale = 1.0;
    reference::emulate(unscaled, single_rounding(Sums::fp32, unscaled), out.data(), out.data());
    return out;
  }
  Numerics stored;  // one index bit a step, each rounded, the scale in the last one
  for (int bit = 0; std::int64_t{1} << bit < problem.n(); ++bit) {
    Step step;
    step.bits = {bit};
    stored.steps.push_back(step);
  }
  stored.steps.back().constant = static_cast<float>(problem.scale);
  reference::emulate(problem, stored, rows.data(), out.data());
  return out;
}

Count count(const Problem& problem, const std::vector<std::byte>& in, const std::vector<std::byte>& out) {
  const Matrix expected = reference::expected(problem, in.data()),
               got = reference::load_rows(problem, out.data());
  const double threshold = reference::overflow_threshold(format_of(problem.dtype()));
  Count result;
  double error2 = 0.0, truth2 = 0.0;
  for (Eigen::Index r = 0; r < expected.rows(); ++r) {
    ++result.rows;
    if (expected.row(r).cwiseAbs().maxCoeff() >= threshold) {
      ++result.overflowing;
      continue;
    }
    const std::int64_t bad = (!got.row(r).array().isFinite()).count();
    result.spurious += bad > 0;
    result.spurious_values += bad;
    if (bad > 0) continue;
    error2 += (got.row(r) - expected.row(r)).squaredNorm();
    truth2 += expected.row(r).squaredNorm();
  }
  result.rel_l2 = truth2 > 0.0 ? std::sqrt(error2 / truth2) : NAN;
  return result;
}

namespace {

CsvRow row_of(const Count& c, double norm, std::int64_t n) {
  return {{"norm_over_limit", csv_number(norm)},
          {"rms", csv_number(norm * kLimit / std::sqrt(static_cast<double>(n)))},
          {"rows", std::to_string(c.rows)},
          {"overflowing_rows", std::to_string(c.overflowing)},
          {"spurious_rows", std::to_string(c.spurious)},
          {"spurious_values", std::to_string(c.spurious_values)},
          {"rel_l2", csv_number(c.rel_l2)}};
}

/// All norms that fp16 holds.
template <class Transform>
std::vector<CsvRow> sweep(const Problem& problem, RowShape shape, const Transform& transform_rows) {
  std::vector<CsvRow> rows;
  for (const double norm : norms_over_limit()) {
    const std::vector<std::byte> in = make_rows(problem, shape, norm * kLimit);
    if (in.empty()) break;
    rows.push_back(row_of(count(problem, in, transform_rows(in)), norm, problem.n()));
  }
  return rows;
}

int points(const Problem& problem, RowShape shape) {
  int count = 0;
  for (const double norm : norms_over_limit())
    count += !make_rows(problem, shape, norm * kLimit).empty();
  return count;
}

}  // namespace

std::vector<harness::Task> tasks(const harness::StudySetup& setup) {
  std::vector<harness::Task> all;
  for (const std::int64_t n : kLengths) {
    const Problem problem = make_problem(Dtype::f16, n, rows_for(n));
    for (const auto& named : kShapes) {
      const RowShape shape = named.value;
      const int rows = points(problem, shape);
      const auto identity = [&](std::string_view variant, std::string_view source) {
        return CsvRow{{"variant", std::string(variant)},
                      {"source", std::string(source)},
                      {"dtype", "f16"},
                      {"n", std::to_string(n)},
                      {"shape", std::string(name_of(shape))}};
      };
      for (const ScalePlacement placement : {ScalePlacement::before, ScalePlacement::after_in_storage}) {
        all.push_back({identity(name_of(placement), "host"), rows, [=] {
                         return sweep(problem, shape,
                                      [&](const auto& in) { return transform(placement, problem, in); });
                       }});
      }
      for (const harness::Performer& performer : setup.performers) {
        if (!performer.supports(problem)) continue;
        all.push_back({identity(performer.name(), harness::name_of(performer.source())), rows,
                       [=, &performer, &workspace = setup.workspace] {
                         return sweep(problem, shape, [&](const auto& in) {
                           return performer.run(problem, in, workspace).output;
                         });
                       }});
      }
    }
  }
  return all;
}

}  // namespace fwht::overflow
