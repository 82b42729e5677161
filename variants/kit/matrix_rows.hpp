// Rows of m 2^k elements as matrices for the tensor core, shared by `kronecker`, `mma_kronecker` and
// `warp_kronecker`: how a
// row is cut, where it lies in shared memory, and the matrix of stage 1 as sign bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/contract/operator.hpp"
#include "common/contract/variant.hpp"

namespace fwht::rows {

/// How rows are cut. A row is a matrix X of `order` x `columns`, order = m 2^j. Stage 1 multiplies its
/// columns by H_m (x) S_(2^j), stage 2 its rows by S_columns, or by S_(columns / second) (x) H_second with a
/// second matrix of signs. Short rows share a tile: `rows` of the problem lie side by side, as more columns.
struct Shape {
  int order = 0, columns = 0, rows = 1, second = 1;
  constexpr bool operator==(const Shape&) const = default;

  constexpr int n() const { return order * columns; }
  constexpr int tile_columns() const { return rows * columns; }
  /// k steps of stage 1: 16 rows of the matrix each, the last one filled up with zeros.
  constexpr int k_steps() const { return (order + 15) / 16; }
  /// One warpgroup gives 64 rows of the product, a warp 16 of them.
  constexpr int warpgroups() const { return (order + 63) / 64; }
  /// Columns in a line of shared memory, which the swizzle takes as one: the largest power of two that
  /// divides them, at most 64.
  constexpr int line() const { return std::min(64, columns & -columns); }
  /// fp32 accumulators of a thread: a warp's 16 rows, all columns.
  constexpr int accumulators() const { return tile_columns() / 2; }
  /// Bytes of one k step: a box of the tensor maps, and what one warp stores.
  constexpr int box_bytes() const { return 16 * tile_columns() * 2; }
  constexpr int tile_bytes() const { return k_steps() * box_bytes(); }
};

/// 16-byte pieces (8 columns) are exchanged inside 128 bytes of lines: what the piece number of a box's row
/// (0..15) is combined with.
constexpr int swizzle(int row, int line) {
  return (row * 2 * line >> 7) & (line / 8 - 1);
}
/// Byte of a box at which a row (0..15) and piece lies: a block of 16 lines, the next columns behind them.
constexpr int box_byte(int row, int piece, int line) {
  const int pieces = line / 8;
  return (piece / pieces) * (16 * 2 * line) + row * 2 * line + (((piece % pieces) ^ swizzle(row, line)) << 4);
}

// The matrix of stage 1 as sign bits: one 32-bit word of a lane holds the fragments of operand A for four k
// steps. Bit 4 (s & 3) + r is the sign of the lower half of register r in step s, bit 16 higher the upper
// half.

constexpr int sign_words(int k_steps) {
  return (k_steps + 3) / 4;
}
/// Index of a lane's word for four k steps from 4 `group` on; `block` of 16 rows of the product.
constexpr int sign_word_index(int k_steps, int block, int group, int lane) {
  return (block * sign_words(k_steps) + group) * 32 + lane;
}
/// Both halves of a register of operand A: +-1 in the storage type, from the word that holds its signs.
constexpr std::uint32_t signed_ones(std::uint32_t ones, std::uint32_t word, int step, int r) {
  return ones ^ ((word << (15 - (4 * (step & 3) + r))) & 0x80008000U);
}

/// Entry (i, j) of F_m (x) S_(order / m) as a sign, F_m a named or Sylvester factor or its transpose.
bool is_negative(const Factor& factor, int order, int i, int j);

/// The words of that matrix for all blocks of 16 rows of `shape`. Rows and columns beyond the order are +1;
/// they meet zeros.
std::vector<std::uint32_t> sign_table(const Shape& shape, int order, const Factor& factor);

// The second matrix, H_f (x) S_(second / f), as bf16: 8 x 8 operands B of its 8 input columns `from` and
// output columns `to`, in shared memory with four of them side by side for one load.

constexpr int second_quads(int second) {
  return (second / 8 + 3) / 4;
}
constexpr int second_word_index(int second, int to, int from, int lane) {
  return ((to * second_quads(second) + from / 4) * 32 + lane) * 4 + from % 4;
}
constexpr int second_words(int second) {
  return second == 1 ? 0 : second / 8 * second_quads(second) * 128;
}
/// A lane's word of such an operand.
std::uint32_t second_word(int second, const Factor& factor, int to, int from, int lane);
std::vector<std::uint32_t> second_table(int second, const Factor& factor);

/// An operator as F_m (x) S (x) F_f (x) S: a matrix on the slow index, Sylvester, perhaps a second named
/// matrix and Sylvester again. What is not there has order 1.
struct FactorParts {
  Factor slow{Basis::sylvester, 1}, second{Basis::sylvester, 1};
  std::int64_t sylvester = 1, behind = 1;
};
/// None where there are other factors.
std::optional<FactorParts> factor_parts_of(const Operator& op);

/// What all variants on such rows ask of a problem: 16-bit data in and out, in plain rows, without prologue,
/// pages, or a dense factor behind a programmatic launch.
Support supports_matrix_rows(const Problem& problem);

/// What a plan promises: factor by factor, matrices exact, Sylvester by additions and, unless
/// there are none, hi + lo products, one rounding.
Numerics matrix_rows_numerics(const Problem& problem, bool has_hi_lo = true);

}  // namespace fwht::rows
