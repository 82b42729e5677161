// Kronecker products on the host: what cpu and cpu_f64 do with operators that are not one Sylvester factor.
#pragma once

#include <cstdint>
#include <vector>

#include "common/contract/variant.hpp"

namespace fwht::cpu {

/// Largest order of a dense factor.
inline constexpr std::int64_t kLargestDense = 256;

/// A sentence where the operator has a dense factor above kLargestDense, or a Sylvester factor that is no
/// power of two. Any other valid operator is taken.
Support require_factors(const Operator& op);

/// Butterflies over the index of a Sylvester factor: strides `stride` .. `stride` order / 2.
template <class Real>
void butterflies(Real* row, std::int64_t n, std::int64_t stride, std::int64_t order) {
  for (std::int64_t half = stride; half < stride * order; half *= 2) {
    for (std::int64_t block = 0; block < n; block += 2 * half) {
      Real* low = row + block;
      Real* high = low + half;
      for (std::int64_t i = 0; i < half; ++i) {
        const Real a = low[i], b = high[i];
        low[i] = a + b;
        high[i] = a - b;
      }
    }
  }
}

/// An operator with its numbers, made for one execution. Rows are multiplied factor by factor, slowest first:
/// a Sylvester factor by butterflies over its index bits in ascending order, another one by sums over its
/// columns in ascending order. All sums in `Real`.
template <class Real>
class KroneckerProduct {
 public:
  /// Throws BadRequest for a dense factor that is not orthogonal within the dtype (check_dense).
  KroneckerProduct(const Problem& problem, const Operands& operands);

  /// In place row <- Op row, for n elements; `scratch` has as many.
  void apply(Real* row, Real* scratch) const;

 private:
  struct FactorLoop {
    std::int64_t order = 1;
    std::int64_t stride = 1;    ///< of the factor's index: the product of the later orders
    std::vector<Real> entries;  ///< empty for Sylvester; else column by column
  };

  void multiply_by_signs(Real* row) const;

  std::int64_t n_;
  std::vector<FactorLoop> stages_;
  const void* signs_;
  bool signs_come_last_;
};

extern template class KroneckerProduct<float>;
extern template class KroneckerProduct<double>;

}  // namespace fwht::cpu
