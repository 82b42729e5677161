#include "reference/hadamard.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "reference/inputs.hpp"
#include "reference/rounding.hpp"

namespace fwht::reference {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

IntMatrix random_integers(std::int64_t rows, std::int64_t n, std::int64_t largest, unsigned seed) {
  std::mt19937_64 generator(seed);
  std::uniform_int_distribution<std::int64_t> any(-largest, largest);
  return IntMatrix::NullaryExpr(rows, n, [&] { return any(generator); });
}

TEST(Rounding, AgreesWithTheBitwiseConversion) {
  std::mt19937_64 generator(7);
  for (Dtype dtype : kAllDtypes) {
    const Format format = format_of(dtype);
    std::uniform_int_distribution<int> exponent(format.min_exponent - format.precision - 3,
                                                std::ilogb(format.max_finite) + 2);
    std::uniform_int_distribution<std::int64_t> fine(0, (std::int64_t{1} << 40) - 1), coarse(0, 4095);
    for (int i = 0; i < 200'000; ++i) {
      // Every other significand has few bits, so that ties and exact values occur.
      const double significand = 1.0 + (i % 2 ? std::ldexp(double(fine(generator)), -40)
                                              : std::ldexp(double(coarse(generator)), -12));
      const double x = std::ldexp(i % 3 ? significand : -significand, exponent(generator));
      ASSERT_EQ(round_fast(format, x), round_to(dtype, x)) << name_of(dtype) << ' ' << x;
    }
    const double edge = overflow_threshold(format);
    EXPECT_EQ(round_fast(format, edge), kInf);
    EXPECT_EQ(round_fast(format, std::nextafter(edge, 0.0)), format.max_finite);
    EXPECT_EQ(round_fast(format, -1e300), -kInf);
    EXPECT_TRUE(std::isnan(round_fast(format, kNan)));
    EXPECT_TRUE(std::signbit(round_fast(format, -0.0)));
    EXPECT_EQ(ulp_of(format, 1.5), 2.0 * format.unit_roundoff());
    EXPECT_EQ(ulp_of(format, 0.0), quantum_of(format));
  }
}

TEST(RoundFast, DoublePrecisionKeepsEveryDouble) {
  const Format format = format_of(Dtype::f64);
  for (double x : {1.0 / 3.0, -1e300, 0x1p-1074, 0x1.8p-1060, std::numeric_limits<double>::max(), -0.0}) {
    EXPECT_EQ(std::bit_cast<std::uint64_t>(round_fast(format, x)), std::bit_cast<std::uint64_t>(x)) << x;
  }
  EXPECT_EQ(quantum_of(format), std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(ulp_of(format, 1.0), std::numeric_limits<double>::epsilon());
  EXPECT_EQ(ulp_of(format, 0x1p-1022), std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(ulp_of(format, 0x1p-1000), 0x1p-1052);
}

TEST(Hadamard, DenseMatrixHasTheDefiningProperties) {
  for (std::int64_t n : {1, 2, 4, 64, 256}) {
    const Eigen::MatrixXd h = sylvester_matrix(n);
    EXPECT_EQ(h, h.transpose());
    EXPECT_EQ(h * h, static_cast<double>(n) * Eigen::MatrixXd::Identity(n, n));
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        ASSERT_EQ(h(i, j), hadamard_sign(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j)));
      }
    }
  }
  // Natural, not sequency order: row 1 alternates with every column.
  EXPECT_EQ(sylvester_matrix(8)(1, 1), -1.0);
  EXPECT_EQ(sylvester_matrix(8)(1, 2), 1.0);
  EXPECT_THROW(sylvester_matrix(12), BadRequest);
  EXPECT_THROW(sylvester_matrix(1 << 14), BadRequest);
}

TEST(Hadamard, FastDenseAndIntegerTransformsAgreeExactly) {
  for (std::int64_t n = 1; n <= 1024; n *= 2) {
    const IntMatrix x = random_integers(5, n, 1000, static_cast<unsigned>(n));
    const Matrix dense = x.cast<double>() * sylvester_matrix(n);
    Matrix fast = x.cast<double>();
    transform(fast);
    IntMatrix integer = x;
    transform(integer);
    EXPECT_EQ(fast, dense) << n;
    EXPECT_EQ(integer.cast<double>(), dense) << n;
  }
}

// Protocol G: n = 4096 by the O(n^2) definition in 64-bit integers.
TEST(Hadamard, MatchesTheDefinitionInIntegersAt4096) {
  constexpr std::int64_t n = 4096;
  const IntMatrix x = random_integers(1, n, std::int64_t{1} << 40, 3);
  IntMatrix fast = x;
  transform(fast);
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t sum = 0;
    for (std::int64_t j = 0; j < n; ++j)
      sum += hadamard_sign(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j)) * x(0, j);
    ASSERT_EQ(fast(0, i), sum) << i;
  }
}

// Protocol G: f16 data with sum |x| <= 2^29 is exact in FP64, whatever the order of the stages.
TEST(Hadamard, StageOrderDoesNotMatterWhereSumsAreExact) {
  for (std::int64_t n : {2, 128, 4096, 32768}) {
    const Problem problem = make_problem(Dtype::f16, n, 3);
    for (InputClass input : {InputClass::normal, InputClass::subnormal, InputClass::student3}) {
      Matrix up = generate(problem, input, 5), down = up;
      transform(up, problem.scale, StageOrder::ascending);
      transform(down, problem.scale, StageOrder::descending);
      EXPECT_EQ(up, down) << n << ' ' << name_of(input);
    }
    IntMatrix a = random_integers(2, n, 1 << 20, 1), b = a;
    transform(a, StageOrder::ascending);
    transform(b, StageOrder::descending);
    EXPECT_EQ(a, b);
  }
}

TEST(Hadamard, IsAnInvolutionAndKeepsTheNorm) {
  const Problem problem = make_problem(Dtype::f32, 4096, 4);
  const Matrix x = generate(problem, InputClass::normal, 2);
  Matrix y = x;
  transform(y, problem.scale);
  EXPECT_NEAR(y.norm() / x.norm(), 1.0, 1e-14);
  transform(y, problem.scale);
  EXPECT_LT((y - x).norm() / x.norm(), 1e-14);
}

// C1-C3: a NaN spoils the row, one infinity gives signed infinities, several agree or give NaN as the direct
// sum does.
TEST(Hadamard, NonfiniteValuesPropagateAsInTheDirectSum) {
  constexpr std::int64_t n = 64;
  Matrix x = Matrix::Constant(4, n, 0.25);
  x(0, 5) = kNan;
  x(1, 9) = -kInf;
  x(2, 3) = kInf;
  x(2, 17) = kInf;
  x(2, 33) = -kInf;
  Matrix y = x;
  transform(y, orthonormal_scale(n));
  for (std::int64_t i = 0; i < n; ++i) {
    double direct = 0.0;
    for (std::int64_t j = 0; j < n; ++j)
      direct += x(2, j) * hadamard_sign(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j));
    EXPECT_TRUE(std::isnan(y(0, i)));
    EXPECT_EQ(y(1, i), -kInf * hadamard_sign(static_cast<std::uint64_t>(i), 9));
    EXPECT_TRUE(std::isnan(direct) ? std::isnan(y(2, i)) : y(2, i) == direct) << i;
    EXPECT_TRUE(std::isfinite(y(3, i)));
  }
}

TEST(Hadamard, ExpectedFollowsStrideScaleAndRowRange) {
  for (Dtype dtype : kAllDtypes) {
    Problem problem = make_problem(dtype, 32, 7);
    problem.set_row_stride(45);
    problem.scale = -0.75;
    std::vector<std::uint32_t> storage(static_cast<std::size_t>(problem.span_bytes() / 4 + 1),
                                       0xFFFFFFFF);  // NaN between rows
    write_input(problem, InputClass::normal, 4, storage.data());
    const Matrix x = generate(problem, InputClass::normal, 4);
    EXPECT_EQ(load_rows(problem, storage.data()), x);
    const Matrix y = expected(problem, storage.data());
    EXPECT_LT((y - -0.75 * x * sylvester_matrix(32)).cwiseAbs().maxCoeff(), 1e-14);
    EXPECT_EQ(expected(problem, storage.data(), 3, 2), y.middleRows(3, 2));
    EXPECT_THROW(expected(problem, storage.data(), 6, 2), BadRequest);
  }
  Problem odd = make_problem(Dtype::f32, 12, 1);
  const std::vector<float> twelve(12, 1.0F);
  EXPECT_THROW(expected(odd, twelve.data()), BadRequest);
}

TEST(Hadamard, IntegerTransformRefusesOverflow) {
  IntMatrix x = IntMatrix::Constant(1, 4, std::int64_t{1} << 61);
  EXPECT_THROW(transform(x), BadRequest);
}

TEST(Hadamard, StoreRowsRoundsOnceAndLeavesThePaddingAlone) {
  Problem problem = make_problem(Dtype::bf16, 4, 2);
  problem.set_row_stride(6);
  std::vector<std::uint16_t> storage(static_cast<std::size_t>(problem.span_elements()), 0xABCD);
  Matrix values(2, 4);
  values << 1.0, 1.0 + 0x1p-8, 1.0 + 0x1p-8 + 0x1p-30, -0.0, 1e39, kNan, 0x1p-133, 0x1p-135;
  store_rows(problem, values, storage.data());
  EXPECT_EQ(storage[0], 0x3F80);
  EXPECT_EQ(storage[1], 0x3F80);  // a tie goes to even
  EXPECT_EQ(storage[2], 0x3F81);  // anything above the tie goes up
  EXPECT_EQ(storage[3], 0x8000);
  EXPECT_EQ(storage[4], 0xABCD);
  EXPECT_EQ(storage[5], 0xABCD);
  EXPECT_EQ(storage[6], 0x7F80);
  EXPECT_TRUE(std::isnan(bf16_to_float(storage[7])));
  EXPECT_EQ(storage[8], 0x0001);
  EXPECT_EQ(storage[9], 0x0000);
}

// y = P H Q^T x with the matrices' rows in the orderings, on rows that lie between each other.
TEST(Hadamard, ExpectedKnowsOrderingsAndInnerDimensions) {
  Problem problem = parse_problem("f64/n16/r6/out/from-dyadic/sequency/inner3/ld50/s1");
  std::vector<double> in(static_cast<std::size_t>(problem.span_elements()));
  for (std::size_t i = 0; i < in.size(); ++i)
    in[i] = static_cast<double>(i * i % 17);
  const Matrix y = expected(problem, in.data());
  const Eigen::MatrixXd h = sylvester_matrix(16);
  for (std::int64_t r = 0; r < 6; ++r) {
    for (std::int64_t i = 0; i < 16; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < 16; ++j) {
        sum += h(natural_place(Ordering::sequency, i, 4), natural_place(Ordering::dyadic, j, 4)) *
               in[static_cast<std::size_t>(r / 3 * 50 + j * 3 + r % 3)];
      }
      EXPECT_EQ(y(r, i), sum);
    }
  }
}

}  // namespace
}  // namespace fwht::reference
