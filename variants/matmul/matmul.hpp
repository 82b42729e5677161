// matmul: rows times the whole n x n matrix of the operator, by cuBLASLt.
#pragma once

#include <cstdint>
#include <memory>

#include "common/contract/variant.hpp"
#include "common/host/bits.hpp"

namespace fwht::matmul {

extern const Variant variant;

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device);

/// Row lengths: a multiple of 8, so that every row of the matrix is aligned to what the tensor cores load;
/// the matrix of the largest is 512 MiB.
inline constexpr std::int64_t kMultiple = 8, kLargestN = 16384;

/// A factor for the kernel that writes the matrix: its order, the distance of neighbours of its digit, and
/// its signs, one bit an entry as in SignMatrix; no bits for Sylvester.
struct FactorSigns {
  std::int64_t order = 1, stride = 1;
  bool transposed = false;
  const std::uint32_t* bits = nullptr;
  int words_per_row = 0;
};
struct MatrixSigns {
  FactorSigns factors[Operator::kMostFactors];
  int count = 0;
};

/// Whether entry (i, j) of the product is -1.
constexpr bool is_negative(const MatrixSigns& signs, std::int64_t i, std::int64_t j) {
  bool negative = false;
  for (int f = 0; f < signs.count; ++f) {
    const FactorSigns& factor = signs.factors[f];
    std::int64_t row = i / factor.stride % factor.order, column = j / factor.stride % factor.order;
    if (factor.bits == nullptr) {
      negative ^= parity(static_cast<std::uint64_t>(row & column)) != 0;
      continue;
    }
    if (factor.transposed) {
      const std::int64_t swapped = row;
      row = column, column = swapped;
    }
    negative ^= (factor.bits[row * factor.words_per_row + column / 32] >> (column % 32) & 1U) != 0;
  }
  return negative;
}

/// The factors of an operator; `bits` of a named one point into its table on the host.
MatrixSigns matrix_signs(const Operator& op);

/// One product, one rounding, the scale in fp32.
Numerics numerics_of(const Problem& problem);

}  // namespace fwht::matmul
