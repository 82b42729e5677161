// Storing 8x8 matrices of 16-bit elements from fragments (PTX ISA, "stmatrix"). Needs sm_90.
#pragma once

#include <cstdint>

namespace fwht::ptx {

/// stmatrix.sync.aligned.m8n8.x4.shared.b16: matrix q from words[q]; lane 8q + i gives the shared address of
/// its row i (16 bytes), which receives word t from lane 4i + t.
__device__ inline void stmatrix_x4(std::uint32_t row_address, const std::uint32_t (&words)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row_address),
               "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

/// The same with every matrix transposed: the row of lane 8q + i receives, as element r, half i % 2 of what
/// lane 4r + i / 2 has.
__device__ inline void stmatrix_x4_trans(std::uint32_t row_address, const std::uint32_t (&words)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row_address),
               "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

}  // namespace fwht::ptx
