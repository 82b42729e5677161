// mma_kronecker: rows of n = m 2^k elements by instructions of compute capability 8.0 alone.
//
// A row is read as a matrix X of D x N, D = m 2^j and N = 2^i. Then y = scale * H_D X S_N, where H_D = H_m
// (x) S_(2^j). Stage 1 multiplies the raw data by signs: exact. Stage 2 adds, and ends with hi + lo products.
// With a second matrix of signs, S_N is S_P (x) H_E. A dense H_m comes as fragments that a kernel ahead made.
// It is the algebra of `kronecker` with mma.sync, ldmatrix and cp.async in place of wgmma and tensor copies.
//
// What this rung changes: a warp makes 16 rows of the product by itself, whatever D is. So D is an argument,
// and one kernel for each N serves every order. Every warp reads all of the tile from shared memory, D / 32
// words for each element, which is what limits large D. Beyond D = 192 rows come in narrower tiles, and where
// these have 32 columns, a warp makes 32 rows of the product with one reading.
//
// Bit card, columns b0 .. b(i-1), rows d of X, row r of the tile:
//   load      cp.async, 16 bytes a lane: b0-b2 | lane, b3 .., d, r in the order of memory. A box is 16 rows
//             of X, in lines of 16, 32 or 64 columns, swizzled; a warp brings whole boxes
//   stage 1   ldmatrix.trans: d is k, b0-b2 the columns of a product (exact: +-1 times 16-bit data in fp32)
//             D: b0 register | b1-b2 lane 0-1 | b3 .., r column tile (register) | d: lane 2-4, register,
//             warp, pass
//   stage 2   b3 ..       FADD between registers
//             b0-b2       mma.sync m16n8k16, every number as bf16 hi + lo side by side in k
//             or the second matrix in place of b0-b2 and some of b3 .., likewise
//   store     up to 64 columns at a time through the warp's own staging: 4 bytes a lane in, 16 a lane out
#pragma once

#include <cstdint>

#include "common/device/ptx/cp_async.cuh"
#include "common/device/ptx/global.cuh"
#include "common/device/ptx/griddepcontrol.cuh"
#include "common/device/ptx/ldmatrix.cuh"
#include "common/device/ptx/mbarrier.cuh"
#include "common/device/ptx/mma.cuh"
#include "common/device/ptx/shared.cuh"
#include "variants/kit/box_signs.cuh"
#include "variants/kit/dense_fragments.hpp"
#include "variants/kit/kernel_table.hpp"
#include "variants/kit/split_stage.cuh"
#include "variants/kit/work.cuh"
#include "variants/mma_kronecker/mma_kronecker.hpp"

namespace fwht::mma_kronecker {

using rows::anew;

/// The rows of one launch.
struct Work {
  const std::byte* in;
  std::byte* rows_out;
  std::int64_t in_stride, out_stride;            ///< bytes between rows
  const std::uint32_t* signs;                    ///< sign_table, or the fragments of a dense factor
  const std::uint32_t* second;                   ///< second_table
  const std::uint8_t *signs_first, *signs_last;  ///< a bit for each element of a row; null for none
  int row_count, tiles;
  int order, passes, slots;
  float scale;

  __device__ int k_steps() const { return (order + 15) / 16; }
};

/// The tiles of a block in shared memory, `slots` of them; boxes are brought by the warp that they belong to.
///
/// @tparam clears  a tile that has fewer rows has zeros in place of the others. What lies there may be no
///                 numbers, and then takes the long way to codes.
template <int columns, int tile_rows, bool clears = false>
class TileInput {
  static constexpr Shape kShape{16, columns, tile_rows};
  static constexpr int kBoxBytes = kShape.box_bytes(), kPieces = kBoxBytes / 16;

 public:
  __device__ TileInput(const Work& work, std::uint32_t slots, int warp, int warps, int lane)
      : work_(work), slots_(slots), warp_(warp), warps_(warps), lane_(lane) {}

  __device__ std::uint32_t address(int slot) const { return slots_ + slot * work_.k_steps() * kBoxBytes; }

  /// Rows of X behind the matrix, which nothing is copied to: zeros, for the signs there to meet.
  __device__ void clear_behind_matrix() const {
    for (int slot = 0; slot < work_.slots; ++slot)
      clear_behind_matrix(slot);
  }
  __device__ void clear_behind_matrix(int slot) const {
    const int last = work_.k_steps() - 1;
    if (last % warps_ != warp_ || work_.order % 16 == 0) return;
    const std::uint32_t box = address(slot) + last * kBoxBytes;
#pragma unroll 1
    for (int i = 0; i < kPieces; i += 32) {
      if (16 * last + loaded_line(columns, i, lane_) >= work_.order)
        ptx::st_shared_v4(to_place(box + loaded_first(columns, lane_), loaded_place(columns, i)),
                          {0, 0, 0, 0});
    }
  }
  /// Asks for a tile; nothing where there is none.
  __device__ void ask(int tile, int slot) const {
    if (tile >= work_.tiles) return;
    const int rows = work_.row_count - tile * kShape.rows;
#pragma unroll 1
    for (int box = warp_; box < work_.k_steps(); box += warps_) {
      const std::byte* const from = work_.in + tile * kShape.rows * work_.in_stride +
                                    box * (16 * columns * 2) + loaded_from(columns, lane_);
      const std::uint32_t to = anew(address(slot) + box * kBoxBytes + loaded_first(columns, lane_));
      const auto copy = [&](int i) {
        ptx::cp_async_cg_shared_global_16(
            to_place(to, loaded_place(columns, i)),
            from + loaded_row(columns, i) * work_.in_stride + loaded_bytes(columns, i));
      };
      if (16 * box + 16 <= work_.order && kShape.rows <= rows) {
#pragma unroll
        for (int i = 0; i < kPieces; i += 32)
          copy(i);
      } else {
#pragma unroll 1
        for (int i = 0; i < kPieces; i += 32) {
          if (16 * box + loaded_line(columns, i, lane_) >= work_.order) continue;
          if (loaded_row(columns, i) < rows) {
            copy(i);
          } else if constexpr (clears) {
            ptx::st_shared_v4(to_place(to, loaded_place(columns, i)), {0, 0, 0, 0});
          }
        }
      }
    }
  }
  /// Until this warp's boxes are there, their signs flipped.
  __device__ void wait(int slot) const {
    ptx::cp_async_wait_all();
    if (work_.signs_first == nullptr) return;
    __syncwarp();
#pragma unroll 1
    for (int box = warp_; box < work_.k_steps(); box += warps_) {
      rows::flip_signs<columns, kShape.tile_columns(), kShape.line()>(
          address(slot) + box * kBoxBytes, work_.signs_first, 16 * box, work_.order, lane_);
    }
  }

 private:
  __device__ static std::uint32_t to_place(std::uint32_t first, const Displacement& place) {
    return (first ^ static_cast<std::uint32_t>(place.flip)) + static_cast<std::uint32_t>(place.offset);
  }

  const Work& work_;
  std::uint32_t slots_;
  int warp_, warps_, lane_;
};

/// Two column tiles of 16 rows of results from `tile`, an even one, on: rows 0-7 and 8-15 of the first, then
/// of the second. A lane's words of column tile 0 go to shared address `first`.
template <int columns>
__device__ void stage(std::uint32_t first, int tile, const std::uint32_t (&words)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const Displacement place = staged_place(columns, tile + i / 2, i % 2);
    ptx::st_shared((first ^ place.flip) + place.offset, words[i]);
  }
}

/// Takes 16 rows of results through the warp's staging, a chunk of columns at a time.
template <int columns, int tile_rows>
class RowOutput {
  static constexpr Shape kShape{16, columns, tile_rows};
  static constexpr int kChunk = chunk_of(kShape), kTiles = kChunk / 8;

 public:
  __device__ RowOutput(const Work& work, std::uint32_t staging, int lane)
      : work_(work), staging_(staging), lane_(lane) {}

  /// The rows that follow: `block` of 16 rows of X of a tile.
  __device__ void begin(int tile, int block) {
    block_ = block;
    rows_left_ = work_.row_count - tile * kShape.rows;
    to_ = work_.rows_out + tile * kShape.rows * work_.out_stride + block * (16 * columns * 2);
    staged_ = anew(staging_ + staged_first(columns, lane_));
    sent_ = anew(sent_first(columns, lane_));
  }
  /// See stage(). The last tiles of a chunk send it.
  __device__ void put(int tile, const std::uint32_t (&words)[4]) const {
    stage<columns>(staged_, tile % kTiles, words);
    if (tile % kTiles == kTiles - 2) send(tile / kTiles * kChunk);
  }

 private:
  __device__ void send(int first) const {
    constexpr int kPieces = staging_bytes(kShape) / 16;
    const auto piece = [&](int i, bool exists) {
      std::uint32_t words[4];
      ptx::ld_shared_v4(words, staging_ + 16 * (i + lane_));
      const Displacement place = sent_place(columns, first, i);
      const std::uint32_t byte = (sent_ ^ place.flip) + place.offset;
      if (work_.signs_last != nullptr && exists) flip(words, byte);
      ptx::st_global_if(exists, to_ + sent_row(columns, first, i) * work_.out_stride + byte, words);
    };
    __syncwarp();
    if (16 * block_ + 16 <= work_.order && kShape.rows <= rows_left_ && work_.signs_last == nullptr) {
#pragma unroll
      for (int i = 0; i < kPieces; i += 32)
        piece(i, true);
    } else {
#pragma unroll 1
      for (int i = 0; i < kPieces; i += 32)
        piece(i, 16 * block_ + sent_line(columns, i, lane_) < work_.order &&
                     sent_row(columns, first, i) < rows_left_);
    }
    __syncwarp();  // the staging may be written again
  }
  /// Eight elements, which lie so many bytes behind the first one of the box.
  __device__ void flip(std::uint32_t (&words)[4], std::uint32_t byte) const {
    rows::flip_eight(words, __ldg(work_.signs_last + block_ * (2 * columns) + byte / 16));
  }

  const Work& work_;
  std::uint32_t staging_, staged_ = 0, sent_ = 0;
  int lane_, block_ = 0, rows_left_ = 0;
  std::byte* to_ = nullptr;
};

/// Operand A of stage 1, of `blocks` of 16 rows from `block` on, k step after k step: out of a table of
/// signs, one word for four steps, or fragments of a dense factor, read a step ahead.
template <Dtype dtype, bool dense, int blocks>
class MatrixRows;

template <Dtype dtype, int blocks>
class MatrixRows<dtype, false, blocks> {
 public:
  __device__ MatrixRows(const Work& work, int block, int lane)
      : groups_(rows::sign_words(work.k_steps())),
        words_(work.signs + rows::sign_word_index(work.k_steps(), block, 0, lane)) {
    ask(0);
  }

  /// Before the first of the four steps of a group.
  __device__ void begin(int group) {
#pragma unroll
    for (int i = 0; i < blocks; ++i)
      word_[i] = next_word_[i];
    ask(min(group + 1, groups_ - 1));
  }
  __device__ void take(int step, std::uint32_t (&a)[blocks][4]) {
#pragma unroll
    for (int i = 0; i < blocks; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r)
        a[i][r] = rows::signed_ones(rows::two_ones<dtype>(), word_[i], step, r);
    }
  }

 private:
  __device__ void ask(int group) {
#pragma unroll
    for (int i = 0; i < blocks; ++i)
      next_word_[i] = __ldg(words_ + 32 * (i * groups_ + group));
  }

  int groups_;
  const std::uint32_t* words_;
  std::uint32_t word_[blocks] = {}, next_word_[blocks];
};

template <Dtype dtype>
class MatrixRows<dtype, true, 1> {
 public:
  __device__ MatrixRows(const Work& work, int block, int lane)
      : last_(work.k_steps() - 1),
        words_(reinterpret_cast<const uint4*>(work.signs + rows::fragment_index(last_ + 1, block, 0, lane))),
        next_(__ldg(words_)) {}

  __device__ void begin(int) {}
  __device__ void take(int step, std::uint32_t (&a)[1][4]) {
    a[0][0] = next_.x, a[0][1] = next_.y, a[0][2] = next_.z, a[0][3] = next_.w;
    next_ = __ldg(words_ + 32 * min(step + 1, last_));
  }

 private:
  int last_;
  const uint4* words_;
  uint4 next_;
};

/// Stage 1: `blocks` of 16 rows of the matrix from `block` on times the raw tile at shared address `tile`,
/// exact where the matrix is one of signs. Operands B of a pair of column tiles are read kAhead pairs before
/// their products, those of the next step too. Left to itself, or with kAhead = 2, the compiler reads each
/// right in front of them and waits.
///
/// @tparam unrolled  steps whose loop is unrolled: 1 or 4
template <Dtype dtype, int columns, bool dense, int unrolled, int blocks, int tiles>
__device__ void exact_stage(float (&d)[blocks][tiles][4], const Work& work, int block, std::uint32_t tile,
                            int lane) {
  constexpr int kPairs = tiles / 2, kBoxBytes = 16 * 8 * tiles * 2;
  constexpr int kAhead = kPairs < 4 ? kPairs : kPairs % 4 == 0 ? 4 : kPairs % 3 == 0 ? 3 : 7;
  static_assert(kPairs % kAhead == 0);
  const int k_steps = work.k_steps();
  MatrixRows<dtype, dense, blocks> matrix(work, block, lane);
  std::uint32_t b[kAhead][4];
  const auto read = [&](std::uint32_t box, int pair) {
    const Displacement place = operand_place(columns, 2 * pair);
    ptx::ldmatrix_x4_trans(b[pair % kAhead], (box ^ place.flip) + place.offset);
  };
  std::uint32_t box = tile + operand_first(columns, lane);
#pragma unroll
  for (int pair = 0; pair < kAhead; ++pair)
    read(box, pair);
#pragma unroll 1
  for (int first = 0; first < k_steps; first += unrolled) {
    if (first % 4 == 0) matrix.begin(first / 4);
#pragma unroll
    for (int step = first; step < first + unrolled; ++step) {
      if (step > first && step >= k_steps) break;
      std::uint32_t a[blocks][4];
      matrix.take(step, a);
      const std::uint32_t next_box = step + 1 < k_steps ? box + kBoxBytes : box;
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const std::uint32_t(&operand)[4] = b[pair % kAhead];
#pragma unroll
        for (int i = 0; i < blocks; ++i) {
          rows::multiply_add<dtype>(d[i][2 * pair], a[i], {operand[0], operand[1]});
          rows::multiply_add<dtype>(d[i][2 * pair + 1], a[i], {operand[2], operand[3]});
        }
        read(pair + kAhead < kPairs ? box : next_box, (pair + kAhead) % kPairs);
      }
      box = next_box;
    }
  }
}

/// A block takes one tile after the other. With two slots the next one is on its way from the start; with one
/// it is asked for when all warps have read this one, under stage 2.
///
/// @tparam tile_rows  rows of the problem in a tile
/// @tparam second     order of the second matrix with Sylvester's behind it; 1: there is none
/// @tparam dense      the matrix of stage 1 is dense
/// @tparam blocks     Cut::blocks_at_once
template <Dtype dtype, int columns, int tile_rows, int second, bool dense, int blocks = 1>
__global__ void __launch_bounds__(bounded_threads(tile_rows* columns* blocks, dense), 1)
    rows_by_mma(const __grid_constant__ Work work) {
  constexpr Shape shape{16, columns, tile_rows, second};
  constexpr int kTiles = shape.tile_columns() / 8;
  constexpr int kUnrolled = dense || kTiles * blocks == 32 ? 1 : 4;  // of 256 columns it would spill
  extern __shared__ __align__(128) std::byte shared[];
  const int lane = static_cast<int>(threadIdx.x & 31U), warp = rows::uniform_warp();
  const int warps = static_cast<int>(blockDim.x / 32U), stride = static_cast<int>(gridDim.x);
  const std::uint32_t slots = ptx::shared_address(shared);
  const TileInput<columns, tile_rows> input(work, slots, warp, warps, lane);
  const std::uint32_t staging = input.address(work.slots), table = staging + warps * staging_bytes(shape);
  RowOutput<columns, tile_rows> output(work, staging + warp * staging_bytes(shape), lane);
  const rows::Stage2Constants constants_ahead(lane);

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
    input.wait(slot);
    __syncthreads();  // the tile is there, and its predecessor has been read
    if (work.slots == 2) input.ask(tile + stride, slot ^ 1);
#pragma unroll 1
    for (int pass = 0; pass < work.passes; ++pass) {
      const int block = (pass * warps + warp) * blocks;
      const bool has_rows = block < work.k_steps();
      float d[blocks][kTiles][4] = {};
      if (has_rows) exact_stage<dtype, columns, dense, kUnrolled>(d, work, block, input.address(slot), lane);
      if (work.slots == 1 && pass == work.passes - 1) {
        __syncthreads();  // all warps have read the tile
        input.ask(tile + stride, 0);
      }
      if (!has_rows) continue;
#pragma unroll
      for (int i = 0; i < blocks; ++i) {
        if (block + i >= work.k_steps()) break;
        output.begin(tile, block + i);
        const rows::Stage2Constants constants = [&] {  // where registers are short, worked out here
          if constexpr (columns <= kTileColumns) return constants_ahead;
          return rows::Stage2Constants(anew(lane));
        }();
        float(&registers)[4 * kTiles] = reinterpret_cast<float(&)[4 * kTiles]>(d[i]);
        rows::register_butterflies<second == 1 ? 4 : second / 2, columns / 2>(registers);
        if constexpr (second == 1) {
          rows::finish<dtype>(registers, constants, work.scale, output);
        } else {  // one group at a time: warps in place of registers
          rows::finish_by_second<dtype, second, 1>(registers, table, constants, work.scale, output, lane);
        }
      }
    }
    slot ^= work.slots - 1;
  }
}

/// Takes Work.
using Kernel = const void*;
using Kernels = Table<int, Kernel>;  ///< by columns

template <Dtype dtype>
const Kernels& kernels();
template <Dtype dtype>
const Kernels& kernels_of_two_matrices();
template <Dtype dtype>
const Kernels& kernels_of_dense();
template <Dtype dtype>
const Table<NarrowTile, Kernel>& kernels_of_narrow_tiles();

}  // namespace fwht::mma_kronecker
