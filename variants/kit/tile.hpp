// How rows of 2^log_n elements are spread over the lanes, vectors and warps of a block, as constexpr maps:
// the kernels of mma_split and butterflies and their host tests have them from here.
#pragma once

#include "common/contract/dtype.hpp"

namespace fwht::rows {

/// Index bits of a row, low first: element bits (inside the 16-byte vector of a lane), lane bits, vector bits
/// (which of its vectors), warp bits.
struct Tile {
  Dtype dtype = Dtype::f16;
  int log_n = 0;
  int vectors = 0;        ///< 16-byte vectors that a lane holds
  int warps_per_row = 0;  ///< warps that share a row; 1: a warp holds whole rows
  int threads = 0;        ///< of a block
  bool regular = false;   ///< of the regular matrix: see place_of_lane

  constexpr bool operator==(const Tile&) const = default;

  constexpr int warps() const { return threads / 32; }
  constexpr int log_vector() const { return dtype == Dtype::f32 ? 2 : 3; }  // elements of a vector
  constexpr int vector_elements() const { return 1 << log_vector(); }

  constexpr int element_bits() const { return log_n < log_vector() ? log_n : log_vector(); }
  constexpr int lane_bits() const {
    const int rest = log_n - element_bits();
    return rest < 5 ? rest : 5;
  }
  /// By a loop: device code also asks for it outside of constant expressions, where log2_floor is not to be
  /// had.
  constexpr int warp_bits() const {
    int bits = 0;
    while (1 << bits < warps_per_row)
      ++bits;
    return bits;
  }
  /// Vector bits that belong to a row; where a warp holds several rows in several vectors, others do not.
  constexpr int vector_bits() const { return log_n - element_bits() - lane_bits() - warp_bits(); }
  /// Vectors of a lane that belong to one row.
  constexpr int vectors_of_row() const { return 1 << vector_bits(); }

  /// log2 of the rows that lie in one vector of one lane, and in the 32 vectors of a warp; 0 for one row or
  /// less.
  constexpr int log_rows_per_vector() const { return log_vector() - element_bits(); }
  constexpr int log_rows_per_warp_vector() const { return log_rows_per_vector() + 5 - lane_bits(); }
  /// Rows that a warp holds, and a block; several warps may share one.
  constexpr int rows_per_warp() const {
    return warps_per_row > 1 ? 1 : (32 * vectors * vector_elements()) >> log_n;
  }
  constexpr int rows_per_block() const { return (threads * vectors * vector_elements()) >> log_n; }

  // ---- where the vectors of a block lie in memory

  /// Vectors of a block are numbered as they follow each other in contiguous rows: vector v of a lane is
  /// number first_vector + 32 v, and so lies this many rows and columns behind vector 0.
  constexpr int first_vector(int warp_of_block, int lane) const {
    return warp_of_block * vectors * 32 + place_of_lane(lane);
  }
  /// The lowest three lane bits are index bits b4, b5, b3 where rows are multiplied by the regular matrix. So
  /// the two bits of each base-4 digit meet in one stage of mma_split. The vectors of eight lanes are 128
  /// consecutive bytes all the same.
  constexpr int place_of_lane(int lane) const {
    return regular ? (lane & ~7) | (lane << 1 & 6) | (lane >> 2 & 1) : lane;
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

  // ---- what a warp takes in the exchange of a row

  // Every warp takes the same share of all of them: `kept` whole vectors of each, or, where a lane holds
  // fewer vectors than warps share the row, one part in `parts` of a vector. That is spread over all
  // lanes, `piece` consecutive elements each.
  constexpr int kept() const { return vectors >= warps_per_row ? vectors / warps_per_row : 1; }
  constexpr int parts() const { return vectors >= warps_per_row ? 1 : warps_per_row / vectors; }
  constexpr int piece() const { return vector_elements() / parts(); }
  /// First vector, and part of it, that warp `to` of a row takes from each warp.
  constexpr int vector_taken(int to) const { return to / parts() * kept(); }
  constexpr int part_taken(int to) const { return to % parts(); }
  /// Element of the 32 lanes' vectors side by side at which the piece of a lane begins.
  constexpr int piece_begin(int part, int lane) const {
    return part * (32 * vector_elements() / parts()) + lane * piece();
  }
  /// fp32 words of shared memory in which warps exchange a row.
  constexpr int exchange_words() const { return warps_per_row == 1 ? 0 : 1 << log_n; }
};

/// Where the exchange keeps the elements of a row: a quad (float4) of 32 lanes after the other. Whole vectors
/// keep their lane, so that every access is 32 consecutive words of 16 bytes; a part is read across lanes and
/// quads, and quads of odd number are swizzled to keep that free of bank conflicts too.
struct ExchangeBuffer {
  Tile tile;

  constexpr int quads() const { return tile.vector_elements() / 4; }  // of one vector widened to fp32
  /// Word of element e of vector v of a lane of warp `from`.
  constexpr int word(int from, int v, int lane, int e) const {
    const int quad = e >> 2, place = tile.parts() > 1 ? lane ^ (4 * (quad & 1)) : lane;
    return (((from * tile.vectors + v) * quads() + quad) * 32 + place) * 4 + (e & 3);
  }
};

/// Word of an element counted through the 32 lanes' vectors.
template <class Buffer>
constexpr int word_of_element(const Buffer& buffer, int from, int v, int element) {
  return buffer.word(from, v, element >> buffer.tile.log_vector(),
                     element & (buffer.tile.vector_elements() - 1));
}

}  // namespace fwht::rows
