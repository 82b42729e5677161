// Which cell of a matrix a register holds, for the warp-level products m16n8k16 and m16n8k8 with 16-bit
// operands (PTX ISA, "Warp-level matrix instructions", "Matrix Fragments for mma.m16n8k16" and "... for
// mma.m16n8k8"). Also for wgmma's m64nNk16 ("Asynchronous warpgroup-level matrix instructions", "Register
// Fragments for wgmma.mma_async.m64nNk16"). Plain index maps: the same functions serve kernels, emulations
// and host tests.
//
// lane = 4 g + t. A 32-bit register holds two 16-bit operands; half h = 0 is the lower half.
//
//   operand   shape     (lane, register, half) -> (row, column)   registers
//   A         16 x 16   (g + 8 (r mod 2), 2 t + h + 8 (r / 2))    r = 0..3
//             16 x 8    the same                                  r = 0, 1; m16n8k8
//   B         16 x 8    (2 t + h + 8 r, g)                        r = 0, 1
//             8 x 8     the same                                  r = 0; m16n8k8
//   C, D      16 x 8    (g + 8 (i / 2), 2 t + i mod 2)            fp32: i = 0..3; fp16: i = 2 r + h
//
// Two consequences carry the kernels. D rounded to 16 bits is the left half of an operand A, register by
// register. And D read as the upper half of an operand B is its transpose, because the roles of g and (t, h)
// are exchanged.
#pragma once

#include <cstdint>

namespace fwht::ptx {

constexpr int a_row(int lane, int r) {
  return (lane >> 2) + 8 * (r & 1);
}
constexpr int a_column(int lane, int r, int half) {
  return 2 * (lane & 3) + half + 8 * (r >> 1);
}

constexpr int b_row(int lane, int r, int half) {
  return 2 * (lane & 3) + half + 8 * r;
}
constexpr int b_column(int lane) {
  return lane >> 2;
}

/// Of fp32 accumulator `i`; half h of register r of an fp16 accumulator is i = 2 r + h.
constexpr int d_row(int lane, int i) {
  return (lane >> 2) + 8 * (i >> 1);
}
constexpr int d_column(int lane, int i) {
  return 2 * (lane & 3) + (i & 1);
}

/// Accumulator `i` of `thread` (0..127) of a wgmma, 64 x N: D of m16n8k16 for each of the four warps and each
/// eight columns. The A operand in registers is that of m16n8k16 for 16 rows a warp, too.
constexpr int wgmma_d_row(int thread, int i) {
  return 16 * (thread >> 5) + d_row(thread & 31, i & 3);
}
constexpr int wgmma_d_column(int thread, int i) {
  return 8 * (i >> 2) + d_column(thread & 31, i & 3);
}

inline constexpr std::uint32_t kBf16One = 0x3F80;

/// The 8 x 8 Sylvester matrix, `one` and its negative in either half: entries (g, 2 t) and (g, 2 t + 1). It
/// is symmetric: a block of operand A and of operand B alike. Fragments of larger matrices are this word,
/// negated where the upper bits of row and column share an odd number of ones.
constexpr std::uint32_t sylvester_fragment(std::uint32_t one, int lane) {
  const int row = b_column(lane), column = b_row(lane, 0, 0);
  constexpr std::uint32_t kParities = 0x96;  // bit i: parity of i < 8; without the slow population count
  const std::uint32_t low = kParities >> (row & column) & 1, high = low ^ (row & 1);
  return (one | low << 15) | (one | high << 15) << 16;
}

/// -I as the 8 x 8 bf16 operand B of m16n8k8: d += a (-I) takes the bf16 numbers a off an accumulator,
/// exactly where they are its leading bits.
constexpr std::uint32_t minus_identity_fragment(int lane) {
  constexpr std::uint32_t kMinusOne = 0xBF80;
  return (b_row(lane, 0, 0) == b_column(lane) ? kMinusOne : 0U) |
         (b_row(lane, 0, 1) == b_column(lane) ? kMinusOne << 16 : 0U);
}

}  // namespace fwht::ptx
