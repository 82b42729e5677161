// Roundings of attention, by the same functions on host and device.
#pragma once

#include "experiments/studies/quantization/formats.hpp"

namespace fwht::attention {

enum class Rounding { none, f16, e4m3 };

/// `x` times `scale`, rounded, and back.
constexpr float rounded(Rounding rounding, float scale, float x) {
  switch (rounding) {
    case Rounding::none:
      return x;
    case Rounding::f16:
      return quantization::round_to(quantization::kF16, x * scale) / scale;
    case Rounding::e4m3:
      return quantization::round_to(quantization::kE4m3, x * scale) / scale;
  }
  return x;
}
// The reference rounds nothing.
constexpr double rounded(Rounding, float, double x) {
  return x;
}

constexpr float half_rounded(float x) {
  return rounded(Rounding::f16, 1.0F, x);
}
constexpr double half_rounded(double x) {
  return x;
}

}  // namespace fwht::attention
