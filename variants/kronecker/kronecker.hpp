// kronecker: shapes, launches and index maps of n = m 2^k, shared by the kernel and its host tests.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/bits.hpp"
#include "common/operator.hpp"
#include "common/ptx/fragments.hpp"
#include "common/variant.hpp"

namespace fwht::kronecker {

extern const Variant variant;

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device);

/// How a row is cut: as a matrix of `order` x `columns`, order = m 2^j. Stage 1 multiplies its columns by
/// H_m (x) S_(2^j), stage 2 its rows by S_columns.
struct Shape {
  int order = 0, columns = 0;
  constexpr bool operator==(const Shape&) const = default;

  constexpr int n() const { return order * columns; }
  /// k steps of stage 1: 16 rows of the matrix each, the last one filled up with zeros.
  constexpr int k_steps() const { return (order + 15) / 16; }
  /// One warpgroup gives 64 rows of the product, a warp 16 of them.
  constexpr int warpgroups() const { return (order + 63) / 64; }
  constexpr int warps() const { return 4 * warpgroups(); }
  /// fp32 accumulators of a thread: a warp's 16 rows, all columns.
  constexpr int accumulators() const { return columns / 2; }
  /// Bytes of one k step: a box of the tensor maps, and what one warp stores.
  constexpr int box_bytes() const { return 16 * columns * 2; }
  constexpr int row_bytes() const { return k_steps() * box_bytes(); }
};

/// A team of warps works on one row at a time and has `slots` rows under way; blocks of `teams` teams.
struct Launch {
  Shape shape;
  int teams = 1, slots = 3, blocks_per_sm = 1;
  constexpr bool operator==(const Launch&) const = default;

  constexpr int threads() const { return teams * shape.warps() * 32; }
  /// Rows, then the warps' staging of results, then barriers and row numbers of the slots.
  constexpr int slot_bytes() const { return teams * slots * shape.row_bytes(); }
  constexpr int staging_bytes() const { return teams * shape.row_bytes(); }
  constexpr int shared_bytes() const { return slot_bytes() + staging_bytes() + teams * slots * 24; }
};

/// The launches, one for every row length that is offered. A row length whose order leaves more than 48 of 64
/// rows of a warpgroup empty, or that has fewer than 64 columns, is not served by this form.
inline constexpr Launch kLaunches[] = {
    // 12 2^k
    {{12, 64}, 1, 3, 8},   // 768: one warp of four has rows
    {{24, 64}, 1, 3, 6},   // 1536
    {{48, 64}, 1, 3, 6},   // 3072
    {{48, 128}, 1, 3, 4},  // 6144
    {{48, 256}, 1, 3, 2},  // 12288
    // 20 2^k: order 40 keeps three of four warps busy, 80 five of eight
    {{40, 64}, 1, 3, 6},   // 2560
    {{40, 128}, 1, 3, 4},  // 5120
    {{80, 256}, 1, 3, 1},  // 20480
    // 28 2^k
    {{28, 64}, 1, 3, 6},    // 1792
    {{56, 64}, 1, 3, 6},    // 3584
    {{56, 128}, 1, 2, 4},   // 7168
    {{56, 256}, 2, 2, 1},   // 14336
    {{112, 256}, 1, 3, 1},  // 28672
    // 36 2^k
    {{36, 64}, 1, 3, 6},    // 2304
    {{72, 128}, 1, 3, 2},   // 9216
    {{144, 128}, 1, 3, 1},  // 18432
    // the others
    {{76, 64}, 1, 3, 2},    // 4864
    {{84, 64}, 1, 3, 2},    // 5376
    {{140, 64}, 1, 5, 1},   // 8960
    {{76, 128}, 1, 3, 2},   // 9728
    {{172, 64}, 1, 3, 1},   // 11008
    {{108, 128}, 1, 2, 2},  // 13824
    {{116, 128}, 1, 2, 2},  // 14848: of no model; the base is not symmetric, so that it tells a transpose
    {{136, 128}, 1, 3, 1},  // 17408
    {{140, 128}, 1, 3, 1},  // 17920
    {{148, 128}, 1, 3, 1},  // 18944
    {{168, 128}, 1, 3, 1},  // 21504
    {{172, 128}, 1, 2, 1},  // 22016
    {{100, 256}, 1, 3, 1},  // 25600
    {{108, 256}, 1, 3, 1},  // 27648
};

/// The launch for H_m (x) S: one named Hadamard matrix on the slow index, Sylvester behind it. None where n
/// is not listed or the order of its shape is no multiple of m.
std::optional<Launch> launch_for(const Operator& op);

/// Factor by factor: the matrix exact, Sylvester by additions and one split stage, one rounding.
Numerics numerics_of(const Problem& problem);

/// Matrix descriptor with the 128-byte swizzle (PTX ISA, "Matrix Descriptor Format"): bits 0-13 start, 16-29
/// leading dimension byte offset, 32-45 stride dimension byte offset, each in units of 16 bytes; bits 62-63
/// swizzle mode 1. MN-major: 64 columns are 128 bytes; the leading dimension is the next 64 columns, the
/// stride the next 8 rows.
constexpr std::uint64_t descriptor(std::uint32_t shared_address) {
  constexpr std::uint64_t kLeading = 16 * 128, kStride = 8 * 128;
  return (std::uint64_t{shared_address & 0x3FFFFU} >> 4) | (kLeading >> 4 << 16) | (kStride >> 4 << 32) |
         (std::uint64_t{1} << 62);
}

/// Byte of a staged box at which a warp's row (0..15) and 16-byte piece (8 columns) lies: 64 columns are a
/// block of 16 rows of 128 bytes, whose pieces are swizzled by the row.
constexpr int box_byte(int row, int piece) {
  return (piece >> 3) * (16 * 128) + row * 128 + (((piece ^ row) & 7) << 4);
}

// The matrix of stage 1 travels as sign bits: one 32-bit word of a lane holds the fragments of operand A for
// four k steps. Bit 4 (s & 3) + r is the sign of the lower half of register r in step s, bit 16 higher the
// upper half.

constexpr int sign_words(const Shape& shape) {
  return (shape.k_steps() + 3) / 4;
}
/// Index of a lane's word for four k steps from 4 `group` on.
constexpr int sign_word_index(const Shape& shape, int warp, int group, int lane) {
  return (warp * sign_words(shape) + group) * 32 + lane;
}
/// Both halves of a register of operand A: +-1 in the storage type, from the word that holds its signs.
constexpr std::uint32_t signed_ones(std::uint32_t ones, std::uint32_t word, int step, int r) {
  return ones ^ ((word << (15 - (4 * (step & 3) + r))) & 0x80008000U);
}

/// H8 in bf16 as the 8 x 8 operand B of m16n8k8; the same word twice is H8 above H8 as that of m16n8k16.
constexpr std::uint32_t eight_point_fragment(int lane) {
  constexpr std::uint32_t kOne = 0x3F80, kParities = 0x96;  // bit i: parity of i < 8
  const int column = ptx::b_column(lane);
  const std::uint32_t low = kParities >> (ptx::b_row(lane, 0, 0) & column) & 1U;
  const std::uint32_t high = kParities >> (ptx::b_row(lane, 0, 1) & column) & 1U;
  return (kOne | low << 15) | (kOne | high << 15) << 16;
}

/// The words of the matrix H_m (x) S_(order / m) or its transpose, for the warps of `shape`. Rows and columns
/// beyond the order are +1; they meet zeros.
std::vector<std::uint32_t> sign_table(const Shape& shape, const Factor& factor);

}  // namespace fwht::kronecker
