// From eight 4-bit numbers in a word to operand A of m16n8k16: the exact integers q - z.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

#include "common/contract/dtype.hpp"
#include "common/device/ptx/pairs.cuh"

namespace fwht::linear {

/// (word & mask) | high in one instruction (PTX ISA, "Logic and Shift Instructions: lop3").
template <std::uint32_t mask, std::uint32_t high>
__device__ inline std::uint32_t mask_or(std::uint32_t word) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(result) : "r"(word), "n"(mask), "n"(high));
  return result;
}

__device__ inline float2 half2_to_float2(std::uint32_t word) {
  __half2 pair;
  memcpy(&pair, &word, sizeof pair);
  return __half22float2(pair);
}

/// What is subtracted on the way: the zero points of rows g and g + 8, as stored: 4 bits each.
template <Dtype dtype>
struct Zeros;

template <>
struct Zeros<Dtype::f16> {
  std::uint32_t low, high;  // -(1024 + z) of row g, -(64 + z) of row g + 8, twice each
  Zeros() = default;
  __device__ Zeros(std::uint32_t stored, int lowest) {
    low = (0xE400U + (stored & 15U) + lowest) * 0x10001U;
    high = (0xD400U + (((stored >> 4) + lowest) << 4)) * 0x10001U;
  }
};

template <>
struct Zeros<Dtype::bf16> {
  std::uint32_t low, high;  // -(128 + z) of rows g and g + 8, twice each
  Zeros() = default;
  __device__ Zeros(std::uint32_t stored, int lowest) {
    low = (0xC300U + (stored & 15U) + lowest) * 0x10001U;
    high = (0xC300U + (stored >> 4) + lowest) * 0x10001U;
  }
};

/// 0x6400 | q is 1024 + q in fp16, 0x6400 | q << 4 is 1024 + 16 q; add and multiply-add give q - z exactly.
__device__ inline void unpack_word(std::uint32_t word, const Zeros<Dtype::f16>& zeros,
                                   std::uint32_t (&a)[4]) {
  constexpr std::uint32_t kSixteenth = 0x2C002C00U;
  const std::uint32_t upper = word >> 8;
  a[0] = ptx::add_rn_f16x2(mask_or<0x000F000FU, 0x64006400U>(word), zeros.low);
  a[1] = ptx::fma_rn_f16x2(mask_or<0x00F000F0U, 0x64006400U>(word), kSixteenth, zeros.high);
  a[2] = ptx::add_rn_f16x2(mask_or<0x000F000FU, 0x64006400U>(upper), zeros.low);
  a[3] = ptx::fma_rn_f16x2(mask_or<0x00F000F0U, 0x64006400U>(upper), kSixteenth, zeros.high);
}

/// 0x4300 | q is 128 + q in bf16: only the lowest nibble fits its seven bits.
__device__ inline void unpack_word(std::uint32_t word, const Zeros<Dtype::bf16>& zeros,
                                   std::uint32_t (&a)[4]) {
  constexpr std::uint32_t kOne = 0x3F803F80U;
  a[0] = ptx::fma_rn_bf16x2(mask_or<0x000F000FU, 0x43004300U>(word), kOne, zeros.low);
  a[1] = ptx::fma_rn_bf16x2(mask_or<0x000F000FU, 0x43004300U>(word >> 4), kOne, zeros.high);
  a[2] = ptx::fma_rn_bf16x2(mask_or<0x000F000FU, 0x43004300U>(word >> 8), kOne, zeros.low);
  a[3] = ptx::fma_rn_bf16x2(mask_or<0x000F000FU, 0x43004300U>(word >> 12), kOne, zeros.high);
}

}  // namespace fwht::linear
