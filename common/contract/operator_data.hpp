// The data that belong to an operator with signs or dense factors (Operands::signs, Operands::dense): made,
// read and checked on the host, once, before they go to where the variant's memory is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/dtype.hpp"
#include "common/contract/hadamard_matrices.hpp"
#include "common/contract/operator.hpp"

namespace fwht {

/// Packs n values of +1 and -1 as Operands::signs wants them: bit i mod 32 of word i / 32, set for -1; bits
/// behind the last one are zero. Throws BadRequest, naming the position, for any other value.
std::vector<std::uint32_t> pack_signs(std::span<const double> signs);

/// Whether packed signs have -1 at this position.
inline bool sign_is_negative(const void* signs, std::int64_t position) {
  // By bytes, so that any alignment will do; words are little endian on every machine with CUDA.
  return (static_cast<const std::uint8_t*>(signs)[position / 8] >> (position % 8) & 1) != 0;
}

/// Entries that the dense factors of the operator have together: what Operands::dense holds, in the input's
/// dtype.
std::int64_t dense_entry_count(const Operator& op);

/// Largest |<row i, row j> - c [i = j]| / c of the order x order matrix, c the mean square length of its
/// rows, in FP64: 0 for a matrix whose rows are orthogonal and of one length. NaN where an entry is not
/// finite, or where all are zero.
double orthogonality_error(Dtype dtype, const void* entries, std::int64_t order);

/// What orthogonality_error may be: 2u + m v, u the unit roundoff of the dtype, v = min(u, 2^-24), m the
/// order. A matrix that is orthogonal, rounded once to the dtype, has at most 2u + u^2 (Cauchy-Schwarz). The
/// term m v is for the factorization that it comes from, in fp32 or, for f64 data, in FP64 (Higham, Accuracy
/// and Stability of Numerical Algorithms, theorem 19.4, without its small constant).
double orthogonality_limit(Dtype dtype, std::int64_t order);

/// Throws BadRequest for a dense factor, among those in `entries` one behind the other, whose
/// orthogonality_error exceeds the limit; with both numbers.
void check_dense(const Operator& op, Dtype dtype, const void* entries);

/// The matrix that a text of + and - spells, a line for each row; blanks and empty lines do not count. Throws
/// BadRequest for another character, rows of different lengths, and rows that are not orthogonal.
/// For a table that this library does not ship: "d28x512" with its dense_entries is the transform by it.
SignMatrix parse_sign_matrix(std::string_view text);
/// The same from a file. Throws BadRequest where it cannot be read.
SignMatrix read_sign_matrix(const std::string& path);

/// The entries of the matrix in a dtype, as Operands::dense wants them.
std::vector<std::byte> dense_entries(const SignMatrix& matrix, Dtype dtype);

}  // namespace fwht
