// Truth for any operator (common/operator.hpp): its matrix by definition, and the same product factor by
// factor, in FP64 and in exact integers.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <vector>

#include "common/dtype.hpp"
#include "common/operator.hpp"
#include "reference/hadamard.hpp"

namespace fwht::reference {

/// An operator with all of its numbers: entries of its factors, and its signs.
class ExactOperator {
 public:
  /// `signs` and `dense` as Operands has them, `dense` in `dtype`; null where the operator has none. Throws
  /// BadRequest where they are missing, and for an operator that validate() refuses.
  explicit ExactOperator(const Operator& op, Dtype dtype = Dtype::f64, const void* signs = nullptr,
                         const void* dense = nullptr);

  std::int64_t n() const { return op_.n(); }

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

  /// c of Op^T Op = c I: the product of the square lengths of the factors' rows, n for +-1 factors.
  double square_length() const;

 private:
  struct Stage {
    std::int64_t order = 1;       ///< of the factor
    std::int64_t right = 1;       ///< distance of neighbours along its index: the product of the later orders
    std::vector<double> entries;  ///< order x order, transposed where the factor is; empty for Sylvester
  };

  template <class Number>
  void apply_to_row(Number* row, std::vector<Number>& scratch) const;

  Operator op_;
  std::vector<Stage> stages_;
  std::vector<double> signs_;  ///< n of +-1, or none
};

}  // namespace fwht::reference
