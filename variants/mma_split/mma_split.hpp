// mma_split: geometry, launch table and index maps, shared by the kernels and their host tests.
#pragma once

#include <cstdint>
#include <memory>

#include "common/bits.hpp"
#include "common/variant.hpp"
#include "variants/launch_regime.hpp"

namespace fwht::mma_split {

extern const Variant variant;

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device);

inline constexpr int kLargestLogN = 14;       // 16-bit data
inline constexpr int kLargestWideLogN = 15;   // fp32 data
inline constexpr int kSmallestSplitLogN = 6;  // 16-bit data; below, CUDA cores keep up with memory

constexpr int largest_log_n(Dtype dtype) {
  return dtype == Dtype::f32 ? kLargestWideLogN : kLargestLogN;
}

enum class Kind {
  butterflies,  ///< fp32 butterflies: registers (FADD) and lanes (SHFL + FFMA)
  split_mma     ///< two tensor-core stages for b0..b7, the fp32 between them carried as bf16 hi + lo
};

enum class Form {
  registers,  ///< a lane keeps what it loaded until the warps of the row exchange
  passes      ///< fp32 data: three passes over the row in shared memory, which owns it in between; no shuffle
};

/// How rows are spread: 16-byte vectors a lane holds, warps that share a row (1: a warp holds whole rows).
/// blocks_per_sm is what the registers are limited for; 0 leaves them to the compiler. The first blocks of
/// all multiprocessors do not start together but `stagger` clocks after each other: those of one
/// multiprocessor, or, where there are `groups`, the blocks of every group after those of the one before.
struct Launch {
  int vectors = 0, warps_per_row = 0, threads = 0, blocks_per_sm = 0;
  Form form = Form::registers;
  int stagger = 0, groups = 0;
  constexpr bool operator==(const Launch&) const = default;
};

/// How a kernel reaches memory. Instantiations, because a run-time branch between the loads and the tensor
/// cores lets the compiler schedule one vector after the other.
enum class Access {
  dense,    ///< 16-byte vectors of contiguous rows: addresses are the thread's number times a constant
  vectors,  ///< 16-byte vectors, rows any distance apart
  elements  ///< element by element, where pointers or the row stride do not allow vectors
};

/// Everything about one kernel that is fixed at compile time. Index bits of a row, low first: element bits
/// (inside the 16-byte vector), lane bits, vector bits, warp bits.
struct Geometry {
  Dtype dtype;
  int log_n;
  Launch launch;

  constexpr bool operator==(const Geometry&) const = default;
  constexpr Kind kind() const {
    return dtype != Dtype::f32 && log_n >= kSmallestSplitLogN ? Kind::split_mma : Kind::butterflies;
  }
  constexpr int vectors() const { return launch.vectors; }
  constexpr int warps_per_row() const { return launch.warps_per_row; }
  constexpr int threads() const { return launch.threads; }
  constexpr int warps() const { return threads() / 32; }

  constexpr int log_vector() const { return dtype == Dtype::f32 ? 2 : 3; }  // elements of a vector
  constexpr int vector_elements() const { return 1 << log_vector(); }
  constexpr int element_bits() const { return log_n < log_vector() ? log_n : log_vector(); }
  constexpr int lane_bits() const {
    const int rest = log_n - element_bits();
    return rest < 5 ? rest : 5;
  }
  /// By a loop: device code also asks for it outside of constant expressions, where std::countl_zero behind
  /// log2_floor is not to be had.
  constexpr int warp_bits() const {
    int bits = 0;
    while (1 << bits < warps_per_row())
      ++bits;
    return bits;
  }
  /// Vector bits that belong to a row; where a warp holds several rows in several vectors, others do not.
  constexpr int vector_bits() const { return log_n - element_bits() - lane_bits() - warp_bits(); }

  /// log2 of the rows that lie in one vector of one lane, and in the 32 vectors of a warp; 0 for one row or
  /// less.
  constexpr int log_rows_per_vector() const { return log_vector() - element_bits(); }
  constexpr int log_rows_per_warp_vector() const { return log_rows_per_vector() + 5 - lane_bits(); }
  /// Rows that a warp holds, and a block; several warps may share one.
  constexpr int rows_per_warp() const {
    return warps_per_row() > 1 ? 1 : (32 * vectors() * vector_elements()) >> log_n;
  }
  constexpr int rows_per_block() const { return (threads() * vectors() * vector_elements()) >> log_n; }

  /// Vectors of a block are numbered as they follow each other in contiguous rows: vector v of a lane is
  /// number first_vector + 32 v, and so lies this many rows and columns behind vector 0.
  constexpr int first_vector(int warp_of_block, int lane) const {
    return warp_of_block * vectors() * 32 + lane;
  }
  constexpr int log_vectors_per_row() const { return log_n < log_vector() ? 0 : log_n - log_vector(); }
  constexpr int row_of_vector(int number) const {
    return (number >> log_vectors_per_row()) << log_rows_per_vector();
  }
  constexpr int column_of_vector(int number) const {
    return (number & ((1 << log_vectors_per_row()) - 1)) << log_vector();
  }
  constexpr int row_offset(int v) const {
    return log_vectors_per_row() > 5 ? v >> vector_bits()
                                     : (32 * v >> log_vectors_per_row()) << log_rows_per_vector();
  }
  constexpr int column_offset(int v) const {
    return log_vectors_per_row() > 5 ? (v & (vectors_of_row() - 1)) * (32 << log_vector()) : 0;
  }
  /// Vectors of a lane that belong to one row.
  constexpr int vectors_of_row() const { return 1 << vector_bits(); }

  // The exchange gives every warp of a row the same share of all of them: `kept` whole vectors of each, or,
  // where a lane holds fewer vectors than warps share the row, one part in `parts` of a vector, which then is
  // spread over all lanes, `piece` consecutive elements each. The buffer holds a quad (float4) of 32 lanes
  // after the other. Whole vectors keep their lane, so that every access is 32 consecutive words of 16 bytes;
  // a part is read across lanes and quads, and quads of odd number are swizzled to keep that free of bank
  // conflicts too.
  constexpr int kept() const { return vectors() >= warps_per_row() ? vectors() / warps_per_row() : 1; }
  constexpr int parts() const { return vectors() >= warps_per_row() ? 1 : warps_per_row() / vectors(); }
  constexpr int piece() const { return vector_elements() / parts(); }
  constexpr int quads() const { return vector_elements() / 4; }  // float4 of one vector widened to fp32
  /// First vector, and part of it, that warp `to` of a row takes from each warp.
  constexpr int vector_taken(int to) const { return to / parts() * kept(); }
  constexpr int part_taken(int to) const { return to % parts(); }
  /// Element of the 32 lanes' vectors side by side at which the piece of a lane begins.
  constexpr int piece_begin(int part, int lane) const {
    return part * (32 * vector_elements() / parts()) + lane * piece();
  }
  /// Float of the row's exchange buffer that holds element e of vector v of a lane of warp `from`.
  constexpr int exchange_word(int from, int v, int lane, int e) const {
    if (launch.form == Form::passes) {
      const int run_of_vector = lane >> vector_bits(), unit = lane & (vectors() - 1);
      return (((from * vectors() + v) * 32 + (run_of_vector << vector_bits())) << 2) +
             ((unit ^ run_of_vector ^ ((v * (32 >> vector_bits())) & 7)) << 2) + e;
    }
    const int quad = e >> 2, place = parts() > 1 ? lane ^ (4 * (quad & 1)) : lane;
    return (((from * vectors() + v) * quads() + quad) * 32 + place) * 4 + (e & 3);
  }
  /// The same, counted through the 32 lanes' vectors.
  constexpr int exchange_word_of(int from, int v, int element) const {
    return exchange_word(from, v, element >> log_vector(), element & (vector_elements() - 1));
  }
  constexpr int exchange_words() const { return warps_per_row() == 1 ? 0 : 1 << log_n; }
  constexpr int shared_bytes() const { return 4 * exchange_words(); }

  // Form::passes. The elements of a warp are 32 runs, each as many consecutive ones as a lane has registers,
  // in units of four. In the first pass a lane has a run, in the second the element of a number (or two: one
  // in every 32) of every run, in the third what the exchange gives it. The buffer holds runs in order, their
  // units swizzled so that the first pass, in which the lanes are a run apart, finds no bank conflict either.
  // Sums, not bitwise or: what is known when the kernel is compiled becomes part of an instruction.
  constexpr int run_word(int warp, int run, int unit) const {
    return ((warp * 32 + run) << (vector_bits() + 2)) + ((unit ^ (run & 7)) << 2);
  }
  constexpr int numbers_of_lane() const { return vectors() / 8; }
  constexpr int number_word(int warp, int run, int which, int lane) const {
    return ((warp * 32 + run) << (vector_bits() + 2)) + which * 32 + (lane ^ ((run & 7) << 2));
  }
};

/// The launches of every size in the five regimes: of the candidates in mma_split_tune.cu, measured on an
/// H200 over 64 KiB .. 128 MiB, the fastest over the sizes of the regime together. All give the same bits.
/// What decided:
/// - small: latency, which is the length of the code that one warp runs: one vector a lane where that leaves
///   a row to one warp, otherwise more warps a row with fewer vectors each, as long as the block stays small.
///   n = 512 has two vectors and no exchange, which a launch that the next one overlaps feels most.
/// - light: all multiprocessors should have warps, so n = 64 .. 512 have two vectors a lane and small blocks.
/// - medium, full (L2): four vectors a lane share the fixed part of a warp's code (addresses, matrices); n =
///   1024 then needs no exchange. Blocks of 16 KB up to n = 1024: an H200 starts about 1.6 blocks a ns, and
///   in blocks of 4 KB the last of 2^22 elements start when others are done already. Up to 64 registers of a
///   lane, 4096 vectors fit on a multiprocessor: 2^22 elements then are one wave. bf16 is faster where the
///   compiler is told so, f16 where it comes out by itself.
/// - dram: many small blocks with one or two vectors a lane, the best shape of a copy; four at n = 1024,
///   where no exchange is better still.
/// - n = 8192: eight warps of 32 sums a lane; four of 64 have fewer stores, of 16 bytes instead of 8, but
///   need longer to the last of them.
/// - n = 16384: four warps of 128 sums, three rows on a multiprocessor. Sixteen warps of 32 sums are two rows
///   there, which load, compute and store in step; so do three at first, unless they are staggered.
/// - bf16 at n = 2, 4: one vector a lane inside the L2, because numbers are multiplied by 2^-k there.
/// - f32 rows of 4096 and more: three passes through shared memory instead of shuffles, at any amount of
///   work, and registers limited so that 64 KiB of rows are resident on a multiprocessor, or one row of
///   32768. Rows come by cp.async: loads to registers hold lines of the L1 until they arrive, and buffers
///   leave it few.
/// - f32 rows of 16384 and 32768: one or two rows fill a multiprocessor, and the first rows of all of them
///   would load, compute and store in step. So groups of blocks start one after the other, where the rows are
///   enough for all: two groups inside the L2, eight out of it. There half as many warps with stores of 16
///   bytes are faster; inside the L2 a row's own time counts, and more warps make it shorter.
struct LaunchRow {
  Launch small, light, medium, full, dram;
};

constexpr Launch kOne{1, 1, 256}, kTwo{2, 1, 256}, kFour{4, 1, 128};  // vectors a lane, 4 KB a block and more

constexpr Launch kStaggered{16, 4, 128, 3, Form::registers, 600};  // n = 16384

constexpr LaunchRow at_any_work(const Launch& launch) {
  return {launch, launch, launch, launch, launch};
}

/// n = 64 .. 1024: one warp holds whole rows inside the L2.
constexpr LaunchRow launches_of_warps(Dtype dtype, int log_n) {
  constexpr Launch kShort{1, 1, 128}, kHalf{2, 1, 64}, kLimited{4, 1, 256, 4}, kLong{4, 1, 256};
  const Launch large = dtype == Dtype::bf16 ? kLimited : kLong;
  switch (log_n) {
    case 9:
      return {{2, 1, 128}, kHalf, large, dtype == Dtype::bf16 ? kLimited : kFour, {2, 1, 128}};
    case 10:
      return {{1, 4, 128}, {4, 1, 64}, large, large, {4, 1, 64}};
    default:
      return {kShort, kHalf, large, large, {2, 1, 128}};
  }
}

constexpr LaunchRow launches_16(Dtype dtype, int log_n) {
  const bool bf16 = dtype == Dtype::bf16;
  switch (log_n) {
    case 1:
      return {kOne, kOne, kOne, bf16 ? kOne : kTwo, kOne};
    case 2:
      return {kOne, kOne, kOne, bf16 ? kOne : kFour, kOne};
    case 3:
      return {kOne, kFour, kFour, kFour, kOne};
    case 4:
      return {kOne, kTwo, kTwo, kTwo, kOne};
    case 5:
      return {kOne, {2, 1, 128}, {2, 1, 128}, {1, 1, 128}, {1, 1, 128}};
    case 6:
    case 7:
    case 8:
    case 9:
    case 10:
      return launches_of_warps(dtype, log_n);
    case 11: {
      constexpr Launch kBest{4, 2, 64};
      return {{2, 4, 128}, kBest, kBest, kBest, kBest};
    }
    case 12: {
      constexpr Launch kBest{4, 4, 128};
      return {{2, 8, 256}, kBest, kBest, kBest, kBest};
    }
    case 13:
      return at_any_work({4, 8, 256});
    default:
      return {{16, 4, 128, 3}, kStaggered, kStaggered, kStaggered, kStaggered};
  }
}

constexpr LaunchRow launches_32(int log_n) {
  switch (log_n) {
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
    case 6:
    case 7:
      return {kOne, kOne, kOne, kTwo, kOne};
    case 8:
      return {{1, 2, 64}, {2, 1, 128}, {2, 1, 128}, {4, 1, 64}, {2, 1, 64}};
    case 9:
      return {{1, 4, 128}, {2, 2, 64}, {2, 2, 64}, {4, 1, 64}, {2, 2, 64}};
    case 10: {
      constexpr Launch kBest{2, 4, 128};
      return {kBest, kBest, kBest, {8, 1, 64}, kBest};
    }
    case 11: {
      constexpr Launch kBest{2, 8, 256};
      return {kBest, kBest, kBest, {8, 2, 64, 16, Form::passes}, kBest};
    }
    case 12:
      return at_any_work({8, 4, 128, 8, Form::passes});
    case 13:
      return at_any_work({8, 8, 256, 4, Form::passes});
    case 14: {
      constexpr Launch kTogether{8, 16, 512, 2, Form::passes};
      return {kTogether,
              kTogether,
              kTogether,
              {8, 16, 512, 2, Form::passes, 1500, 2},
              {16, 8, 256, 2, Form::passes, 300, 8}};
    }
    default: {
      constexpr Launch kTogether{8, 32, 1024, 1, Form::passes};
      return {kTogether,
              kTogether,
              kTogether,
              {8, 32, 1024, 1, Form::passes, 3500, 2},
              {16, 16, 512, 1, Form::passes, 900, 8}};
    }
  }
}

constexpr Launch launch_for(Dtype dtype, int log_n, Regime regime) {
  const LaunchRow row = dtype == Dtype::f32 ? launches_32(log_n) : launches_16(dtype, log_n);
  switch (regime) {
    case Regime::small:
      return row.small;
    case Regime::light:
      return row.light;
    case Regime::medium:
      return row.medium;
    case Regime::full:
      return row.full;
    case Regime::dram:
      break;
  }
  return row.dram;
}

/// The launch for data that are not dense 16-byte vectors, at any amount of work: with registers for
/// addresses.
constexpr Launch fallback_launch(Dtype dtype, int log_n) {
  if (log_n == kLargestWideLogN) return {16, 16, 512, 1, Form::passes};
  if (dtype == Dtype::f32 && log_n == 14) return {8, 16, 512, 2, Form::passes};
  if (dtype != Dtype::f32 && log_n == kLargestLogN) return {8, 8, 256, 2};
  return launch_for(dtype, log_n, Regime::dram);
}

/// When the next kernel of the stream may be scheduled, if its launch allows that: as soon as this one reads,
/// when its loads are on their way, when the matrices are there too (the data are not yet), or around the
/// exchange.
enum class Trigger { at_end, at_start, behind_loads, behind_matrices, before_exchange, behind_exchange };

constexpr bool at_exchange(Trigger trigger) {
  return trigger == Trigger::before_exchange || trigger == Trigger::behind_exchange;
}

/// For the launches of few blocks, measured on an H200 over one row .. 2^19 elements. Early, the blocks of
/// the next kernel come while those of this one still start and load, and cost them time, the more the longer
/// the rows; late, they are not there when this one has ended.
constexpr Trigger trigger_for(Dtype dtype, int log_n, bool single_block) {
  if (dtype == Dtype::f32) {
    if (log_n <= 9) return Trigger::at_start;
    return log_n == 11 || log_n == 12 ? Trigger::before_exchange : Trigger::behind_loads;
  }
  if (log_n < kSmallestSplitLogN) return Trigger::at_start;
  switch (log_n) {
    case 9:
      return single_block ? Trigger::behind_loads : Trigger::behind_matrices;
    case 10:
      return single_block ? Trigger::behind_loads : Trigger::before_exchange;
    case 11:
      return Trigger::before_exchange;
    case 12:
      return Trigger::behind_exchange;
    case 13:
      return Trigger::behind_matrices;
    default:
      return Trigger::behind_loads;
  }
}

/// Three of the four registers of a matrix hold the same number, and for almost every mma the compiler makes
/// a copy of all four, unless it does not see that. Whether to keep that from it: where a warp has four
/// vectors to itself, or sixteen of a shared row. With fewer the copies hide behind the loads, or registers
/// are short; at n = 512 (f16) it would be the 65th, and 14 blocks instead of 16 would fit on a
/// multiprocessor, and so for n = 64 and 1024 in blocks of 256 threads.
constexpr bool hides_equal_registers(const Geometry& g) {
  if (g.warps_per_row() > 1) return g.vectors() >= 16;
  const bool short_of_registers =
      g.dtype == Dtype::f16 && (g.log_n == 9 || (g.threads() == 256 && (g.log_n == 6 || g.log_n == 10)));
  return g.vectors() >= 4 && !short_of_registers;
}

/// What a geometry must keep for the kernel to be right: warps that share a row have the block to themselves.
constexpr bool fits(const Geometry& g) {
  const Launch& l = g.launch;
  const bool shared = l.warps_per_row > 1;
  return is_power_of_two(l.vectors) && is_power_of_two(l.warps_per_row) && l.threads % 32 == 0 &&
         l.threads <= 1024 && g.vector_bits() >= 0 && l.vectors >> g.vector_bits() >= 1 &&
         g.rows_per_block() >= 1 && g.piece() >= 1 &&
         (!shared || (l.threads == 32 * l.warps_per_row && g.rows_per_block() == 1)) &&
         (l.stagger == 0 ? l.groups == 0 : l.blocks_per_sm > 0) &&
         (l.form == Form::registers ||
          (g.dtype == Dtype::f32 && shared && (l.vectors == 8 || l.vectors == 16)));
}

// ---- fragments of mma.m16n8k16 and .m16n8k8 (PTX ISA, "Matrix Fragments for mma.m16n8k16"), 16-bit operands
// packed in pairs, lower index in the lower half; lane = 4 g + t

/// Row and column of half `half` of register `r` (0..3; 0..1 for m16n8k8) of operand A.
constexpr int a_row(int lane, int r) {
  return (lane >> 2) | 8 * (r & 1);
}
constexpr int a_column(int lane, int r, int half) {
  return (2 * (lane & 3)) | half | 8 * (r >> 1);
}
/// Row of half `half` of register `r` (0..1; 0 for k8) of operand B; its column is lane / 4.
constexpr int b_row(int lane, int r, int half) {
  return (2 * (lane & 3)) | half | 8 * r;
}
constexpr int b_column(int lane) {
  return lane >> 2;
}
/// Row and column of accumulator register `r` (0..3).
constexpr int d_row(int lane, int r) {
  return (lane >> 2) | 8 * (r >> 1);
}
constexpr int d_column(int lane, int r) {
  return (2 * (lane & 3)) | (r & 1);
}

// The two stages for 256 consecutive elements of a warp, data as operand B both times. The accumulators of
// the first stage, read as operand B of the second, are transposed: what was counted by g is now counted by
// k. After the second stage every element is back where it was loaded. Bits behind (k0, k1, k2, k3):
//   first stage: (b0, b3, b4, b1), columns g = b5-b7, one mma for each value of b2
//   second stage: (b5, b6, b7, b2), columns g = (b0, b3, b4), one mma for each value of b1
// Sylvester's matrix does not change when rows and columns have their bits permuted alike, so the same
// fragment serves any four bits.
inline constexpr int kFirstStageBits[4] = {0, 3, 4, 1};
inline constexpr int kSecondStageBits[4] = {5, 6, 7, 2};

/// Which of the four bits of k belong to a row of n = 2^log_n; the others tell rows apart.
constexpr unsigned transformed_bits(const int (&bits)[4], int log_n) {
  unsigned mask = 0;
  for (int i = 0; i < 4; ++i)
    mask |= bits[i] < log_n ? 1U << i : 0U;
  return mask;
}

/// Half of a matrix fragment: the Sylvester entry over the `transformed` bits of row m and column k where all
/// other bits agree, else 0. `one` is the 16-bit pattern of a positive entry.
constexpr std::uint32_t matrix_entry(unsigned m, unsigned k, unsigned transformed, std::uint32_t one) {
  if (((m ^ k) & ~transformed & 15U) != 0) return 0;
  return one ^ (((0x6996U >> (m & k & transformed)) & 1U) << 15);  // 0x6996: parities of 0..15
}

/// Register r of the 16 x 16 matrix as operand A, where bit 3 is transformed: H16 = [H8 H8; H8 -H8], and
/// register r holds the quarter with m3 = r & 1, k3 = r >> 1.
constexpr std::uint32_t matrix_fragment(int lane, int r, unsigned transformed, std::uint32_t one) {
  const auto m = static_cast<unsigned>(a_row(lane, 0));
  const auto k = static_cast<unsigned>(a_column(lane, 0, 0));
  const std::uint32_t signed_one = r == 3 ? one ^ 0x8000U : one;
  return matrix_entry(m, k, transformed, signed_one) | matrix_entry(m, k | 1U, transformed, signed_one) << 16;
}

/// -I as the 8 x 8 bf16 operand B.
constexpr std::uint32_t minus_identity_fragment(int lane) {
  constexpr std::uint32_t kMinusOne = 0xBF80;
  return (b_row(lane, 0, 0) == b_column(lane) ? kMinusOne : 0U) |
         (b_row(lane, 0, 1) == b_column(lane) ? kMinusOne << 16 : 0U);
}

// ---- numerics

/// k: sums are formed of data times 2^-k, and the final multiplier is scale 2^k. Both factors are exact. For
/// f16 on the tensor cores, which cannot overflow fp32, 2^-k is the scale where that is a power of two, so
/// that nothing is left to multiply by. For other 16-bit data that go through bf16 or the tensor cores
/// k = log2 n, so that no partial sum exceeds max|x|; 0 for f32 (where 2^-k would round subnormals), for f16
/// on CUDA cores and where scale 2^k would overflow.
int shrink_exponent(const Problem& problem);
float final_factor(const Problem& problem);

/// Whether kernels without the last multiplication are built, for problems whose final factor is 1: as the
/// orthonormal scale is where log2 n is even.
constexpr bool has_scale_in_constants(const Geometry& g) {
  return g.dtype == Dtype::f16 && g.kind() == Kind::split_mma && g.log_n % 2 == 0 && g.log_n >= 10;
}

/// What a plan promises on a device of this compute capability (90 for sm_90).
Numerics numerics_of(const Problem& problem, int compute_capability);

}  // namespace fwht::mma_split
