// passes: which passes make a vector's transform, and the order in which one launch works through two.
#pragma once

#include <array>
#include <cstdint>

#include "common/contract/dtype.hpp"
#include "variants/passes/tile.hpp"

namespace fwht::passes {

inline constexpr int kSmallestLogN = 1, kLargestLogN = 31;
/// From here on no block holds a row, whatever the type.
inline constexpr int kSmallestLongLogN = 16;

/// What passes leave between them: the arithmetic of the sums.
enum class Word {
  fp32,
  int32,
  eight_bytes,  ///< fp64, int64
};

constexpr Word word_of(Dtype dtype) {
  if (bytes_of(dtype) == 8) return Word::eight_bytes;
  return dtype == Dtype::i32 ? Word::int32 : Word::fp32;
}

/// fp32 between passes, in a workspace.
constexpr bool is_rounded(Dtype dtype) {
  return bytes_of(dtype) == 2;
}

/// One kernel over one pass.
struct PassKernel {
  PassTile tile;
  int threads = 0;            // of a block: of one tile or of several
  bool lets_next_in = false;  // the next launch, behind the loads

  constexpr bool operator==(const PassKernel&) const = default;
  constexpr int shared_bytes() const { return tile.shared_bytes() * (threads / tile.threads()); }
  /// Elements of a block.
  constexpr int elements() const { return threads << tile.log_values; }
};

/// One kernel over two passes, the first over whole rows.
struct PairKernel {
  PassTile first, second;
  int threads = 0;

  constexpr bool operator==(const PairKernel&) const = default;
  constexpr int shared_bytes() const {
    return std::max(first.shared_bytes() * (threads / first.threads()),
                    second.shared_bytes() * (threads / second.threads()));
  }
};

constexpr PassTile column_tile(int bits, int log_columns = 5) {
  return {bits, log_columns, false};
}
/// Of elements of 8 bytes: 128 bytes are 16 of them.
constexpr PassTile wide_tile(int bits) {
  return {bits, 4, false, 4};
}

/// How the lowest bits are transformed.
enum class Lowest {
  pass,         ///< a launch of its own
  pair,         ///< one launch with the pass above, chunk by chunk, so that what lies between stays in the L2
  butterflies,  ///< rows by the variant `butterflies`
};

/// The passes of a vector, lowest bits first. All schedules form the same sums.
struct Schedule {
  Lowest lowest = Lowest::pass;
  int log_row = 0;         // bits of the lowest pass
  PassTile second, third;  // third.bits == 0: none
  int log_chunk = 0;       // of a pair: elements that are in flight at once
  bool overlaps = false;   // launches begin before the one in front ends

  constexpr bool operator==(const Schedule&) const = default;
  constexpr int levels() const { return log_row + second.bits + third.bits; }
  /// The tile of the lowest pass, where it is a pass of this variant.
  constexpr PassTile row() const {
    const int columns = second.log_values == 4 ? 4 : 5;
    return {log_row - columns, columns, true, second.log_values};
  }
  constexpr PairKernel pair() const {
    return {row(), second, std::max({row().threads(), second.threads(), 128})};
  }
  /// The most that a block of any of its launches needs.
  constexpr int shared_bytes() const {
    const int columns = std::max(second.shared_bytes(), third.bits == 0 ? 0 : third.shared_bytes());
    switch (lowest) {
      case Lowest::pass:
        return std::max(columns, row().shared_bytes());
      case Lowest::pair:
        return std::max(columns, pair().shared_bytes());
      case Lowest::butterflies:
        break;
    }
    return std::max(columns, 4 << log_row);
  }
};

/// The longest row that a block of 128 KiB holds.
constexpr int largest_whole_log_n(Word word) {
  return word == Word::eight_bytes ? 14 : 15;
}
/// Rows of 2^10 elements and less share a warp's tile.
inline constexpr int kSmallestRowTile = 10;

constexpr RowTile row_tile(Word word, int log_n, bool ordered) {
  return {std::max(log_n, kSmallestRowTile), word == Word::eight_bytes ? 8 : 4, ordered};
}

/// A block of the device can hold the row.
constexpr bool is_one_pass(Word word, int log_n, std::int64_t shared_per_block) {
  return log_n <= largest_whole_log_n(word) &&
         row_tile(word, log_n, false).shared_bytes() <= shared_per_block;
}

/// So few of the longest rows leave multiprocessors idle: two short passes give each row 32 blocks, and take
/// less than one block that holds it. On an H200 both take as long where a third as many rows as it has
/// multiprocessors are transformed. Where there are clusters, they take less still (takes_clusters).
///
/// @param rows  of 2^log_n elements, in natural order
constexpr bool takes_two_passes(Word word, int log_n, std::int64_t rows, int sm_count) {
  return log_n == largest_whole_log_n(word) && 3 * rows <= sm_count;
}

/// Rows of these lengths a cluster may share: the three longest that a block holds, twice and four times as
/// long ones.
constexpr int smallest_cluster_log_n(Word word) {
  return largest_whole_log_n(word) - 2;
}
constexpr int largest_cluster_log_n(Word word) {
  return largest_whole_log_n(word) + 2;
}
/// Eight blocks, which every device with clusters has, or 16, which the kernel has to be allowed. Longer rows
/// gain by more of them; of the shorter ones 16 take 0.1 us less for one row and more for many.
constexpr ClusterRow cluster_row(Word word, int log_n) {
  return {log_n, log_n < largest_whole_log_n(word) ? 3 : 4, word == Word::eight_bytes ? 8 : 4};
}

/// What the L2 keeps between two passes.
inline constexpr std::int64_t kBytesInsideL2 = std::int64_t{32} << 20;

/// Whether clusters take less time than one block a row, or than passes. Measured on an H200: few rows that a
/// block holds; any number twice as long; of those four times as long, what does not stay in the L2.
///
/// @param rows  of 2^log_n elements, in natural order
constexpr bool takes_clusters(Word word, int log_n, std::int64_t rows, int sm_count) {
  const int longest_whole = largest_whole_log_n(word);
  if (log_n < smallest_cluster_log_n(word) || log_n > largest_cluster_log_n(word)) return false;
  if (log_n == longest_whole + 1) return true;
  if (log_n > longest_whole) return rows * cluster_row(word, log_n).number_bytes << log_n > kBytesInsideL2;
  return (log_n == longest_whole ? 2 : 3) * rows <= sm_count;
}

/// Blocks that start apart: block i waits i mod groups times `clocks`.
struct Turns {
  unsigned clocks = 0, groups = 1;
  constexpr bool operator==(const Turns&) const = default;
};

/// One or two rows of 64 KiB and more fill a multiprocessor, and the first of all of them would load, compute
/// and store in step. `butterflies` found these turns for rows of as many bytes (its launches.hpp).
///
/// @param blocks        of the launch
/// @param first_blocks  that start at once
constexpr Turns turns_of(const RowTile& tile, std::int64_t blocks, std::int64_t first_blocks) {
  const std::int64_t bytes = blocks * tile.shared_bytes();
  if (tile.shared_bytes() < 64 * 1024 || blocks < 2 * first_blocks) return {};
  const bool one = tile.shared_bytes() > 64 * 1024;
  if (bytes <= std::int64_t{32} << 20) return one ? Turns{3500, 2} : Turns{1500, 2};
  return one ? Turns{900, 8} : Turns{300, 8};
}

/// The longest vectors that fit in the L2.
constexpr int largest_inside_l2(Word word) {
  return word == Word::eight_bytes ? 22 : 23;
}

/// For rows shorter than 2^kSmallestLongLogN that are few, or that a block does not hold: two short passes.
constexpr Schedule of_short_vectors(Word word, int log_n) {
  if (word == Word::eight_bytes) return {Lowest::pass, log_n - 5, wide_tile(5), {}, 0, true};
  return {Lowest::pass, log_n - 5, column_tile(5), {}, 0, true};
}

/// Vectors that all fit in the L2 beside each other: launches that overlap, and tiles of 64 bytes, which cost
/// nothing there, where they give more blocks.
constexpr Schedule inside_l2(Word word, int log_n) {
  if (log_n < kSmallestLongLogN) return of_short_vectors(word, log_n);
  constexpr std::array<Schedule, 8> kSchedules{{
      {Lowest::pass, 10, column_tile(6, 4), {}, 0, true},  // 2^16
      {Lowest::pass, 10, column_tile(7, 4), {}, 0, true},
      {Lowest::pass, 10, column_tile(8, 4), {}, 0, true},
      {Lowest::pass, 10, column_tile(9, 4), {}, 0, true},
      {Lowest::pass, 13, column_tile(7, 5), {}, 0, true},  // 2^20
      {Lowest::pass, 12, column_tile(9, 4), {}, 0, true},
      {Lowest::pass, 13, column_tile(9, 4), {}, 0, true},
      {Lowest::pass, 13, column_tile(10, 4), {}, 0, true},  // 2^23
  }};
  constexpr std::array<Schedule, 7> kOfEightBytes{{
      {Lowest::pass, 10, wide_tile(6), {}, 0, true},  // 2^16
      {Lowest::pass, 10, wide_tile(7), {}, 0, true},
      {Lowest::pass, 10, wide_tile(8), {}, 0, true},
      {Lowest::pass, 11, wide_tile(8), {}, 0, true},
      {Lowest::pass, 12, wide_tile(8), {}, 0, true},  // 2^20
      {Lowest::pass, 13, wide_tile(8), {}, 0, true},
      {Lowest::pass, 13, wide_tile(9), {}, 0, true},
  }};
  const auto i = static_cast<std::size_t>(log_n - kSmallestLongLogN);
  return word == Word::eight_bytes ? kOfEightBytes[i] : kSchedules[i];
}

/// What passes through DRAM: tiles of 128 bytes; two passes to 2^26, from 2^27 on a third. Of 8 bytes: 2^24.
constexpr Schedule in_dram(Word word, int log_n) {
  if (log_n < kSmallestLongLogN) return of_short_vectors(word, log_n);
  constexpr int kBatch = 22, kPart = 21;  // 16 MB, 8 MB
  constexpr std::array<Schedule, kLargestLogN - kSmallestLongLogN + 1> kSchedules{{
      {Lowest::pair, 11, column_tile(5), {}, kBatch, false},  // 2^16
      {Lowest::pair, 12, column_tile(5), {}, kBatch, false},
      {Lowest::pair, 12, column_tile(6), {}, kBatch, false},
      {Lowest::pair, 12, column_tile(7), {}, kBatch, false},
      {Lowest::pair, 12, column_tile(8), {}, kBatch, false},  // 2^20
      {Lowest::pair, 13, column_tile(8), {}, kBatch, false},
      {Lowest::pair, 13, column_tile(9), {}, kBatch, false},
      {Lowest::pass, 13, column_tile(10), {}, 0, false},
      {Lowest::butterflies, 14, column_tile(10), {}, 0, false},  // 2^24
      {Lowest::butterflies, 15, column_tile(10), {}, 0, false},
      {Lowest::butterflies, 15, column_tile(11, 4), {}, 0, false},
      {Lowest::pair, 12, column_tile(8), column_tile(7), kPart, false},
      {Lowest::pair, 12, column_tile(8), column_tile(8, 6), kPart, false},  // 2^28
      {Lowest::pair, 12, column_tile(8), column_tile(9), kPart, false},
      {Lowest::pair, 12, column_tile(8), column_tile(10), kPart, false},
      {Lowest::pair, 13, column_tile(8), column_tile(10), kPart, false},
  }};
  constexpr std::array<Schedule, kLargestLogN - kSmallestLongLogN + 1> kOfEightBytes{{
      {Lowest::pass, 10, wide_tile(6), {}, 0, false},  // 2^16
      {Lowest::pass, 11, wide_tile(6), {}, 0, false},
      {Lowest::pass, 12, wide_tile(6), {}, 0, false},
      {Lowest::pass, 12, wide_tile(7), {}, 0, false},
      {Lowest::pass, 12, wide_tile(8), {}, 0, false},  // 2^20
      {Lowest::pass, 13, wide_tile(8), {}, 0, false},
      {Lowest::pass, 13, wide_tile(9), {}, 0, false},
      {Lowest::pass, 14, wide_tile(9), {}, 0, false},
      {Lowest::pass, 14, wide_tile(10), {}, 0, false},  // 2^24
      {Lowest::pass, 11, wide_tile(8), wide_tile(6), 0, false},
      {Lowest::pass, 12, wide_tile(8), wide_tile(6), 0, false},
      {Lowest::pass, 12, wide_tile(8), wide_tile(7), 0, false},
      {Lowest::pass, 12, wide_tile(8), wide_tile(8), 0, false},  // 2^28
      {Lowest::pass, 13, wide_tile(8), wide_tile(8), 0, false},
      {Lowest::pass, 13, wide_tile(8), wide_tile(9), 0, false},
      {Lowest::pass, 13, wide_tile(9), wide_tile(9), 0, false},
  }};
  const auto i = static_cast<std::size_t>(log_n - kSmallestLongLogN);
  if (word == Word::eight_bytes) return kOfEightBytes[i];
  Schedule schedule = kSchedules[i];
  // `butterflies` has no integers.
  if (word == Word::int32 && schedule.lowest == Lowest::butterflies) schedule.lowest = Lowest::pass;
  return schedule;
}

/// Where a block has less than 128 KiB (99 KiB in compute capability 8.6, 8.9 and 12.0): tiles of 64 KiB, and
/// a third pass from 2^23 on. Not measured.
constexpr Schedule in_small_blocks(Word word, int log_n) {
  constexpr int kPart = 21;
  if (word == Word::eight_bytes) {
    if (log_n == 23) return {Lowest::pass, 11, wide_tile(6), wide_tile(6), 0, false};
    if (log_n == 24) return {Lowest::pass, 12, wide_tile(6), wide_tile(6), 0, false};
    return in_dram(word, log_n);
  }
  switch (log_n) {
    case 23:
      return {Lowest::pair, 11, column_tile(5), column_tile(7), kPart, false};
    case 24:
      return {Lowest::pair, 12, column_tile(5), column_tile(7), kPart, false};
    case 25:
      return {Lowest::pair, 12, column_tile(6), column_tile(7), kPart, false};
    case 26:
      return {Lowest::pair, 12, column_tile(7), column_tile(7), kPart, false};
    case 30:
      return {Lowest::pair, 13, column_tile(8), column_tile(9), kPart, false};
    case 31:
      return {Lowest::pair, 13, column_tile(9), column_tile(9), kPart + 1, false};
    default:
      return in_dram(word, log_n);
  }
}

/// The shortest rows that passes share: few of them, and all where a block does not hold one.
constexpr int smallest_shared_log_n(Word word) {
  return word == Word::eight_bytes ? 14 : 15;
}

/// Of rows that are not is_one_pass(), or that takes_two_passes().
///
/// @param bytes             of all vectors; none of no vectors, however long
/// @param shared_per_block  bytes of shared memory that a block may have
constexpr Schedule schedule_for(Word word, int log_n, std::int64_t bytes, std::int64_t shared_per_block) {
  const bool fits_l2 = bytes <= kBytesInsideL2 && log_n <= largest_inside_l2(word);
  const Schedule measured = fits_l2 ? inside_l2(word, log_n) : in_dram(word, log_n);
  return measured.shared_bytes() <= shared_per_block ? measured : in_small_blocks(word, log_n);
}

/// Along a dimension of a tensor, whose later dimensions have 2^log_inner elements together: the index bits
/// [log_inner, log_inner + log_n) alone.
struct AxisPasses {
  std::array<PassTile, 3> tiles{};  // lowest bits first
  int count = 0;
};

inline constexpr int kFewestAxisBits = 5, kMostAxisBits = 10;  // of a pass
/// Tiles have 128 bytes of neighbours, of which the tensor must have that many.
constexpr int axis_log_columns(Word word) {
  return word == Word::eight_bytes ? 4 : 5;
}

constexpr PassTile axis_tile(Word word, int bits) {
  return word == Word::eight_bytes ? wide_tile(bits) : column_tile(bits, axis_log_columns(word));
}
/// A tile of 10 bits has 128 KiB, which some devices do not give a block.
constexpr int most_axis_bits(Word word, std::int64_t shared_per_block) {
  const bool fits = axis_tile(word, kMostAxisBits).shared_bytes() <= shared_per_block;
  return fits ? kMostAxisBits : kMostAxisBits - 1;
}

/// @param most  bits of a pass
constexpr AxisPasses axis_passes(Word word, int log_n, int most = kMostAxisBits) {
  AxisPasses passes;
  passes.count = (log_n + most - 1) / most;
  for (int i = 0, left = log_n; i < passes.count; ++i) {
    const int bits = left / (passes.count - i);
    passes.tiles[static_cast<std::size_t>(i)] = axis_tile(word, bits);
    left -= bits;
  }
  return passes;
}

/// A block is a tile, so that any number of tiles is a number of blocks.
constexpr PassKernel axis_kernel(const PassTile& tile) {
  return {tile, tile.threads(), false};
}

/// From one ordering into another: the highest bits first, gathered; then whole rows, then the bits between.
struct OrderedPasses {
  PassTile first, row, between;  // between.bits == 0: none
  int log_row = 0;
};

inline constexpr int kFewestGatheredBits = 6;

/// The shortest rows that this has tiles for.
constexpr int smallest_ordered_log_n(Word word) {
  return word == Word::eight_bytes ? 15 : 16;
}

constexpr OrderedPasses ordered_passes(Word word, int log_n) {
  const int log_row = log_n == 15 ? 9 : log_n <= 20 ? 10 : log_n == 23 ? 13 : 12;
  const int between = log_n < 24 ? 0 : (log_n - log_row) / 2;
  const int columns = axis_log_columns(word), log_values = word == Word::eight_bytes ? 4 : 5;
  return {{log_n - log_row - between, columns, false, log_values},
          {log_row - columns, columns, true, log_values},
          {between, columns, false, log_values},
          log_row};
}

/// Passes of 16-bit data, which have fp32 between them in a workspace, so that results are rounded once.
/// Tiles count elements, as those of fp32 do.
struct RoundedPasses {
  PassTile first, last;  // from 16 bits to the workspace, and back; last.bits == 0: one pass
  int first_shift = 0, last_shift = 0;
  int middle_bits = 0, middle_shift = 0;  // in the workspace, by the fp32 passes along a dimension; 0: none
  int log_part = 0;  // first and middle pass go over so many elements together, of one vector if part of it
  bool overlaps = false;  // the first kernel lets the next in behind its loads

  constexpr bool operator==(const RoundedPasses&) const = default;
  constexpr bool is_one_pass() const { return last.bits == 0; }
  constexpr int shared_bytes() const;
};

/// What the L2 keeps of the workspace, beside what is read and written: 16 MiB. As many vectors as fit, or a
/// part of one, are worked on together.
inline constexpr int kLogWorkspaceInL2 = 22;

constexpr RoundedPasses rounded_rows(int log_row, PassTile last, int middle_bits, int log_n) {
  const int above = log_row + middle_bits;
  return {{log_row - 5, 5, true},
          last,
          5,
          above,
          middle_bits,
          log_row,
          middle_bits > 0 ? kLogWorkspaceInL2 : log_n,
          log_n <= kLogWorkspaceInL2 || middle_bits > 0};
}

/// Of one vector, lowest bits first. Inside the L2 as fp32; above, the last pass has 64 columns, 128 bytes of
/// 16 bits, where shared memory allows. Three passes cost 20 bytes an element of traffic where two cost 12,
/// and 14 of DRAM if what lies between the first two stays in the L2.
///
/// @param shared_per_block  bytes of shared memory that a block may have
constexpr RoundedPasses rounded_passes(int log_n, std::int64_t shared_per_block) {
  if (log_n <= kLogWorkspaceInL2) {
    const Schedule fp32 = inside_l2(Word::fp32, log_n);
    return rounded_rows(fp32.log_row, fp32.second, 0, log_n);
  }
  const bool large = shared_per_block >= std::int64_t{128} * 1024;
  switch (log_n) {
    case 23:
      return rounded_rows(14, column_tile(9), 0, log_n);
    case 24:
      return large ? rounded_rows(14, column_tile(10), 0, log_n)
                   : rounded_rows(12, column_tile(7, 6), 5, log_n);
    case 25:
      return large ? rounded_rows(15, column_tile(10), 0, log_n)
                   : rounded_rows(12, column_tile(7, 6), 6, log_n);
    case 26:
      return rounded_rows(12, column_tile(7, 6), 7, log_n);
    case 27:
      return rounded_rows(13, column_tile(7, 6), 7, log_n);
    case 28:
      return rounded_rows(12, column_tile(8, 6), 8, log_n);
    case 29:
      return rounded_rows(13, column_tile(8, 6), 8, log_n);
    case 30:
      return large ? rounded_rows(13, column_tile(9, 6), 8, log_n)
                   : rounded_rows(13, column_tile(8, 6), 9, log_n);
    default:
      return rounded_rows(13, large ? column_tile(9, 6) : column_tile(9), 9, log_n);
  }
}

/// From one ordering into another: gathered from 16 bits, then the bits between, then whole rows.
constexpr RoundedPasses rounded_ordered_passes(int log_n) {
  const OrderedPasses fp32 = ordered_passes(Word::fp32, log_n);
  return {
      fp32.first, fp32.row, log_n - fp32.first.bits, fp32.row.log_columns, fp32.between.bits, fp32.log_row,
      log_n,      false};
}

/// Along a dimension, as axis_passes.
constexpr RoundedPasses rounded_axis_passes(int log_n, int log_inner, int most = kMostAxisBits) {
  const AxisPasses fp32 = axis_passes(Word::fp32, log_n, most);
  RoundedPasses passes;
  passes.first = fp32.tiles[0];
  passes.first_shift = log_inner;
  const int above = log_inner + passes.first.bits, all = log_inner + log_n;
  if (fp32.count > 1) passes.last = fp32.tiles[static_cast<std::size_t>(fp32.count - 1)];
  passes.last_shift = all - passes.last.bits;
  if (fp32.count > 2) passes.middle_bits = fp32.tiles[1].bits;
  passes.middle_shift = above;
  passes.log_part =
      passes.middle_bits > 0 ? std::min(std::max(kLogWorkspaceInL2, passes.last_shift), all) : all;
  return passes;
}

constexpr int RoundedPasses::shared_bytes() const {
  const int middle = middle_bits == 0 ? 0 : axis_passes(Word::fp32, middle_bits).tiles[0].shared_bytes();
  return std::max({first.shared_bytes(), middle, is_one_pass() ? 0 : last.shared_bytes()});
}

/// Vectors that go through the workspace together.
constexpr std::int64_t vectors_together(int log_n, std::int64_t vectors) {
  const std::int64_t fit = std::int64_t{1} << std::max(kLogWorkspaceInL2 - log_n, 0);
  return std::min(fit, std::max<std::int64_t>(vectors, 1));
}

/// What one launch works on: vectors [vector, vector + count), which are 2^log_n elements each in the
/// workspace, and of these the elements [part, part + elements).
struct RoundedWork {
  enum class Pass { first, middle, last };
  Pass pass;
  std::int64_t vector, count, part, elements;
};

/// All launches, in their order.
template <class Each>
constexpr void each_work(const RoundedPasses& passes, int log_n, std::int64_t vectors, const Each& each) {
  const std::int64_t together = vectors_together(log_n, vectors);
  for (std::int64_t vector = 0; vector < vectors; vector += together) {
    const std::int64_t count = std::min(together, vectors - vector), all = count << log_n;
    const std::int64_t elements = passes.log_part < log_n ? std::int64_t{1} << passes.log_part : all;
    for (std::int64_t part = 0; part < all; part += elements) {
      each(RoundedWork{RoundedWork::Pass::first, vector, count, part, elements});
      if (passes.middle_bits > 0) each(RoundedWork{RoundedWork::Pass::middle, vector, count, part, elements});
    }
    each(RoundedWork{RoundedWork::Pass::last, vector, count, 0, all});
  }
}

/// What takes the place of a tile of 256 bytes where pointers or the row stride are no multiples of 8 bytes.
constexpr PassTile narrow(const PassTile& tile) {
  return tile.width() > 1 ? column_tile(tile.bits, 5) : tile;
}

/// A block's part of a pair of passes: `item` of the 2^log_items of a chunk, in the first or the second pass.
struct PairWork {
  bool second = false;
  std::int64_t chunk = 0, item = 0;
  constexpr bool operator==(const PairWork&) const = default;
};

/// The first pass of chunk 0; then the first of the next chunk and the second of this one in turns; at last
/// the second of the last chunk. So a part of the second pass comes after all that it waits for.
constexpr PairWork work_of(std::int64_t ticket, int log_items, std::int64_t chunks) {
  const std::int64_t items = std::int64_t{1} << log_items;
  if (ticket < items) return {false, 0, ticket};
  const std::int64_t behind = ticket - items, phase = behind >> (log_items + 1);
  const std::int64_t turn = behind & (2 * items - 1);
  if (phase == chunks - 1) return {true, phase, turn};
  const bool second = (turn & 1) != 0;
  return {second, second ? phase : phase + 1, turn >> 1};
}

}  // namespace fwht::passes
