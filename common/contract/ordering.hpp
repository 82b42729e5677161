// The order in which a row's Walsh coefficients stand.
#pragma once

#include <cstdint>
#include <string_view>

namespace fwht {

/// Place k of a row holds the coefficient that natural order has at natural_place(ordering, k, log2 n).
enum class Ordering {
  natural,  ///< Hadamard: H[i][j] = (-1)^popcount(i & j)
  dyadic,   ///< Paley: i with its bits reversed
  sequency  ///< Walsh: row k of the matrix changes its sign k times
};

constexpr std::string_view name_of(Ordering ordering) {
  switch (ordering) {
    case Ordering::natural:
      return "natural";
    case Ordering::dyadic:
      return "dyadic";
    case Ordering::sequency:
      return "sequency";
  }
  return "unknown";
}

/// The low `bits` bits of v in reverse; the others must be 0.
constexpr std::uint64_t reverse_bits(std::uint64_t v, int bits) {
  v = (v >> 1 & 0x5555555555555555U) | (v & 0x5555555555555555U) << 1;
  v = (v >> 2 & 0x3333333333333333U) | (v & 0x3333333333333333U) << 2;
  v = (v >> 4 & 0x0F0F0F0F0F0F0F0FU) | (v & 0x0F0F0F0F0F0F0F0FU) << 4;
  v = (v >> 8 & 0x00FF00FF00FF00FFU) | (v & 0x00FF00FF00FF00FFU) << 8;
  v = (v >> 16 & 0x0000FFFF0000FFFFU) | (v & 0x0000FFFF0000FFFFU) << 16;
  v = v >> 32 | v << 32;
  return bits == 0 ? 0 : v >> ((64 - bits) & 63);
}

constexpr std::uint64_t gray_code(std::uint64_t v) {
  return v ^ v >> 1;
}
constexpr std::uint64_t inverse_gray_code(std::uint64_t v) {
  for (int shift = 1; shift < 64; shift *= 2)
    v ^= v >> shift;
  return v;
}

constexpr std::int64_t natural_place(Ordering ordering, std::int64_t place, int log_n) {
  const auto k = static_cast<std::uint64_t>(place);
  if (ordering == Ordering::natural) return place;
  return static_cast<std::int64_t>(reverse_bits(ordering == Ordering::sequency ? gray_code(k) : k, log_n));
}

/// The inverse: where a coefficient stands.
constexpr std::int64_t ordered_place(Ordering ordering, std::int64_t natural, int log_n) {
  if (ordering == Ordering::natural) return natural;
  const std::uint64_t k = reverse_bits(static_cast<std::uint64_t>(natural), log_n);
  return static_cast<std::int64_t>(ordering == Ordering::sequency ? inverse_gray_code(k) : k);
}

}  // namespace fwht
