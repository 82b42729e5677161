// How the lanes of a warp share the signs of a box (matrix_rows.hpp).
#pragma once

#include <algorithm>

#include "variants/kit/matrix_rows.hpp"

namespace fwht::rows {

/// Lanes l and l + 16 have row l of a box. They take its columns by turns, `unit()` of them each, so that one
/// load brings the signs of a turn, and eight lanes of a half meet eight different pieces of 128 bytes.
struct SignUnits {
  int columns, tile_columns, line;  ///< see Shape
  int line_bytes = 16 * 2 * line;   ///< from one line of the box to the next

  constexpr int unit() const { return std::min(line, 32); }
  constexpr int pieces() const { return unit() / 8; }
  /// The last one is of lanes 0 to 15 alone where the number of units is odd.
  constexpr int turns() const { return (tile_columns / unit() + 1) / 2; }
  constexpr bool takes(int turn, int lane) const { return (2 * turn + lane / 16) * unit() < tile_columns; }
  /// Loads that are enough for all turns: rows that share a tile have the same signs.
  constexpr int words() const { return (columns / unit() + 1) / 2; }
  constexpr int word(int turn) const { return turn % words(); }
  /// The column of X that a word begins with.
  constexpr int column(int word, int lane) const { return (2 * word + lane / 16) * unit() % columns; }

  /// Where a lane's first piece of turn 0 lies in the box, and the others from there:
  /// (byte ^ flip(piece)) + offset(turn).
  constexpr int byte(int lane) const {
    const int half = lane / 16;
    return unit() < line ? box_byte(lane % 16, half * pieces(), line)
                         : box_byte(lane % 16, 0, line) + half * line_bytes;
  }
  static constexpr int flip(int piece) { return piece << 4; }
  constexpr int offset(int turn) const { return turn * (unit() < line ? line_bytes : 2 * line_bytes); }
};

}  // namespace fwht::rows
