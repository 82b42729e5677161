// Hadamard matrices by name: H of entries +1 and -1 with H H^T = m I, for every order m that is a multiple of
// 4 up to 256, and for 428. Each is built by a formula from almost no data; docs/operators.md lists them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/contract/operator.hpp"

namespace fwht {

/// A square matrix of +1 and -1, one bit an entry. Row i is words_per_row() words of 32 bits; the bit of
/// column j is bit j mod 32 of word j / 32, set where the entry is -1. Bits behind the last column are zero.
class SignMatrix {
 public:
  SignMatrix() = default;
  explicit SignMatrix(int order);  ///< all entries +1

  int order() const { return order_; }
  int words_per_row() const { return (order_ + 31) / 32; }
  /// order x words_per_row, one row after the other.
  std::span<const std::uint32_t> words() const { return words_; }

  bool is_negative(int i, int j) const { return (words_[word_of(i, j)] >> (j % 32) & 1U) != 0; }
  int operator()(int i, int j) const { return is_negative(i, j) ? -1 : 1; }
  void set_negative(int i, int j) { words_[word_of(i, j)] |= std::uint32_t{1} << (j % 32); }

  SignMatrix transposed() const;
  bool operator==(const SignMatrix&) const = default;

 private:
  std::size_t word_of(int i, int j) const {
    return static_cast<std::size_t>(i) * static_cast<std::size_t>(words_per_row()) +
           static_cast<std::size_t>(j / 32);
  }

  int order_ = 0;
  std::vector<std::uint32_t> words_;
};

/// The Kronecker product: entry (i, j) of the slow factor times entry (k, l) of the fast one stands at
/// (i order_fast + k, j order_fast + l).
SignMatrix kronecker_product(const SignMatrix& slow, const SignMatrix& fast);

/// <row i, row j>: m for i = j; 0 for i != j is what makes the matrix a Hadamard matrix.
int row_product(const SignMatrix& matrix, int i, int j);

/// A matrix of the table.
struct NamedHadamard {
  int order;
  std::string_view name;  ///< how it is built: "paley2_28"; a product names its slow factor first
  bool symmetric;
};

/// All of them, orders ascending from 1.
std::span<const NamedHadamard> named_hadamard_matrices();
/// The one of that order; null where none is known here.
const NamedHadamard* find_hadamard_matrix(std::int64_t order);

/// Its entries, built when they are first asked for and kept. Any thread may call. Throws BadRequest for an
/// order that is not in the table.
const SignMatrix& hadamard_matrix(std::int64_t order);

/// Entry (i, j) of it, +1 or -1.
inline int hadamard_entry(std::int64_t order, int i, int j) {
  return hadamard_matrix(order)(i, j);
}

/// The regular Hadamard matrix R_4 (x) R_4 (x) ... of order 4^k: entry (i, j) is -1 where an odd number of
/// base-4 digits of i and j add up to 3. Throws BadRequest for another order.
SignMatrix regular_matrix(int order);

/// The matrix of a factor with is_named(), as an Operator holds it, not transposed; kept as
/// hadamard_matrix() keeps it. Throws BadRequest for an order without one; a regular matrix of more than 16
/// is several factors of an Operator.
const SignMatrix& named_matrix(const Factor& factor);

}  // namespace fwht
