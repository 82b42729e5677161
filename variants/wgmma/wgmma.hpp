// wgmma: geometry, index maps and descriptors, shared by the kernels and their host tests.
//
// The exact stage is D = H X: A = the +-1 Sylvester matrix in registers, B = the raw row in shared memory as
// it came from global memory, D in fp32. Index bits of a row of n = 2^L elements, j = log2(N / 8) column-tile
// bits:
//   columns of B and D     b0-b2 (8 elements, one 16-byte chunk), b6..b(5+j)
//   k of A and B, m of D   b3-b5 (core rows), b(6+j), b(7+j).. up to the top
// so a linear row is already the canonical MN-major, no-swizzle operand (PTX ISA, "Asynchronous Warpgroup
// Level Matrix Shared Memory Layout"): 8 contiguous elements of n, 8 such chunks 16 bytes apart for the low
// three k bits.
#pragma once

#include <array>
#include <cstdint>

#include "common/contract/variant.hpp"
#include "common/device/ptx/fragments.hpp"
#include "common/host/bits.hpp"

namespace fwht::wgmma {

extern const Variant variant;

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device);

inline constexpr int kSmallestLogN = 12;
inline constexpr int kLargestLogN = 16;

/// How a row is cut: order of the exact stage (64 per warpgroup that works on the row) times N columns = n.
struct Tile {
  int log_n;
  int log_warpgroups = 0;  // of a row, in one block or over the blocks of a cluster

  constexpr int warpgroups_per_row() const { return 1 << log_warpgroups; }
  constexpr int order() const { return 64 << log_warpgroups; }
  constexpr int columns() const { return (1 << log_n) / order(); }              // N of wgmma: 64, 128 or 256
  constexpr int log_column_tiles() const { return log2_floor(columns()) - 3; }  // j
  constexpr int k_steps() const { return order() / 16; }
  constexpr int row_bytes() const { return 2 << log_n; }

  /// Byte strides inside the row, as the descriptor wants them: the upper half of a 16-long k step, the next
  /// 8 columns, and the start of the next k step.
  constexpr int leading_bytes() const { return 2 << (6 + log_column_tiles()); }
  constexpr int stride_bytes() const { return 128; }
  constexpr int k_step_bytes() const { return 2 * leading_bytes(); }

  /// Element of the row at row k (0 .. order-1) and column c (0 .. N-1) of B. The bits of k name the same
  /// index bits as those of m: the transform keeps every bit in its place.
  constexpr int element_of_operand(int k, int c) const {
    return (c & 7) | ((k & 7) << 3) | ((c >> 3) << 6) | ((k >> 3) << (6 + log_column_tiles()));
  }

  /// Element that accumulator `i` of `thread` (within its warpgroup `group` of the row) holds.
  constexpr int element_of_accumulator(int group, int thread, int i) const {
    return element_of_operand(64 * group + ptx::wgmma_d_row(thread, i), ptx::wgmma_d_column(thread, i));
  }
};

/// The +-1 Sylvester matrix of order 64 as a K-major A operand without swizzle in shared memory: rows of 8 k
/// (16 bytes), the 64 m of them together, then the next 8 k. A negated copy may follow it.
inline constexpr int kTableBytes = 64 * 64 * 2, kTableStepBytes = 16 * 64 * 2;
inline constexpr int kTableLeadingBytes = 1024, kTableStrideBytes = 128;

/// Byte of the table where entry (m, k) lies.
constexpr int table_offset(int m, int k) {
  return (k >> 3) * kTableLeadingBytes + m * 16 + (k & 7) * 2;
}

/// Bytes of staging a warp needs for its 16 D rows: they are one contiguous piece of the row.
constexpr int staged_bytes_per_warp(int columns) {
  return 16 * columns * 2;
}

/// Byte of the warp's contiguous piece where stmatrix row `row` (0..7) of matrix `q` (0..3) of column-tile
/// pair `pair` goes. Here q bit 0 is the odd tile (b6), q bit 1 the upper eight D rows (b(6+j)), the
/// row is b3-b5.
constexpr int staged_offset(int log_column_tiles, int pair, int q, int row) {
  return 16 * row + 128 * (q & 1) + (2 << (6 + log_column_tiles)) * (q >> 1) + 256 * pair;
}

enum class Form {
  one_shot,  // a row per block, or per cluster of blocks of which each reads the whole row and makes its
             // share of outputs
  ring,      // resident blocks; each of their teams of warpgroups has several rows in flight
  pair,      // resident clusters of two blocks that make a row together, see wgmma_pair_kernel.cuh
  passes     // resident blocks that make a row in two passes, see wgmma_passes_kernel.cuh
};

/// A kernel: the length of its rows, how they are spread over warpgroups, and what is in flight.
struct Launch {
  int log_n = 0;
  Form form = Form::one_shot;
  int log_parts = 0;      // log2 of the warpgroups that share a row: of a block (ring, passes), of a cluster
  int teams = 1;          // ring: rows in work at once per block, each by its own warpgroups
  int slots = 1;          // ring: rows in flight per team; pair, passes: pieces in flight
  int blocks_per_sm = 1;  // that must fit: bounds the registers
  int load_pieces = 1;    // that a row arrives in, with an mbarrier each
  int store_pieces = 1;   // ring: bulk stores that a warp spreads its outputs over
  int chains = 2;         // column-tile pairs that a warp takes through stage 3 at once
  int start_groups = 1;   // passes: groups of blocks that start one after another,
  int start_step = 0;     // so many clocks apart
  bool table = false;     // A operand from a table in shared memory, which spares registers
  bool dynamic = false;   // ring, passes: rows handed out by a counter instead of a static stride
  bool deferred = false;  // ring, one store piece: a row is stored under the exact stage of the next one
  bool joined = false;    // ring: stage 3 takes hi and lo in one product, and leaves b6 to stage 2

  constexpr int parts() const { return 1 << log_parts; }
  constexpr int cluster() const { return form == Form::one_shot ? parts() : (form == Form::pair ? 2 : 1); }
  constexpr int threads() const { return 128 * parts() * teams / cluster(); }
  constexpr bool staged() const { return form == Form::ring; }
  constexpr Tile tile() const { return {log_n, log_parts}; }
  bool operator==(const Launch&) const = default;
};

// The launches, each with its reason. Measured on an H200, without clusters by wgmma_tune; docs/attempts.md
// has what lost.
//
// n = 4096. A block per row, scheduled by the hardware, starts soonest and keeps memory busiest out of the
// L2.
inline constexpr Launch kOneShot12{.log_n = 12, .blocks_per_sm = 6};
/// Out of the L2: H in shared memory makes room for eight blocks on an SM; with one wave only its later start
/// counts.
inline constexpr Launch kOneShot12Table{.log_n = 12, .blocks_per_sm = 8, .load_pieces = 2, .table = true};
/// Inside the L2 the start-up of every block counts once there are more rows than fit at once.
inline constexpr Launch kRing12{.log_n = 12, .form = Form::ring, .teams = 4, .slots = 4};
/// While rows keep arriving, twice the warps of half the registers win, and a row is stored under the exact
/// stage of the next one.
inline constexpr Launch kRing12Deferred{.log_n = 12,
                                        .form = Form::ring,
                                        .teams = 4,
                                        .slots = 2,
                                        .blocks_per_sm = 2,
                                        .table = true,
                                        .deferred = true};

// n = 8192. A block per row for few rows and out of the L2, in two pieces: the exact stage begins sooner.
inline constexpr Launch kOneShot13{.log_n = 13, .blocks_per_sm = 4, .load_pieces = 2};
/// Up to eight rows an SM, which all arrive at the start: in and out by pieces.
inline constexpr Launch kRing13Pieces{.log_n = 13,
                                      .form = Form::ring,
                                      .slots = 2,
                                      .blocks_per_sm = 4,
                                      .load_pieces = 2,
                                      .store_pieces = 2,
                                      .chains = 4,
                                      .joined = true};
inline constexpr Launch kRing13Deferred{.log_n = 13,
                                        .form = Form::ring,
                                        .slots = 2,
                                        .blocks_per_sm = 4,
                                        .load_pieces = 2,
                                        .deferred = true,
                                        .joined = true};

// n = 16384. Few rows would leave most SMs idle: a row is spread over a cluster while every block has an SM
// to itself. In one piece: at a wait between two wgmma the compiler orders the registers, which drains the
// tensor core.
inline constexpr Launch kCluster4For14{.log_n = 14, .log_parts = 2, .blocks_per_sm = 4};
/// Up to two rows an SM, one wave.
inline constexpr Launch kOneShot14{.log_n = 14, .blocks_per_sm = 2, .load_pieces = 4, .chains = 4};
/// Up to four rows an SM: in and out by pieces; joined was slower.
inline constexpr Launch kRing14Pieces{
    .log_n = 14, .form = Form::ring, .slots = 2, .blocks_per_sm = 2, .load_pieces = 2, .store_pieces = 2};
inline constexpr Launch kRing14Joined{
    .log_n = 14, .form = Form::ring, .slots = 2, .blocks_per_sm = 2, .joined = true};
/// Out of the L2 a row fills so much of an SM that only a ring overlaps load, tensor core and store, and a
/// static share of the rows leaves SMs idle at the end.
inline constexpr Launch kRing14Dynamic{
    .log_n = 14, .form = Form::ring, .teams = 2, .slots = 2, .dynamic = true, .deferred = true};

// n = 32768. Clusters while every block has an SM to itself; of eight while two launches have.
inline constexpr Launch kCluster8For15{.log_n = 15, .log_parts = 3, .blocks_per_sm = 2};
inline constexpr Launch kCluster4For15{.log_n = 15, .log_parts = 2, .blocks_per_sm = 3};
inline constexpr Launch kCluster2For15{.log_n = 15, .log_parts = 1, .blocks_per_sm = 2, .chains = 4};
inline constexpr Launch kRing15{.log_n = 15,
                                .form = Form::ring,
                                .log_parts = 1,
                                .slots = 2,
                                .load_pieces = 4,
                                .deferred = true,
                                .joined = true};
/// Out of the L2, and inside for up to two rows an SM.
inline constexpr Launch kRing15Dynamic{.log_n = 15,
                                       .form = Form::ring,
                                       .log_parts = 1,
                                       .slots = 2,
                                       .load_pieces = 4,
                                       .dynamic = true,
                                       .deferred = true,
                                       .joined = true};

// n = 65536. A cluster of eight instead of four halves the finish.
inline constexpr Launch kCluster8For16{.log_n = 16, .log_parts = 3};
inline constexpr Launch kCluster4For16{.log_n = 16, .log_parts = 2, .chains = 4};
/// While there are no more rows than pairs of SMs.
inline constexpr Launch kPair16{
    .log_n = 16, .form = Form::pair, .log_parts = 2, .slots = 14, .load_pieces = 8, .store_pieces = 0};
/// Half the tensor work of pair. Blocks in step would load together and then store together.
inline constexpr Launch kPasses16{.log_n = 16,
                                  .form = Form::passes,
                                  .log_parts = 1,
                                  .slots = 12,
                                  .load_pieces = 8,
                                  .store_pieces = 0,
                                  .start_groups = 2,
                                  .start_step = 2000};
/// Out of the L2.
inline constexpr Launch kPasses16Dynamic = [] {
  Launch launch = kPasses16;
  launch.start_groups = 4;
  launch.dynamic = true;
  return launch;
}();

/// The kernels that are compiled: every launch that choose_launch may pick.
inline constexpr Launch kLaunches[] = {
    kOneShot12,      kOneShot12Table, kRing12,        kRing12Deferred, kOneShot13,     kRing13Pieces,
    kRing13Deferred, kCluster4For14,  kOneShot14,     kRing14Pieces,   kRing14Joined,  kRing14Dynamic,
    kCluster8For15,  kCluster4For15,  kCluster2For15, kRing15,         kRing15Dynamic, kCluster8For16,
    kCluster4For16,  kPair16,         kPasses16,      kPasses16Dynamic};

/// Which launch makes the rows of a problem, see wgmma.cpp.
Launch choose_launch(const Problem& problem, const DeviceInfo& device);

/// Whether it lets the next kernel of the stream begin once its loads are asked for, see wgmma.cpp.
bool is_eager(const Launch& launch, const Problem& problem, const DeviceInfo& device);

/// Form::pair and passes: the pieces of the rows of a cluster or block, numbered through, lie in the slots of
/// a ring: all of a row and the head of the next one. The tail of the next one follows into the places of the
/// row's first pieces, and the head of the row after that into the others.
struct PieceRing {
  int pieces, slots;

  constexpr int head() const { return slots - pieces; }
  constexpr int tail() const { return pieces - head(); }
  constexpr int slot(int row, int piece) const { return (row * pieces + piece) % slots; }
};
inline constexpr PieceRing kPairRing{kPair16.load_pieces, kPair16.slots};
inline constexpr PieceRing kPassesRing{kPasses16.load_pieces, kPasses16.slots};

/// Form::pair: the block that loads a piece for both, and what the warps of the second warpgroup load there.
/// Piece of the tail (counted from its first), if there is such a one, piece of the head, if there is such a
/// one.
struct PairLoads {
  static constexpr int loader(int piece) { return piece & 1; }
  static constexpr int tail_piece(int warp) { return warp - 4; }
  static constexpr int head_piece(int warp, int rank) { return 2 * (warp - 4) + rank; }

  static constexpr int kBarriers = 8;
};

/// Form::passes: columns and sums a thread of a warpgroup's slice, and columns of a warpgroup.
inline constexpr int kSliceColumns = 128, kSliceSums = kSliceColumns / 2, kGroupColumns = 2 * kSliceColumns;

/// Which of the four 8x8 blocks of a fragment of A (row half + 2 column half) is negative. So warpgroup 0 has
/// the rows of b12 = 0, then those of b12 = 1 negated, and warpgroup 1 those of b12 = 1, then those of 0.
constexpr int negative_block(int group) {
  return 1 + group;
}

/// Element that accumulator register `i` (bit 6: slice) of `thread` holds before the exchange, and after it.
constexpr int passes_element(int pass, int group, int thread, int i, bool exchanged) {
  const int lane = thread & 31, half = i >> 1 & 1;
  const int b12 = exchanged ? group : half ^ group, b11 = exchanged ? half : group;
  return Tile{16, 1}.element_of_operand(64 * pass + 16 * (thread >> 5) + 8 * b12 + (lane >> 2),
                                        kGroupColumns * b11 + 8 * (i >> 2) + 2 * (lane & 3) + (i & 1));
}

/// The contiguous piece of the row, of as many as warps and passes, that a warp stores.
constexpr int passes_piece(int pass, int warp_in_group, int group) {
  return 8 * pass + 2 * warp_in_group + group;
}

/// The exchange: rounds of so many 16-byte words a thread, and room for two rounds, lane after lane.
inline constexpr int kExchangeChunks = 4, kExchangeBytesPerWarp = 2 * kExchangeChunks * 32 * 16;

/// Dynamic shared memory of a block in bytes. In this order: rows (pair, passes: pieces of rows), table,
/// staging, exchange, then for each slot its mbarriers, and its row and next row (pair: its mbarriers;
/// passes: two, and the next row). There is no static one.
constexpr int row_area_bytes(const Launch& launch) {
  const int row_bytes = launch.tile().row_bytes();
  if (launch.form == Form::pair || launch.form == Form::passes)
    return launch.slots * row_bytes / launch.load_pieces;
  return launch.teams * launch.slots * row_bytes;
}
constexpr int table_bytes(const Launch& launch) {
  return launch.table ? kTableBytes * (launch.parts() > 1 ? 2 : 1) : 0;
}
constexpr int staging_bytes(const Launch& launch) {
  return launch.staged() ? launch.threads() / 32 * staged_bytes_per_warp(launch.tile().columns()) : 0;
}
constexpr int exchange_bytes(const Launch& launch) {
  return launch.form == Form::passes ? launch.threads() / 32 * kExchangeBytesPerWarp : 0;
}
constexpr int bookkeeping_bytes(const Launch& launch) {
  constexpr int kRowAndNext = 4 + 4;
  if (launch.form == Form::pair) return 8 * PairLoads::kBarriers;
  if (launch.form == Form::passes) return 2 * 8 + 4;
  return launch.teams * launch.slots * (8 * (launch.load_pieces + 1) + kRowAndNext);
}
constexpr int shared_bytes(const Launch& launch) {
  return row_area_bytes(launch) + table_bytes(launch) + staging_bytes(launch) + exchange_bytes(launch) +
         bookkeeping_bytes(launch);
}

}  // namespace fwht::wgmma
