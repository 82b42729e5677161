// Truth for any operator (common/contract/operator.hpp): its matrix by definition, and the same product
// factor by factor, in FP64 and in exact integers.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "common/contract/dtype.hpp"
#include "common/contract/operator.hpp"
#include "reference/hadamard.hpp"

namespace fwht::reference {

/// A factor as it is executed.
struct FactorStage {
  std::int64_t order = 1;
  std::int64_t right = 1;       ///< distance of neighbours along its index: the product of the later orders
  std::vector<double> entries;  ///< order x order, transposed where the factor is; empty for Sylvester
};

/// row <- F row along the index of a factor that is not Sylvester's: sums over its columns in ascending order
/// in `Number`, the terms' products rounded before they are added.
template <class Number>
void multiply_by(const FactorStage& stage, Number* row, std::int64_t n, std::vector<Number>& scratch) {
  const std::int64_t m = stage.order, right = stage.right;
  scratch.assign(static_cast<std::size_t>(n), Number{0});
  for (std::int64_t block = 0; block < n; block += m * right) {
    for (std::int64_t i = 0; i < m; ++i) {
      Number* sums = scratch.data() + block + i * right;
      for (std::int64_t j = 0; j < m; ++j) {
        const auto entry = static_cast<Number>(stage.entries[static_cast<std::size_t>(i * m + j)]);
        const Number* terms = row + block + j * right;
        for (std::int64_t c = 0; c < right; ++c)
          sums[c] += entry * terms[c];
      }
    }
  }
  std::copy(scratch.begin(), scratch.end(), row);
}

/// An operator with all of its numbers: entries of its factors, and its signs.
class ExactOperator {
 public:
  /// `signs` and `dense` as Operands has them, `dense` in `dtype`; null where the operator has none. Throws
  /// BadRequest where they are missing, and for an operator that validate() refuses.
  explicit ExactOperator(const Operator& op, Dtype dtype = Dtype::f64, const void* signs = nullptr,
                         const void* dense = nullptr);

  std::int64_t n() const { return op_.n(); }

  /// Entry of the matrix by definition: the product of the factors' entries at the digits of row and column,
  /// and of the sign.
  double entry(std::int64_t row, std::int64_t column) const;

  /// The n x n matrix by definition: the Kronecker product of the factors' matrices, columns times the signs
  /// that come first, rows times those that come last. y = matrix x for a row x. Throws BadRequest for n
  /// above 2^13.
  Eigen::MatrixXd matrix() const;

  /// In place y[r,:] = scale * Op x[r,:] for every row (rows x n): signs, factors slowest first, Sylvester
  /// ones by butterflies over ascending index bits, others by the sum over their entries. The scale is
  /// applied once at the end. NaN and infinities propagate as in the direct sum. Throws BadRequest for
  /// another number of columns.
  void apply(Matrix& rows, double scale = 1.0, int threads = 0) const;

  /// The same on integers, unnormalised and exact. Throws BadRequest where an entry is no integer, or where
  /// sums may leave 63 bits.
  void apply(IntMatrix& rows, int threads = 0) const;

  /// Slowest factor first.
  std::span<const FactorStage> stages() const { return stages_; }
  /// n values of +-1; none where the operator has no signs.
  std::span<const double> signs() const { return signs_; }

  /// c of Op^T Op = c I: the product of the square lengths of the factors' rows, n for +-1 factors.
  double square_length() const;

 private:
  template <class Number>
  void apply_to_row(Number* row, std::vector<Number>& scratch) const;

  Operator op_;
  std::vector<FactorStage> stages_;
  std::vector<double> signs_;  ///< n of +-1, or none
};

}  // namespace fwht::reference
