// kronecker: shapes, launches and index maps of n = m 2^k, shared by the kernel and its host tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/contract/operator.hpp"
#include "common/contract/variant.hpp"
#include "common/device/ptx/fragments.hpp"
#include "common/device/ptx/wgmma_descriptor.hpp"
#include "common/host/bits.hpp"
#include "variants/kit/box_vectors.hpp"
#include "variants/kit/matrix_rows.hpp"

namespace fwht::kronecker {

using rows::box_byte;
using rows::is_negative;
using rows::second_word_index;
using rows::Shape;
using rows::sign_table;
using rows::sign_word_index;
using rows::sign_words;
using rows::signed_ones;
using rows::swizzle;
using rows::vector_byte;
using rows::vector_flip;
using rows::vector_offset;

extern const Variant variant;

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device);

/// Where the boxes of a block's tiles lie in a ring of `places`: one behind the other, around and around.
/// What comes into the place of a box next is `places` boxes behind it.
struct RingPosition {
  int places, k_steps;
  int tile = 0;       ///< of the block: 0, 1, ...
  int first = 0;      ///< place of its first box
  unsigned turn = 0;  ///< bit 0: of the number of times that this place was filled before

  constexpr int place(int step) const { return first + step - (first + step >= places ? places : 0); }
  /// Phase of the place's barrier that is complete when the box is there.
  constexpr unsigned parity(int step) const { return turn ^ (first + step >= places ? 1U : 0U); }
  constexpr int next_tile(int step) const { return tile + (places + step) / k_steps; }
  constexpr int next_step(int step) const { return (places + step) % k_steps; }
  constexpr void advance() {
    ++tile;
    first += k_steps;
    if (first < places) return;
    first -= places;
    turn ^= 1U;
  }
};
/// The first contents of a ring are boxes of so many tiles.
constexpr int ring_first_tiles(int places, int k_steps) {
  return (places + k_steps - 1) / k_steps;
}
/// A ring knows so many tiles: their numbers in the problem, and barriers of their readers.
inline constexpr int kRingTiles = 16;
constexpr int ring_barrier_bytes(int places) {
  return 8 * places + 12 * kRingTiles;
}

/// A team of warps works on one tile at a time and has `slots` tiles under way; blocks of `teams` teams. In
/// each of its `passes` over a tile a team makes as many rows of the product as it has warps for.
struct Launch {
  Shape shape;
  int teams = 1, slots = 3, blocks_per_sm = 1, passes = 1;
  /// Warps keep their part of the matrix in registers, where there is room for it. Otherwise they keep the
  /// signs and expand them anew, four k steps at a time.
  bool held = true;
  /// The blocks of a cluster make a tile together, a warpgroup each: all read all of it and make 64 rows of
  /// the product. For so few rows that every block has one tile, and a multiprocessor `blocks_per_sm` of them
  /// at most: with more, the launch for many rows is sooner.
  bool spread = false;
  /// Not 0: the warpgroups of a block are its teams; they share a ring of so many boxes, and each makes 64
  /// rows of the product of a tile at a time.
  int places = 0;
  constexpr bool operator==(const Launch&) const = default;

  constexpr int warps() const {  ///< of a team
    return spread || places > 0 ? 4 : 4 * ((shape.warpgroups() + passes - 1) / passes);
  }
  constexpr int threads() const { return teams * warps() * 32; }
  /// Parts of a tile that warps make one after the other, or dealt out among the warpgroups of a ring.
  constexpr int parts() const { return places > 0 ? shape.warpgroups() : passes; }
  /// Ring: k steps whose signs are expanded at once, where all of them would take too many registers.
  constexpr int steps_together() const { return teams * shape.accumulators() > 256 ? 2 : shape.k_steps(); }
  /// Ring: groups of columns of the second matrix at once, as many as there are registers for.
  constexpr int groups_together() const { return teams == 2 ? 2 : 1; }
  /// Ring: where one block of 16 rows remains for the last part, all four warps of a warpgroup make it, and
  /// each ends a share of its columns.
  constexpr bool shares_last_part() const { return places > 0 && shape.k_steps() % 4 == 1; }
  /// Spread: tensor copies, and the barriers that they complete; so many k steps each. Of more steps the
  /// first copy would come later; of fewer there would be so many that warps wait to ask for them.
  constexpr int pieces() const {
    const int most = shape.columns > shape.line() ? 4 : 7;
    return (shape.k_steps() + most - 1) / most;
  }
  constexpr int piece_steps() const { return (shape.k_steps() + pieces() - 1) / pieces(); }

  /// Tiles, then the warps' staging of results, then the second matrix, then barriers and tile numbers.
  /// Spread, results are staged in place of the tile.
  constexpr int slot_bytes() const {
    if (places > 0) return places * shape.box_bytes();
    return spread ? pieces() * piece_steps() * shape.box_bytes() : teams * slots * shape.tile_bytes();
  }
  constexpr int staging_boxes() const {  ///< of a team
    return spread ? 0 : std::min(warps(), shape.k_steps());
  }
  constexpr int staging_bytes() const { return teams * staging_boxes() * shape.box_bytes(); }
  constexpr int second_bytes() const;
  constexpr int barrier_bytes() const {
    return places > 0 ? ring_barrier_bytes(places) : spread ? 8 * pieces() : teams * slots * 24;
  }
  constexpr int shared_bytes() const {
    return slot_bytes() + staging_bytes() + second_bytes() + barrier_bytes();
  }

  /// Whether there are kernels that write codes: rows of large models, of which a warp has all that it makes
  /// staged at once. Among many, longer rows are made in rings, which write none.
  constexpr bool writes_codes() const {
    return places == 0 && passes == 1 && shape.second == 1 && shape.columns >= 64 && shape.n() >= 2560 &&
           shape.n() <= 32768;
  }
  /// Behind the barriers, where the maxima of whole rows are asked for: a number of each warp with results
  /// and row of the tile. Twice, so that nobody writes what another warp still reads; spread, a barrier is
  /// behind them.
  constexpr int maxima_bytes() const { return 2 * teams * shape.k_steps() * shape.rows * 4; }
};

// By value: GCC 12 mangles a member that is copied from a constant with that constant's type, and nvcc would
// register another function than the one in the table.
constexpr Launch ring_launch(Shape shape, int warpgroups, int places) {
  return {.shape = shape, .teams = warpgroups, .slots = 0, .held = false, .places = places};
}

/// The launches, each made for one row length. Others use the one with the fewest k steps that are enough.
inline constexpr Launch kLaunches[] = {
    // 12 2^k
    {{24, 32, 4}, 1, 2, 4},  // 768: two warps of four have rows; with order 48, lines of 16 columns cost more
    {{48, 32, 4}, 1, 2, 4},  // 1536
    {{48, 64, 2}, 1, 2, 4},  // 3072
    {{48, 128}, 1, 2, 4},    // 6144
    {{48, 256}, 1, 2, 2},    // 12288
    // 20 2^k: order 40 keeps three of four warps busy
    {{40, 64, 2}, 1, 2, 4},  // 2560
    {{40, 128}, 1, 2, 4},    // 5120
    {{160, 128}, 1, 3, 1},   // 20480
    // 28 2^k
    {{28, 32, 4}, 1, 2, 4},  // 896
    {{56, 32, 4}, 1, 2, 4},  // 1792
    {{56, 64, 2}, 1, 2, 4},  // 3584
    {{56, 128}, 1, 2, 4},    // 7168
    {{112, 128}, 1, 2, 2},   // 14336
    {{112, 256}, 1, 2, 1},   // 28672
    // 36 2^k
    {{36, 64, 2}, 1, 2, 4},          // 2304
    {{72, 128}, 1, 2, 2},            // 9216
    {{144, 128}, 1, 3, 1},           // 18432
    ring_launch({144, 256}, 2, 20),  // 36864
    // the others, with one matrix of signs
    {{44, 32, 4}, 1, 2, 4},             // 1408
    {{180, 16, 4}, 1, 3, 1},            // 2880
    {{100, 32, 2}, 1, 2, 2},            // 3200
    {{76, 64, 2}, 1, 3, 2},             // 4864
    {{84, 64, 2}, 1, 2, 2},             // 5376
    {{140, 64, 2}, 1, 3, 1},            // 8960
    {{76, 128}, 1, 2, 2},               // 9728
    {{172, 64, 2}, 1, 2, 1},            // 11008
    {{428, 32, 4}, 1, 1, 1, 2, false},  // 13696
    {{108, 128}, 1, 2, 2},              // 13824
    {{116, 128}, 1, 2, 2},  // 14848: of no model; the base is not symmetric, so that it tells a transpose
    {{136, 128}, 1, 3, 1},  // 17408
    {{140, 128}, 1, 3, 1},  // 17920
    {{148, 128}, 1, 3, 1},  // 18944
    {{168, 128}, 1, 3, 1},  // 21504
    {{172, 128}, 1, 2, 1},  // 22016
    {{100, 256}, 1, 2, 1},  // 25600
    {{108, 256}, 1, 2, 1},  // 27648
    ring_launch({208, 256}, 2, 20),  // 53248
    // powers of two, for operators with signs, and for dense factors up to these orders
    {{32, 32, 4}, 1, 2, 4},  // 1024
    {{64, 32, 4}, 1, 2, 4},  // 2048
    {{64, 64, 2}, 1, 2, 4},  // 4096
    {{64, 128}, 1, 2, 4},    // 8192
    {{128, 128}, 1, 2, 2},   // 16384
    {{128, 256}, 1, 2, 1},   // 32768
    // two matrices of signs
    ring_launch({76, 144, 1, 72}, 3, 15),   // 10944
    {{60, 224, 1, 56}, 1, 2, 2},            // 13440
    ring_launch({132, 224, 1, 56}, 2, 22),  // 29568
};

constexpr Launch spread_launch(Shape shape, int blocks_per_sm) {
  return {.shape = shape, .slots = 1, .blocks_per_sm = blocks_per_sm, .spread = true};
}

/// Launches for few rows, in order of preference. But {224, 128} goes before {448, 64} where blocks of the
/// latter would share multiprocessors. How many blocks a multiprocessor may have was measured on an H200.
inline constexpr Launch kFewRows[] = {
    spread_launch({180, 16}, 4),          // 2880
    spread_launch({112, 64}, 2),          // to 7168
    spread_launch({176, 64}, 4),          // to 11264
    spread_launch({224, 64}, 2),          // to 14336
    spread_launch({320, 64}, 2),          // to 20480
    spread_launch({448, 64}, 2),          // to 28672
    spread_launch({512, 64}, 2),          // to 32768
    spread_launch({224, 128}, 2),         // 21504 to 28672, by half the blocks
    spread_launch({428, 32}, 7),          // 13696
    spread_launch({288, 128}, 2),         // to 36864
    spread_launch({416, 128}, 2),         // to 53248
    spread_launch({76, 144, 1, 72}, 2),   // 10944
    spread_launch({120, 112, 1, 56}, 2),  // 13440
    spread_launch({264, 112, 1, 56}, 1),  // 29568
    spread_launch({132, 224, 1, 56}, 1),  // 29568, more rows
};

/// The launch that writes the codes of rows cut as in `launch`, if any does: see Launch::writes_codes. Bits
/// of a row do not depend on how many rows share a tile, nor on how warps keep the matrix. Codes are worked
/// out in registers, so that more warps hide more than more columns do: rows of 64 columns have a tile each.
constexpr Launch codes_launch(Launch launch) {
  if (launch.spread || launch.shape.columns != 64 || launch.shape.rows != 2) return launch;
  launch.shape.rows = 1;
  launch.slots = 2;
  launch.held = launch.shape.k_steps() <= 5;
  launch.blocks_per_sm = launch.shape.warpgroups() == 1 ? 6 : launch.shape.warpgroups() == 2 ? 3 : 2;
  return launch;
}

/// How an operator is served: the launch, the order of its rows as matrices, which may be below the launch's,
/// and its matrices; `second` has order 1 where there is one only.
struct Choice {
  Launch launch;
  int order = 0;
  Factor slow, second;
  bool operator==(const Choice&) const = default;

  /// Blocks that make a tile together.
  int cluster() const { return launch.spread ? (order + 63) / 64 : 1; }
};

/// The launch for F_m (x) S, or F_m (x) S (x) H_f (x) S: a matrix on the slow index, Sylvester behind it,
/// perhaps a second named matrix and Sylvester again; with signs, Sylvester alone. None where no launch has
/// the columns and k steps.
std::optional<Choice> choice_for(const Operator& op);

/// The same for few rows: the first of kFewRows that serves the operator, or a later one that is made for
/// this length, if it takes so many rows. One of twice the columns goes before the first where six or more
/// blocks a row of the latter would share multiprocessors. None otherwise.
std::optional<Choice> few_rows_choice_for(const Operator& op, std::int64_t rows, int sm_count);

/// Factor by factor: matrices exact, Sylvester by additions and split stages, one rounding.
Numerics numerics_of(const Problem& problem);

/// Where k step `s` begins, and how far its next line is, when one tensor copy brings `steps` of them: line
/// after line of columns, in each all rows of the copy. A box has one step.
constexpr int step_byte(int columns, int line, int steps, int s) {
  return s / steps * steps * (16 * 2 * columns) + s % steps * (16 * 2 * line);
}
constexpr int line_bytes(int line, int steps) {
  return steps * 16 * 2 * line;
}

/// Matrix descriptor of such a step, MN-major: the leading dimension is the next line's columns, the stride
/// the next 8 rows. A line is swizzled as a whole.
constexpr std::uint64_t box_descriptor(std::uint32_t shared_address, int line, int steps = 1) {
  return ptx::matrix_descriptor(shared_address, line_bytes(line, steps), 8 * 2 * line,
                                line == 64   ? ptx::Swizzle::bytes_128
                                : line == 32 ? ptx::Swizzle::bytes_64
                                             : ptx::Swizzle::bytes_32);
}

/// Words of the second matrix in shared memory: as rows::second_table has them.
/// In a ring operands B of wgmma, K-major without swizzle: 8 x 8 after 8 x 8 for the output columns,
/// and each 8 input columns twice, for hi and for lo. A step has 8 input columns.
constexpr int second_step_words(int second) {
  return 2 * (second / 8) * 32;
}
constexpr int second_word_of_step(int second, int to, int half, int lane) {
  return (half * (second / 8) + to) * 32 + lane;
}
/// Its matrix descriptor: the leading dimension is the next 8 of k, the stride the next 8 columns.
constexpr std::uint64_t second_descriptor(std::uint32_t shared_address, int second) {
  return ptx::matrix_descriptor(shared_address, second / 8 * 128, 128);
}
constexpr int second_words(const Launch& launch) {
  const int second = launch.shape.second;
  if (second == 1 || launch.places == 0) return rows::second_words(second);
  return second / 8 * second_step_words(second);
}
constexpr int Launch::second_bytes() const {
  return 4 * second_words(*this);
}

/// The words of H_f (x) S_(second / f), or its transpose, as bf16, as the launch reads them.
std::vector<std::uint32_t> second_table(const Launch& launch, const Factor& factor);

}  // namespace fwht::kronecker
