// The arithmetic of quantizers on the device, and the same on the host for its tests: IEEE operations that no
// compiler contracts, and quotients that cost less than a division.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "common/contract/dtype.hpp"
#include "variants/kit/warp_program.hpp"

namespace fwht::encoder {

FWHT_WARP_CODE std::uint32_t bits_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
FWHT_WARP_CODE float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

/// One rounding each: nvcc would contract a * b + c, and with it drop the rounding of the product.
FWHT_WARP_CODE float multiply(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
FWHT_WARP_CODE float add(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}
FWHT_WARP_CODE float fused_multiply_add(float a, float b, float c) {
  return fmaf(a, b, c);
}
FWHT_WARP_CODE float divide(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

/// The larger number; of a number and a NaN, the number.
FWHT_WARP_CODE float larger(float a, float b) {
#ifdef __CUDA_ARCH__
  return fmaxf(a, b);
#else
  return a < b || a != a ? b : a;  // fmaxf makes a NaN of one that signals
#endif
}
/// The smaller number; b where a is NaN.
FWHT_WARP_CODE float smaller(float a, float b) {
#ifdef __CUDA_ARCH__
  return fminf(a, b);
#else
  return a < b ? a : b;            // fminf makes a NaN of one that signals
#endif
}

/// Reciprocal within one unit in the last place (PTX ISA, rcp.approx.ftz.f32), for 2^-120 < |x| < 2^120.
FWHT_WARP_CODE float approximate_reciprocal(float x) {
#ifdef __CUDA_ARCH__
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
#else
  return 1.0F / x;
#endif
}

/// 1 / x correctly rounded, from an approximation that is at most one unit in the last place off: the first
/// step may leave that where it was, the second does not. Only for the significand of 2 - 2^-23 (Markstein's
/// exception) must the approximation be exact, as the hardware's is.
FWHT_WARP_CODE float corrected_reciprocal(float x, float r) {
  const float better = fused_multiply_add(r, fused_multiply_add(-x, r, 1.0F), r);
  return fused_multiply_add(better, fused_multiply_add(-x, better, 1.0F), better);
}

/// a / b correctly rounded, from r = 1 / b correctly rounded, where nothing leaves the range of normal
/// numbers. The residual has the sign that keeps -0 / b = -0.
FWHT_WARP_CODE float quotient(float a, float b, float r) {
  const float q = multiply(a, r);
  const float excess = fused_multiply_add(q, b, -a);
  return fused_multiply_add(-excess, r, q);
}

/// fp16 bits of x, rounded to nearest even; and the number that they are.
FWHT_WARP_CODE std::uint32_t f16_bits_of(float x) {
#ifdef __CUDA_ARCH__
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
#else
  return float_to_f16(x);
#endif
}
FWHT_WARP_CODE float rounded_to_f16(float x) {
#ifdef __CUDA_ARCH__
  float rounded;
  asm("cvt.f32.f16 %0, %1;" : "=f"(rounded) : "h"(static_cast<std::uint16_t>(f16_bits_of(x))));
  return rounded;
#else
  return f16_to_float(float_to_f16(x));
#endif
}

/// Bytes of a and b (a's are 0..3, b's 4..7) by the four low hexadecimal digits of `selector`, low first.
FWHT_WARP_CODE std::uint32_t select_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
#ifdef __CUDA_ARCH__
  return __byte_perm(a, b, selector);
#else
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  std::uint32_t selected = 0;
  for (int i = 0; i < 4; ++i) {
    const auto byte = static_cast<std::uint32_t>(bytes >> (8 * (selector >> (4 * i) & 7U)) & 0xFFU);
    selected |= byte << (8 * i);
  }
  return selected;
#endif
}

/// Byte `which` of each of four words.
template <int which>
FWHT_WARP_CODE std::uint32_t gather_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                          std::uint32_t d) {
  constexpr std::uint32_t kPair = which | (which + 4) << 4;
  return select_bytes(select_bytes(a, b, kPair), select_bytes(c, d, kPair), 0x5410);
}

FWHT_WARP_CODE std::int32_t smallest_of(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const auto x = static_cast<std::int32_t>(a), y = static_cast<std::int32_t>(b),
             z = static_cast<std::int32_t>(c);
#ifdef __CUDA_ARCH__
  return __vimin3_s32(x, y, z);
#else
  const std::int32_t least = x < y ? x : y;
  return least < z ? least : z;
#endif
}

}  // namespace fwht::encoder
