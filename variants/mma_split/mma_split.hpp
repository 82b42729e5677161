// mma_split: geometry, launch table and index maps, shared by the kernels and their host tests.
#pragma once

#include <cstdint>
#include <memory>

#include "common/bits.hpp"
#include "common/variant.hpp"

namespace fwht::mma_split {

extern const Variant variant;

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device);

inline constexpr int kLargestLogN = 13;
inline constexpr int kSmallestSplitLogN = 6;  // 16-bit data; below, CUDA cores keep up with memory

enum class Kind {
  butterflies,  ///< fp32 butterflies: registers (FADD) and lanes (SHFL + FFMA)
  split_mma     ///< two tensor-core stages for b0..b7, the fp32 between them carried as bf16 hi + lo
};

/// How a row is spread: 16-byte vectors a lane holds, warps that share a row (1: a warp holds whole rows).
/// blocks_per_sm is what the registers are limited for; 0 leaves them to the compiler.
struct Launch {
  int vectors, warps_per_row, threads, blocks_per_sm = 0;
};

/// The launch table. What the numbers are for:
/// - bytes in flight: a copy is fastest with 32-64 KB of loads in flight per SM from many small blocks, so a
///   lane holds 1 or 2 vectors where the row allows it; more cost registers, hence resident warps;
/// - block starts: an H200 starts about 1.6 blocks a ns, so a block must move 2 KB or more;
/// - latency: a second vector keeps a second tensor-core chain in flight; a row of 4096 in one warp would be
///   one long chain of instructions, so longer rows take 2, 4 or 8 warps and one exchange;
/// - exchange: vectors are a multiple of the warps that share a row, so that whole vectors change places.
constexpr Launch launch_for(Dtype dtype, int log_n) {
  if (dtype != Dtype::f32) {
    if (log_n < kSmallestSplitLogN) return {1, 1, 256};  // 4 KB a block, nothing but the vector in registers
    constexpr Launch kSplit[] = {
        {2, 1, 64},      // n = 64: 2 KB a block
        {2, 1, 128},     // 128: 4 KB
        {2, 1, 128},     // 256
        {2, 1, 128},     // 512: a row a warp
        {2, 2, 64},      // 1024: a row a block from here on, 2 KB
        {4, 2, 64},      // 2048: 4 KB
        {4, 4, 128},     // 4096: 8 KB
        {8, 4, 128, 5},  // 8192: 16 KB; 64 sums a lane, five blocks leave it 96 registers
    };
    return kSplit[log_n - kSmallestSplitLogN];
  }
  if (log_n <= 7) return {1, 1, 256};  // a row inside one vector of a warp
  constexpr Launch kWide[] = {
      {2, 1, 128},  // n = 256: a row a warp
      {2, 2, 64},   // 512: 2 KB a block, as 1024 16-bit elements
      {4, 2, 64},   // 1024
      {4, 4, 128},  // 2048
      {8, 4, 128},  // 4096
      {8, 8, 256},  // 8192: 32 KB
  };
  return kWide[log_n - 8];
}

/// Everything about one (dtype, n) that is fixed at compile time. Index bits of a row, low first: element
/// bits (inside the 16-byte vector), lane bits, vector bits, warp bits.
struct Geometry {
  Dtype dtype;
  int log_n;

  constexpr Launch launch() const { return launch_for(dtype, log_n); }
  constexpr Kind kind() const {
    return dtype != Dtype::f32 && log_n >= kSmallestSplitLogN ? Kind::split_mma : Kind::butterflies;
  }
  constexpr int vectors() const { return launch().vectors; }
  constexpr int warps_per_row() const { return launch().warps_per_row; }
  constexpr int threads() const { return launch().threads; }
  constexpr int warps() const { return threads() / 32; }

  constexpr int log_vector() const { return dtype == Dtype::f32 ? 2 : 3; }  // elements of a vector
  constexpr int vector_elements() const { return 1 << log_vector(); }
  constexpr int element_bits() const { return log_n < log_vector() ? log_n : log_vector(); }
  constexpr int lane_bits() const {
    const int rest = log_n - element_bits();
    return rest < 5 ? rest : 5;
  }
  constexpr int warp_bits() const { return log2_floor(warps_per_row()); }
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
  constexpr int row_step() const {
    return log_vectors_per_row() > 5 ? 0 : (32 >> log_vectors_per_row()) << log_rows_per_vector();
  }
  constexpr int column_step() const { return log_vectors_per_row() > 5 ? 32 << log_vector() : 0; }

  // The exchange swaps warp bits with vector bits and keeps the lane: vector `v` of warp `from` goes to warp
  // v / kept() and becomes its piece v mod kept() of source `from`. So every shared-memory access is 32
  // consecutive 16-byte words, free of bank conflicts without swizzle or padding.
  constexpr int kept() const { return vectors() / warps_per_row(); }
  constexpr int quads() const { return vector_elements() / 4; }  // float4 of one vector widened to fp32
  /// Place of a quad in units of 32 float4, lane l using the l-th of them.
  constexpr int exchange_slot(int to, int from, int piece, int quad) const {
    return ((to * warps_per_row() + from) * kept() + piece) * quads() + quad;
  }
  constexpr int exchange_slots() const {
    return warps_per_row() == 1 ? 0 : warps_per_row() * vectors() * quads();
  }
  constexpr int shared_bytes() const { return exchange_slots() * 32 * 16; }
  /// Vector of the whole row (0 .. warps_per_row * vectors - 1) that warp `to` holds after the exchange.
  constexpr int vector_of_row(int to, int from, int piece) const {
    return from * vectors() + to * kept() + piece;
  }
};

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
/// 16-bit data that go through bf16 or the tensor cores k = log2 n, so that no partial sum exceeds max|x|; 0
/// for f32 (where 2^-k would round subnormals), for f16 on CUDA cores (which cannot overflow fp32) and where
/// scale 2^k would overflow.
int shrink_exponent(const Problem& problem);

/// What a plan promises on a device of this compute capability (90 for sm_90).
NumericModel numeric_model(const Problem& problem, int compute_capability);

}  // namespace fwht::mma_split
