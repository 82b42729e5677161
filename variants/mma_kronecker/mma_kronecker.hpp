// mma_kronecker: how rows are cut, and the index maps that the kernel and its host test share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/contract/operator.hpp"
#include "common/contract/variant.hpp"
#include "common/host/bits.hpp"
#include "variants/kit/box_vectors.hpp"
#include "variants/kit/matrix_rows.hpp"

namespace fwht::mma_kronecker {

extern const Variant variant;

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device);

using rows::box_byte;
using rows::Shape;

/// What kernels are compiled for: columns of a row as a matrix. Rows of fewer than kTileColumns share a tile.
inline constexpr int kColumns[] = {16, 32, 64, 128, 256};
inline constexpr int kTileColumns = 128;
/// With a second matrix: columns, and its order with Sylvester's behind it.
struct TwoMatrices {
  int columns, second;
  bool operator==(const TwoMatrices&) const = default;
};
inline constexpr TwoMatrices kTwoMatrices[] = {{144, 72}, {224, 56}};
/// Narrower tiles, of 64 or 32 columns, for orders beyond kMostWideOrder: few rows reach more multiprocessors
/// with them, and where a wide tile would be alone on a multiprocessor, the next of them is on its way.
struct NarrowTile {
  int columns;  ///< of a row
  int rows;     ///< of the problem
  int blocks;   ///< see Cut::blocks_at_once
  bool operator==(const NarrowTile&) const = default;
};
inline constexpr NarrowTile kNarrowTiles[] = {{16, 4, 1}, {32, 2, 1}, {64, 1, 1}, {16, 2, 2}, {32, 1, 2}};
inline constexpr int kMostWideOrder = 192;  // up to this rows are `warp_kronecker`'s, or in wide tiles

/// Warps of a block that registers allow, by the columns whose sums a warp holds at once, two a thread. Those
/// of narrow tiles may be as many as the product of the largest order has blocks of 16 rows.
constexpr int most_warps(int columns_at_once) {
  return columns_at_once > kTileColumns ? 8 : columns_at_once == kTileColumns ? 16 : 28;
}
/// Threads that the registers of a kernel of rows are limited for. With 256 columns the compiler would take
/// 176 and more, of which a multiprocessor holds eight warps; of 168 it holds twelve. Behind a dense factor
/// that would spill.
constexpr int bounded_threads(int columns_at_once, bool dense) {
  return columns_at_once == 256 && !dense ? 384 : 32 * most_warps(columns_at_once);
}
constexpr int rows_of_tile(int columns) {
  return std::max(1, kTileColumns / columns);
}
constexpr Shape shape_of(int order, int columns, int second = 1) {
  return {order, columns, rows_of_tile(columns), second};
}

constexpr int line_of(int columns) {
  return shape_of(16, columns).line();
}

/// What leaves a kernel. Codes are worked out of staged boxes, 16 rows of X: one by one, or, under a scale of
/// the whole row, when all boxes of the tile are staged.
enum class Results : std::uint8_t { rows, codes_of_groups, codes_of_rows };

Results results_of(const Encoding& encoding);

/// The matrices of an operator: one of signs, two of them, or a dense one.
enum class Matrices : std::uint8_t { one, two, dense };

/// How an operator is served: its rows as matrices, and the factor on the slow index.
struct Cut {
  Shape shape;
  Factor slow, second{Basis::sylvester, 1};
  Results results = Results::rows;
  int blocks_at_once = 1;  ///< of 16 rows of the product, that a warp makes with one reading of the tile
  bool operator==(const Cut&) const = default;

  constexpr int blocks() const { return shape.k_steps(); }
  /// What warps have a share of, in as many passes as it takes.
  constexpr int shares() const { return (blocks() + blocks_at_once - 1) / blocks_at_once; }
  constexpr int passes(int warps) const { return (shares() + warps - 1) / warps; }
  constexpr int columns_at_once() const { return shape.tile_columns() * blocks_at_once; }
  bool is_narrow() const { return shape.tile_columns() < kTileColumns; }
  bool is_dense() const { return slow.basis == Basis::dense; }
  Matrices matrices() const {
    if (is_dense()) return Matrices::dense;
    return shape.second > 1 ? Matrices::two : Matrices::one;
  }
  /// Words of the fragments of a dense factor.
  int fragment_words() const { return is_dense() ? 128 * shape.k_steps() * shape.k_steps() : 0; }
  /// Codes: boxes that are staged apart from the tile. In one pass none are: each lies where the tile had
  /// one, when all warps have read it.
  constexpr int staged_boxes(int warps) const {
    if (passes(warps) == 1) return 0;
    return results == Results::codes_of_rows ? blocks() : warps;
  }
  /// Codes of rows: the largest |y| that each box has of each row of the tile.
  constexpr int maxima_bytes() const {
    return results == Results::codes_of_rows ? 4 * blocks() * shape.rows : 0;
  }
  /// `slots` tiles, then what is staged, then the second matrix, then the maxima.
  int shared_bytes(int warps, int slots) const;
  /// With as many warps as need least.
  int fewest_shared_bytes() const;
};

/// The threads of a block, and the tiles that it keeps.
struct Team {
  int warps = 1, slots = 1, blocks_per_sm = 0;
  bool operator==(const Team&) const = default;
};

/// Thread blocks on a multiprocessor by warps and bytes of shared memory; 0 where none fits.
using Resident = std::function<int(int warps, int shared_bytes)>;

/// The team of the fewest passes that keeps nearly as many warps of a multiprocessor at work as any, in
/// blocks enough to pass loads and barriers of one under the work of others. With a tile for each
/// multiprocessor or fewer, the one of the fewest passes. No blocks where none fits.
Team team_for(const Cut& cut, const Resident& resident, std::int64_t tiles, int multiprocessors);

/// The cut of F_m (x) S, or of F_m (x) S (x) H_f (x) S for one of kTwoMatrices: that of the least work by an
/// estimate, whatever the device. None where there is no cut, or where the operator is another one. Sylvester
/// alone is cut, too.
std::optional<Cut> cut_for(const Operator& op);

/// The tiles that such rows may come in: the cut itself, or narrow ones in its place, widest first. In all
/// of them rows are worked out alike, bit for bit.
std::vector<Cut> tilings_of(const Cut& cut);
/// The one for so many rows.
Cut tiling_for(const Cut& cut, std::int64_t rows, int multiprocessors);

// ---- index maps
//
// A tile is one box of 16 rows of X, all columns, for each k step. The staging of a warp is a box of kChunk
// columns. A `piece` is 8 columns, 16 bytes; lanes take 32 of them at once, `i` of them have gone before.
//
// Where a lane's address depends on both i and the lane, it is (address of i = 0 ^ flip) + offset, of which
// the latter two are known when the kernel is compiled.

/// Columns that a warp stages at once: whole lines, 64 columns at most, so many that they divide a tile's.
constexpr int chunk_of(const Shape& shape) {
  const int line = shape.line(), lines = shape.tile_columns() / line;
  int together = 64 / line;
  while (lines % together != 0)
    --together;
  return together * line;
}
constexpr int staging_bytes(const Shape& shape) {
  return 16 * chunk_of(shape) * 2;
}

struct Displacement {
  int flip, offset;
  constexpr int from(int first) const { return (first ^ flip) + offset; }
};

/// Load: pieces of a box in the order of memory, row by row of the problem. Where columns are not 2^k, lanes
/// would change rows in the middle, so that pieces go line by line of shared memory instead, 16 rows of each.
/// The row of the problem within the tile; the row of X within the box; bytes behind the box's first element
/// of that row, a lane's and what follows for i; the byte in the box.
constexpr bool loads_in_order(int columns) {
  return is_power_of_two(columns);
}
constexpr int loaded_row(int columns, int i) {
  return loads_in_order(columns) ? i / (2 * columns) : 0;
}
constexpr int loaded_line(int columns, int i, int lane) {
  if (!loads_in_order(columns)) return (i + lane) / (line_of(columns) / 8) % 16;
  return (i % (2 * columns) + lane) / (columns / 8);
}
constexpr int loaded_from(int columns, int lane) {
  if (loads_in_order(columns)) return 16 * lane;
  return 2 * columns * loaded_line(columns, 0, lane) + 16 * (lane % (line_of(columns) / 8));
}
constexpr int loaded_bytes(int columns, int i) {
  if (loads_in_order(columns)) return 16 * (i % (2 * columns));
  const int line = line_of(columns);
  return 2 * columns * loaded_line(columns, i, 0) + i / (2 * line) * (2 * line);
}
constexpr int loaded_first(int columns, int lane) {
  const int pieces = (loads_in_order(columns) ? columns : line_of(columns)) / 8;
  return box_byte(loaded_line(columns, 0, lane), lane % pieces, line_of(columns));
}
constexpr Displacement loaded_place(int columns, int i) {
  const int row = loaded_line(columns, i, 0), line = line_of(columns);
  const int lines = loads_in_order(columns) ? loaded_row(columns, i) * (columns / line) : i / (2 * line);
  return {rows::swizzle(row, line) << 4, row * 2 * line + lines * (16 * 2 * line)};
}

/// Stage 1: byte of a box that a lane gives to ldmatrix for column tiles 0 and 1, rows 0-7 and 8-15 of each,
/// and from there for column tiles `tile`, an even number, and `tile` + 1.
constexpr int operand_first(int columns, int lane) {
  return box_byte(lane & 15, lane >> 4, line_of(columns));
}
constexpr Displacement operand_place(int columns, int tile) {
  const int pieces = line_of(columns) / 8;
  return {tile % pieces << 4, tile / pieces * (16 * 16 * pieces)};
}

/// Store, in: byte of the staging to which a lane writes accumulators 0 and 1 of a chunk's column tile 0, and
/// from there of `tile`, with `half` accumulators 2 and 3, eight rows below.
constexpr int staged_first(int columns, int lane) {
  return box_byte(lane >> 2, 0, line_of(columns)) + 4 * (lane & 3);
}
constexpr Displacement staged_place(int columns, int tile, int half) {
  const int line = line_of(columns), pieces = line / 8;
  return {(tile % pieces ^ rows::swizzle(8 * half, line)) << 4,
          tile / pieces * (16 * 2 * line) + 8 * half * 2 * line};
}
/// Codes, in: the same in a whole box, which is staged as box_vectors.hpp says.
constexpr int boxed_first(int columns, int lane) {
  if (rows::lies_in_lines(columns)) return staged_first(columns, lane);
  const int row = lane >> 2;
  return 2 * row * columns + (rows::swizzle(row, line_of(columns)) << 4) + 4 * (lane & 3);
}
constexpr Displacement boxed_place(int columns, int tile, int half) {
  if (rows::lies_in_lines(columns)) return staged_place(columns, tile, half);
  const int line = line_of(columns), pieces = line / 8;  // eight rows below, pieces are exchanged alike
  return {tile % pieces << 4, tile / pieces * 2 * line + 16 * half * columns};
}
/// Store, out: a lane's piece at byte 16 (i + lane) of the staging, of the chunk from tile column `first` on.
/// The row of the problem within the tile; the row of X within the box; the byte from the first element of
/// the box.
constexpr int sent_row(int columns, int first, int i) {
  return (first + i / (2 * line_of(columns)) * line_of(columns)) / columns;
}
constexpr int sent_line(int columns, int i, int lane) {
  return (i + lane) / (line_of(columns) / 8) % 16;
}
constexpr int sent_first(int columns, int lane) {
  const int line = line_of(columns), pieces = line / 8, row = lane / pieces;
  return 2 * row * columns + 16 * (lane % pieces ^ rows::swizzle(row, line));
}
constexpr Displacement sent_place(int columns, int first, int i) {
  const int line = line_of(columns), row = sent_line(columns, i, 0);
  return {rows::swizzle(row, line) << 4, 2 * (row * columns + (first + i / (2 * line) * line) % columns)};
}

inline int Cut::shared_bytes(int warps, int slots) const {
  const int staged =
      results == Results::rows ? warps * staging_bytes(shape) : staged_boxes(warps) * shape.box_bytes();
  return slots * shape.tile_bytes() + staged + 4 * rows::second_words(shape.second) + maxima_bytes();
}

}  // namespace fwht::mma_kronecker
