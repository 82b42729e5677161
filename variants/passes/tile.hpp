// passes: which element of the vector each thread of a tile holds, and where it is in shared memory. The
// kernels and the host test use the same functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/contract/ordering.hpp"
#include "common/host/bits.hpp"

namespace fwht::passes {

/// H_n from one ordering into another is H_n in natural order of a permuted row, since both are linear maps
/// of index bits: this is the place of the input that the permuted row has at `place`.
constexpr std::int64_t source_place(Ordering in, Ordering out, std::int64_t place, int log_n) {
  auto k = static_cast<std::uint64_t>(place);
  if (out == Ordering::sequency) {  // the inverse of the transpose of the Gray code
    for (int shift = 1; shift < log_n; shift *= 2)
      k ^= k << shift;
    k &= (std::uint64_t{1} << log_n) - 1;
  }
  if (out != Ordering::natural) k = reverse_bits(k, log_n);
  return ordered_place(in, static_cast<std::int64_t>(k), log_n);
}

/// The inverse: where the permuted row has what the input has at `place`.
constexpr std::int64_t target_place(Ordering in, Ordering out, std::int64_t place, int log_n) {
  auto k = static_cast<std::uint64_t>(natural_place(in, place, log_n));
  if (out != Ordering::natural) k = reverse_bits(k, log_n);
  if (out == Ordering::sequency) k = (k ^ k << 1) & ((std::uint64_t{1} << log_n) - 1);
  return static_cast<std::int64_t>(k);
}

/// What a pass over the index bits [shift, shift + bits) takes to registers at once: 2^bits rows, 2^shift
/// elements apart, of 2^log_columns neighbours. Every thread has 32 elements of 4 bytes, or 16 of 8 bytes. In
/// round q it has the rows that differ in the bits from low_bit(q) on, and transforms those of them that no
/// round before has.
struct PassTile {
  int bits = 0;
  int log_columns = 5;
  /// The tile is 2^(bits + log_columns) neighbours; the bits of its columns, which lanes hold, come first.
  bool whole_row = false;
  int log_values = 5;  // elements of a thread

  constexpr bool operator==(const PassTile&) const = default;

  constexpr int columns() const { return 1 << log_columns; }
  constexpr int log_elements() const { return bits + log_columns; }
  constexpr int threads() const { return 1 << (log_elements() - log_values); }
  /// Index bits that a pass with this tile transforms.
  constexpr int levels() const { return bits + (whole_row ? log_columns : 0); }
  /// Neighbours of one access: two where a line of 256 bytes meets the 32 lanes of a warp.
  constexpr int log_width() const { return log_columns == 6 ? 1 : 0; }
  constexpr int width() const { return 1 << log_width(); }
  constexpr int register_bits() const { return log_values - log_width(); }
  constexpr int registers() const { return 1 << register_bits(); }

  constexpr int rounds() const { return (bits + register_bits() - 1) / register_bits(); }
  constexpr int low_bit(int round) const { return std::min(round * register_bits(), bits - register_bits()); }
  /// The first bit of the register number that the round transforms.
  constexpr int first_new_bit(int round) const { return round * register_bits() - low_bit(round); }

  constexpr int column_of(int thread) const {
    return (thread & ((1 << (log_columns - log_width())) - 1)) << log_width();
  }
  /// The rows of a thread in a round: register k holds first_row + (k << low_bit).
  constexpr int first_row(int round, int thread) const {
    const int group = thread >> (log_columns - log_width()), low = low_bit(round);
    return (group >> low) << (low + register_bits()) | (group & ((1 << low) - 1));
  }

  constexpr int word_bytes() const { return 128 >> log_values; }
  /// Words of the exchange; none where one round does.
  constexpr int shared_words() const { return rounds() > 1 ? 1 << log_elements() : 0; }
  constexpr int shared_bytes() const { return word_bytes() * shared_words(); }
  /// A warp reads and writes one row, or two rows of 16 columns; those are in different halves of the banks
  /// whether the rows are neighbours or 32 apart. Of 8 bytes, one such row takes all banks.
  constexpr int word(int row, int column) const {
    const int plain = row << log_columns | column;
    return log_columns == 4 ? plain ^ (row >> 5 & 1) << 4 : plain;
  }

  /// Where a row that was gathered lies: a warp writes one column of rows whose first bits differ, and reads
  /// one row, or two rows of 16 columns.
  constexpr int gathered_word(int row, int column) const {
    return row << log_columns | (column ^ row >> (bits - log_columns));
  }

  /// The first element of tile `index` of a vector.
  constexpr std::int64_t first_element(std::int64_t index, int shift) const {
    const int log_beside = shift - log_columns;
    const std::int64_t above = index >> log_beside;
    return (above << (shift + bits)) + ((index - (above << log_beside)) << log_columns);
  }
};

/// A tile of whole rows, one row or several short ones behind each other, which shared memory holds from the
/// load to the last round. Every thread has 32 elements: in round 0 neighbours, so that b0-b4 are in its
/// registers, in the rounds behind those of a PassTile over the bits above.
struct RowTile {
  int log_elements = 10;
  int number_bytes = 4;
  bool ordered = false;  // the load permutes the row

  constexpr bool operator==(const RowTile&) const = default;

  constexpr PassTile upper() const { return {log_elements - 5, 5, true, 5}; }
  constexpr int threads() const { return 1 << (log_elements - 5); }
  constexpr int rounds() const { return 1 + upper().rounds(); }
  constexpr int shared_bytes() const { return number_bytes << log_elements; }
  /// Neighbours in an access of 16 bytes.
  constexpr int log_unit() const { return number_bytes == 8 ? 1 : 2; }

  /// Which element a thread has in register k; the sum, and the exclusive or, of those of thread 0 and of
  /// register 0.
  constexpr int element(int round, int thread, int k) const {
    if (round == 0) return thread << 5 | k;
    const PassTile rows = upper();
    return (rows.first_row(round - 1, thread) + (k << rows.low_bit(round - 1))) << 5 | (thread & 31);
  }
  /// The same while a row is loaded in accesses of 2^log_width neighbours: a warp loads what it has in the
  /// first two rounds.
  constexpr int loaded(int thread, int access, int log_width) const {
    return (thread >> 5) << 10 | access << (5 + log_width) | (thread & 31) << log_width;
  }

  /// Where shared memory has an element; linear in its bits. Rows in order are loaded and taken to round 0 in
  /// units of 16 bytes. Rows that are permuted come in element by element, neighbours of the input wherever
  /// the orderings send them: these shifts were searched for, and the test shows that no two orderings and no
  /// length have a bank conflict.
  constexpr int word(int element) const {
    if (!ordered) return element ^ (element >> 5 & 7) << log_unit();
    if (number_bytes == 4) {
      const int above = element & ~31;
      return element ^ ((above >> 4 ^ above >> 5 ^ above >> 10) & 31);
    }
    const int above = element & ~15;
    if (log_elements == 10) return element ^ ((above >> 3 ^ above >> 4 ^ above >> 8) & 15);
    return element ^ ((above >> 5 ^ above >> (log_elements - 4)) & 15);
  }
};

/// A row that the blocks of a cluster share. Each block takes a chunk of neighbours through all bits but the
/// four highest; then the 16 elements that differ in those meet in one thread. Every thread has 16 elements,
/// and a round transforms four bits.
struct ClusterRow {
  int log_n = 0;
  int log_blocks = 3;
  int number_bytes = 4;

  constexpr bool operator==(const ClusterRow&) const = default;

  constexpr int blocks() const { return 1 << log_blocks; }
  constexpr int log_chunk() const { return log_n - log_blocks; }
  constexpr int threads() const { return 1 << (log_chunk() - 4); }
  /// Index bits, and rounds, ahead of the exchange between blocks.
  constexpr int levels() const { return log_n - 4; }
  constexpr int rounds() const { return (levels() + 3) / 4; }
  constexpr int low_bit(int round) const { return std::min(4 * round, levels() - 4); }
  /// The first bit of the register number that the round transforms.
  constexpr int first_new_bit(int round) const { return 4 * round - low_bit(round); }
  /// The chunk, and what other blocks send.
  constexpr int shared_bytes() const { return 2 * number_bytes << log_chunk(); }

  /// Which element of the chunk a thread loads: a warp brings to shared memory what it has in the first two
  /// rounds.
  constexpr int loaded(int thread, int k) const { return (thread >> 5) << 9 | k << 5 | (thread & 31); }
  /// Which one it has in register k. The exclusive or of those of thread 0 and of register 0.
  constexpr int element(int round, int thread, int k) const {
    const int low = low_bit(round);
    return (thread >> low) << (low + 4) | k << low | (thread & ((1 << low) - 1));
  }
  /// Where shared memory has an element of the chunk; linear in its bits.
  constexpr int word(int element) const {
    if (number_bytes == 8) return element ^ (element >> 4 & 7) << 1;
    return element ^ (element >> 5 & 7) << 2 ^ (element >> 8 & 1) << 4;
  }

  /// The block that register k of the last of these rounds goes to.
  constexpr int owner(int k) const { return k >> (4 - log_blocks); }
  /// The word of it there; `threads()` words have the same four highest bits. The sum of those of register 0
  /// and of rank and thread 0.
  constexpr int sent_to(int rank, int thread, int k) const {
    const int e = element(rounds() - 1, thread, k), highest = rank << (4 - log_blocks) | e >> levels();
    return highest * threads() + (e & (threads() - 1));
  }
  /// The element of the row that a thread of block `rank` has at last in register k.
  constexpr int result(int rank, int thread, int k) const {
    return k << levels() | rank << (levels() - log_blocks) | thread;
  }
};

/// Where shared memory has what the input has at `element` of a tile of rows of 2^log_n that are permuted;
/// linear in its bits.
constexpr int permuted_word(const RowTile& tile, Ordering in, Ordering out, int element, int log_n) {
  const int row = element >> log_n << log_n;
  return tile.word(row | static_cast<int>(target_place(in, out, element - row, log_n)));
}

}  // namespace fwht::passes
