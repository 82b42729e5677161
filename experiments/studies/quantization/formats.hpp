// Number formats of quantized inference, rounded on host and device by the same functions.
#pragma once

#include <bit>
#include <cstdint>

namespace fwht::quantization {

/// A binary floating-point format without infinities: `mantissa_bits` explicit bits, 2^min_exponent its
/// smallest normal number.
struct SmallFloat {
  int mantissa_bits, min_exponent;
  float largest;
};
inline constexpr SmallFloat kE4m3{3, -6, 448.0F};  // OCP 8-bit floating point, E4M3
inline constexpr SmallFloat kE2m1{1, 0, 6.0F};     // OCP MX 4-bit floating point, E2M1
inline constexpr SmallFloat kF16{10, -14, 65504.0F};

/// 2^e for -126 <= e <= 127.
constexpr float power_of_two(int e) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23);
}

/// Exponent of the leading bit of a normal |x|; at most -127 below.
constexpr int exponent_of(float x) {
  return static_cast<int>((std::bit_cast<std::uint32_t>(x) >> 23) & 0xFFU) - 127;
}

/// x rounded to the format: nearest even, saturating. |x| < 2^100.
constexpr float round_to(SmallFloat format, float x) {
  const int exponent = exponent_of(x) > format.min_exponent ? exponent_of(x) : format.min_exponent;
  // Adding 1.5 * 2^23 units in the last place lets the fp32 addition itself round at that place.
  const float shifter = 12582912.0F * power_of_two(exponent - format.mantissa_bits);
  const float rounded = (x + shifter) - shifter;
  if (rounded > format.largest) return format.largest;
  return rounded < -format.largest ? -format.largest : rounded;
}

}  // namespace fwht::quantization
