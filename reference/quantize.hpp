// Every recipe of common/contract/encoding.hpp in plain C++: the truth about codes and scales, and what they
// stand for. Each operation of a recipe is one IEEE fp32 operation (no contraction); conversions go by way of
// FP64. Nothing here is shared with kernels or host variants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/contract/problem.hpp"
#include "reference/hadamard.hpp"

namespace fwht::reference {

/// Nearest number of the format, ties to even, saturating; -0 keeps its sign. NaN gives 0x7F in e4m3 and +6
/// in e2m1 (the code 7), as the conversions of sm_100 do.
std::uint8_t to_e4m3(float value);
std::uint8_t to_e2m1(float value);
/// Nearest integer in [low, high], ties to even; NaN gives 0.
int to_integer(double value, int low, int high);

/// What codes stand for. e4m3 0x7F and 0xFF, and e8m0 255, are NaN. e2m1: the low four bits.
double from_e4m3(std::uint8_t code);
double from_e2m1(std::uint8_t code);
double from_e8m0(std::uint8_t code);

/// The scale of one group, as it is stored, and what its values are multiplied or divided by.
struct GroupScale {
  std::uint32_t stored = 0;  ///< bits of fp32 or fp16, or the byte
  float factor = 0.0F;
  bool divides = false;  ///< value / factor in place of value * factor
};
/// `largest` = max |y| of the group, NaN ignored (0 where there is nothing else).
/// An infinite one: the stored scale is infinite (e8m0: 255, e4m3: the largest); where it is, finite values
/// become zeros and infinite ones NaN. Reciprocals that overflow are FLT_MAX; of a zero scale, 0.
GroupScale scale_of(const Encoding& encoding, float largest, float tensor_scale = 1.0F);

/// The code of one value: the low code_bits() bits.
std::uint8_t code_of(const Encoding& encoding, const GroupScale& scale, float value);
/// What a code stands for under the stored scale.
double value_of(const Encoding& encoding, std::uint8_t code, std::uint32_t stored, float tensor_scale = 1.0F);

/// Codes and scales in the layout that the problem asks for. Bytes between rows and padding are zero.
struct Encoded {
  std::vector<std::byte> codes, scales;
};

/// Quantizes `values`: problem.rows rows of n numbers of `array.dtype`, array.row_stride elements apart. For
/// Intermediate::storage they are the plain result in problem.out.dtype, for f32 the result in f32.
Encoded quantize(const Problem& problem, const Array& array, const void* values, float tensor_scale = 1.0F,
                 int threads = 0);

/// rows x n: what codes and scales of the problem stand for.
Matrix dequantize(const Problem& problem, const void* codes, const void* scales, float tensor_scale = 1.0F,
                  int threads = 0);

}  // namespace fwht::reference
