// warp_kronecker: how rows are cut, the launches, and the index maps that the kernel and its host test share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "common/contract/operator.hpp"
#include "common/contract/variant.hpp"
#include "common/device/ptx/fragments.hpp"
#include "variants/kit/matrix_rows.hpp"

namespace fwht::warp_kronecker {

extern const Variant variant;

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device);

/// Columns that a warp holds: eight vectors of 16 bytes, one for each column of a product. Where X has more
/// columns, warps lie side by side; where it has fewer, rows of the problem do.
inline constexpr int kColumns = 64;
/// Words of 16 bytes that a row of a part takes in an exchange of many parts, with one that is empty.
inline constexpr int kQuadsOfRow = kColumns / 4 + 1;
/// Rows of X that a warp's registers hold: twelve k steps. In two parts eleven, as the exchange takes room.
inline constexpr int kMostOrder = 192, kMostOrderOfTwo = 176;

/// What a kernel is compiled for.
struct WarpLaunch {
  int k_steps;   ///< 16 rows of X each, that a warp holds
  int columns;   ///< of X: 16 to 1024
  int teams;     ///< that all hold the whole row and share the blocks of the product
  int together;  ///< blocks of 16 rows of the product that a warp makes at once
  bool operator==(const WarpLaunch&) const = default;

  constexpr bool serves(const rows::Shape& shape) const {
    return columns == shape.columns && k_steps == shape.k_steps();
  }
  /// Warps that hold a row side by side, 64 columns each.
  constexpr int parts() const { return columns > kColumns ? columns / kColumns : 1; }
  /// Four parts or more hand out all of their sums, so that each thread adds those of a few columns.
  constexpr bool hands_out() const { return parts() > 2; }
  /// Rows of the problem that lie side by side in a warp.
  constexpr int rows_per_warp() const { return columns < kColumns ? kColumns / columns : 1; }
  constexpr int warps_per_row() const { return parts() * teams; }
  constexpr int rounds() const { return (k_steps + together - 1) / together; }
  /// Whether rows of X of this step may lie behind the matrix.
  constexpr bool may_pass_matrix(int step) const { return step == k_steps - 1; }
  /// Warps that share a row have a block to themselves, so that its barrier is theirs. Other blocks are
  /// small, so that few rows spread and registers go out in small parts; of one step two warps, so that
  /// blocks start fast enough.
  constexpr int warps_per_block() const {
    return warps_per_row() > 1 ? warps_per_row() : k_steps == 2 || k_steps == 3 ? 1 : 2;
  }
  constexpr int rows_per_block() const { return warps_per_block() / warps_per_row() * rows_per_warp(); }
  /// Rows for each multiprocessor up to which a launch is the fastest, on an H200. Two rows of two warps each
  /// leave every scheduler one warp. Of many parts the last step is full enough for this order of X, or few
  /// rows alone are sooner than by half the columns. Twelve steps of four rows side by side spill the least
  /// where two warps share the sums.
  constexpr int most_rows_per_multiprocessor(int order) const {
    constexpr int kAny = std::numeric_limits<int>::max();
    if (hands_out()) {
      const bool half_empty = 16 * k_steps - order >= 8;
      if (k_steps == 2) return columns == 512 ? 8 : half_empty ? 2 : 32;
      return k_steps == 3 && half_empty && columns < 1024 ? 2048 / columns : kAny;
    }
    if (teams == 1 || (teams == 2 && k_steps == 12 && columns == 16)) return kAny;
    return (k_steps == 2 ? 12 : teams == 2 ? 2 : 1) * rows_per_warp();
  }
  constexpr int threads() const { return 32 * warps_per_block(); }
  /// Blocks on a multiprocessor that the compiler saves registers for: sixteen warps of 128, or twelve of
  /// 168. From seven steps on eight warps fit, however it saves.
  constexpr int resident_blocks() const {
    if (hands_out()) return std::max(1, (k_steps <= 4 ? 16 : k_steps <= 6 ? 12 : 8) / parts());
    if (teams > 1 || k_steps < 4 || k_steps > 6) return 1;
    return (k_steps == 4 ? 16 : 12) * 32 / threads();
  }
  /// A round's words are free again at the next one's barrier where there are two such buffers. Sixteen parts
  /// have one, so that it fits any device.
  constexpr int exchange_buffers() const { return hands_out() && (rounds() == 1 || parts() == 16) ? 1 : 2; }
  /// fp32 words in which warps exchange sums. Two parts send each other half a block, more parts hand out all
  /// that they have made at once.
  constexpr int exchange_words() const {
    if (hands_out()) return exchange_buffers() * parts() * 16 * together * kQuadsOfRow * 4;
    return parts() == 2 ? 2 * 2 * 16 * 32 : 0;
  }
  /// Neighbouring columns of each part that a thread takes at once: 8, 4 or 2, as they go round.
  constexpr int taken_columns() const {
    const int share = 32 * together / parts();
    return share % 8 == 0 ? 8 : share % 4 == 0 ? 4 : 2;
  }
  constexpr int takes() const { return 32 * together / parts() / taken_columns(); }
};

/// In order of preference: a row goes to the first launch that serves it and takes so many rows. Many parts
/// come first, whose warps have the fewest steps. Then, of each number of steps and columns, those for few
/// rows: several warps share a row and read it through the L1. With one block each from five steps on,
/// registers allow too few of them. Then many rows, one warp each, or two: nothing is read twice. Up to three
/// steps all blocks are made at once, which covers the latency of products best; beyond, registers hold the
/// sums of one. So: many parts; of seven steps or fewer 64 columns, then two parts; of more the same; rows
/// side by side.
inline constexpr WarpLaunch kLaunches[] = {
    {2, 256, 1, 2},  {3, 256, 1, 1}, {2, 512, 1, 2}, {4, 256, 1, 1},  {3, 512, 1, 1},  {5, 256, 1, 1},
    {6, 256, 1, 1},  {4, 512, 1, 1}, {7, 256, 1, 1}, {3, 1024, 1, 1}, {5, 512, 1, 1},  {6, 512, 1, 1},
    {4, 1024, 1, 1}, {7, 512, 1, 1}, {1, 64, 1, 1},  {2, 64, 2, 1},   {2, 64, 1, 2},   {3, 64, 3, 1},
    {3, 64, 2, 2},   {3, 64, 1, 3},  {4, 64, 2, 2},  {4, 64, 1, 1},   {5, 64, 3, 1},   {5, 64, 2, 3},
    {5, 64, 1, 1},   {6, 64, 3, 1},  {6, 64, 2, 3},  {6, 64, 1, 1},   {7, 64, 4, 1},   {7, 64, 2, 1},
    {7, 64, 1, 1},   {5, 128, 1, 1}, {6, 128, 1, 1}, {7, 128, 1, 1},  {8, 64, 4, 1},   {8, 64, 2, 1},
    {8, 64, 1, 1},   {9, 64, 3, 1},  {9, 64, 2, 1},  {9, 64, 1, 1},   {10, 64, 4, 1},  {10, 64, 2, 1},
    {10, 64, 1, 1},  {11, 64, 4, 1}, {11, 64, 2, 1}, {11, 64, 1, 1},  {12, 64, 4, 1},  {12, 64, 2, 1},
    {12, 64, 1, 1},  {8, 128, 1, 1}, {9, 128, 1, 1}, {10, 128, 1, 1}, {11, 128, 1, 1}, {1, 32, 1, 1},
    {2, 32, 2, 1},   {2, 32, 1, 2},  {3, 32, 3, 1},  {3, 32, 1, 3},   {4, 32, 1, 1},   {5, 32, 1, 1},
    {6, 32, 1, 1},   {7, 32, 1, 1},  {8, 32, 4, 1},  {8, 32, 2, 1},   {8, 32, 1, 1},   {9, 32, 3, 1},
    {9, 32, 2, 1},   {9, 32, 1, 1},  {10, 32, 4, 1}, {10, 32, 2, 1},  {10, 32, 1, 1},  {11, 32, 4, 1},
    {11, 32, 2, 1},  {11, 32, 1, 1}, {12, 32, 4, 1}, {12, 32, 2, 1},  {12, 32, 1, 1},  {1, 16, 1, 1},
    {2, 16, 2, 1},   {2, 16, 1, 2},  {3, 16, 3, 1},  {3, 16, 1, 3},   {4, 16, 1, 1},   {5, 16, 1, 1},
    {6, 16, 1, 1},   {7, 16, 1, 1},  {8, 16, 4, 1},  {8, 16, 2, 1},   {8, 16, 1, 1},   {9, 16, 3, 1},
    {9, 16, 2, 1},   {9, 16, 1, 1},  {10, 16, 4, 1}, {10, 16, 2, 1},  {10, 16, 1, 1},  {11, 16, 4, 1},
    {11, 16, 2, 1},  {11, 16, 1, 1}, {12, 16, 4, 1}, {12, 16, 2, 1}};

/// Launches that are compiled together: a device that compiles PTX does so with all of an object when it
/// first uses one of its kernels.
inline constexpr int kObjectParts = 12;
constexpr int part_of_object(const WarpLaunch& launch) {
  if (launch.hands_out()) return launch.parts() == 4 ? 0 : 1;
  if (launch.parts() == 2) return 2;
  const int first = launch.columns == kColumns ? 3 : launch.columns == kColumns / 2 ? 6 : 9;
  return first + (launch.k_steps <= 4 ? 0 : launch.k_steps <= 8 ? 1 : 2);
}

/// A row of the problem as a matrix X, and the factor on its slow index.
struct WarpCut {
  rows::Shape shape;
  Factor slow;
};

/// The cut of a named matrix times 2^k that the launch serves. None where it serves none, or where the
/// operator is another one.
std::optional<WarpCut> cut_for(const Operator& op, const WarpLaunch& launch);

struct WarpChoice {
  WarpLaunch launch;
  WarpCut cut;
};
/// The first launch that serves the operator and so many rows. Every operator that one serves has one for any
/// number of rows.
std::optional<WarpChoice> choice_for(const Operator& op, std::int64_t rows, int multiprocessors);

/// Whether any number of rows has the same cut, and so the same bits of a row.
bool has_one_cut(const Operator& op);

// ---- index maps

/// A line, a row of X, has eight vectors in a warp, its slots: those of one row of the problem, or of several
/// rows one after the other.
constexpr int vectors_per_row(int columns) {
  return columns < kColumns ? columns / 8 : 8;
}
constexpr int row_of_slot(int columns, int slot) {
  return slot / vectors_per_row(columns);
}
/// The slot of a product's column. In this order a lane's two results of a row are slots q and q + 4, so that
/// four lanes store 64 consecutive bytes, of 16 columns two lanes 32. Rows of four vectors are in another: b3
/// is lane bit 0, as in rows of two, and b4 the register.
constexpr int slot_of_column(int columns, int column) {
  const int q = column / 2, r = column % 2;
  return vectors_per_row(columns) == 4 ? q % 2 + 2 * r + 4 * (q / 2) : q + 4 * r;
}
constexpr int vector_byte(int columns, int line, int part, int slot) {
  return 2 * columns * line + 2 * kColumns * part + 16 * (slot % vectors_per_row(columns));
}

/// Load: a lane's vector `i` (0..3) of step `step` is in this row of X: the rows that operand B wants of the
/// lane. Of 64 columns and more the slots are those of the product, which stage 2 puts in another order.
constexpr int loaded_line(int step, int i, int lane) {
  return 16 * step + ptx::b_row(lane, i / 2, i % 2);
}
constexpr int loaded_slot(int columns, int lane) {
  return columns < kColumns ? slot_of_column(columns, ptx::b_column(lane)) : ptx::b_column(lane);
}
/// Where it begins in its row of the problem.
constexpr int loaded_byte(int columns, int step, int i, int part, int lane) {
  return vector_byte(columns, loaded_line(step, i, lane), part, loaded_slot(columns, lane));
}

/// Stage 2 by a product: the lane whose sylvester_fragment is this lane's operand B for b3-b5.
constexpr int lane_of_fragment(int lane) {
  return 4 * slot_of_column(kColumns, ptx::b_column(lane)) + (lane & 3);
}

/// Store: the row of X, the part and the slot that a lane has its sums `i` (0..3) of, of a block. Of two
/// parts, each has taken eight of the block's rows, all columns.
constexpr int stored_line(int columns, int block, int i, int part, int lane) {
  return 16 * block + (columns <= kColumns ? ptx::d_row(lane, i) : ptx::d_row(lane, 2 * part));
}
constexpr int stored_part(int columns, int i) {
  return columns <= kColumns ? 0 : i / 2;
}
constexpr int stored_slot(int columns, int i, int lane) {
  return slot_of_column(columns, ptx::d_column(lane, i));
}
constexpr int stored_byte(int columns, int block, int i, int part, int lane) {
  return vector_byte(columns, stored_line(columns, block, i, part, lane), stored_part(columns, i),
                     stored_slot(columns, i, lane));
}

/// Exchange of two parts: first of four fp32 words of a lane, sums of columns 2 `pair` and 2 `pair` + 1
/// (b0-b2), which `part` sends. 512 bytes of 32 lanes lie side by side.
constexpr int exchanged_word(int round, int part, int pair, int lane) {
  return (((round % 2) * 2 + part) * 4 + pair) * 128 + 4 * lane;
}

/// More parts: first of four fp32 words, those of columns 4 `quad` .. of a part (quad 0..15), in this row of
/// the blocks that are made at once. A gap behind eight quads, and so rows of an odd number of them, keep
/// lanes that hand out and lanes that take in banks of their own.
constexpr int handed_word(const WarpLaunch& launch, int round, int part, int row, int quad) {
  const int buffer = round % launch.exchange_buffers(), rows = 16 * launch.together;
  return (((buffer * launch.parts() + part) * rows + row) * kQuadsOfRow + quad + quad / 8) * 4;
}
/// Handing out: the row and the first of two quads of a lane's sums `i` of block `b` of those at once.
constexpr int handed_row(int b, int i, int lane) {
  return 16 * b + ptx::d_row(lane, i);
}
constexpr int handed_quad(int i, int lane) {
  return 2 * slot_of_column(kColumns, ptx::d_column(lane, i));
}
/// Taking: the row of the blocks at once and the first column of every part that a thread of the block takes.
constexpr int taken_row(const WarpLaunch& launch, int take, int thread) {
  return (take * launch.threads() + thread) / (kColumns / launch.taken_columns());
}
constexpr int taken_column(const WarpLaunch& launch, int thread) {
  return thread % (kColumns / launch.taken_columns()) * launch.taken_columns();
}

}  // namespace fwht::warp_kronecker
