// Fast correctly rounded conversion of FP64 values to a storage type, for loops over millions of elements.
// The same results as common/dtype's round_to (hadamard_test compares them).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "common/contract/dtype.hpp"

namespace fwht::reference {

/// Exponent e with 2^e <= |x| < 2^(e+1), but at least `smallest`; for finite x.
inline int exponent_at_least(double x, int smallest) {
  const int exponent = static_cast<int>((std::bit_cast<std::uint64_t>(x) >> 52) & 0x7FF) - 1023;
  return exponent > smallest ? exponent : smallest;
}

/// 2^e for -1074 <= e <= 1023.
inline double power_of_two(int e) {
  if (e < -1022) return std::bit_cast<double>(std::uint64_t{1} << (e + 1074));  // subnormal, in f64 alone
  return std::bit_cast<double>(static_cast<std::uint64_t>(e + 1023) << 52);
}

/// Spacing of the format's numbers just above |x| (the subnormal spacing below the smallest normal number).
inline double ulp_of(const Format& format, double x) {
  return power_of_two(exponent_at_least(x, format.min_exponent) - format.precision + 1);
}

/// Smallest positive number of the format.
inline double quantum_of(const Format& format) {
  return power_of_two(format.min_exponent - format.precision + 1);
}

/// Magnitudes from here on round to an infinity: largest finite number plus half its spacing.
inline double overflow_threshold(const Format& format) {
  return format.max_finite + 0.5 * ulp_of(format, format.max_finite);
}

/// x rounded once to the format: nearest even, overflow to an infinity, subnormals and signs kept.
inline double round_fast(const Format& format, double x) {
  if (format.precision == 53) return x;                 // f64 holds every double
  if (format.precision > 53) return std::nearbyint(x);  // i64
  if (!(std::fabs(x) < 0x1p129)) return std::isnan(x) ? x : std::copysign(INFINITY, x);
  // Adding 1.5 * 2^52 units in the last place lets the FP64 addition itself round at that place.
  const double shifter = 1.5 * 0x1p52 * ulp_of(format, x);
  const double rounded = (x + shifter) - shifter;
  return std::copysign(std::fabs(rounded) > format.max_finite ? INFINITY : rounded, x);
}

/// Writes a value that the storage type holds exactly (or NaN, or an infinity, where it has them).
inline void store_exact(Dtype dtype, void* data, std::int64_t index, double value) {
  const float narrow = static_cast<float>(value);
  switch (dtype) {
    case Dtype::f16:
      static_cast<std::uint16_t*>(data)[index] = float_to_f16(narrow);
      return;
    case Dtype::bf16:
      static_cast<std::uint16_t*>(data)[index] = float_to_bf16(narrow);
      return;
    case Dtype::f32:
      static_cast<float*>(data)[index] = narrow;
      return;
    case Dtype::f64:
      static_cast<double*>(data)[index] = value;
      return;
    case Dtype::i32:
    case Dtype::i64:
      return store_element(dtype, data, index, value);
  }
}

}  // namespace fwht::reference
