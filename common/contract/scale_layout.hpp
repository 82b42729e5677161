// Where the scales of an encoding lie: one function for the host and for device code.
//
// Scales form a matrix: one row per token, one column per group of elements of the token. Positions count
// scales (4, 2 or 1 bytes each, see scale_bytes()) from the start of the buffer.
#pragma once

#include <cstdint>

namespace fwht {

enum class ScaleLayout : std::uint8_t {
  row_major,  ///< row * columns + column, no padding
  /// Column after column, each padded to a multiple of 4 rows: 16 bytes of fp32, as tensor copies need
  /// (DeepGEMM on sm_90). Padding is not written.
  mn_major,
  /// One exponent byte per scale, four columns in one int32, words MN-major like the above (DeepGEMM on
  /// sm_100). Missing columns of the last word and missing rows are zero.
  packed,
  /// Tiles of 128 rows and 4 columns, 512 bytes each, the tiles of 128 rows one after another (cuBLAS,
  /// CUTLASS). Padding to whole tiles is zero.
  swizzled_128x4
};

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Position of the scale at (row, column) of a rows x columns matrix.
constexpr std::int64_t scale_position(ScaleLayout layout, std::int64_t row, std::int64_t column,
                                      std::int64_t rows, std::int64_t columns) {
  if (layout == ScaleLayout::mn_major) return column * round_up(rows, 4) + row;
  if (layout == ScaleLayout::packed) return 4 * ((column >> 2) * round_up(rows, 4) + row) + (column & 3);
  if (layout == ScaleLayout::swizzled_128x4) {
    const std::int64_t tile = (row >> 7) * round_up(columns, 4) / 4 + (column >> 2);
    return tile * 512 + (row & 31) * 16 + ((row >> 5) & 3) * 4 + (column & 3);
  }
  return row * columns + column;
}

/// Positions of the whole buffer, padding included.
constexpr std::int64_t scale_positions(ScaleLayout layout, std::int64_t rows, std::int64_t columns) {
  if (layout == ScaleLayout::mn_major) return columns * round_up(rows, 4);
  if (layout == ScaleLayout::packed) return round_up(columns, 4) * round_up(rows, 4);
  if (layout == ScaleLayout::swizzled_128x4) return round_up(rows, 128) * round_up(columns, 4);
  return rows * columns;
}

/// Whether padding, where there is any, must be zero.
constexpr bool padding_is_zero(ScaleLayout layout) {
  return layout == ScaleLayout::packed || layout == ScaleLayout::swizzled_128x4;
}

}  // namespace fwht
