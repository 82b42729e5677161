// Bit arithmetic used by index maps, on the host and on the device.
#pragma once

#include <bit>
#include <cstdint>

namespace fwht {

constexpr bool is_power_of_two(std::int64_t n) {
  return n > 0 && (n & (n - 1)) == 0;
}

/// floor(log2 n) for n >= 1.
constexpr int log2_floor(std::int64_t n) {
  return 63 - std::countl_zero(static_cast<std::uint64_t>(n));
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// The hash of values that are mixed in one after another: the finalizer of splitmix64.
class Hasher {
 public:
  template <class Value>
  void operator()(Value value) {
    hash_ += 0x9E3779B97F4A7C15U + static_cast<std::uint64_t>(value);
    hash_ = (hash_ ^ (hash_ >> 30)) * 0xBF58476D1CE4E5B9U;
    hash_ = (hash_ ^ (hash_ >> 27)) * 0x94D049BB133111EBU;
    hash_ ^= hash_ >> 31;
  }
  std::uint64_t hash() const { return hash_; }

 private:
  std::uint64_t hash_ = 0;
};

/// Parity of the number of set bits. H[i][j] = parity(i & j) ? -1 : +1 is the Sylvester matrix.
constexpr int parity(std::uint64_t v) {
  v ^= v >> 32;
  v ^= v >> 16;
  v ^= v >> 8;
  v ^= v >> 4;
  return static_cast<int>((0x6996U >> (v & 15U)) & 1U);
}

/// Entry of the +-1 Sylvester matrix in natural (Hadamard) order.
constexpr int hadamard_sign(std::uint64_t i, std::uint64_t j) {
  return 1 - 2 * parity(i & j);
}

}  // namespace fwht
