// hadacore: the index algebra of the tensor-core kernel as one constexpr description. `make_program` says for
// every n which stages run on which index bits and what moves them in between; the kernel executes it, the
// numerics and the emulation read its stages, and the host test runs it lane by lane.
//
// Words used here. Index bit s < L = log2 n is bit s of the column, bit L + s is bit s of the row inside the
// block's tile. A position is a place that carries one index bit: which half of a 32-bit register (pack),
// bits of the lane, bits of the register number, bits of the warp number. With
// lane = 4 g + t: t = lane bits 0, 1, g = 2, 3, 4.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/contract/variant.hpp"
#include "common/device/ptx/fragments.hpp"
#include "common/host/bits.hpp"
#include "variants/kit/launch_regime.hpp"

namespace fwht::hadacore {

extern const Variant variant;            // tuned launch configurations, fp16 accumulator for f16
extern const Variant published_variant;  // the launch configurations of the published kernel

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device);
std::unique_ptr<Plan> make_published_plan(const Problem& problem, const DeviceInfo& device);

inline constexpr int kLargestLogN = 15;
inline constexpr int kChunk = 256;  ///< elements of one 16-byte vector a lane

/// Whether a stage's sums are fp16, as published; bf16 data have fp32 sums.
constexpr bool has_fp16_sums(Dtype dtype) {
  return dtype == Dtype::f16;
}

/// Which launch table a plan takes its configuration from.
enum class LaunchTable { tuned, published };

/// A warp holds chunks_per_warp chunks of 256 elements; blocks_per_sm is the occupancy the registers are
/// capped for.
struct Config {
  int chunks_per_warp, warps_per_block, blocks_per_sm;
  constexpr bool operator==(const Config&) const = default;
};

/// The launch configurations of the published kernel, by log2 n.
constexpr Config published_config(int log_n) {
  if (log_n <= 9) return {2, 1, 24};
  constexpr Config kAbove512[] = {{2, 2, 16}, {2, 4, 8}, {2, 8, 4}, {2, 16, 3}, {4, 16, 2}, {8, 16, 1}};
  return kAbove512[log_n - 10];
}

/// The launch configurations of `hadacore`, by log2 n, type and regime: of eight candidates a size
/// (configs_to_try in hadacore_tune.cu), measured on an H200 over 2^15 .. 2^28 elements, the fastest that is
/// at no measured size slower than the published one. All give the same bits. What decided:
/// - n <= 4: rows kept apart need 78 registers with fp32 sums.
/// - n <= 1024, DRAM: two warps and 2 KiB a block. The 1 KiB blocks of the published kernel meet the rate at
///   which blocks start (1.6 a ns) at 0.8 of a copy; two vectors a lane are the best shape of a copy.
/// - n <= 1024, L2: four chunks or four warps a block, 1.4 to 1.7 times the published rate for the same
///   reason.
/// - n = 16 and 256, small: one warp a block, as published; nothing else starts sooner.
/// - n = 1024, 2048: four chunks a warp halve the warps that exchange (L2); at DRAM rate it no longer shows.
/// - n = 4096, 8192: four chunks a warp bring an index bit to the pack without a shuffle, with half the warps
///   at the barrier.
/// - n = 16384, 32768: more rows resident overlap load and store where memory is busy (full, dram); where it
///   is not, the published shapes have more threads for a row, or for fp32 sums fewer and longer ones.
constexpr Config tuned_config(int log_n, Dtype dtype, Regime regime) {
  constexpr Config kApart{2, 2, 12}, kLone{2, 1, 24}, kPair{2, 2, 16}, kQuad{2, 4, 8}, kLong{4, 2, 12};
  constexpr Config kLongest{4, 2, 16}, kFour{4, 4, 8}, kEight{4, 8, 4}, kSixteen{4, 16, 2}, kMiddle{8, 8, 2};
  constexpr Config kNarrow{16, 4, 4}, kRow{8, 16, 1}, kTwoRows{8, 16, 2}, kTwoNarrow{16, 8, 2};
  struct Regimes {
    Config of[4];  // small, light and medium, full, dram
  };
  struct Types {
    Regimes f16, bf16;
  };
  constexpr Types kTuned[] = {
      {{kApart, kApart, kApart, kApart}, {kApart, kApart, kApart, kApart}},
      {{kApart, kApart, kApart, kApart}, {kApart, kApart, kApart, kApart}},
      {{kPair, kPair, kPair, kPair}, {kPair, kPair, kPair, kPair}},
      {{kLone, kQuad, kQuad, kPair}, {kLone, kQuad, kQuad, kPair}},
      {{kQuad, kQuad, kQuad, kPair}, {kQuad, kQuad, kQuad, kPair}},
      {{kPair, kLong, kLong, kPair}, {kPair, kLong, kLong, kPair}},
      {{kQuad, kLong, kLong, kPair}, {kPair, kLong, kLong, kPair}},
      {{kLone, kLong, kLong, kPair}, {kQuad, kQuad, kQuad, kPair}},
      {{kQuad, kQuad, kQuad, kPair}, {kQuad, kLong, kLong, kPair}},
      {{kLong, kLong, kLong, kPair}, {kLongest, kLongest, kLongest, kLongest}},
      {{kQuad, kQuad, kLongest, kQuad}, {kQuad, kLong, kLong, kQuad}},
      {{kFour, kFour, kFour, kFour}, {kFour, kFour, kFour, kFour}},
      {{kEight, kEight, kEight, kEight}, {kEight, kEight, kEight, kEight}},
      {{kSixteen, kSixteen, kMiddle, kSixteen}, {kNarrow, kSixteen, kNarrow, kNarrow}},
      {{kRow, kRow, kTwoRows, kTwoRows}, {kTwoNarrow, kRow, kTwoNarrow, kTwoNarrow}},
  };
  const Types& row = kTuned[log_n - 1];
  const int column = regime == Regime::small ? 0 : static_cast<int>(regime) - 1;
  return (dtype == Dtype::f16 ? row.f16 : row.bf16).of[column];
}

constexpr Config config_for(LaunchTable table, int log_n, Dtype dtype, Regime regime) {
  return table == LaunchTable::tuned ? tuned_config(log_n, dtype, regime) : published_config(log_n);
}

/// The tile of a block: 2^(8 + log_chunks + log_warps) elements, one row or several.
struct Shape {
  int log_n, log_chunks, log_warps;
  constexpr bool operator==(const Shape&) const = default;

  constexpr int register_bits() const {
    return 2 + log_chunks;
  }  // words of 32 bit: 4 in a vector, vectors above
  constexpr int words() const { return 1 << register_bits(); }
  constexpr int vectors() const { return 1 << log_chunks; }
  constexpr int threads() const { return 32 << log_warps; }
  constexpr int tile_bits() const { return 8 + log_chunks + log_warps; }
  constexpr int log_rows() const { return tile_bits() - log_n; }  // rows a block
  constexpr int positions() const { return tile_bits(); }
  /// Warps that share a row, as a number of bits.
  constexpr int row_warp_bits() const { return log_n > 8 + log_chunks ? log_n - 8 - log_chunks : 0; }
  constexpr bool exchanges() const { return row_warp_bits() > 0; }
  constexpr int shared_bytes() const { return exchanges() ? 2 << tile_bits() : 0; }
};

/// Whether `make_program` has a program for the shape: whole rows in a block, at most 1024 threads, and
/// enough chunk bits in a warp for what has to be transformed ahead of the exchange or without one.
constexpr bool fits(Shape shape) {
  const int above_chunk = shape.log_n > 8 ? shape.log_n - 8 : 0;
  if (shape.row_warp_bits() > shape.log_warps || shape.log_warps > 5 || shape.log_chunks > 4) return false;
  if (!shape.exchanges()) return above_chunk <= 4;
  return shape.log_chunks >= (above_chunk > 4 ? above_chunk - 4 : 1);
}

constexpr Shape shape_of(int log_n, Config config) {
  return {log_n, log2_floor(config.chunks_per_warp), log2_floor(config.warps_per_block)};
}

// ---- positions and layouts

inline constexpr int kPack = 0, kFirstLane = 1, kFirstRegister = 6, kMostPositions = 20;
inline constexpr int kFirstVectorBit = 2;  // register bits 0 and 1 count the words of a 16-byte vector

constexpr int lane_position(int i) {
  return kFirstLane + i;
}
constexpr int register_position(int i) {
  return kFirstRegister + i;
}
constexpr int warp_position(Shape shape, int i) {
  return kFirstRegister + shape.register_bits() + i;
}

/// Which index bit each position carries just now.
struct Layout {
  std::int8_t at[kMostPositions] = {};

  constexpr int pack() const { return at[kPack]; }
  constexpr int lane(int i) const { return at[lane_position(i)]; }
  constexpr int word(int i) const { return at[register_position(i)]; }
  constexpr int warp(Shape shape, int i) const { return at[warp_position(shape, i)]; }
  constexpr int position_of(Shape shape, int index_bit) const {
    for (int p = 0; p < shape.positions(); ++p) {
      if (at[p] == index_bit) return p;
    }
    return -1;
  }
  constexpr void swap(int a, int b) {
    const std::int8_t old = at[a];
    at[a] = at[b];
    at[b] = old;
  }
};

/// Element of the tile that a thread holds in half `half` of register `word`.
constexpr int index_of(Shape shape, const Layout& layout, int thread, int word, int half) {
  int index = half << layout.pack();
  for (int i = 0; i < shape.register_bits(); ++i)
    index |= ((word >> i) & 1) << layout.word(i);
  for (int i = 0; i < 5; ++i)
    index |= ((thread >> i) & 1) << layout.lane(i);
  for (int i = 0; i < shape.log_warps; ++i)
    index |= ((thread >> (5 + i)) & 1) << layout.warp(shape, i);
  return index;
}

// ---- the matrix of a stage, as fragments of mma.m16n8k16

/// Entry of the block-diagonal matrix: the Sylvester sign over the `transformed` bits of the 4-bit indices
/// where all other bits agree, else 0. Sylvester's matrix does not change when rows and columns have their
/// bits permuted alike, so any four index bits may stand behind the four bits of k. (The three bits that
/// lanes count are taken apart from the fourth, which is known at compile time where the kernel asks.)
constexpr int stage_entry(unsigned m, unsigned k, unsigned transformed) {
  const unsigned lanes_differ = (m ^ k) & ~transformed & 7U, fourth_differs = (m ^ k) & ~transformed & 8U;
  if (lanes_differ != 0 || fourth_differs != 0) return 0;
  const unsigned both = m & k & transformed;
  const unsigned negative = (0x96U >> (both & 7U) & 1U) ^ (both >> 3);  // 0x96: parity of 0..7
  return 1 - 2 * static_cast<int>(negative);
}

/// Register i of the matrix as operand A; `constant` is the 16-bit pattern of its positive entries. Registers
/// j and j + 2 are columns 8 j .. 8 j + 7 as operand B, because the matrix is symmetric.
constexpr std::uint32_t stage_fragment(int lane, int i, unsigned transformed, std::uint32_t constant) {
  std::uint32_t packed = 0;
  for (int e = 0; e < 2; ++e) {
    const auto row = static_cast<unsigned>(ptx::a_row(lane, i));
    const auto column = static_cast<unsigned>(ptx::a_column(lane, i, e));
    const int entry = stage_entry(row, column, transformed);
    const std::uint32_t half = entry == 0 ? 0U : constant ^ (entry < 0 ? 0x8000U : 0U);
    packed |= half << (16 * e);
  }
  return packed;
}

// ---- the program

enum class Action : std::int8_t {
  /// Stage with the data as operand A: K runs over {pack, t0, t1, register bit a}, register bit b and g count
  /// the rows. Every element stays where it is.
  data_as_a,
  /// Stage with the data as operand B: K as above, g counts the columns. The result, read as the next operand
  /// B, is transposed: {pack, t0, t1} and {g0, g1, g2} have changed places.
  data_as_b,
  swap_pack,           ///< pack <-> register bit a (byte permutation)
  swap_lane_register,  ///< lane bit b <-> register bit a (shuffle of half the registers)
  permute_lanes,       ///< lane bits among themselves (shuffle)
  exchange             ///< lane, vector and warp bits among themselves, through shared memory
};

/// Register bit r, transformed or padding: K bit 0 is the pack, 1 and 2 are t, 3 is register bit a.
struct Step {
  Action action = Action::exchange;
  int a = -1, b = -1;
  unsigned transformed = 0;  ///< K bits that the matrix transforms; the others select its diagonal block
  unsigned separated = 0;    ///< K bits that tell rows apart: the other rows' data are replaced by zeros
  bool carries_scale = false;
};

inline constexpr int kMostSteps = 20;

struct Program {
  Shape shape{};
  int steps = 0;
  Step step[kMostSteps] = {};
  Layout before[kMostSteps + 1] = {};  ///< before[i] holds ahead of step i; before[steps] at the store

  constexpr const Layout& at_load() const { return before[0]; }
  constexpr const Layout& at_store() const { return before[steps]; }
};

constexpr bool is_stage(Action action) {
  return action == Action::data_as_a || action == Action::data_as_b;
}

/// Index bit that K bit `k` of a stage runs over.
constexpr int k_index_bit(const Layout& before, const Step& stage, int k) {
  return k == 0 ? before.pack() : k == 3 ? before.word(stage.a) : before.lane(k - 1);
}

class Builder {
 public:
  constexpr explicit Builder(Shape shape) {
    program_.shape = shape;
    now_.at[kPack] = 0;
    for (int i = 0; i < 2; ++i)
      put(register_position(i), 1 + i);
    for (int i = 0; i < 5; ++i)
      put(lane_position(i), 3 + i);
    for (int i = 0; i < shape.log_chunks; ++i)
      put(register_position(kFirstVectorBit + i), 8 + i);
    for (int i = 0; i < shape.log_warps; ++i)
      put(warp_position(shape, i), 8 + shape.log_chunks + i);
  }

  constexpr void start_with(const Layout& layout) { now_ = layout; }
  constexpr const Layout& now() const { return now_; }

  /// Transforms index bits first .. first + count - 1 in one data_as_a stage, wherever they are but in the
  /// warp number. Bits on pack, t0 and t1 stay. One register bit becomes K bit 3; a second one goes to the
  /// pack, further ones to free t lanes. Bits on g lanes come down to register bit 1 first. `restore` undoes
  /// the lane moves; moves of the pack are always undone, because loads, stores and the exchange handle whole
  /// vectors.
  template <int count>
  constexpr void contract(const int (&bits)[count], int used, bool restore) {
    Step moves[4];
    int moved = 0, k_register = -1;
    for (int i = 0; i < used; ++i) {
      const int position = where(bits[i]);
      if (position >= lane_position(2) && position <= lane_position(4)) {
        moves[moved++] = move({Action::swap_lane_register, 1, position - kFirstLane});
      }
    }
    bool wanted[kMostPositions] = {};
    for (int i = 0; i < used; ++i)
      wanted[bits[i]] = true;
    for (int i = used - 1; i >= 0; --i) {
      const int position = where(bits[i]);
      if (position >= kFirstRegister)
        k_register = position - kFirstRegister;  // ends at the first in the list
    }
    for (int i = 0; i < used; ++i) {
      const int position = where(bits[i]), word = position - kFirstRegister;
      if (word < 0 || word == k_register) continue;
      if (!wanted[now_.pack()]) {
        moves[moved++] = move({Action::swap_pack, word});
      } else {
        moves[moved++] = move({Action::swap_lane_register, word, wanted[now_.lane(0)] ? 1 : 0});
      }
    }
    if (k_register < 0) k_register = 0;
    Step stage{Action::data_as_a, k_register, k_register == 0 ? 1 : 0};
    for (int k = 0; k < 4; ++k) {
      const int bit = k_index_bit(now_, stage, k);
      if (wanted[bit]) stage.transformed |= 1U << k;
      if (bit >= program_.shape.log_n) stage.separated |= 1U << k;
    }
    push(stage);
    for (int i = moved - 1; i >= 0; --i) {
      if (restore || moves[i].action == Action::swap_pack) move(moves[i]);
    }
  }

  /// Transforms the bits on pack, t0, t1 and register bit `word`; see Action::data_as_b.
  constexpr void data_as_b(int word) {
    Step stage{Action::data_as_b, word};
    stage.transformed = 15;
    push(stage);
    now_.swap(kPack, lane_position(2));
    now_.swap(lane_position(0), lane_position(3));
    now_.swap(lane_position(1), lane_position(4));
  }

  constexpr void rearrange(Action action, const Layout& to) {
    push({action});
    now_ = to;
  }

  /// Marks the stage that carries the scale: the one with fewer than 4 bits, else the last.
  constexpr Program finish() {
    int carrier = -1;
    for (int i = 0; i < program_.steps; ++i) {
      if (is_stage(program_.step[i].action) && (carrier < 0 || program_.step[carrier].transformed == 15))
        carrier = i;
    }
    program_.step[carrier].carries_scale = true;
    program_.before[program_.steps] = now_;
    return program_;
  }

 private:
  constexpr void put(int position, int index_bit) { now_.at[position] = static_cast<std::int8_t>(index_bit); }
  constexpr int where(int index_bit) const { return now_.position_of(program_.shape, index_bit); }
  constexpr void push(const Step& step) {
    program_.before[program_.steps] = now_;
    program_.step[program_.steps++] = step;
  }
  constexpr Step move(const Step& step) {  // swaps are their own inverses
    push(step);
    now_.swap(step.action == Action::swap_pack ? kPack : lane_position(step.b), register_position(step.a));
    return step;
  }

  Program program_;
  Layout now_;
};

/// Layout after the exchange for a stage over index bits first .. L-1: one of them on vector bit 0, two on t,
/// a fourth on vector bit 1 (or on g0, where there is one vector bit only). The other lanes take the lowest
/// index bits, so that neighbouring lanes store neighbouring vectors.
constexpr Layout exchange_target(Shape shape, const Layout& now, int first) {
  const int count = shape.log_n - first;
  int wanted[4] = {register_position(kFirstVectorBit), lane_position(0), lane_position(1),
                   shape.log_chunks >= 2 ? register_position(kFirstVectorBit + 1) : lane_position(2)};
  Layout to = now;
  bool taken[kMostPositions] = {};
  for (int i = 0; i < count; ++i) {
    to.at[wanted[i]] = static_cast<std::int8_t>(first + i);
    taken[wanted[i]] = true;
  }
  int order[kMostPositions] = {}, places = 0;
  for (int i = 0; i < 5; ++i)
    order[places++] = lane_position(i);
  for (int i = 0; i < shape.log_chunks; ++i)
    order[places++] = register_position(kFirstVectorBit + i);
  for (int i = 0; i < shape.row_warp_bits(); ++i)
    order[places++] = warp_position(shape, i);
  int next = 3;  // 0, 1 and 2 stay inside the vector
  for (int i = 0; i < places; ++i) {
    if (taken[order[i]]) continue;
    to.at[order[i]] = static_cast<std::int8_t>(next++);
  }
  return to;
}

/// The whole transform of a tile, from natural 16-byte loads to natural 16-byte stores.
constexpr Program make_program(Shape shape) {
  const int log_n = shape.log_n;
  Builder b(shape);
  if (log_n <= 4) {
    b.contract<4>({0, 1, 2, 3}, log_n, true);
    return b.finish();
  }
  if (log_n <= 7) {
    Layout load = b.now();
    if (log_n == 7) {  // lanes 5, 3, 4, 6, 7: 8 lanes touch at most two 128-byte lines at load and at store
      load.swap(lane_position(0), lane_position(1));
      load.swap(lane_position(0), lane_position(2));
    }
    b.start_with(load);
    const int t0 = load.lane(0), t1 = load.lane(1);
    b.contract<4>({0, 1, t0, t1}, 4, true);
    if (log_n > 5) {
      Layout to = load;
      to.swap(lane_position(0), lane_position(log_n == 6 ? 2 : 3));
      if (log_n == 7) to.swap(lane_position(1), lane_position(2));
      b.rearrange(Action::permute_lanes, to);
    }
    b.contract<3>({2, b.now().lane(0), b.now().lane(1)}, log_n - 4, true);
    return b.finish();
  }
  b.data_as_b(0);
  b.data_as_b(1);
  int first = 8;
  if (log_n > 12) {
    b.contract<3>({8, 9, 10}, log_n - 12, !shape.exchanges());
    first = log_n - 4;
  }
  if (shape.exchanges()) b.rearrange(Action::exchange, exchange_target(shape, b.now(), first));
  if (log_n > first) b.contract<4>({first, first + 1, first + 2, first + 3}, log_n - first, true);
  return b.finish();
}

// ---- shared memory

/// 16-byte slots of the exchange: slot number = XOR of column(s) over the index bits s >= 3 of a vector. The
/// three lowest slot bits (the place within 128 bytes, where all banks meet) come from the index bits that
/// count lanes 0..7, XORed at the write's with those at the read's. So 8 consecutive lanes hit 8 different
/// places on both sides.
constexpr unsigned slot_column(const Layout& write, const Layout& read, int index_bit) {
  unsigned column = 0;
  bool used[3] = {}, writes = false;
  for (int i = 0; i < 3; ++i) {  // read bits that also are write bits need no partner
    for (int j = 0; j < 3; ++j)
      used[j] = used[j] || (read.lane(j) == write.lane(i));
  }
  for (int i = 0; i < 3; ++i) {
    bool common = false;
    for (int j = 0; j < 3; ++j)
      common = common || read.lane(j) == write.lane(i);
    int partner = -1;
    for (int j = 0; j < 3 && !common && partner < 0; ++j) {
      if (!used[j]) partner = j, used[j] = true;
    }
    if (write.lane(i) == index_bit) column |= 1U << i, writes = true;
    if (partner >= 0 && read.lane(partner) == index_bit) column |= 1U << i;
  }
  if (writes) return column;
  int place = 3;
  for (int s = 3; s < index_bit; ++s) {
    if (s != write.lane(0) && s != write.lane(1) && s != write.lane(2)) ++place;
  }
  return column | 1U << place;
}

/// Slot of vector `vector` of a thread, for the layout `layout` at either side of the exchange.
constexpr unsigned slot_of(Shape shape, const Layout& write, const Layout& read, const Layout& layout,
                           int thread, int vector) {
  const int index = index_of(shape, layout, thread, vector << kFirstVectorBit, 0);
  unsigned slot = 0;
  for (int s = 3; s < shape.tile_bits(); ++s) {
    if ((index >> s) & 1) slot ^= slot_column(write, read, s);
  }
  return slot;
}

// ---- numerics

/// The 16-bit constant of the stage that carries the scale, as a number: every other stage has 4 bits and the
/// exact constant 1/4.
double scale_constant(const Problem& problem);

/// The tensor-core stages in order of execution, each with its index bits and its constant.
std::vector<fwht::Step> steps_of(const Problem& problem, Config config);

/// What a plan promises on a device of this compute capability (90 for sm_90).
Numerics numerics_of(const Problem& problem, Config config, int compute_capability);

/// The bit card of one shape, one line a step: what `make_program` decided, for people.
std::string bit_card(Shape shape);

}  // namespace fwht::hadacore
