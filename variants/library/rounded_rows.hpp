// Rounds of signs and transforms on a device, all of them while a warp holds the rows in its registers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/contract/dtype.hpp"
#include "common/contract/family.hpp"

namespace fwht::walsh {

inline constexpr int kSmallestRoundedRow = 6, kLargestRoundedRow = 12;  ///< log2
inline constexpr int kMostRounds = 8;                                   ///< on a device

/// What a warp holds: one row, or as many short ones as 2^10 elements are. Register k of a lane has element
///
///   b0 .. of a 16-byte vector   5 bits            above
///   k, lowest bits              lane              k, highest bits
///
/// The bits of a row are the lowest ones. Those above them count rows.
struct RoundsTile {
  int vector_bits = 0;  ///< log2 of the elements of 16 bytes: 2 or 3
  int log_n = 0;

  constexpr int log_elements() const { return std::max(log_n, 10); }
  constexpr int registers() const { return 1 << (log_elements() - 5); }
  constexpr int row_lane_bits() const { return std::min(log_n - vector_bits, 5); }
  constexpr int row_register_bits() const { return log_n - row_lane_bits(); }
  constexpr int element(int lane, int k) const {
    return ((k >> vector_bits << 5 | lane) << vector_bits) | (k & ((1 << vector_bits) - 1));
  }

  /// The signs of 32 registers of a lane are one word: bit j is of register 32 w + j.
  constexpr int sign_words() const { return registers() / 32; }
  /// Of the packed signs of a row, whose length is a multiple of 32.
  constexpr std::uint32_t sign_word(const std::uint32_t* signs, int w, int lane) const {
    std::uint32_t word = 0;
    for (int j = 0; j < 32; j += 1 << vector_bits) {
      const int i = element(lane, 32 * w + j) & ((1 << log_n) - 1);
      word |= (signs[i >> 5] >> (i & 31) & ((1U << (1 << vector_bits)) - 1)) << j;
    }
    return word;
  }
};

struct RoundedRows {
  int log_n = 0;
  std::int64_t rows = 0;
  int count = 0;  ///< of rounds
  bool transposed = false;
  const std::uint32_t* signs = nullptr;  ///< of all rounds, n / 32 words each
  const void* in = nullptr;
  void* out = nullptr;
};

void launch_rounded_rows(Dtype dtype, const RoundedRows& work, int sm_count, Stream stream);

}  // namespace fwht::walsh
