// Two numbers of 16 bits in a word. One PTX instruction, one function. sm_80.
#pragma once

#include <cstdint>

#include "common/contract/dtype.hpp"

namespace fwht::ptx {

/// fma.rn.bf16x2 (PTX ISA, "Half Precision Floating Point Instructions: fma"): a b + c, rounded once.
__device__ inline std::uint32_t fma_rn_bf16x2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

/// fma.rn.f16x2 (same chapter): a b + c, rounded once.
__device__ inline std::uint32_t fma_rn_f16x2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t d;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

/// a b, rounded once: fma.rn with -0, because mul.bf16x2 asks for sm_90.
template <Dtype dtype>
__device__ inline std::uint32_t mul_rn_x2(std::uint32_t a, std::uint32_t b) {
  constexpr std::uint32_t kMinusZeros = 0x80008000U;
  return dtype == Dtype::bf16 ? fma_rn_bf16x2(a, b, kMinusZeros) : fma_rn_f16x2(a, b, kMinusZeros);
}

/// add.rn.f16x2 (same chapter).
__device__ inline std::uint32_t add_rn_f16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t d;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

/// max.bf16x2, max.f16x2 (same chapter): of a number and a NaN, the number.
template <Dtype dtype>
__device__ inline std::uint32_t max_x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t d;
  if constexpr (dtype == Dtype::bf16) {
    asm("max.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  } else {
    asm("max.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  }
  return d;
}

/// abs.bf16x2, abs.f16x2 (same chapter).
template <Dtype dtype>
__device__ inline std::uint32_t abs_x2(std::uint32_t a) {
  std::uint32_t d;
  if constexpr (dtype == Dtype::bf16) {
    asm("abs.bf16x2 %0, %1;" : "=r"(d) : "r"(a));
  } else {
    asm("abs.f16x2 %0, %1;" : "=r"(d) : "r"(a));
  }
  return d;
}

/// max.xorsign.abs.bf16x2, max.xorsign.abs.f16x2 (same chapter): the larger magnitude; its sign is that of a
/// b. Below sm_86 the sign is plus.
template <Dtype dtype>
__device__ inline std::uint32_t max_xorsign_abs_x2(std::uint32_t a, std::uint32_t b) {
#if __CUDA_ARCH__ >= 860
  std::uint32_t d;
  if constexpr (dtype == Dtype::bf16) {
    asm("max.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  } else {
    asm("max.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  }
  return d;
#else
  return max_x2<dtype>(abs_x2<dtype>(a), abs_x2<dtype>(b));
#endif
}

/// cvt.f32.f16 (PTX ISA, "Data Movement and Conversion Instructions: cvt") of both halves.
__device__ inline void cvt_f32_f16x2(std::uint32_t pair, float& low, float& high) {
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
      : "=f"(low), "=f"(high)
      : "r"(pair));
}

}  // namespace fwht::ptx
