#include "reference/operators.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "common/contract/hadamard_matrices.hpp"
#include "common/contract/operator_data.hpp"
#include "common/host/error.hpp"
#include "reference/operator_data.hpp"

namespace fwht::reference {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

/// OperatorData in FP64.
struct Fp64Data {
  explicit Fp64Data(const Operator& op) : data(op, Dtype::f64) {
    const auto* const entries = static_cast<const double*>(operands.dense);
    dense.assign(entries, entries + dense_entry_count(op));
  }
  ExactOperator exact(const Operator& op) const {
    return ExactOperator(op, Dtype::f64, operands.signs, operands.dense);
  }
  OperatorData data;
  Operands operands = data.operands(nullptr, nullptr);
  std::vector<double> dense;
};

constexpr const char* kOperators[] = {
    "1",          "2",           "64",       "28",         "12x16",        "28x8",
    "116x2",      "116tx2",      "2x116",    "2x116t",     "428",          "428t",
    "12x2x4x2",   "d5",          "d5x16",    "16xd5",      "d5tx16",       "d7x4xd6",
    "12xd5tx2",   "64+signs",    "signs+64", "28x4+signs", "signs+116tx2", "116+signs",
    "d5x8+signs", "signs+d5tx8", "4r",       "64r",        "28x4r",        "16rx2+signs"};

IntMatrix random_integers(std::int64_t rows, std::int64_t n, std::int64_t largest, unsigned seed) {
  std::mt19937_64 generator(seed);
  std::uniform_int_distribution<std::int64_t> any(-largest, largest);
  return IntMatrix::NullaryExpr(rows, n, [&] { return any(generator); });
}

// Index by index: the entry of a Kronecker product is the product of the entries at the digits of row and
// column.
TEST(ExactOperator, MatrixHasTheEntriesOfTheDefinition) {
  for (const char* text : kOperators) {
    const Operator op = parse_operator(text);
    const Fp64Data data(op);
    const ExactOperator exact = data.exact(op);
    const Eigen::MatrixXd matrix = exact.matrix();
    std::int64_t wrong = 0;
    for (std::int64_t row = 0; row < op.n(); ++row) {
      for (std::int64_t column = 0; column < op.n(); ++column) {
        double entry = 1.0;
        std::int64_t i = row, j = column, behind = static_cast<std::int64_t>(data.dense.size());
        for (std::size_t f = op.factors().size(); f-- > 0;) {
          const Factor& factor = op.factors()[f];
          std::int64_t a = i % factor.order, b = j % factor.order;
          i /= factor.order;
          j /= factor.order;
          if (factor.transposed) std::swap(a, b);
          if (factor.basis == Basis::dense) {
            behind -= factor.order * factor.order;
            entry *= data.dense[static_cast<std::size_t>(behind + a * factor.order + b)];
          } else {
            entry *= factor.is_named()
                         ? named_matrix(factor)(static_cast<int>(a), static_cast<int>(b))
                         : hadamard_entry(factor.order, static_cast<int>(a), static_cast<int>(b));
          }
        }
        if (op.has_signs()) {
          const std::int64_t at = op.signs_come_last() ? row : column;
          if (sign_is_negative(data.operands.signs, at)) entry = -entry;
        }
        wrong += entry != matrix(row, column) || entry != exact.entry(row, column);
      }
    }
    EXPECT_EQ(wrong, 0) << text;
  }
}

TEST(ExactOperator, FastDenseAndIntegerProductsAgreeExactly) {
  for (const char* text : kOperators) {
    const Operator op = parse_operator(text);
    const Fp64Data data(op);
    const ExactOperator exact = data.exact(op);
    const IntMatrix x = random_integers(3, op.n(), 1000, 5);
    const Matrix dense = x.cast<double>() * exact.matrix().transpose();
    Matrix fast = x.cast<double>();
    exact.apply(fast);
    IntMatrix integer = x;
    exact.apply(integer);
    EXPECT_TRUE(fast == dense) << text;
    EXPECT_TRUE(integer.cast<double>() == dense) << text;
  }
}

TEST(ExactOperator, TransposedOperatorsHaveTransposedMatrices) {
  for (const char* text : kOperators) {
    const Operator op = parse_operator(text);
    const Fp64Data data(op);
    const ExactOperator exact = data.exact(op);
    const Eigen::MatrixXd matrix = exact.matrix();
    EXPECT_TRUE(data.exact(op.transposed()).matrix() == matrix.transpose()) << text;
    EXPECT_EQ(op.is_symmetric() && matrix != matrix.transpose(), false) << text;
    EXPECT_EQ(matrix.transpose() * matrix, exact.square_length() * Eigen::MatrixXd::Identity(op.n(), op.n()))
        << text;
  }
}

// For every width of current models, too long for dense matrices: <Op x, u> = <x, Op^T u> and Op^T Op x = n
// x, in integers.
TEST(ExactOperator, AdjointAndInverseHoldForEveryWidth) {
  for (const std::int64_t n :
       {768,   896,   1408,  1536,  1792,  2304,  2560,  2880,  3072,  3200,  3584,  4864,  5120,
        5376,  6144,  7168,  8960,  9216,  9728,  10944, 11008, 12288, 13440, 13696, 13824, 14336,
        17408, 17920, 18432, 18944, 20480, 21504, 22016, 25600, 27648, 28672, 29568, 36864, 53248}) {
    const Operator op = operator_for(n).with_signs();
    const Fp64Data data(op);
    const IntMatrix x = random_integers(1, n, 8, 1), u = random_integers(1, n, 8, 2);
    IntMatrix y = x, v = u;
    data.exact(op).apply(y);
    data.exact(op.transposed()).apply(v);
    EXPECT_EQ(y.cwiseProduct(u).sum(), x.cwiseProduct(v).sum()) << n;
    data.exact(op.transposed()).apply(y);
    EXPECT_TRUE(y == n * x) << n;
  }
}

TEST(ExactOperator, OfSylvesterIsTheTransform) {
  const IntMatrix x = random_integers(4, 512, 1000, 9);
  Matrix by_factors = x.cast<double>(), whole = by_factors;
  ExactOperator(parse_operator("512")).apply(by_factors, 0.3);
  transform(whole, 0.3);
  EXPECT_EQ(by_factors, whole);
  by_factors = x.cast<double>();
  ExactOperator(parse_operator("8x64")).apply(by_factors, 0.3);
  EXPECT_EQ(by_factors, whole);
}

TEST(ExactOperator, NonfiniteValuesPropagateAsInTheDirectSum) {
  for (const char* text : {"28x4", "116tx2", "12x2x12"}) {
    const Operator op = parse_operator(text);
    const ExactOperator exact(op);
    Matrix x = Matrix::Constant(4, op.n(), 0.25);
    x(0, 5) = kNan;
    x(1, 9) = -kInf;
    x(2, 3) = x(2, 17) = kInf;
    x(2, 33) = -kInf;
    Matrix y = x;
    exact.apply(y);
    const Eigen::MatrixXd matrix = exact.matrix();
    for (std::int64_t i = 0; i < op.n(); ++i) {
      EXPECT_TRUE(std::isnan(y(0, i)));
      EXPECT_EQ(y(1, i), -kInf * matrix(i, 9));
      double direct = 0.0;
      for (std::int64_t j = 0; j < op.n(); ++j)
        direct += x(2, j) * matrix(i, j);
      EXPECT_TRUE(std::isnan(direct) ? std::isnan(y(2, i)) : y(2, i) == direct) << i;
      EXPECT_TRUE(std::isfinite(y(3, i)));
    }
  }
}

TEST(ExactOperator, ExpectedTakesSignsDenseFactorsAndStrides) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32}) {
    Problem problem = make_problem(dtype, parse_operator("d5tx8+signs"), 3);
    problem.set_row_stride(45);
    problem.scale = 0.5;
    const Fp64Data data(problem.op);
    std::vector<std::byte> dense(25 * static_cast<std::size_t>(bytes_of(dtype)));
    for (std::int64_t i = 0; i < 25; ++i)
      store_element(dtype, dense.data(), i, data.dense[static_cast<std::size_t>(i)]);
    const IntMatrix x = random_integers(3, 40, 100, 4);
    std::vector<std::uint32_t> storage(static_cast<std::size_t>(problem.span_bytes() / 4 + 1), 0xFFFFFFFF);
    store_rows(problem, x.cast<double>(), storage.data());
    Operands operands;
    operands.in = storage.data();
    operands.signs = data.operands.signs;
    operands.dense = dense.data();
    const Matrix want = 0.5 * x.cast<double>() * data.exact(problem.op).matrix().transpose();
    EXPECT_EQ(expected(problem, operands), want);
    EXPECT_EQ(expected(problem, operands, 1, 2), want.middleRows(1, 2));
    EXPECT_THROW(expected(problem, storage.data()), BadRequest);
  }
  const Problem problem = make_problem(Dtype::f32, parse_operator("28x2"), 1);
  const std::vector<float> ones(56, 1.0F);
  EXPECT_EQ(expected(problem, ones.data())(0, 1), 0.0);
}

// Dense factors are orthogonal for the library's own check, and as long as they say; signs are of both kinds.
TEST(OperatorData, IsOrthogonalAndOfTheLengthThatIsAskedFor) {
  const Operator op = parse_operator("d28x4xd53+signs");
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32, Dtype::f64}) {
    for (const auto& [rows, square_length] : {std::pair{DenseRows::integers, 28. * 28 * 4 * 53 * 53},
                                              {DenseRows::as_long_as_signs, 28. * 4 * 53}}) {
      const OperatorData data(op, dtype, Memory::host, rows);
      const Operands operands = data.operands(nullptr, nullptr);
      EXPECT_NO_THROW(check_dense(op, dtype, operands.dense)) << name_of(dtype);
      const ExactOperator exact(op, dtype, operands.signs, operands.dense);
      EXPECT_NEAR(exact.square_length() / square_length, 1.0, dtype == Dtype::bf16 ? 1e-2 : 2e-3);
      const auto plus = std::count(exact.signs().begin(), exact.signs().end(), 1.0);
      EXPECT_GT(plus, 0);
      EXPECT_LT(plus, op.n());
    }
  }
  const OperatorData none(parse_operator("28x4"), Dtype::f16);
  EXPECT_EQ(none.operands(nullptr, nullptr).signs, nullptr);
  EXPECT_EQ(none.operands(nullptr, nullptr).dense, nullptr);
}

TEST(ExactOperator, RefusesWhatItCannotDo) {
  EXPECT_THROW(ExactOperator(Operator::sylvester(12)), BadRequest);
  EXPECT_THROW(ExactOperator(Operator{}), BadRequest);
  EXPECT_THROW(ExactOperator(parse_operator("d5")), BadRequest);
  EXPECT_THROW(ExactOperator(parse_operator("8+signs")), BadRequest);
  EXPECT_THROW(ExactOperator(parse_operator("28x512")).matrix(), BadRequest);
  const double half[] = {0.5, 0.5, 0.5, -0.5};
  IntMatrix integers = IntMatrix::Ones(1, 2);
  EXPECT_THROW(ExactOperator(parse_operator("d2"), Dtype::f64, nullptr, half).apply(integers), BadRequest);
  IntMatrix large = IntMatrix::Constant(1, 28, std::int64_t{1} << 60);
  EXPECT_THROW(ExactOperator(parse_operator("28")).apply(large), BadRequest);
  EXPECT_THROW(ExactOperator(parse_operator("28x2")).apply(large), BadRequest);
}

}  // namespace
}  // namespace fwht::reference
