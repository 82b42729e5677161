// What operators with signs and dense factors read beside rows, for tests and measurements.
#pragma once

#include <cstddef>
#include <vector>

#include "common/contract/dtype.hpp"
#include "common/contract/operator.hpp"
#include "common/contract/variant.hpp"
#include "common/device/memory.hpp"

namespace fwht::reference {

enum class DenseRows {
  integers,         ///< of length m: small integers, so that sums can be exact
  as_long_as_signs  ///< of length sqrt(m), as rows of +-1 are: with the scale 1/sqrt(n) orthonormal
};

/// What Operands::dense is for an operator: for a factor of order m a multiple of (m I - 2 J) P, J all ones,
/// P the cyclic shift: not symmetric, its rows orthogonal. `as_long_as_signs` is rounded to `dtype`; integer
/// types have `integers` in either case.
std::vector<std::byte> dense_entries(const Operator& op, Dtype dtype, DenseRows rows);

/// Random signs and dense_entries, in any memory.
class OperatorData {
 public:
  OperatorData(const Operator& op, Dtype dtype, Memory memory = Memory::host,
               DenseRows dense_rows = DenseRows::integers);

  /// These with rows: pointers into this object, null where the operator has none.
  Operands operands(const void* in, void* out) const;

 private:
  Buffer signs_, dense_;
};

}  // namespace fwht::reference
