// Numbers to codes: e4m3, int8, int4, e2m1, to nearest even and saturating, four or eight at once because
// that is how they are packed. Each has one form for the device and for the host, which tests it against
// plain definitions.
//
//   e4m3   one instruction for two codes from sm_89 on; below it and on the host, integer arithmetic
//   int8   x + 1.5 2^23 has the code in its low byte; cvt.rni.s8 has a quarter of the rate
//   int4   the same, low half byte
//   e2m1   no instruction before sm_100: the code of c = |x| is the least of RNE(2 c), RNE(c) + 2 and
//          6 + [c > 5] = RNE(c t) + 6, t a tenth rounded down. Each is one addition to 2^23 or 2^23 + an even
//          number, and such sums are ordered like their bits. The last saturates, up to c = 15.
#pragma once

#include <cstdint>

#include "variants/kit/encode/arithmetic.hpp"

namespace fwht::encoder {

// ---- e4m3

/// The code of |x| in the low byte, kExcessOfE4m3 too large; NaN counts as 448. Where 2^20 times the power of
/// two at or below |x| (at least 2^-6) is added, the sum is rounded to the eighth of that power, its last
/// place, and counts those from the sum's own power on.
FWHT_WARP_CODE std::uint32_t e4m3_magnitude(float x) {
  constexpr std::uint32_t kSmallestPower = 0x3C800000U, kHigher = 20U << 23;
  const std::uint32_t magnitude = bits_of(smaller(fabsf(x), 448.0F));
  const std::uint32_t power = magnitude & 0x7F800000U;
  const std::uint32_t higher = (power > kSmallestPower ? power : kSmallestPower) + kHigher;
  return bits_of(add(float_of(magnitude), float_of(higher))) - higher + (higher >> 20);
}
inline constexpr std::uint32_t kExcessOfE4m3 = 0x68;  // 8 (121 + 20) modulo 256

/// Four codes without an instruction for them. NaN gives 0x7F, infinities and all above 448 give +-448.
FWHT_WARP_CODE std::uint32_t e4m3_in_software(float a, float b, float c, float d) {
  // No byte is less than the excess, so that one subtraction serves all.
  const std::uint32_t magnitudes =
      gather_bytes<0>(e4m3_magnitude(a), e4m3_magnitude(b), e4m3_magnitude(c), e4m3_magnitude(d)) -
      kExcessOfE4m3 * 0x01010101U;
  std::uint32_t codes =
      magnitudes | (gather_bytes<3>(bits_of(a), bits_of(b), bits_of(c), bits_of(d)) & 0x80808080U);
  if (a != a) codes = (codes & 0xFFFFFF00U) | 0x7FU;
  if (b != b) codes = (codes & 0xFFFF00FFU) | 0x7F00U;
  if (c != c) codes = (codes & 0xFF00FFFFU) | 0x7F0000U;
  if (d != d) codes = (codes & 0x00FFFFFFU) | 0x7F000000U;
  return codes;
}

/// Codes of four numbers, the first in the low byte.
FWHT_WARP_CODE std::uint32_t e4m3_codes(float a, float b, float c, float d) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint32_t codes;
  asm("{ .reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high}; }"
      : "=r"(codes)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return codes;
#else
  return e4m3_in_software(a, b, c, d);
#endif
}

FWHT_WARP_CODE std::uint32_t e4m3_code(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint16_t code;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(code) : "f"(0.0F), "f"(x));
  return code;
#else
  return e4m3_in_software(x, 0.0F, 0.0F, 0.0F);
#endif
}

/// The number of a code that is neither NaN nor negative.
FWHT_WARP_CODE float number_of_e4m3(std::uint32_t code) {
  return multiply(float_of(code << 20), 0x1p120F);
}

// ---- int8, int4

/// The integer nearest to |x| < 2^22 in the low bits, two's complement.
FWHT_WARP_CODE std::uint32_t nearest_integer(float x) {
  return bits_of(add(x, 0x1.8p23F));
}

/// Codes of four numbers between -128.5 and 127.5.
FWHT_WARP_CODE std::uint32_t int8_codes(float a, float b, float c, float d) {
  return gather_bytes<0>(nearest_integer(a), nearest_integer(b), nearest_integer(c), nearest_integer(d));
}

/// Codes of eight numbers between -8.5 and 7.5, the first in the lowest half byte: numbers of base 16 by
/// multiply-add, each 8 larger so that it is not negative.
FWHT_WARP_CODE std::uint32_t int4_codes(const float (&x)[8]) {
  constexpr float kShift = 0x1.8p23F + 8.0F;
  constexpr std::uint32_t kOnTop = 0x4B400000U * 0x11111111U;
  std::uint32_t code[8];  // on top of 0x4B400000
  FWHT_UNROLL
  for (int i = 0; i < 8; ++i)
    code[i] = bits_of(add(x[i], kShift));
  const std::uint32_t low = (code[3] * 16 + code[2]) * 256 + (code[1] * 16 + code[0]);
  const std::uint32_t high = (code[7] * 16 + code[6]) * 256 + (code[5] * 16 + code[4]);
  return (high * 65536 + low - kOnTop) ^ 0x88888888U;
}

// ---- e2m1

/// Codes of |y| * factor for eight numbers, the first in the lowest half byte. Without `clamps` no product
/// may reach 15 or be NaN: it would spill into its neighbours. With it NaN gives 6.
template <bool clamps>
FWHT_WARP_CODE std::uint32_t e2m1_magnitudes(const float (&y)[8], float factor) {
  constexpr float kTenth = 0x1.999998p-4F;  // 5 of them are less than a half, and of the number behind 5 more
  std::uint32_t code[8];                    // on top of 0x4B000000
  FWHT_UNROLL
  for (int i = 0; i < 8; ++i) {
    float c = multiply(fabsf(y[i]), factor);
    if (clamps) c = smaller(c, 6.0F);
    code[i] = static_cast<std::uint32_t>(smallest_of(bits_of(fused_multiply_add(c, 2.0F, 0x1p23F)),
                                                     bits_of(add(c, 0x1p23F + 2.0F)),
                                                     bits_of(fused_multiply_add(c, kTenth, 0x1p23F + 6.0F))));
  }
  // Numbers of base 16 by multiply-add; what lies on top of the codes adds up to one known number.
  constexpr std::uint32_t kOnTop = 0xFB000000U;  // 0x4B000000 (1 + 16 + ... + 16^7) modulo 2^32
  const std::uint32_t low = (code[3] * 16 + code[2]) * 256 + (code[1] * 16 + code[0]);
  const std::uint32_t high = (code[7] * 16 + code[6]) * 256 + (code[5] * 16 + code[4]);
  return high * 65536 + low - kOnTop;
}

/// The same with the signs of y.
template <bool clamps>
FWHT_WARP_CODE std::uint32_t e2m1_codes(const float (&y)[8], float factor) {
  const std::uint32_t even = gather_bytes<3>(bits_of(y[0]), bits_of(y[2]), bits_of(y[4]), bits_of(y[6]));
  const std::uint32_t odd = gather_bytes<3>(bits_of(y[1]), bits_of(y[3]), bits_of(y[5]), bits_of(y[7]));
  return e2m1_magnitudes<clamps>(y, factor) | (odd & 0x80808080U) | (even >> 4 & 0x08080808U);
}

}  // namespace fwht::encoder
