// w4a16_pipelined: layout of the packed weights and division of the work, shared by packer, kernel and host
// tests.
#pragma once

#include <cstdint>

#include "common/contract/dtype.hpp"

namespace fwht::linear::pipelined {

/// A warp's unit of work, one step: 16 outputs (a tile) times 128 k.
inline constexpr int kTileOutputs = 16, kStepK = 128;
inline constexpr int kStepBytes = kTileOutputs * kStepK / 2;
/// A step's scales: one pair (outputs r and r + 8) for each of 8 rows and each group inside the step.
inline constexpr int kScaleBytes = 32, kZeroBytes = 8;

/// Where the nibble of (row of the tile, k of the step) lies. Lane l holds one 16-byte vector for each half
/// of the step; a word of it is operand A of one m16n8k16 multiply. Inside 32 k the order is 8 t + j, t =
/// lane % 4, so that a lane reads eight neighbouring x as operand B of two multiplies.
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
/// words[tile][step][vector][lane], scales[tile][step][row][group] (half2), zeros[tile][step][row][group]
/// (bytes).
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

/// Where number k of a step lies among the bytes of a stage of `tokens` tokens: operand B of wgmma, K-major,
/// in rows of 64 k whose vectors of 16 bytes are swizzled. Inside 32 k the order is that of the weights: word
/// (block, half) of lane t meets rows 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of its multiply.
constexpr int stage_word(int tokens, int token, int k) {
  const int block = k % 64 / 32, t = k % 32 / 8, half = k % 8 / 4, u = k % 4 / 2;
  const int vector = block * 4 + half * 2 + u;
  return k / 64 * (tokens * 128) + token * 128 + ((vector ^ (token % 8)) << 4) + t * 4 + k % 2 * 2;
}

/// Where number i of a slice of k lies among fp32 numbers that are rotated: a gap every 64, so that distances
/// of 8 and of 64 meet different banks. And the distances of two tokens, there and among 16-bit results, in
/// numbers.
constexpr int stage_place(int i) {
  return i + i / 64 * 8;
}
constexpr int stage_pitch(int slice) {
  return stage_place(slice);
}
constexpr int rotated_pitch(int slice) {
  return slice + 32;
}

/// How a layer is cut. A cluster of blocks owns tiles() tiles and
/// all of k, so that no sum leaves it. The warps of a block are `row_warps` groups of `tiles_per_warp` tiles
/// times `k_warps` shares of k.
struct Form {
  int tokens = 8;  ///< of a block: a multiple of 8
  int tiles_per_warp = 1, row_warps = 1, k_warps = 8;
  int ahead = 2;  ///< steps of weights under way in a warp's registers
  int blocks_per_sm = 4;
  int cluster = 1;       ///< blocks that share k
  bool x_first = false;  ///< x is asked for before the weights, where no launch is awaited
  bool wgmma = false;    ///< see wgmma_layer.cuh
  int x_stages = 0;      ///< there: steps of tokens in shared memory for each share of k
  bool rotates = false;  ///< tokens are multiplied by H first, see rotate_tokens.cuh
  int least_tiles = 1, most_tiles = 1 << 30;  ///< of the layers that it is meant for
  int most_scales = 4;                        ///< and their groups in a step
  constexpr bool operator==(const Form&) const = default;

  constexpr int tiles() const { return tiles_per_warp * row_warps; }
  /// Whether a token's sums are added in the same order.
  constexpr bool sums_as(const Form& other) const {
    return shares() == other.shares() && wgmma == other.wgmma;
  }
  constexpr bool needs_hopper() const { return cluster > 1 || wgmma; }
  constexpr int shares() const { return k_warps * cluster; }
  constexpr int threads() const { return 32 * row_warps * k_warps; }
  /// Distance of two tokens of the sums in shared memory, in numbers.
  constexpr int sums_pitch() const { return tiles() * kTileOutputs + 8; }
  constexpr int sums_bytes() const { return k_warps * tokens * sums_pitch() * 4; }
  /// Of a block whose slice of k has `slice` numbers. The sums take the place of the numbers that were
  /// rotated.
  constexpr int stage_bytes(int slice) const {
    const int stage = rotates ? tokens * stage_pitch(slice) * 4 : 0;
    return (stage > sums_bytes() ? stage : sums_bytes());
  }
  /// Of one step of tokens that wgmma reads.
  constexpr int stage_bytes_of_tokens() const { return tokens * kStepK * 2; }
  /// Of all of them and their barriers; they begin at a multiple of 1024.
  constexpr int stages_bytes_of_tokens() const {
    return 1024 + k_warps * x_stages * (stage_bytes_of_tokens() + 2 * 8);
  }
  constexpr int shared_bytes(int slice) const {
    const int bytes = stage_bytes(slice) + (rotates ? tokens * rotated_pitch(slice) * 2 : 0);
    const int stages = wgmma ? stages_bytes_of_tokens() : 0;
    return bytes > stages ? bytes : stages;
  }
};

/// The longest slice of k whose tokens fit in shared memory beside their rotated form.
inline constexpr int kMostSlice = 4096;

/// The forms that are compiled, by measured times; see form_for.
inline constexpr Form kForms[] = {
    {.tokens = 8, .k_warps = 16, .ahead = 1, .blocks_per_sm = 2, .x_first = true, .most_tiles = 256},
    {.tokens = 8, .tiles_per_warp = 4, .ahead = 1, .blocks_per_sm = 2, .least_tiles = 513, .most_scales = 1},
    {.tokens = 8, .ahead = 1},
    {.tokens = 16, .ahead = 1, .blocks_per_sm = 2, .most_tiles = 256},
    {.tokens = 16, .tiles_per_warp = 2, .ahead = 1, .blocks_per_sm = 2, .x_first = true, .most_tiles = 512},
    {.tokens = 16, .tiles_per_warp = 2, .k_warps = 4, .ahead = 1, .x_first = true},
    {.tokens = 32, .tiles_per_warp = 2, .ahead = 1, .blocks_per_sm = 1, .most_tiles = 256},
    {.tokens = 32,
     .row_warps = 4,
     .k_warps = 4,
     .blocks_per_sm = 1,
     .wgmma = true,
     .x_stages = 6,
     .least_tiles = 257,
     .most_tiles = 512,
     .most_scales = 1},
    {.tokens = 32,
     .row_warps = 8,
     .k_warps = 2,
     .blocks_per_sm = 1,
     .wgmma = true,
     .x_stages = 8,
     .least_tiles = 513},
    {.tokens = 32, .tiles_per_warp = 2, .k_warps = 4, .blocks_per_sm = 2},
    {.tokens = 8, .row_warps = 4, .k_warps = 2, .blocks_per_sm = 2, .cluster = 4, .rotates = true},
};

/// What a kernel is compiled for.
struct Launch {
  Form form;
  Dtype dtype = Dtype::f16;
  int scales = 1;  ///< groups in a step
  constexpr bool operator==(const Launch&) const = default;

  /// Smaller groups need more registers than the form's number of blocks has.
  constexpr int blocks_per_sm() const {
    return scales > 1 && form.blocks_per_sm > 1 ? form.blocks_per_sm - 1 : form.blocks_per_sm;
  }
  constexpr int tiles() const { return form.tiles_per_warp; }  ///< of a warp
  constexpr int columns() const { return form.tokens / 8; }    ///< operands B, of eight tokens each
};

/// The first step of a share of k; the share ends where the next one begins. Shares differ by one step at
/// most.
constexpr std::int64_t first_step(std::int64_t steps, int k_warps, int share) {
  return steps * share / k_warps;
}

}  // namespace fwht::linear::pipelined
