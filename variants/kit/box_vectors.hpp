// Where a warp reads a box of results (matrix_rows.hpp) in the order of the row, for its codes.
#pragma once

#include "common/host/bits.hpp"
#include "variants/kit/matrix_rows.hpp"

namespace fwht::rows {

/// A box of 2^k columns lies as in a tile, in lines. Other columns have short lines, so that lanes with
/// pieces of one row would meet in few banks: such a box of results lies row after row, its pieces exchanged
/// as in lines.
constexpr bool lies_in_lines(int columns) {
  return is_power_of_two(columns);
}

/// Where a box is read eight elements at a time: it has 16 `columns` consecutive elements of row `row` of the
/// tile, in vectors of 256 that a warp holds. Byte of what a lane has of vector `v`.
constexpr int vector_byte(int columns, int line, int row, int v, int lane) {
  const int element = 256 * v + 8 * lane;
  if (!lies_in_lines(columns)) return (2 * element) ^ (swizzle(element / columns, line) << 4);
  return box_byte(element / columns, (row * columns + element % columns) / 8, line);
}
/// The same in lines, from that of row and vector 0: (byte ^ vector_flip) + vector_offset.
constexpr int vector_flip(int columns, int line, int v) {
  return swizzle(256 * v / columns, line) << 4;
}
constexpr int vector_offset(int columns, int line, int row, int v) {
  return row * columns * 2 * 16 + 256 * v / columns * 2 * line;
}

}  // namespace fwht::rows
