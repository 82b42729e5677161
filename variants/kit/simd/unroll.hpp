// Loops whose index is a constant in the body: unrolled by construction, whatever the compiler's limits, and
// free of compiler-specific pragmas.
#pragma once

#include <utility>

#ifdef __CUDACC__
#define FWHT_HOST_DEVICE __host__ __device__  // what KOKKOS_FUNCTION is, for headers that do without Kokkos
#else
#define FWHT_HOST_DEVICE
#endif

namespace fwht::simd {

/// body.operator()<0>(), ..., body.operator()<kCount - 1>().
template <int kCount, class Body>
FWHT_HOST_DEVICE constexpr void unrolled(const Body& body) {
  [&]<int... i>(std::integer_sequence<int, i...>) {
    (body.template operator()<i>(), ...);
  }
  (std::make_integer_sequence<int, kCount>{});
}

/// Butterflies over bits [kBegin, kBegin + kLevels) of the index of x, which stand for the levels first_level
/// and up; levels at or above `levels` are left out (rows shorter than what x holds). Value is a float or a
/// SIMD pack.
template <int kRegBits, int kBegin, int kLevels, class Value>
FWHT_HOST_DEVICE constexpr void butterflies(Value (&x)[1 << kRegBits], int first_level, int levels) {
  unrolled<kLevels>([&]<int level>() {
    if (first_level + level >= levels) return;
    unrolled<(1 << kRegBits) / 2>([&]<int pair>() {
      constexpr int kStep = 1 << (kBegin + level);
      constexpr int kLow = 2 * pair - pair % kStep;  // a zero bit inserted at kBegin + level
      const Value a = x[kLow], b = x[kLow + kStep];
      x[kLow] = a + b;
      x[kLow + kStep] = a - b;
    });
  });
}

}  // namespace fwht::simd
