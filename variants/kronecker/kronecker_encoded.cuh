// kronecker: the end of rows that are written as codes and scales.
//
// A warp's box is staged in the storage type, as a plain row would leave. It has 16 * columns consecutive
// elements of every row of the tile, and the warp reads them back in vectors of 256, eight elements a lane.
// Groups lie in a vector. The largest |y| of a whole row is noted on the way to the staging, where numbers
// lie in pairs; then the warps of the team, or of the cluster, meet once.
//
// Bit card: element bits 0..2 word, 3..7 lane, 8.. vector of the box; above: box, which is a warp.
#pragma once

#include <cstddef>

#include "variants/kit/encode/storage_encoder.cuh"
#include "variants/kronecker/kronecker_encoded.hpp"
#include "variants/kronecker/kronecker_few_rows_kernel.cuh"

namespace fwht::kronecker {

/// A warp's staged box on its way to codes.
template <class Form, Dtype dtype, Launch launch>
class BoxEncoder {
 public:
  static constexpr Shape kShape = launch.shape;
  static constexpr int kRows = kShape.rows, kLine = kShape.line(), kColumns = kShape.columns;

  __device__ BoxEncoder(const EncodedWork& work, std::uint32_t staging, int box, int lane)
      : work_(work),
        writer_(staging, lane),
        first_byte_(staging + vector_byte(kColumns, kLine, 0, 0, lane)),
        box_(box),
        lane_(lane),
        left_((work.order - 16 * box) * kColumns) {}

  __device__ std::uint32_t staging() const { return writer_.staging(); }
  __device__ int box() const { return box_; }
  __device__ int lane() const { return lane_; }
  __device__ bool joins() const {
    return Form::whole_row && !encoder::is_given<Form, kVectorsOfRow>(work_.out);
  }

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
        largest = encoder::larger_of(largest, encoder::LargestPair<dtype>{words[i]});
      }
    }
  }

  /// Bits of the largest |y| that the box has of a row, in all lanes. Rows of X beyond the order do not
  /// count.
  __device__ std::uint32_t largest_of(int row) const {
    const int exist = left_ / kColumns;
    const float upper = lane_ / 4 < exist ? encoder::largest_of_pair(largest_[row][0]) : 0.0F,
                lower = lane_ / 4 + 8 < exist ? encoder::largest_of_pair(largest_[row][1]) : 0.0F;
    return __reduce_max_sync(0xFFFFFFFFU, __float_as_uint(fmaxf(fmaxf(upper, lower), 0.0F)));  // no NaN
  }

  static constexpr int kVectorsOfRow = kColumns / 16, kVectors = kRows * kVectorsOfRow;
  static constexpr int kMost = kShape.warpgroups() > 2 ? 4 : 8;
  static constexpr int kChunk = kVectors < kMost ? kVectors : kMost;  // vectors that a lane holds at once
  using Pairs = std::uint32_t[kChunk][4];

  /// The first chunk of the staged box.
  __device__ void read(Pairs& pairs) const {
    read(0, pairs);
  }
  /// Codes and scales of the staged box.
  /// @param row      of the problem, that the tile begins with
  /// @param maximum  joins(): of each row of the tile
  /// @param pairs    the first chunk
  __device__ void encode(int row, const float (&maximum)[kRows], Pairs& pairs) const {
    encoder::ScalesOfMaxima<1> of_rows;  // each lane has that of one of the rows
    if constexpr (Form::whole_row) {
      if (encoder::is_given<Form, kVectorsOfRow>(work_.out)) {
        encoder::given_scales<Form>(work_.out, 1.0F, of_rows);
      } else {
        of_rows.maximum[0] = maximum[0];
#pragma unroll
        for (int r = 1; r < kRows; ++r)
          of_rows.maximum[0] = (lane_ & (kRows - 1)) == r ? maximum[r] : of_rows.maximum[0];
        encoder::scales_of_maxima<Form, dtype>(work_.out, 1.0F, of_rows);
      }
    }
    encode_chunk(row, 0, of_rows, pairs);
#pragma unroll 1
    for (int chunk = 1; chunk < kChunks; ++chunk) {
      read(chunk * kChunk, pairs);
      encode_chunk(row, chunk, of_rows, pairs);
    }
    if (work_.out.pads && box_ == 0) [[unlikely]]
      pad(work_, row, lane_);
  }

 private:
  static constexpr int kChunks = kVectors / kChunk;
  static constexpr int kChunkOfRow = kChunk < kVectorsOfRow ? kChunk : kVectorsOfRow;
  static_assert((kColumns & (kColumns - 1)) == 0 && kVectors % kChunk == 0 && kChunk % kChunkOfRow == 0);
  static_assert(kChunks == 1 || kRows == 1);

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

  __device__ void encode_chunk(int row, int chunk, const encoder::ScalesOfMaxima<1>& of_rows,
                               Pairs& pairs) const {
    using Shared = encoder::Sharing<Form, kChunk, kChunkOfRow>;
    const int first = chunk * kChunk;  // of a row's vectors in this box
    encoder::ScalesOfMaxima<Shared::kScales> scales;
    if constexpr (Form::whole_row) {
      static_assert(Shared::kScales == 1 && Shared::kOwners == kRows);
      scales = of_rows;
    } else {
      encoder::find_maxima_of_pairs<Form, Shared, dtype>(work_.out, pairs, lane_, scales.maximum, 0);
      encoder::scales_of_maxima<Form, dtype>(work_.out, 1.0F, scales);
    }
    // A NaN is in all of a lane's vector: what is infinite before the last product has a lower half that is
    // NaN.
    if (!encoder::is_given<Form, kVectorsOfRow>(work_.out)) {
#pragma unroll
      for (int v = 0; v < kChunk; ++v)
        scales.are_short &= !encoder::starts_with_nan<dtype>(pairs[v]);
      encoder::ask_warp<Form>(scales);
    }

    const Places places{static_cast<std::uint32_t>(row),
                        16 * kColumns * box_ + 256 * first + 8 * lane_,
                        work_.row_count - row,
                        left_ - 256 * first - 8 * lane_,
                        lane_,
                        box_ == 0 && first == 0};
    encoder::encode_pairs<Form, dtype, kChunkOfRow>(
        work_.out, 1.0F, pairs, scales, places, [&](auto& of_y, auto& of_groups, auto& codes) {
          encoder::exact_codes<Form, dtype, kChunkOfRow>(work_.out, lane_, of_y, of_groups, codes);
          return false;
        });
  }

  __device__ void read(int first, Pairs& pairs) const {
    const std::uint32_t from =
        (first_byte_ ^ vector_flip(kColumns, kLine, first)) + vector_offset(kColumns, kLine, 0, first);
#pragma unroll
    for (int v = 0; v < kChunk; ++v) {
      ptx::ld_shared_v4(pairs[v], (from ^ vector_flip(kColumns, kLine, v % kChunkOfRow)) +
                                      vector_offset(kColumns, kLine, v / kChunkOfRow, v % kChunkOfRow));
    }
  }

  /// Zeros behind the scales of the tile's rows and, by the last tile, behind all of them.
  __device__ __noinline__ static void pad(const EncodedWork& work, int row, int lane) {
    const encoder::Output& out = work.out;
    const int end = row + kRows < work.row_count ? row + kRows : work.row_count, r = row + lane;
    if (r < end && r % out.rows_per_token == 0) encoder::pad_columns(out, r / out.rows_per_token);
    if (end == work.row_count) encoder::pad_rows(out, lane, 32);
  }

  const EncodedWork& work_;
  BoxWriter<kLine> writer_;
  std::uint32_t first_byte_;
  int box_, lane_, left_;                          ///< elements of a row from this box on
  encoder::LargestPair<dtype> largest_[kRows][2];  ///< of rows 0-7 and 8-15 of X
};

/// For transform_rows. The warps of a team meet.
template <class Form>
struct EncodedRows {
  using Arguments = EncodedWork;

  template <Dtype dtype, Launch launch>
  class Exit : public BoxEncoder<Form, dtype, launch> {
    static_assert(launch.writes_codes());
    using Encoder = BoxEncoder<Form, dtype, launch>;
    static constexpr int kRows = Encoder::kRows, kBoxes = launch.shape.k_steps();
    /// Where the next tile's stage 1 leaves registers, it runs meanwhile.
    static constexpr bool kDefers = launch.blocks_per_sm == 1;

   public:
    __device__ Exit(const Maps&, const EncodedWork& work, std::uint32_t staging, std::byte* maxima, int team,
                    int box, int lane)
        : Encoder(work, staging, box, lane),
          maxima_(reinterpret_cast<std::uint32_t*>(maxima) + team * 2 * kBoxes * kRows),
          barrier_(launch.teams == 1 ? 2 : 1 + launch.teams + team) {}

    __device__ void send_deferred() {
      if constexpr (kDefers) leave();
    }
    __device__ void wait() { Encoder::begin(); }
    __device__ void staged(int row, int /*box*/) {
      __syncwarp();
      if (Encoder::joins()) tell();
      row_ = row;
      if constexpr (!kDefers) leave();
    }
    __device__ void drain() { send_deferred(); }

   private:
    /// Leaves the box's maxima to the other warps.
    __device__ void tell() {
      std::uint32_t* const of_boxes = maxima_ + turn_ * kBoxes * kRows;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const std::uint32_t largest = Encoder::largest_of(r);
        if (Encoder::lane() == 0) of_boxes[r * kBoxes + Encoder::box()] = largest;
      }
    }
    __device__ void leave() {
      if (row_ < 0) return;
      typename Encoder::Pairs pairs;
      Encoder::read(pairs);
      float maximum[kRows];
      if (Encoder::joins()) meet(maximum);
      Encoder::encode(row_, maximum, pairs);
      row_ = -1;
    }
    __device__ void meet(float (&maximum)[kRows]) {
      ptx::bar_sync(barrier_, 32 * kBoxes);  // the warps that have results
      const std::uint32_t* const of_boxes = maxima_ + turn_ * kBoxes * kRows;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const std::uint32_t largest = Encoder::lane() < kBoxes ? of_boxes[r * kBoxes + Encoder::lane()] : 0U;
        maximum[r] = __uint_as_float(__reduce_max_sync(0xFFFFFFFFU, largest));
      }
      turn_ ^= 1;
    }

    std::uint32_t* maxima_;
    int barrier_, turn_ = 0, row_ = -1;
  };
};

/// For spread_rows. The warps of a cluster meet.
template <class Form>
struct SpreadEncodedRows {
  using Arguments = EncodedWork;

  template <Dtype dtype, Launch launch>
  class Exit : public BoxEncoder<Form, dtype, launch> {
    using Encoder = BoxEncoder<Form, dtype, launch>;
    static constexpr int kBoxes = launch.shape.k_steps();
    static_assert(kBoxes <= 32 && Encoder::kRows == 1);

   public:
    __device__ Exit(const EncodedWork& work, std::uint32_t staging, std::byte* maxima, int row, int box,
                    int lane)
        : Encoder(work, staging, box, lane),
          maxima_(reinterpret_cast<std::uint32_t*>(maxima)),
          row_(row),
          boxes_((work.order + 15) / 16) {
      Encoder::begin();
    }

    /// The blocks of the cluster are there: only then may a word be sent to them.
    __device__ void behind_stage_1() const {
      if (Encoder::joins()) ptx::barrier_cluster_arrive();
    }
    __device__ void end(bool has_rows) const {
      float maximum[1] = {};
      if (Encoder::joins()) {
        ptx::barrier_cluster_wait();
        if (has_rows) send(Encoder::largest_of(0));
        ptx::barrier_cluster_arrive();
        ptx::barrier_cluster_wait();
        const std::uint32_t largest = Encoder::lane() < boxes_ ? maxima_[Encoder::lane()] : 0U;
        maximum[0] = __uint_as_float(__reduce_max_sync(0xFFFFFFFFU, largest));
      } else {
        __syncwarp();
      }
      if (!has_rows) return;
      typename Encoder::Pairs pairs;
      Encoder::read(pairs);
      Encoder::encode(row_, maximum, pairs);
    }

   private:
    /// To all blocks of the cluster, four boxes each.
    __device__ void send(std::uint32_t largest) const {
      if (Encoder::lane() >= (boxes_ + 3) / 4) return;
      const std::uint32_t own = ptx::shared_address(maxima_ + Encoder::box());
      ptx::st_shared_cluster(ptx::mapa(own, Encoder::lane()), largest);
    }

    std::uint32_t* maxima_;
    int row_, boxes_;
  };
};

template <class Form, Dtype dtype>
const Kernels& encoded_kernels_of() {
  static const Kernels kTable = [] {
    Kernels kernels;
    add_each<kLaunches>([&](auto launch) {
      constexpr Launch kWhole = whole_steps(codes_launch(launch()));
      if constexpr (kWhole.writes_codes())
        kernels.add(kWhole, reinterpret_cast<Kernel>(transform_rows<dtype, kWhole, EncodedRows<Form>>));
    });
    add_each<kFewRows>([&](auto launch) {
      constexpr Launch kWhole = whole_steps(launch());
      if constexpr (kWhole.writes_codes())
        kernels.add(kWhole, reinterpret_cast<Kernel>(spread_rows<dtype, kWhole, SpreadEncodedRows<Form>>));
    });
    return kernels;
  }();
  return kTable;
}

template <Dtype dtype, CodeFormat format>
const Kernels& encoded_kernels(bool whole_row) {
  constexpr Element kElement = element_of(format);
  constexpr encoder::Family kFamily = encoder::family_of(format);
  if constexpr (kFamily == encoder::Family::f32) {
    if (whole_row) return encoded_kernels_of<encoder::Form<kElement, kFamily, true, true>, dtype>();
  }
  return encoded_kernels_of<encoder::Form<kElement, kFamily, false, true>, dtype>();
}

}  // namespace fwht::kronecker
