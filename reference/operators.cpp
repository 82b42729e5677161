#include "reference/operators.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/contract/hadamard_matrices.hpp"
#include "common/contract/operator_data.hpp"
#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "common/host/parallel_for.hpp"

namespace fwht::reference {
namespace {

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Matrix of a factor that is not Sylvester's, row-major; `next_dense` moves on behind what it used.
std::vector<double> entries_of(const Factor& factor, Dtype dtype, const std::byte*& next_dense) {
  const std::int64_t m = factor.order;
  std::vector<double> entries(static_cast<std::size_t>(m * m));
  const SignMatrix* named = factor.is_named() ? &named_matrix(factor) : nullptr;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < m; ++j) {
      const std::int64_t at = factor.transposed ? j * m + i : i * m + j;
      entries[static_cast<std::size_t>(at)] = named != nullptr
                                                  ? (*named)(static_cast<int>(i), static_cast<int>(j))
                                                  : load_element(dtype, next_dense, i * m + j);
    }
  }
  if (named == nullptr) next_dense += m * m * bytes_of(dtype);
  return entries;
}

/// Largest sum of magnitudes in a row of the matrix.
double growth_of(const std::vector<double>& entries, std::int64_t order) {
  double largest = 0.0;
  for (std::int64_t i = 0; i < order; ++i) {
    double sum = 0.0;
    for (std::int64_t j = 0; j < order; ++j)
      sum += std::fabs(entries[static_cast<std::size_t>(i * order + j)]);
    largest = std::max(largest, sum);
  }
  return largest;
}

}  // namespace

ExactOperator::ExactOperator(const Operator& op, Dtype dtype, const void* signs, const void* dense)
    : op_(op) {
  validate(op);
  if (op.has_dense() && dense == nullptr)
    throw BadRequest(fmt::format("operator {} needs the entries of its dense factors", to_string(op)));
  if (op.has_signs() && signs == nullptr)
    throw BadRequest(fmt::format("operator {} needs its signs", to_string(op)));
  if (op.factors().empty() || (op.is_sylvester() && !is_power_of_two(op.n())))
    throw BadRequest(fmt::format("a Sylvester matrix needs n = 2^L, not n={}", op.n()));
  const auto* next_dense = static_cast<const std::byte*>(dense);
  std::int64_t right = op.n();
  for (const Factor& factor : op.factors()) {
    FactorStage stage;
    stage.order = factor.order;
    stage.right = right /= factor.order;
    if (factor.basis != Basis::sylvester) stage.entries = entries_of(factor, dtype, next_dense);
    stages_.push_back(std::move(stage));
  }
  for (std::int64_t i = 0; op.has_signs() && i < op.n(); ++i)
    signs_.push_back(sign_is_negative(signs, i) ? -1.0 : 1.0);
}

double ExactOperator::entry(std::int64_t row, std::int64_t column) const {
  double product = 1.0;
  for (const FactorStage& stage : stages_) {
    const std::int64_t i = row / stage.right % stage.order, j = column / stage.right % stage.order;
    product *= stage.entries.empty()
                   ? hadamard_sign(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j))
                   : stage.entries[static_cast<std::size_t>(i * stage.order + j)];
  }
  if (signs_.empty()) return product;
  return product * signs_[static_cast<std::size_t>(op_.signs_come_last() ? row : column)];
}

Eigen::MatrixXd ExactOperator::matrix() const {
  constexpr std::int64_t kLargest = 1 << 13;
  if (n() > kLargest) {
    throw BadRequest(fmt::format("the matrix of order n={} exceeds the limit {}", n(), kLargest));
  }
  Eigen::MatrixXd product = Eigen::MatrixXd::Ones(1, 1);
  for (const FactorStage& stage : stages_) {
    const Eigen::MatrixXd factor =
        stage.entries.empty()
            ? sylvester_matrix(stage.order)
            : Eigen::MatrixXd(Eigen::Map<const RowMajor>(stage.entries.data(), stage.order, stage.order));
    const Eigen::Index slow = product.rows(), fast = factor.rows();
    Eigen::MatrixXd next(slow * fast, slow * fast);
    for (Eigen::Index i = 0; i < slow; ++i) {
      for (Eigen::Index j = 0; j < slow; ++j)
        next.block(i * fast, j * fast, fast, fast) = product(i, j) * factor;
    }
    product.swap(next);
  }
  if (signs_.empty()) return product;
  const Eigen::Map<const Eigen::VectorXd> signs(signs_.data(), n());
  if (op_.signs_come_last()) return signs.asDiagonal() * product;
  return product * signs.asDiagonal();
}

template <class Number>
void ExactOperator::apply_to_row(Number* row, std::vector<Number>& scratch) const {
  const auto multiply_by_signs = [&] {
    for (std::size_t i = 0; i < signs_.size(); ++i)
      row[i] = signs_[i] < 0.0 ? -row[i] : row[i];
  };
  if (!op_.signs_come_last()) multiply_by_signs();
  for (const FactorStage& stage : stages_) {
    if (stage.entries.empty()) {
      for (std::int64_t half = stage.right; half < stage.right * stage.order; half *= 2)
        butterfly(row, n(), half);
      continue;
    }
    multiply_by(stage, row, n(), scratch);
  }
  if (op_.signs_come_last()) multiply_by_signs();
}

void ExactOperator::apply(Matrix& rows, double scale, int threads) const {
  if (rows.cols() != n()) throw BadRequest(fmt::format("{} columns for n={}", rows.cols(), n()));
  parallel_for(rows.rows(), threads_or_default(threads), [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> scratch;
    for (std::int64_t r = begin; r < end; ++r) {
      apply_to_row(rows.row(r).data(), scratch);
      if (scale != 1.0) rows.row(r) *= scale;
    }
  });
}

void ExactOperator::apply(IntMatrix& rows, int threads) const {
  if (rows.cols() != n()) throw BadRequest(fmt::format("{} columns for n={}", rows.cols(), n()));
  double growth = 1.0;
  for (const FactorStage& stage : stages_) {
    growth *=
        stage.entries.empty() ? static_cast<double>(stage.order) : growth_of(stage.entries, stage.order);
    for (const double entry : stage.entries) {
      if (entry != std::nearbyint(entry))
        throw BadRequest(fmt::format("operator {}: the entry {} is no integer", to_string(op_), entry));
    }
  }
  const double largest = rows.size() == 0 ? 0.0
                                          : std::max(static_cast<double>(rows.maxCoeff()),
                                                     -static_cast<double>(rows.minCoeff()));
  if (largest * growth >= 0x1p63)
    throw BadRequest(fmt::format("max|x|={} times {} leaves 63 bits", largest, growth));
  parallel_for(rows.rows(), threads_or_default(threads), [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> scratch;
    for (std::int64_t r = begin; r < end; ++r)
      apply_to_row(rows.row(r).data(), scratch);
  });
}

double ExactOperator::square_length() const {
  double product = 1.0;
  for (const FactorStage& stage : stages_) {
    double sum = static_cast<double>(stage.order);
    if (!stage.entries.empty()) {
      sum = 0.0;
      for (const double entry : stage.entries)
        sum += entry * entry;
      sum /= static_cast<double>(stage.order);
    }
    product *= sum;
  }
  return product;
}

}  // namespace fwht::reference
