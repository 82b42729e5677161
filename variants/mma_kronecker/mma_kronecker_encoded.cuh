// mma_kronecker: rows that leave as codes and scales.
//
// Stages 1 and 2 are those of mma_kronecker_kernel.cuh. Results are staged as whole boxes, which the warp
// that made one reads back in the order of the row (box_encoder.cuh). A team of one pass stages a box where
// the tile had its own: all warps have read the tile then, and what comes there next is brought by the same
// warp. In several passes the tile is needed to the end, so boxes are staged apart. Under a scale of the
// whole row all of them are, and the warps meet before the first code.
#pragma once

#include "variants/kit/encode/box_encoder.cuh"
#include "variants/mma_kronecker/mma_kronecker_encoded.hpp"

namespace fwht::mma_kronecker {

/// Stages a whole box, for BoxEncoder. See stage() for what a lane has.
template <int columns>
class BoxStaging {
 public:
  __device__ BoxStaging(std::uint32_t staging, int lane)
      : staging_(staging), first_(anew(staging + boxed_first(columns, lane))) {}

  __device__ std::uint32_t staging() const { return staging_; }
  __device__ void put(int tile, const std::uint32_t (&words)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Displacement place = boxed_place(columns, tile + i / 2, i % 2);
      ptx::st_shared((first_ ^ place.flip) + place.offset, words[i]);
    }
  }

 private:
  std::uint32_t staging_, first_;
};

/// rows::flip_signs, of a box that lies row after row.
template <int columns>
__device__ void flip_signs_of_rows(std::uint32_t box, const std::uint8_t* signs, int first, int order,
                                   int lane) {
  constexpr int kPieces = columns / 8;
  const int end = min(16, order - first) * kPieces;
#pragma unroll 1
  for (int i = lane; i < end; i += 32) {
    const std::uint32_t at = box + rows::vector_byte(columns, line_of(columns), 0, 0, i);
    std::uint32_t words[4];
    ptx::ld_shared_v4(words, at);
    rows::flip_eight(words, __ldg(signs + first * kPieces + i));
    ptx::st_shared_v4(at, words);
  }
}

/// The largest |y| of the rows of a tile, by row and box, in shared memory: each warp leaves those of its
/// boxes.
template <int rows>
class MaximaOfBoxes {
 public:
  __device__ MaximaOfBoxes(std::byte* words, int boxes, int lane)
      : words_(reinterpret_cast<std::uint32_t*>(words)), boxes_(boxes), lane_(lane) {}

  template <class Encoder>
  __device__ void tell(const Encoder& encoder) const {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      const std::uint32_t largest = encoder.largest_of(r);
      if (lane_ == 0) words_[r * boxes_ + encoder.box()] = largest;
    }
  }
  /// Of row `first` + lane % count. Behind a barrier.
  template <int count>
  __device__ float ask(int first) const {
    std::uint32_t of_row = 0;
#pragma unroll
    for (int r = 0; r < count; ++r) {
      const std::uint32_t largest = lane_ < boxes_ ? words_[(first + r) * boxes_ + lane_] : 0U;
      const std::uint32_t reduced = __reduce_max_sync(0xFFFFFFFFU, largest);
      of_row = lane_ % count == r ? reduced : of_row;
    }
    return __uint_as_float(of_row);
  }

 private:
  std::uint32_t* words_;
  int boxes_, lane_;
};

/// See rows_by_mma.
///
/// @tparam Form  encoder::Form: element, family of scales, what shares one
template <class Form, Dtype dtype, int columns, int second, bool dense>
__global__ void __launch_bounds__(32 * most_warps(shape_of(16, columns).tile_columns()))
    codes_by_mma(const __grid_constant__ EncodedWork work) {
  constexpr Shape shape = shape_of(16, columns);
  constexpr int kTiles = shape.tile_columns() / 8, kRows = shape.rows, kBox = shape.box_bytes(), kVectors = 4;
  using Box = encoder::BoxEncoder<Form, dtype, columns, kRows, kVectors, BoxStaging<columns>, EncodedWork>;
  extern __shared__ __align__(128) std::byte shared[];
  const int lane = static_cast<int>(threadIdx.x & 31U), warp = rows::uniform_warp();
  const int warps = static_cast<int>(blockDim.x / 32U), stride = static_cast<int>(gridDim.x);
  const int boxes = work.k_steps();
  const bool in_place = work.passes == 1;
  const std::uint32_t slots = ptx::shared_address(shared);
  const TileInput<columns, kRows, true> input(work, slots, warp, warps, lane);
  const std::uint32_t staging = input.address(work.slots);
  const int staged = in_place ? 0 : Form::whole_row ? boxes : warps;
  constexpr int kSecondBytes = 4 * rows::second_words(second);
  const MaximaOfBoxes<kRows> maxima(shared + (staging - slots) + staged * kBox + kSecondBytes, boxes, lane);
  const std::uint32_t table = staging + staged * kBox;
  const rows::Stage2Constants constants(lane);

  input.clear_behind_matrix();
  ptx::griddepcontrol_wait();
  input.ask(static_cast<int>(blockIdx.x), 0);
  ptx::griddepcontrol_launch_dependents();
  if constexpr (second > 1) {
    rows::load_table<rows::second_words(second)>(work.second, table, static_cast<int>(threadIdx.x),
                                                 32 * warps);
  }
  int slot = 0;
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x); tile < work.tiles; tile += stride) {
    const auto box_of = [&](int block) {
      const std::uint32_t at =
          in_place ? input.address(slot) + block * kBox : staging + (Form::whole_row ? block : warp) * kBox;
      return Box(work, at, block, lane);
    };
    const auto encode = [&](const Box& box) {
      box.encode(tile * kRows, [&](int first) { return maxima.template ask<Box::kChunkRows>(first); });
    };
    input.wait(slot);
    __syncthreads();  // the tile is there, and its predecessor has been read
    if (work.slots == 2) input.ask(tile + stride, slot ^ 1);
#pragma unroll 1
    for (int pass = 0; pass < work.passes; ++pass) {
      const int block = pass * warps + warp;
      const bool has_rows = block < boxes;
      float d[1][kTiles][4] = {};
      if (has_rows) exact_stage<dtype, columns, dense, 1>(d, work, block, input.address(slot), lane);
      if (pass == work.passes - 1 && (in_place || work.slots == 1)) {
        __syncthreads();  // all warps have read the tile
        if (!in_place) input.ask(tile + stride, 0);
      }
      if (!has_rows) continue;
      Box box = box_of(block);
      box.begin();
      float(&registers)[4 * kTiles] = reinterpret_cast<float(&)[4 * kTiles]>(d);
      rows::register_butterflies<second == 1 ? 4 : second / 2, columns / 2>(registers);
      if constexpr (second == 1) {
        rows::finish<dtype>(registers, constants, work.scale, box);
      } else {
        rows::finish_by_second<dtype, second, 1>(registers, table, constants, work.scale, box, lane);
      }
      __syncwarp();
      if (work.signs_last != nullptr) {
        if constexpr (rows::lies_in_lines(columns)) {
          rows::flip_signs<columns, shape.tile_columns(), shape.line()>(box.staging(), work.signs_last,
                                                                        16 * block, work.order, lane);
        } else {
          flip_signs_of_rows<columns>(box.staging(), work.signs_last, 16 * block, work.order, lane);
        }
        __syncwarp();
      }
      if constexpr (Form::whole_row) {
        if (box.joins()) maxima.tell(box);
      } else {
        encode(box);
      }
    }
    if constexpr (Form::whole_row) {
      __syncthreads();  // all boxes are staged, and the maxima are there
#pragma unroll 1
      for (int block = warp; block < boxes; block += warps)
        encode(box_of(block));
    }
    if (in_place) {
      __syncwarp();  // the box has been read
      input.clear_behind_matrix(slot);
      if (work.slots == 1) input.ask(tile + stride, 0);
    }
    slot ^= work.slots - 1;
  }
}

template <Dtype dtype, CodeFormat format, int part>
const Kernels& encoded_kernels() {
  static constexpr ObjectPart kPart = kEncodedParts[part];
  using Form = encoder::Form<element_of(format), encoder::family_of(format), kPart.whole_row, true>;
  static const auto kTable = [] {
    if constexpr (kPart.matrices == Matrices::two) {
      return table_of_each<Kernels, kTwoMatrices>([](Kernels& table, auto two) {
        constexpr int kOfColumns = two().columns, kSecond = two().second;
        table.add(kOfColumns,
                  reinterpret_cast<Kernel>(codes_by_mma<Form, dtype, kOfColumns, kSecond, false>));
      });
    } else {
      return table_of_each<Kernels, kColumns>([](Kernels& table, auto columns) {
        constexpr bool kDense = kPart.matrices == Matrices::dense;
        if constexpr (kPart.has(columns()))
          table.add(columns(), reinterpret_cast<Kernel>(codes_by_mma<Form, dtype, columns(), 1, kDense>));
      });
    }
  }();
  return kTable;
}

}  // namespace fwht::mma_kronecker
