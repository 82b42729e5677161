#include "reference/inputs.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numbers>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "common/host/error.hpp"
#include "reference/rounding.hpp"

namespace fwht::reference {
namespace {

// Known answers published with the generator (Random123, kat_vectors, "philox4x32 10").
TEST(Philox, KnownAnswers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  constexpr std::uint32_t f = 0xFFFFFFFF;
  EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}), (Words{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(philox4x32({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}),
            (Words{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(Inputs, NamesRoundTripAndUnknownOnesAreRefused) {
  std::set<std::string> names;
  for (InputClass input : all_input_classes()) {
    EXPECT_EQ(parse_input_class(name_of(input)), input);
    names.emplace(name_of(input));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kInputClassCount));
  EXPECT_THROW(parse_input_class("gauss"), BadRequest);
  EXPECT_THROW(parse_input_class(""), BadRequest);
}

class EveryClass : public testing::TestWithParam<InputClass> {};
INSTANTIATE_TEST_SUITE_P(Inputs, EveryClass,
                         testing::ValuesIn(all_input_classes().begin(), all_input_classes().end()),
                         [](const auto& name) { return std::string(name_of(name.param)); });

TEST_P(EveryClass, IsAPureFunctionOfSeedRowAndColumn) {
  for (Dtype dtype : kAllDtypes) {
    const Problem problem = make_problem(dtype, 128, 40);
    const Matrix all = generate(problem, GetParam(), 9, 0, -1, 1);
    EXPECT_EQ(generate(problem, GetParam(), 9, 0, -1, 3), all) << "threads";
    EXPECT_EQ(generate(problem, GetParam(), 9, 17, 5), all.middleRows(17, 5)) << "rows alone";
    EXPECT_EQ(generate(problem, GetParam(), 9, std::int64_t{1} << 40, 1),
              generate(problem, GetParam(), 9, std::int64_t{1} << 40, 1));
  }
}

TEST_P(EveryClass, ValuesAreFiniteRoundedAndWrittenWithTheStride) {
  for (Dtype dtype : kAllDtypes) {
    for (std::int64_t n : {1, 2, 4, 32, 4096}) {
      Problem problem = make_problem(dtype, n, 6);
      problem.set_row_stride(n + 3);
      const Matrix values = generate(problem, GetParam(), 1);
      ASSERT_TRUE(values.allFinite());
      for (Eigen::Index i = 0; i < values.size(); ++i)
        ASSERT_EQ(round_to(dtype, values.data()[i]), values.data()[i]);
      std::vector<std::uint16_t> storage(static_cast<std::size_t>(problem.span_bytes() / 2), 0xABAB);
      write_input(problem, GetParam(), 1, storage.data());
      EXPECT_EQ(load_rows(problem, storage.data()), values);
      const auto gap = static_cast<std::size_t>(n * bytes_of(dtype) / 2);
      EXPECT_EQ(storage[gap], 0xABAB) << "the gap between rows was written";
    }
  }
}

TEST_P(EveryClass, SeedsAndRowsDiffer) {
  const std::set<InputClass> fixed = {InputClass::ramp, InputClass::alternating_max, InputClass::zero};
  const Problem problem = make_problem(Dtype::f16, 256, 16);
  const Matrix a = generate(problem, GetParam(), 1), b = generate(problem, GetParam(), 2);
  if (GetParam() == InputClass::zero) {
    EXPECT_TRUE(a.isZero(0.0) && b.isZero(0.0));
  } else if (fixed.contains(GetParam())) {
    EXPECT_EQ(a, b) << "the same row for every seed by definition";
  } else {
    EXPECT_NE(a, b);
    EXPECT_NE(a.row(0), a.row(1));
  }
}

/// Mean of |x|^p over a sample of 2^20 elements.
double moment(InputClass input, double power) {
  const Problem problem = make_problem(Dtype::f32, 1024, 1024);
  return generate(problem, input, 11).array().abs().pow(power).mean();
}

// Windows of six standard errors around the moments of the distributions, N = 2^20.
TEST(Inputs, MomentsOfTheDistributions) {
  constexpr double root = 1.0 / 1024;
  EXPECT_NEAR(moment(InputClass::normal, 2), 1.0, 6 * std::sqrt(2.0) * root);
  EXPECT_NEAR(moment(InputClass::normal, 4), 3.0, 6 * std::sqrt(96.0) * root);
  EXPECT_NEAR(moment(InputClass::uniform, 2), 1.0 / 3, 6 * std::sqrt(4.0 / 45) * root);
  EXPECT_NEAR(moment(InputClass::laplace, 1), 1.0, 6 * root);
  EXPECT_NEAR(moment(InputClass::laplace, 2), 2.0, 6 * std::sqrt(20.0) * root);
  EXPECT_NEAR(moment(InputClass::student3, 1), 2.0 * std::sqrt(3.0) / std::numbers::pi,
              6 * std::sqrt(3.0 - 1.2159) * root);
  // 0.1 % outliers of variance 100 on top of N(0, 1); the fourth moment is 3 + 0.001 (3 * 101^2 - 3).
  EXPECT_NEAR(moment(InputClass::fa3_mixture, 2), 1.1, 6 * std::sqrt(33.6 - 1.21) * root);
}

TEST(Inputs, NormalValuesAreSymmetricAndUncorrelated) {
  const Problem problem = make_problem(Dtype::f32, 1024, 1024);
  const Matrix x = generate(problem, InputClass::normal, 12);
  constexpr double six = 6.0 / 1024;
  EXPECT_NEAR(x.mean(), 0.0, six);
  EXPECT_NEAR((x.leftCols(1023).array() * x.rightCols(1023).array()).mean(), 0.0, six);
  EXPECT_NEAR((x.topRows(1023).array() * x.bottomRows(1023).array()).mean(), 0.0, six);
  EXPECT_NEAR((x.array() * generate(problem, InputClass::normal, 13).array()).mean(), 0.0, six);
  EXPECT_NEAR((x.array().abs() < 0.6744897501960817).cast<double>().mean(), 0.5, 0.5 * six);
  EXPECT_GT(x.array().abs().maxCoeff(), 4.0);
}

TEST(Inputs, ExactIntegersStayInTheExactDomain) {
  for (Dtype dtype : kAllDtypes) {
    const double limit = std::ldexp(1.0, format_of(dtype).precision);
    for (std::int64_t n = 1; n <= 32768; n *= 2) {
      const Problem problem = make_problem(dtype, n, 4);
      for (InputClass input : all_input_classes()) {
        if (!is_exact_integer(input)) continue;
        const Matrix x = generate(problem, input, 3);
        EXPECT_EQ(x.array().round().matrix(), x) << name_of(input);
        EXPECT_LE(x.cwiseAbs().rowwise().sum().maxCoeff(), limit) << name_of(input) << ' ' << n;
        if (input == InputClass::zero || n < 16) continue;
        EXPECT_GT(x.cwiseAbs().rowwise().sum().minCoeff(), 0.0) << name_of(input);
      }
    }
  }
}

TEST(Inputs, OneHotIsWhereItSays) {
  const Problem problem = make_problem(Dtype::f16, 256, 500);
  const Matrix x = generate(problem, InputClass::one_hot, 21);
  std::set<std::int64_t> columns;
  for (std::int64_t r = 0; r < 500; ++r) {
    const OneHot hot = one_hot_at(21, r, 256);
    EXPECT_EQ(x(r, hot.column), hot.value);
    EXPECT_EQ(x.row(r).cwiseAbs().sum(), hot.value);
    columns.insert(hot.column);
  }
  EXPECT_GT(columns.size(), 150U);
}

TEST(Inputs, SparseSignsHaveTheStatedCount) {
  for (auto [dtype, n, count] : {std::tuple{Dtype::f16, 32768, 2048},
                                 {Dtype::bf16, 4096, 256},
                                 {Dtype::f32, 64, 32},
                                 {Dtype::bf16, 2, 1}}) {
    const Matrix x = generate(make_problem(dtype, n, 3), InputClass::sign_sparse, 5);
    for (Eigen::Index r = 0; r < 3; ++r)
      EXPECT_EQ(x.row(r).cwiseAbs().sum(), count);
    EXPECT_EQ(x.cwiseAbs().maxCoeff(), 1.0);
  }
}

TEST(Inputs, OutlierChannelsAreTheSameColumnsInAllRows) {
  const Matrix x = generate(make_problem(Dtype::f32, 4096, 200), InputClass::outlier_channels, 3);
  const Eigen::VectorXd rms = (x.array().square().colwise().mean()).sqrt();
  EXPECT_EQ((rms.array() > 25.0).count(), 8);
  EXPECT_EQ((rms.array() > 2.0).count(), 8);
  const Matrix massive = generate(make_problem(Dtype::f32, 4096, 50), InputClass::massive_channel, 3);
  const Eigen::VectorXd smallest = massive.cwiseAbs().colwise().minCoeff();
  EXPECT_EQ((smallest.array() == 1000.0).count(), 1);
}

TEST(Inputs, TiesLieHalfWayAfterTheFirstButterfly) {
  for (Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    const Matrix x = generate(make_problem(dtype, 64, 20), InputClass::ties, 3);
    const Format format = format_of(dtype);
    for (Eigen::Index i = 0; i < x.size(); i += 2) {
      const double sum = x.data()[i] + x.data()[i + 1], ulp = ulp_of(format, sum);
      ASSERT_EQ(std::fabs(std::remainder(sum / ulp, 1.0)), 0.5);
    }
  }
}

TEST(Inputs, ExtremesReachTheEndsOfTheRangeAndKeepResultsFinite) {
  for (Dtype dtype : kAllDtypes) {
    const Format format = format_of(dtype);
    for (std::int64_t n : {2, 64, 4096}) {
      const Problem problem = make_problem(dtype, n, 50);
      Matrix x = generate(problem, InputClass::near_overflow, 1),
             a = generate(problem, InputClass::alternating_max, 1);
      const Matrix s = generate(problem, InputClass::subnormal, 1);
      EXPECT_LT(s.cwiseAbs().mean(), std::ldexp(1.0, format.min_exponent));
      EXPECT_GT(s.cwiseAbs().maxCoeff(), quantum_of(format));
      transform(x, problem.scale);
      transform(a, problem.scale);
      EXPECT_LT(x.cwiseAbs().maxCoeff(), format.max_finite);
      EXPECT_LT(a.cwiseAbs().maxCoeff(), format.max_finite);
      if (dtype == Dtype::f16) {
        EXPECT_GT(x.cwiseAbs().maxCoeff(), format.max_finite / 8.0);
        EXPECT_GT(a.cwiseAbs().maxCoeff(), format.max_finite * 0.98);
      }
    }
  }
}

TEST(Inputs, WalshNoiseIsAWalshRowUpToOneUnit) {
  const std::int64_t n = 64;
  const Matrix x = generate(make_problem(Dtype::f16, n, 8), InputClass::walsh_noise, 2);
  for (Eigen::Index r = 0; r < 8; ++r) {
    Matrix y = x.row(r);
    EXPECT_LE((y.cwiseAbs().array() - 1.0).abs().maxCoeff(), 0x1p-10);
    transform(y, 1.0 / n);
    EXPECT_NEAR(y.cwiseAbs().maxCoeff(), 1.0, 0x1p-10);
  }
}

}  // namespace
}  // namespace fwht::reference
