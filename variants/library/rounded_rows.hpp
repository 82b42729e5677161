// Rounds of signs and transforms on a device, all of them while a warp holds the rows in its registers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "common/contract/dtype.hpp"
#include "common/contract/family.hpp"

namespace fwht::walsh {

inline constexpr int kSmallestRoundedRow = 6, kLargestRoundedRow = 12;  ///< log2
inline constexpr int kMostRounds = 8;                                   ///< on a device
inline constexpr int kRoundedOrders[] = {12, 20, 28, 36};
inline constexpr int kFewestRoundedColumns = 3;  ///< log2, of rows of an order other than 1

/// Quadratic character in GF(q), q a prime or 9: 0 for 0, 1 for the square of another element, -1
/// otherwise. The elements of GF(9) = GF(3)[i] are a_0 + 3 a_1; squares are those whose norm is 1.
constexpr int quadratic_character(int q, int a) {
  if (a == 0) return 0;
  if (q == 9) return (a % 3 * (a % 3) + a / 3 * (a / 3)) % 3 == 1 ? 1 : -1;
  for (int x = 1; x < q; ++x) {
    if (x * x % q == a) return 1;
  }
  return -1;
}

/// Entry of the symmetric conference matrix that makes H_{2 points} (Paley II,
/// common/contract/hadamard_matrices.cpp).
constexpr int conference_entry(int points, int i, int j) {
  if (i == j) return 0;
  if (i == 0 || j == 0) return 1;
  const int q = points - 1, p = q == 9 ? 3 : q;
  const int low = ((j - 1) % p + p - (i - 1) % p) % p, high = ((j - 1) / p + p - (i - 1) / p) % p;
  return quadratic_character(q, low + p * high);
}

/// What a warp holds: as many rows as fill its registers. A row is `order` times 2^log_columns elements, its
/// operator H_order (x) H_2^log_columns. Register k of a lane has
///
///   bits of k, from the lowest on    vector_bits       register_bits - vector_bits    above
///   bits of the column               0 ..              vector_bits + lane_bits ..     row of H_order
///
/// and its lane has the column's bits between. Lanes beyond 2^lane_bits have other rows, and where the order
/// is 1, so do the registers above.
struct RoundsTile {
  int vector_bits = 0;    ///< log2 of the elements that a lane loads at once
  int register_bits = 0;  ///< of the column
  int lane_bits = 0;      ///< of the column
  int order = 1;

  static constexpr RoundsTile of(int vector_bits, int log_columns, int order = 1) {
    const int lanes = std::min(log_columns - vector_bits, 5);
    return {vector_bits, log_columns - lanes, lanes, order};
  }
  constexpr int log_columns() const { return register_bits + lane_bits; }
  constexpr std::int64_t n() const { return std::int64_t{order} << log_columns(); }
  constexpr int registers() const {
    return order == 1 ? std::max(1 << register_bits, 32) : order << register_bits;
  }
  /// That have elements of one row.
  constexpr int registers_of_row() const { return order == 1 ? 1 << register_bits : registers(); }
  constexpr int rows() const { return registers() / registers_of_row() << (5 - lane_bits); }

  /// Row of the tile.
  constexpr int row(int lane, int k) const {
    const int of_registers = order == 1 ? k >> register_bits : 0;
    return of_registers << (5 - lane_bits) | lane >> lane_bits;
  }
  /// Element of the row: the sum of what lane and register add.
  constexpr int place_of_lane(int lane) const { return (lane & ((1 << lane_bits) - 1)) << vector_bits; }
  constexpr int place_of_register(int k) const {
    const int vector = (1 << vector_bits) - 1, column = k & ((1 << register_bits) - 1);
    const int matrix_row = order == 1 ? 0 : k >> register_bits;
    return matrix_row << log_columns() | column >> vector_bits << (vector_bits + lane_bits) |
           (column & vector);
  }
  constexpr int place(int lane, int k) const { return place_of_lane(lane) + place_of_register(k); }

  /// The signs of 32 registers of a lane are one word: bit j is of register 32 w + j.
  constexpr int sign_words() const { return (registers() + 31) / 32; }
  /// Of the packed signs of a row, whose length is a multiple of 32.
  constexpr std::uint32_t sign_word(const std::uint32_t* signs, int w, int lane) const {
    std::uint32_t word = 0;
    for (int j = 0; j < std::min(32, registers() - 32 * w); j += 1 << vector_bits) {
      const int i = place(lane, 32 * w + j);
      word |= (signs[i >> 5] >> (i & 31) & ((1U << (1 << vector_bits)) - 1)) << j;
    }
    return word;
  }
};

/// The tile of rows of n elements; none where no kernel has them. The operator of n is that of operator_for.
std::optional<RoundsTile> find_rounds_tile(Dtype dtype, std::int64_t n);

struct RoundedRows {
  RoundsTile tile;
  std::int64_t rows = 0;
  float scale = 1;  ///< of a round: 1 / sqrt(n)
  int count = 0;    ///< of rounds
  bool transposed = false;
  const std::uint32_t* signs = nullptr;  ///< of all rounds, n / 32 words each
  const void* in = nullptr;
  void* out = nullptr;
  int bits = 0;             ///< of a code, where fp32 rows become codes: 1, 4 or 8
  float* scales = nullptr;  ///< of codes, one a row
};

void launch_rounded_rows(Dtype dtype, const RoundedRows& work, int sm_count, Stream stream);

}  // namespace fwht::walsh
