// How wgmma is told where an operand lies in shared memory. A plain function, which kernels and host tests
// share.
#pragma once

#include <cstdint>

namespace fwht::ptx {

/// Over how many bytes the 16-byte pieces of an operand are exchanged; the numbers are those of the field.
enum class Swizzle : std::uint8_t { none = 0, bytes_128 = 1, bytes_64 = 2, bytes_32 = 3 };

/// Matrix descriptor (PTX ISA, "Matrix Descriptor Format"): bits 0-13 start, 16-29 leading dimension byte
/// offset, 32-45 stride dimension byte offset, each in units of 16 bytes; bits 62-63 swizzle mode.
constexpr std::uint64_t matrix_descriptor(std::uint32_t shared_address, int leading_bytes, int stride_bytes,
                                          Swizzle swizzle = Swizzle::none) {
  return (std::uint64_t{shared_address & 0x3FFFFU} >> 4) | (std::uint64_t(leading_bytes >> 4) << 16) |
         (std::uint64_t(stride_bytes >> 4) << 32) | (std::uint64_t(swizzle) << 62);
}

}  // namespace fwht::ptx
