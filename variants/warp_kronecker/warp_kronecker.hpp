// warp_kronecker: how rows are cut, the launches, and the index maps that the kernel and its host test share.
#pragma once

#include <cstddef>
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

/// Columns of X that a warp holds: eight vectors of 16 bytes, one for each column of a product.
inline constexpr int kColumns = 64;
/// Rows of X that registers hold: seven k steps.
inline constexpr int kMostOrder = 112;

/// A row of the problem as a matrix X of `order` rows and 64 `halves` columns, and the factor on its slow
/// index.
struct WarpCut {
  int order = 0, halves = 1;
  Factor slow;

  constexpr rows::Shape shape() const { return {order, kColumns * halves}; }
  constexpr int k_steps() const { return shape().k_steps(); }
};

/// The cut of a named matrix times 2^k, 2^k at least 64: 64 columns where registers hold their rows, else
/// 128. None where there is no launch, or where the operator is another one.
std::optional<WarpCut> cut_for(const Operator& op);

/// What a kernel is compiled for.
struct WarpLaunch {
  int k_steps;   ///< 16 rows of X each; a warp holds all of them
  int halves;    ///< warps that hold a row side by side, 64 columns each
  int teams;     ///< of `halves` warps, which all hold the whole row and share the blocks of the product
  int together;  ///< blocks of 16 rows of the product that a warp makes at once
  bool operator==(const WarpLaunch&) const = default;

  constexpr bool serves(const WarpCut& cut) const { return k_steps == cut.k_steps() && halves == cut.halves; }
  constexpr int warps_per_row() const { return halves * teams; }
  constexpr int rounds() const { return (k_steps + together - 1) / together; }
  /// Warps that share a row have a block to themselves, so that its barrier is theirs. Other blocks are
  /// small, so that few rows spread and registers go out in small parts; of one step two warps, so that
  /// blocks start fast enough.
  constexpr int rows_per_block() const { return warps_per_row() > 1 || k_steps == 2 || k_steps == 3 ? 1 : 2; }
  /// Rows for each multiprocessor up to which a launch is the fastest, on an H200. Two rows of two warps each
  /// leave every scheduler one warp.
  constexpr int most_rows_per_multiprocessor() const {
    if (teams == 1) return std::numeric_limits<int>::max();
    return k_steps == 2 ? 12 : teams == 2 ? 2 : 1;
  }
  constexpr int threads() const { return 32 * warps_per_row() * rows_per_block(); }
  /// Blocks on a multiprocessor that the compiler saves registers for: sixteen warps of 128, or twelve of
  /// 168. Of seven steps eight warps fit, however it saves.
  constexpr int resident_blocks() const {
    if (teams > 1) return 1;
    return k_steps == 4 ? 16 * 32 / threads() : k_steps == 5 || k_steps == 6 ? 12 * 32 / threads() : 1;
  }
  /// fp32 words in which two halves exchange sums, twice, so that one round's barrier frees the other's.
  constexpr int exchange_words() const { return halves == 1 ? 0 : 2 * halves * 16 * 32; }
};

/// Of each number of steps and halves the launches for few rows first: several warps share a row and read it
/// through the L1. With one block each from five steps on, registers allow too few of them. Then many rows,
/// one warp each, or two: nothing is read twice. Up to three steps all blocks are made at once, which covers
/// the latency of products best; beyond, registers hold the sums of one.
inline constexpr WarpLaunch kLaunches[] = {
    {1, 1, 1, 1}, {2, 1, 2, 1}, {2, 1, 1, 2}, {3, 1, 3, 1}, {3, 1, 2, 2}, {3, 1, 1, 3}, {4, 1, 2, 2},
    {4, 1, 1, 1}, {5, 1, 3, 1}, {5, 1, 2, 3}, {5, 1, 1, 1}, {6, 1, 3, 1}, {6, 1, 2, 3}, {6, 1, 1, 1},
    {7, 1, 4, 1}, {7, 1, 2, 1}, {7, 1, 1, 1}, {5, 2, 1, 1}, {6, 2, 1, 1}, {7, 2, 1, 1}};

WarpLaunch launch_for(const WarpCut& cut, std::int64_t rows, int multiprocessors);

// ---- index maps

/// Load: a lane's vector `i` (0..3) of step `step` is one of 8 columns in this row of X: the rows that
/// operand B wants of the lane. It begins with this byte of the row of the problem.
constexpr int loaded_line(int step, int i, int lane) {
  return 16 * step + ptx::b_row(lane, i / 2, i % 2);
}
constexpr int vector_byte(int halves, int line, int half, int vector) {
  return 2 * kColumns * (halves * line + half) + 16 * vector;
}
constexpr int loaded_byte(int halves, int step, int i, int half, int lane) {
  return vector_byte(halves, loaded_line(step, i, lane), half, ptx::b_column(lane));
}

/// Stage 2: the vector, b3-b5, that column `column` of the last product is. In this order a lane's two
/// results of a row are vectors q and q + 4, so that four lanes store 64 consecutive bytes.
constexpr int vector_of_column(int column) {
  return column / 2 + 4 * (column % 2);
}
/// The lane whose sylvester_fragment is this lane's operand B for it.
constexpr int lane_of_fragment(int lane) {
  return 4 * vector_of_column(ptx::b_column(lane)) + (lane & 3);
}

/// Store: the row of X, the half and the vector that a lane has its sums `i` (0..3) of, of a block. Of two
/// halves, each has taken eight of the block's rows, all columns.
constexpr int stored_line(int halves, int block, int i, int half, int lane) {
  return 16 * block + (halves == 1 ? ptx::d_row(lane, i) : ptx::d_row(lane, 2 * half));
}
constexpr int stored_half(int halves, int i) {
  return halves == 1 ? 0 : i / 2;
}
constexpr int stored_vector(int i, int lane) {
  return vector_of_column(ptx::d_column(lane, i));
}
constexpr int stored_byte(int halves, int block, int i, int half, int lane) {
  return vector_byte(halves, stored_line(halves, block, i, half, lane), stored_half(halves, i),
                     stored_vector(i, lane));
}

/// Exchange: first of four fp32 words of a lane, sums of columns 2 `pair` and 2 `pair` + 1 (b0-b2), which
/// `half` sends. 512 bytes of 32 lanes lie side by side.
constexpr int exchanged_word(int round, int half, int pair, int lane) {
  return (((round % 2) * 2 + half) * 4 + pair) * 128 + 4 * lane;
}

}  // namespace fwht::warp_kronecker
