#include "reference/compare.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/host/error.hpp"
#include "reference/inputs.hpp"
#include "reference/rounding.hpp"

namespace fwht::reference {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

/// A problem with a gap between rows, its truth, and output storage that holds the truth correctly rounded.
struct Case {
  Problem problem;
  Matrix truth;
  std::vector<std::uint32_t> storage;

  explicit Case(Dtype dtype, std::int64_t n = 8, std::int64_t rows = 5)
      : problem(make_problem(dtype, n, rows)) {
    problem.set_row_stride(n + 3);
    truth = generate(problem, InputClass::normal, 1);
    transform(truth, problem.scale);
    storage.assign(static_cast<std::size_t>(problem.span_bytes() / 4 + 1), 0xFFFFFFFF);
    store_rows(problem, truth, storage.data());
  }
  void set(std::int64_t row, std::int64_t column, double value) {
    store_element(problem.dtype(), storage.data(), row * problem.row_stride() + column, value);
  }
  double get(std::int64_t row, std::int64_t column) const {
    return load_element(problem.dtype(), storage.data(), row * problem.row_stride() + column);
  }
  ErrorStats stats(const ErrorLimits& limits = {}) const {
    return compare(problem, truth, storage.data(), limits);
  }
};

TEST(Compare, TheCorrectlyRoundedResultMatchesInEveryBit) {
  for (Dtype dtype : kAllDtypes) {
    const Case c(dtype, 1024, 64);
    const ErrorStats stats = c.stats();
    EXPECT_EQ(stats.elements, c.problem.elements());
    EXPECT_EQ(stats.finite, c.problem.elements());
    EXPECT_EQ(stats.rows, 64);
    EXPECT_EQ(stats.bit_match, 1.0);
    EXPECT_EQ(stats.ulp_histogram[0], c.problem.elements());
    EXPECT_EQ(stats.nonfinite, 0);
    EXPECT_NEAR(stats.rel_l2 / (0.42466 * format_of(dtype).unit_roundoff()), 1.0, 0.03);
    EXPECT_TRUE(judge_elements(stats, c.problem));
  }
}

TEST(Compare, NormsAreThoseOfTheDefinition) {
  Case c(Dtype::f32, 4, 2);
  c.truth << 1, -2, 3, 4, 0, 0, 5, 0;
  store_rows(c.problem, c.truth, c.storage.data());
  c.set(0, 2, 3.5);
  c.set(1, 2, 4.0);
  const ErrorStats s = c.stats();
  EXPECT_DOUBLE_EQ(s.rel_l2, std::sqrt((0.25 + 1.0) / 55.0));
  EXPECT_DOUBLE_EQ(s.rel_l2_min_row, std::sqrt(0.25 / 30.0));
  EXPECT_DOUBLE_EQ(s.rel_l2_max_row, std::sqrt(1.0 / 25.0));
  EXPECT_DOUBLE_EQ(s.rel_l2_mean_row, 0.5 * (std::sqrt(0.25 / 30.0) + 0.2));
  EXPECT_DOUBLE_EQ(s.max_error_over_rms, 1.0 / std::sqrt(25.0 / 4));
  EXPECT_DOUBLE_EQ(s.gain, (0.5 * 3.0 - 1.0 * 5.0) / 55.0);
  EXPECT_DOUBLE_EQ(s.norm_gain, std::sqrt((1 + 4 + 12.25 + 16 + 16) / 55.0) - 1.0);
  EXPECT_DOUBLE_EQ(s.mean_signed_error, (0.5 - 1.0) / 8 / std::sqrt(55.0 / 8));
  EXPECT_DOUBLE_EQ(s.bit_match, 6.0 / 8);
  EXPECT_EQ(s.worst.row, 1);
  EXPECT_EQ(s.worst.column, 2);
  EXPECT_EQ(s.worst_expected, 5.0);
  EXPECT_EQ(s.worst_got, 4.0);
}

TEST(Compare, UlpHistogramCountsStepsAlongTheNumbers) {
  Case c(Dtype::f16, 8, 1);
  c.truth.setConstant(1.0);
  for (int i = 0; i < 8; ++i)
    c.set(0, i,
          decode(Dtype::f16, 0x3C00U + std::vector<std::uint32_t>{0, 1, 2, 3, 4, 7, 8,
                                                                  1023}[static_cast<std::size_t>(i)]));
  const auto bins = c.stats().ulp_histogram;
  EXPECT_EQ(bins[0], 1);
  EXPECT_EQ(bins[1], 1);   // 1
  EXPECT_EQ(bins[2], 2);   // 2, 3
  EXPECT_EQ(bins[3], 2);   // 4, 7
  EXPECT_EQ(bins[4], 1);   // 8
  EXPECT_EQ(bins[10], 1);  // 1023
  Case sign(Dtype::f16, 1, 1);
  sign.truth.setConstant(quantum_of(format_of(Dtype::f16)));
  sign.set(0, 0, -sign.truth(0, 0));
  EXPECT_EQ(sign.stats().ulp_histogram[2], 1);  // two steps, over zero
}

TEST(Compare, StatisticsDoNotDependOnThreadsOrChunks) {
  const Case c(Dtype::bf16, 64, 1000);
  const ErrorStats one = compare(c.problem, c.truth, c.storage.data(), {}, 1);
  const ErrorStats many = compare(c.problem, c.truth, c.storage.data(), {}, 7);
  EXPECT_EQ(one.rel_l2, many.rel_l2);
  EXPECT_EQ(one.gain, many.gain);
  Comparison chunks(c.problem);
  for (std::int64_t row = 0; row < 1000; row += 125)
    chunks.add(row, c.truth.middleRows(row, 125), c.storage.data());
  EXPECT_NEAR(chunks.stats().rel_l2, one.rel_l2, 1e-15);
  EXPECT_EQ(chunks.stats().elements, one.elements);
  EXPECT_EQ(chunks.stats().worst.row, one.worst.row);
}

TEST(Compare, NonfiniteValuesAreComparedByClass) {
  for (Dtype dtype : kAllDtypes) {
    Case c(dtype);
    c.truth(0, 1) = kNan;
    c.truth(1, 2) = kInf;
    c.truth(2, 3) = -kInf;
    EXPECT_EQ(c.stats().missing_nonfinite, 3);
    EXPECT_FALSE(judge_elements(c.stats(), c.problem));
    c.set(0, 1, kNan);
    c.set(1, 2, kInf);
    c.set(2, 3, -kInf);
    const ErrorStats right = c.stats();
    EXPECT_TRUE(judge_elements(right, c.problem));
    EXPECT_EQ(right.nonfinite, 3);
    EXPECT_EQ(right.finite, c.problem.elements() - 3);
    c.set(2, 3, kInf);
    EXPECT_EQ(c.stats().unexpected_infinity, 1) << "wrong sign";
    c.set(2, 3, kNan);
    EXPECT_EQ(c.stats().unexpected_nan, 1) << "NaN is no infinity";
    c.set(2, 3, -kInf);
    c.set(0, 1, kInf);
    EXPECT_EQ(c.stats().unexpected_infinity, 1) << "an infinity is no NaN";
  }
}

// C7: below the overflow zone finite, above it infinite, inside either.
TEST(Compare, OverflowZone) {
  Case c(Dtype::f16, 4, 1);
  ErrorLimits limits;
  limits.overflow_slack = 1e-3;
  c.truth << 65000.0, 65500.0, -65540.0, 66000.0;
  const double inf = kInf;
  const auto verdict = [&](double a, double b, double d, double e) {
    c.set(0, 0, a);
    c.set(0, 1, b);
    c.set(0, 2, d);
    c.set(0, 3, e);
    return judge_elements(c.stats(limits), c.problem).outcome;
  };
  EXPECT_EQ(verdict(65000, 65504, -inf, inf), Judged::ok);
  EXPECT_EQ(verdict(65000, inf, -65504, inf), Judged::ok);
  EXPECT_EQ(verdict(65000, 65504, inf, inf), Judged::incorrect) << "wrong sign inside the zone";
  EXPECT_EQ(verdict(65000, kNan, -inf, inf), Judged::incorrect);
  EXPECT_EQ(verdict(inf, 65504, -inf, inf), Judged::incorrect) << "infinite below the zone";
  EXPECT_EQ(verdict(65000, 65504, -inf, 65504), Judged::incorrect) << "finite above the zone";
}

TEST(Compare, BoundsNameTheFirstWrongElement) {
  Case c(Dtype::f32);
  ErrorLimits limits;
  limits.elementwise = Matrix::Constant(5, 8, 1e-6);
  EXPECT_TRUE(judge_elements(c.stats(limits), c.problem));
  c.set(3, 6, c.get(3, 6) + 0.5);
  const ErrorStats stats = c.stats(limits);
  EXPECT_EQ(stats.elementwise_violations, 1);
  EXPECT_EQ(stats.first_wrong.row, 3);
  EXPECT_EQ(stats.first_wrong.column, 6);
  const Verdict verdict = judge_elements(stats, c.problem);
  EXPECT_FALSE(verdict);
  EXPECT_NE(verdict.message.find("row 3 column 6: expected "), std::string::npos) << verdict.message;
  EXPECT_NE(verdict.message.find(", got "), std::string::npos) << verdict.message;

  limits.elementwise->coeffRef(0, 3) = kNan;
  EXPECT_EQ(c.stats(limits).elementwise_violations, 2) << "a NaN bound is no permission";

  ErrorLimits rows;
  rows.row_relative = 1e-6;
  EXPECT_EQ(c.stats(rows).first_wrong_row, 3);
  EXPECT_NE(judge_elements(c.stats(rows), c.problem).message.find("row 3: the 2-norm"), std::string::npos);
}

TEST(Compare, ExactComparisonIsByValue) {
  Case c(Dtype::f16);
  const auto copy = c.storage;
  EXPECT_TRUE(compare_exact(c.problem, copy.data(), c.storage.data()));
  EXPECT_TRUE(compare_exact(c.problem, c.truth, c.storage.data()));
  c.set(4, 7, std::nextafter(static_cast<float>(c.get(4, 7)), 100.0F) + 0x1p-9);
  const Verdict verdict = compare_exact(c.problem, copy.data(), c.storage.data());
  EXPECT_FALSE(verdict);
  EXPECT_NE(verdict.message.find("row 4 column 7"), std::string::npos) << verdict.message;
  Case zero(Dtype::f16, 2, 1);
  zero.truth << 0.0, kNan;
  zero.set(0, 0, -0.0);
  zero.set(0, 1, kNan);
  EXPECT_TRUE(compare_exact(zero.problem, zero.truth, zero.storage.data()))
      << "-0 equals +0, NaN stands for NaN";
  zero.set(0, 1, 0.0);
  EXPECT_FALSE(compare_exact(zero.problem, zero.truth, zero.storage.data()));
}

TEST(Compare, ShapesThatDoNotFitAreRefused) {
  const Case c(Dtype::f16);
  EXPECT_THROW(compare(c.problem, Matrix(5, 4), c.storage.data()), BadRequest);
  EXPECT_THROW(compare(c.problem, Matrix(6, 8), c.storage.data()), BadRequest);
  ErrorLimits limits;
  limits.elementwise = Matrix(4, 8);
  EXPECT_THROW(c.stats(limits), BadRequest);
  EXPECT_THROW(compare_exact(c.problem, Matrix(4, 8), c.storage.data()), BadRequest);
}

}  // namespace
}  // namespace fwht::reference
