// The epilogue of storage_encoder.cuh where a warp's results are staged in shared memory as a box: 16 rows of
// X, which are 16 * columns consecutive elements of every row of the tile (variants/kit/matrix_rows.hpp). The
// warp reads them back in vectors of 256, eight elements a lane. Groups lie in a vector. The largest |y| of a
// whole row is noted on the way to the staging, where numbers lie in pairs; then the warps that share the row
// meet. Of rows with a second matrix a box is not 2^k vectors: it lies row after row (box_vectors.hpp).
//
// Bit card: element bits 0..2 word, 3..7 lane, 8.. vector of the box; above: box.
#pragma once

#include <cstdint>

#include "common/device/ptx/shared.cuh"
#include "variants/kit/box_vectors.hpp"
#include "variants/kit/encode/storage_encoder.cuh"

namespace fwht::encoder {

/// A warp's staged box on its way to codes.
///
/// @tparam columns    of a row as a matrix, see rows::Shape
/// @tparam tile_rows  rows of the problem in a tile
/// @tparam most       vectors that a lane holds at once
/// @tparam Writer     stages results: Writer(staging, lane), staging(), put(tile, words)
/// @tparam Work       `out`, `order` and `row_count` of the launch
template <class Form, Dtype dtype, int columns, int tile_rows, int most, class Writer, class Work>
class BoxEncoder {
 public:
  static constexpr int kRows = tile_rows, kColumns = columns, kLine = rows::Shape{16, columns}.line();

  __device__ BoxEncoder(const Work& work, std::uint32_t staging, int box, int lane)
      : work_(work),
        writer_(staging, lane),
        first_byte_(staging + rows::vector_byte(kColumns, kLine, 0, 0, lane)),
        box_(box),
        lane_(lane),
        left_((work.order - 16 * box) * kColumns) {}

  __device__ std::uint32_t staging() const { return writer_.staging(); }
  __device__ int box() const { return box_; }
  __device__ int lane() const { return lane_; }
  __device__ bool joins() const { return Form::whole_row && !is_given<Form, kVectorsOfRow>(work_.out); }

  __device__ void begin() {
    __syncwarp();  // the box has been read
#pragma unroll
    for (int row = 0; row < kRows; ++row)
      largest_[row][0] = largest_[row][1] = {0};
  }
  __device__ void put(int tile, const std::uint32_t (&words)[4]) {
    writer_.put(tile, words);
    if constexpr (Form::whole_row) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        auto& largest = largest_[(tile + i / 2) * 8 / kColumns][i % 2];
        largest = larger_of(largest, LargestPair<dtype>{words[i]});
      }
    }
  }

  /// Bits of the largest |y| that the box has of a row, in all lanes. Rows of X beyond the order do not
  /// count.
  __device__ std::uint32_t largest_of(int row) const {
    const int exist = left_ / kColumns;
    const float upper = lane_ / 4 < exist ? largest_of_pair(largest_[row][0]) : 0.0F,
                lower = lane_ / 4 + 8 < exist ? largest_of_pair(largest_[row][1]) : 0.0F;
    return __reduce_max_sync(0xFFFFFFFFU, __float_as_uint(fmaxf(fmaxf(upper, lower), 0.0F)));  // no NaN
  }

  static constexpr int kVectorsOfRow = kColumns / 16, kVectors = kRows * kVectorsOfRow;
  static constexpr int kChunk = kVectors < most ? kVectors : most;  // vectors that a lane holds at once
  static constexpr int kChunkOfRow = kChunk < kVectorsOfRow ? kChunk : kVectorsOfRow;
  static constexpr int kChunkRows = kChunk / kChunkOfRow;  // rows of the tile in a chunk
  using Pairs = std::uint32_t[kChunk][4];

  /// The first chunk of the staged box.
  __device__ void read(Pairs& pairs) const {
    read(0, pairs);
  }
  /// Codes and scales of the staged box.
  /// @param row      of the problem, that the tile begins with
  /// @param maximum  joins(): of row lane % kRows of the tile
  /// @param pairs    the first chunk
  __device__ void encode(int row, float maximum, Pairs& pairs) const {
    static_assert(kChunkRows == kRows);
    const ScalesOfMaxima<1> of_rows = scales_of_rows(maximum);
    encode_chunk(row, 0, of_rows, pairs);
#pragma unroll 1
    for (int chunk = 1; chunk < kChunks; ++chunk) {
      read(chunk, pairs);
      encode_chunk(row, chunk, of_rows, pairs);
    }
    pad(row);
  }
  /// The same, chunk by chunk from the first one on: a third of the code.
  /// @param maximum_of  joins(): gives the largest of row first + lane % kChunkRows of the tile
  template <class MaximumOf>
  __device__ void encode(int row, const MaximumOf& maximum_of) const {
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      Pairs pairs;
      read(chunk, pairs);
      encode_chunk(row, chunk, scales_of_rows(joins() ? maximum_of(first_row(chunk)) : 0.0F), pairs);
    }
    pad(row);
  }

 private:
  // Vectors of a chunk are 2^k (Sharing). Where those of a box are not, the last chunk has the last vector
  // again in place of what is not there, and stores it once.
  static constexpr bool kInLines = rows::lies_in_lines(kColumns);
  static constexpr int kChunks = (kVectors + kChunk - 1) / kChunk,
                       kChunksOfRow = (kVectorsOfRow + kChunkOfRow - 1) / kChunkOfRow;
  static_assert((kChunk & (kChunk - 1)) == 0 && kChunk % kChunkOfRow == 0);
  static_assert(kInLines ? kVectors % kChunk == 0 : kRows == 1 && kVectors > kChunk);

  /// Of a chunk: row of the tile, and vector of that row in this box.
  __device__ static int first_row(int chunk) {
    return kChunkRows == kRows ? 0 : chunk / kChunksOfRow * kChunkRows;
  }
  __device__ static int first_vector(int chunk) {
    return (kChunks == kChunksOfRow ? chunk : chunk % kChunksOfRow) * kChunkOfRow;
  }

  /// Each lane has that of one of the rows of a chunk.
  __device__ ScalesOfMaxima<1> scales_of_rows(float maximum) const {
    ScalesOfMaxima<1> of_rows;
    if constexpr (Form::whole_row) {
      if (is_given<Form, kVectorsOfRow>(work_.out)) {
        given_scales<Form>(work_.out, of_rows);
      } else {
        of_rows.maximum[0] = maximum;
        scales_of_maxima<Form, dtype>(work_.out, of_rows);
      }
    }
    return of_rows;
  }

  /// Where the vectors of a chunk go.
  struct Places {
    std::uint32_t first_row;
    int first_column, rows_left, elements_left, this_lane;
    bool leads;  // of the row's warps

    __device__ static constexpr bool has_places() { return false; }
    __device__ static std::uint32_t row_step(int v) { return static_cast<std::uint32_t>(v / kChunkOfRow); }
    __device__ static int column_step(int v) { return v % kChunkOfRow * 256; }
    __device__ std::uint32_t row(int v) const { return first_row + row_step(v); }
    __device__ int column(int v) const { return first_column + column_step(v); }
    __device__ bool exists(int v) const {
      return static_cast<int>(row_step(v)) < rows_left && column_step(v) < elements_left;
    }
    __device__ int lane() const { return this_lane; }
    __device__ bool leads_rows() const { return leads; }
  };

  __device__ void encode_chunk(int row, int chunk, const ScalesOfMaxima<1>& of_rows, Pairs& pairs) const {
    using Shared = Sharing<Form, kChunk, kChunkOfRow>;
    const int first = first_vector(chunk);
    row += first_row(chunk);
    ScalesOfMaxima<Shared::kScales> scales;
    if constexpr (Form::whole_row) {
      static_assert(Shared::kScales == 1 && Shared::kOwners == kChunkRows);
      scales = of_rows;
    } else {
      find_maxima_of_pairs<Form, Shared, dtype>(work_.out, pairs, lane_, scales.maximum, 0);
      scales_of_maxima<Form, dtype>(work_.out, scales);
    }
    // A NaN is in all of a lane's vector: what is infinite before the last product has a lower half that is
    // NaN.
    if (!is_given<Form, kVectorsOfRow>(work_.out)) {
#pragma unroll
      for (int v = 0; v < kChunk; ++v)
        scales.are_short &= !starts_with_nan<dtype>(pairs[v]);
      ask_warp<Form>(scales);
    }

    const Places places{static_cast<std::uint32_t>(row),
                        16 * kColumns * box_ + 256 * first + 8 * lane_,
                        work_.row_count - row,
                        (kInLines ? left_ : min(left_, 16 * kColumns)) - 256 * first - 8 * lane_,
                        lane_,
                        box_ == 0 && first == 0};
    encode_pairs<Form, dtype, kChunkOfRow>(
        work_.out, pairs, scales, places, [&](auto& of_y, auto& of_groups, auto& codes) {
          exact_codes<Form, dtype, kChunkOfRow>(work_.out, lane_, of_y, of_groups, codes);
          return false;
        });
  }

  __device__ void read(int chunk, Pairs& pairs) const {
    const int first = first_vector(chunk);
    if constexpr (!kInLines) {
#pragma unroll
      for (int v = 0; v < kChunk; ++v) {
        const int vector = min(first + v, kVectors - 1);
        ptx::ld_shared_v4(pairs[v], staging() + rows::vector_byte(kColumns, kLine, 0, vector, lane_));
      }
      return;
    }
    const std::uint32_t from = (first_byte_ ^ rows::vector_flip(kColumns, kLine, first)) +
                               rows::vector_offset(kColumns, kLine, first_row(chunk), first);
#pragma unroll
    for (int v = 0; v < kChunk; ++v) {
      ptx::ld_shared_v4(pairs[v], (from ^ rows::vector_flip(kColumns, kLine, v % kChunkOfRow)) +
                                      rows::vector_offset(kColumns, kLine, v / kChunkOfRow, v % kChunkOfRow));
    }
  }

  /// Zeros behind the scales of the tile's rows and, by the last tile, behind all of them.
  __device__ void pad(int row) const {
    if (work_.out.pads && box_ == 0) [[unlikely]]
      pad(work_, row, lane_);
  }
  __device__ __noinline__ static void pad(const Work& work, int row, int lane) {
    const Output& out = work.out;
    const int end = row + kRows < work.row_count ? row + kRows : work.row_count, r = row + lane;
    if (r < end && r % out.rows_per_token == 0) pad_columns(out, r / out.rows_per_token);
    if (end == work.row_count) pad_rows(out, lane, 32);
  }

  const Work& work_;
  Writer writer_;
  std::uint32_t first_byte_;
  int box_, lane_, left_;                 ///< elements of a row from this box on
  LargestPair<dtype> largest_[kRows][2];  ///< of rows 0-7 and 8-15 of X
};

}  // namespace fwht::encoder
