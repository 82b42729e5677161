#include "variants/cpu/kronecker.hpp"

#include <algorithm>

#include "common/contract/hadamard_matrices.hpp"
#include "common/contract/operator_data.hpp"
#include "common/host/bits.hpp"
#include "common/host/text.hpp"

namespace fwht::cpu {
namespace {

/// sums[i] = sum over j of F[i][j] terms[j], for `order` vectors of `stride` elements each; `columns` holds F
/// column by column. The inner loop runs over contiguous elements in both forms.
template <class Real>
void multiply(const Real* columns, std::int64_t order, std::int64_t stride, const Real* terms, Real* sums) {
  std::fill(sums, sums + order * stride, Real{0});
  if (stride == 1) {
    for (std::int64_t j = 0; j < order; ++j) {
      for (std::int64_t i = 0; i < order; ++i)
        sums[i] += columns[j * order + i] * terms[j];
    }
    return;
  }
  for (std::int64_t i = 0; i < order; ++i) {
    for (std::int64_t j = 0; j < order; ++j) {
      const Real entry = columns[j * order + i];
      for (std::int64_t c = 0; c < stride; ++c)
        sums[i * stride + c] += entry * terms[j * stride + c];
    }
  }
}

}  // namespace

Support require_factors(const Operator& op) {
  for (const Factor& factor : op.factors()) {
    if (factor.basis == Basis::sylvester && !is_power_of_two(factor.order)) {
      return {concat("operator ", to_string(op), ": order ", factor.order,
                     " of a Sylvester factor must be a power of two")};
    }
    if (factor.basis != Basis::dense || factor.order <= kLargestDense) continue;
    return {concat("operator ", to_string(op), ": the dense factor of order ", factor.order,
                   " exceeds the limit of ", kLargestDense)};
  }
  return {};
}

template <class Real>
KroneckerProduct<Real>::KroneckerProduct(const Problem& problem, const Operands& operands)
    : n_(problem.n()), signs_(operands.signs), signs_come_last_(problem.op.signs_come_last()) {
  if (problem.op.has_dense()) check_dense(problem.op, problem.dtype(), operands.dense);
  const auto* dense = static_cast<const std::byte*>(operands.dense);
  std::int64_t stride = n_;
  for (const Factor& factor : problem.op.factors()) {
    const std::int64_t order = factor.order;
    stride /= order;
    FactorLoop& stage = stages_.emplace_back(FactorLoop{order, stride, {}});
    if (factor.basis == Basis::sylvester) continue;
    const SignMatrix* named = factor.is_named() ? &named_matrix(factor) : nullptr;
    stage.entries.resize(static_cast<std::size_t>(order * order));
    for (std::int64_t i = 0; i < order; ++i) {
      for (std::int64_t j = 0; j < order; ++j) {
        const double entry = named != nullptr ? (*named)(static_cast<int>(i), static_cast<int>(j))
                                              : load_element(problem.dtype(), dense, i * order + j);
        const std::int64_t at = factor.transposed ? i * order + j : j * order + i;
        stage.entries[static_cast<std::size_t>(at)] = static_cast<Real>(entry);
      }
    }
    if (named == nullptr) dense += order * order * bytes_of(problem.dtype());
  }
}

template <class Real>
void KroneckerProduct<Real>::multiply_by_signs(Real* row) const {
  for (std::int64_t i = 0; i < n_; ++i)
    row[i] = sign_is_negative(signs_, i) ? -row[i] : row[i];
}

template <class Real>
void KroneckerProduct<Real>::apply(Real* row, Real* scratch) const {
  if (signs_ != nullptr && !signs_come_last_) multiply_by_signs(row);
  for (const FactorLoop& stage : stages_) {
    if (stage.entries.empty()) {
      butterflies(row, n_, stage.stride, stage.order);
      continue;
    }
    const std::int64_t block = stage.order * stage.stride;
    for (std::int64_t at = 0; at < n_; at += block) {
      multiply(stage.entries.data(), stage.order, stage.stride, row + at, scratch);
      std::copy(scratch, scratch + block, row + at);
    }
  }
  if (signs_ != nullptr && signs_come_last_) multiply_by_signs(row);
}

template class KroneckerProduct<float>;
template class KroneckerProduct<double>;

}  // namespace fwht::cpu
