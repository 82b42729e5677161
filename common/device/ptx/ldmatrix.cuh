// Loading 8x8 matrices of 16-bit elements as fragments (PTX ISA, "ldmatrix").
#pragma once

#include <cstdint>

namespace fwht::ptx {

/// ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16: matrix q, transposed, to words[q]. Lane 8q + i gives the
/// shared address of its row i (16 bytes); half h of what a lane gets is row b_row(lane, 0, h), element
/// b_column(lane). sm_75.
__device__ inline void ldmatrix_x4_trans(std::uint32_t (&words)[4], std::uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(row_address)
               : "memory");
}

}  // namespace fwht::ptx
