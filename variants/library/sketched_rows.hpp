// Sketches on a device: the signs and the zeros behind `length` in the first loads, the chosen rows in the
// last stores. Neither a padded copy of x nor a spectrum is stored where a block holds the row. A longer
// vector is transformed in a workspace: rows from the source, columns to the sink. The transpose of a sketch
// has the same passes with source and sink exchanged.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "common/contract/family.hpp"
#include "variants/library/convolved_rows.hpp"
#include "variants/library/walsh.hpp"
#include "variants/passes/schedule.hpp"

namespace fwht::walsh {

/// Of 32 neighbouring coefficients: a bit for each that is chosen, and how many are chosen before them.
struct ChosenWord {
  std::uint32_t mask = 0, before = 0;
};

/// sketch_table as kernels read it.
struct SketchTable {
  const ChosenWord* chosen = nullptr;
  const std::uint32_t* signs = nullptr;
};
constexpr std::int64_t sketch_words(std::int64_t n) {
  return ceil_div(n, 32);
}
inline SketchTable sketch_table_at(const void* table, std::int64_t n) {
  const auto* const chosen = static_cast<const ChosenWord*>(table);
  return {chosen, reinterpret_cast<const std::uint32_t*>(chosen + sketch_words(n))};
}

/// Which of a vector's elements in memory is element j of the padded one, if any.
struct SketchPlace {
  bool exists = false;
  int offset = 0;
};

/// The first `count` elements of padded vectors, times signs. A word of the table is of 32 neighbours.
template <class Number>
struct SignedElements {
  Number* elements = nullptr;
  int count = 0;
  SketchTable table;

  constexpr std::uint32_t word(int j) const { return table.signs[j >> 5]; }
  constexpr SketchPlace place(std::uint32_t, int j) const { return {j < count, j}; }
  template <class Value>
  static constexpr Value with_sign(std::uint32_t word, int j, Value x) {
    return (word >> (j & 31) & 1) != 0 ? -x : x;
  }
};

/// The chosen coefficients, in ascending order.
template <class Number>
struct ChosenElements {
  Number* elements = nullptr;
  int count = 0;
  SketchTable table;

  constexpr ChosenWord word(int j) const { return table.chosen[j >> 5]; }
  constexpr SketchPlace place(ChosenWord word, int j) const {
    const std::uint32_t bit = std::uint32_t{1} << (j & 31);
    return {(word.mask & bit) != 0, static_cast<int>(word.before) + std::popcount(word.mask & (bit - 1))};
  }
  template <class Value>
  static constexpr Value with_sign(ChosenWord, int, Value x) {
    return x;
  }
};

template <class Side>
constexpr auto vector_of(const Side& side, std::int64_t vector) {
  return side.elements + vector * side.count;
}

/// Index bits of the passes; where one kernel holds the row, middle and last have none.
struct SketchPasses {
  int row = 0, middle = 0, last = 0;
  constexpr bool operator==(const SketchPasses&) const = default;
};

/// The longest row of one kernel: of 2^15 elements a thread of 1024 would spill 8 bytes.
inline constexpr int kLargestSketchedRow = 14;
inline constexpr int kMostSketchedBits = 9;  // of a pass over columns: tiles of 64 KiB, which any device has
/// Two passes up to 2^22, three above. Not measured.
constexpr SketchPasses sketch_passes(passes::Word word, int log_n, std::int64_t shared_per_block) {
  if (log_n <= kLargestSketchedRow && passes::is_one_pass(word, log_n, shared_per_block))
    return {log_n, 0, 0};
  if (log_n <= 10 + kMostSketchedBits) {
    const int row = std::min(10, log_n - passes::kFewestAxisBits);
    return {row, 0, log_n - row};
  }
  const int row = log_n == 22 ? 13 : 12, above = log_n - row;
  const int middle = above <= kMostSketchedBits ? 0 : above / 2;
  return {row, middle, above - middle};
}

/// The tile of the first pass: neighbours.
constexpr passes::PassTile sketch_source_tile(passes::Word word, int row_bits) {
  if (word == passes::Word::eight_bytes) return {row_bits - 4, 4, true, 4};
  return {row_bits - 5, 5, true};
}
constexpr passes::PassTile sketch_sink_tile(passes::Word word, int bits) {
  return passes::axis_passes(word, bits).tiles[0];
}
/// Of a block of the first pass, which has one tile or several.
constexpr int sketch_source_threads(const passes::PassTile& tile) {
  return std::max(tile.threads(), 128);
}

/// Which element of its vector a thread has in a round of the first pass, tile `index` of 2^row_bits.
constexpr int sketch_source_element(const passes::PassTile& tile, std::int64_t index, int log_n, int round,
                                    int thread, int k) {
  const std::int64_t of_vector = (index << tile.log_elements()) & ((std::int64_t{1} << log_n) - 1);
  const int row = tile.first_row(round, thread) + (k << tile.low_bit(round));
  return static_cast<int>(of_vector) + (row << tile.log_columns | tile.column_of(thread));
}
/// The same of the last pass, over the highest tile.bits.
constexpr int sketch_sink_element(const passes::PassTile& tile, std::int64_t index, int log_n, int round,
                                  int thread, int k) {
  const int shift = log_n - tile.bits, log_tiles = log_n - tile.log_elements();
  const std::int64_t of_vector = index & ((std::int64_t{1} << log_tiles) - 1);
  const int first = static_cast<int>(tile.first_element(of_vector, shift)) + tile.column_of(thread);
  return first + (tile.first_row(round, thread) << shift) + (k << (tile.low_bit(round) + shift));
}

/// Vectors side by side, or `transposed`: y from `in`, x to `out`.
struct SketchedVectors {
  Dtype dtype = Dtype::f32;
  int log_n = 0;
  std::int64_t length = 0, rows = 0, vectors = 0;
  bool transposed = false;
  SketchTable table;
  const void* in = nullptr;
  void* out = nullptr;
  double scale = 1;

  /// Vectors [first, first + count).
  SketchedVectors part(std::int64_t first, std::int64_t count) const {
    SketchedVectors some = *this;
    some.vectors = count;
    some.in = static_cast<const std::byte*>(in) + first * (transposed ? rows : length) * bytes_of(dtype);
    some.out = static_cast<std::byte*>(out) + first * (transposed ? length : rows) * bytes_of(dtype);
    return some;
  }
};

/// The passes, by a machine that has
///   whole(work): all of it, where one kernel holds a vector;
///   source(work, row_bits, sums), middle(vectors, sums), sink(work, bits, sums).
/// @param sums  of convolved_together vectors, where there is more than one pass
template <class Machine>
void sketch_in_passes(const SketchPasses& passes, const SketchedVectors& work, void* sums, Machine& machine) {
  if (passes.last == 0) return machine.whole(work);
  const std::int64_t together = convolved_together(work.dtype, work.log_n, work.vectors);
  for (std::int64_t first = 0; first < work.vectors; first += together) {
    const SketchedVectors some = work.part(first, std::min(together, work.vectors - first));
    machine.source(some, passes.row, sums);
    if (passes.middle > 0) machine.middle(some.vectors, sums);
    machine.sink(some, passes.last, sums);
  }
}

/// Enqueue them.
void launch_sketched_rows(const SketchedVectors& work, const DeviceInfo& device, Stream stream);
void launch_sketch_source(const SketchedVectors& work, int row_bits, void* sums, const DeviceInfo& device,
                          Stream stream);
void launch_sketch_sink(const SketchedVectors& work, int bits, const void* sums, const DeviceInfo& device,
                        Stream stream);

}  // namespace fwht::walsh
