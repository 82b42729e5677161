// w4a16_pipelined: layout of the packed weights and division of the work, shared by packer, kernel and host tests.
#pragma once

#include <cstdint>

namespace fwht::linear::pipelined {

/// A warp's unit of work, one step: 16 outputs (a tile) times 128 k.
inline constexpr int kTileOutputs = 16, kStepK = 128;
inline constexpr int kStepBytes = kTileOutputs * kStepK / 2;
/// A step's scales: one pair (outputs r and r + 8) for each of 8 rows and each group inside the step.
inline constexpr int kScaleBytes = 32, kZeroBytes = 8;

/// Where the nibble of (row of the tile, k of the step) lies. Lane l holds one 16-byte vector for each half of
/// the step; a word of it is operand A of one m16n8k16 multiply. Inside 32 k the order is 8 t + j, t = lane % 4,
/// so that a lane reads eight neighbouring x as operand B of two multiplies.
struct NibblePlace {
  int vector;  ///< 0 or 1: half of the step
  int lane, word, shift;
  constexpr bool operator==(const NibblePlace&) const = default;
};
constexpr NibblePlace nibble_place(int row, int k) {
  const int block = k / 32, t = k % 32 / 8, j = k % 8;
  constexpr int kShift[4] = {0, 16, 8, 24};  // the pairs (0, 1) and (2, 3) are the halves of two registers
  return {block / 2, row % 8 * 4 + t, block % 2 * 2 + j / 4, kShift[j % 4] + (row >= 8 ? 4 : 0)};
}

/// Bytes of the three parts for `tiles` tiles of `steps` steps with `scales` groups in a step:
/// words[tile][step][vector][lane], scales[tile][step][row][group] (half2), zeros[tile][step][row][group] (bytes).
struct Layout {
  std::int64_t tiles = 0, steps = 0;
  int scales = 1;

  constexpr std::int64_t word_bytes() const { return tiles * steps * kStepBytes; }
  constexpr std::int64_t scale_bytes() const { return tiles * steps * scales * kScaleBytes; }
  constexpr std::int64_t zero_bytes() const { return (tiles * steps * scales * kZeroBytes + 15) / 16 * 16; }
  constexpr std::int64_t scales_at() const { return word_bytes(); }
  constexpr std::int64_t zeros_at() const { return scales_at() + scale_bytes(); }
  constexpr std::int64_t bytes() const { return zeros_at() + zero_bytes(); }
};

/// What a kernel is compiled for, and with it how a layer is cut. A block owns tiles() tiles and all of k, so that no sum
/// leaves it. Its warps are `row_warps` groups of `tiles_per_warp` tiles times `k_warps` shares of k.
struct Form {
  int tokens = 8;  ///< of a block: a multiple of 8
  int tiles_per_warp = 1, row_warps = 1, k_warps = 8;
  int ahead = 2;  ///< steps of weights under way in a warp's registers
  int blocks_per_sm = 4;
  constexpr bool operator==(const Form&) const = default;

  constexpr int tiles() const { return tiles_per_warp * row_warps; }
  constexpr int threads() const { return 32 * row_warps * k_warps; }
  /// Distance of two tokens of the sums in shared memory, in numbers.
  constexpr int sums_pitch() const { return tiles() * kTileOutputs + 8; }
  constexpr int shared_bytes() const { return k_warps * tokens * sums_pitch() * 4; }
};

/// The forms that are compiled; see form_for.
inline constexpr Form kForms[] = {{8, 1, 1, 8, 2, 4}, {16, 2, 1, 8, 2, 2}, {32, 2, 1, 8, 2, 1}};

/// The first step of a share of k; the share ends where the next one begins. Shares differ by one step at most.
constexpr std::int64_t first_step(std::int64_t steps, int k_warps, int share) {
  return steps * share / k_warps;
}

}  // namespace fwht::linear::pipelined
