// The kernel of kronecker; kronecker.cu opens with the idea and the bit card.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "common/ptx/bulk_copy.cuh"
#include "common/ptx/fragments.hpp"
#include "common/ptx/global.cuh"
#include "common/ptx/griddepcontrol.cuh"
#include "common/ptx/mbarrier.cuh"
#include "common/ptx/mma.cuh"
#include "common/ptx/named_barrier.cuh"
#include "common/ptx/shared.cuh"
#include "common/ptx/stmatrix.cuh"
#include "common/ptx/tensor_copy.cuh"
#include "common/ptx/wgmma.cuh"
#include "common/storage.cuh"
#include "variants/kronecker/kronecker.hpp"
#include "variants/rows/row_counter.cuh"
#include "variants/rows/split_stage.cuh"

namespace fwht::kronecker {

/// Of input and output, as 4D tensors: columns of a line, rows of the matrix, lines side by side, rows of the
/// problem.
struct Maps {
  CUtensorMap in, out;
};

/// Where lanes write results themselves.
struct Rows {
  std::byte* out;
  std::int64_t stride_bytes;
  int count;
};

struct Work {
  const std::uint32_t* signs;                    ///< sign_table
  const std::uint32_t* fragments;                ///< of a dense factor; null where `signs` are the matrix
  const std::uint32_t* second;                   ///< second_table
  const std::uint8_t *signs_first, *signs_last;  ///< a bit for each element of a row; null for none
  unsigned* counter;  ///< tiles handed out beyond the first ones; zero between launches
  int tiles, order;
  float scale;
  Rows rows;
  bool by_lanes;  ///< rows are no whole number of the output's lines
};

template <Dtype dtype>
constexpr std::uint32_t two_ones() {
  return dtype == Dtype::f16 ? 0x3C003C00U : 0x3F803F80U;
}

/// What a warp keeps of the matrix where there are registers for it: operand A of every k step.
template <Dtype dtype, int k_steps>
struct HeldMatrix {
  std::uint32_t step[k_steps][4];

  HeldMatrix() = default;
  __device__ HeldMatrix(const Work& work, int block, int lane) {
    if (work.fragments != nullptr) {
#pragma unroll
      for (int s = 0; s < k_steps; ++s) {
        const uint4 words =
            __ldg(reinterpret_cast<const uint4*>(work.fragments + fragment_index(k_steps, block, s, lane)));
        step[s][0] = words.x, step[s][1] = words.y, step[s][2] = words.z, step[s][3] = words.w;
      }
    } else {
#pragma unroll
      for (int s = 0; s < k_steps; s += 4) {
        const std::uint32_t word = __ldg(work.signs + sign_word_index(k_steps, block, s / 4, lane));
#pragma unroll
        for (int i = 0; i < 16 && s + i / 4 < k_steps; ++i)
          step[s + i / 4][i % 4] = signed_ones(two_ones<dtype>(), word, i / 4, i % 4);
      }
    }
    // Without this the compiler expands them between the wgmmas and serialises those (C7520).
#pragma unroll
    for (int i = 0; i < 4 * k_steps; ++i)
      asm volatile("" : "+r"(step[i / 4][i % 4]));
  }
};

struct Nothing {
  __device__ void operator()(int /*step*/) const {}
};

/// Stage 1, exact: the matrix times the raw tile at shared address `tile`, one wgmma for every 16 rows.
/// `before_step(s)` waits for what step s reads.
template <Dtype dtype, int columns, int line, int k_steps, class Before = Nothing>
__device__ void exact_stage(float (&d)[columns / 2], const HeldMatrix<dtype, k_steps>& matrix,
                            std::uint32_t tile, Before before_step = {}) {
  ptx::wgmma_fence();
#pragma unroll
  for (int s = 0; s < k_steps; ++s) {
    before_step(s);
    const std::uint64_t b = descriptor(tile + s * (16 * columns * 2), line);
    ptx::wgmma_m64k16<dtype, columns>(d, matrix.step[s], b, s > 0);
  }
  ptx::wgmma_commit_group();
}

/// What it keeps otherwise: the signs, a word for four k steps.
template <Dtype dtype, int k_steps>
struct SignedMatrix {
  std::uint32_t words[sign_words(k_steps)];

  SignedMatrix() = default;
  __device__ SignedMatrix(const Work& work, int block, int lane) {
#pragma unroll
    for (int group = 0; group < sign_words(k_steps); ++group)
      words[group] = __ldg(work.signs + sign_word_index(k_steps, block, group, lane));
  }
};

/// The same with signs: expanded for four steps, multiplied, expanded for the next four.
template <Dtype dtype, int columns, int line, int k_steps>
__device__ void exact_stage(float (&d)[columns / 2], const SignedMatrix<dtype, k_steps>& matrix,
                            std::uint32_t tile) {
#pragma unroll
  for (int group = 0; group < sign_words(k_steps); ++group) {
    std::uint32_t step[4][4], word = matrix.words[group];
    asm volatile("" : "+r"(word));  // or the compiler expands all of them ahead of the loop over tiles
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      step[i / 4][i % 4] = signed_ones(two_ones<dtype>(), word, i / 4, i % 4);
      asm volatile("" : "+r"(step[i / 4][i % 4]));
    }
    ptx::wgmma_fence();
#pragma unroll
    for (int s = 4 * group; s < k_steps && s < 4 * group + 4; ++s) {
      const std::uint64_t b = descriptor(tile + s * (16 * columns * 2), line);
      ptx::wgmma_m64k16<dtype, columns>(d, step[s - 4 * group], b, s > 0);
    }
    ptx::wgmma_commit_group();
    if (group + 1 < sign_words(k_steps)) ptx::wgmma_wait_group<0>();  // the registers of the signs are free
  }
}

/// The tiles that a team has under way. A slot is full when all boxes of its tile are there, and may be filled
/// again when all warps have read it. One box is one k step.
template <int slots>
class TileSlots {
 public:
  static constexpr int kBytes = slots * 24;  ///< barriers and tile numbers

  /// `memory`: kBytes of shared memory; `tiles`: shared address of the first slot.
  __device__ TileSlots(std::byte* memory, std::uint32_t tiles, int tile_bytes)
      : full_(ptx::shared_address(memory)),
        read_(full_ + 8 * slots),
        numbers_(reinterpret_cast<int*>(memory + 16 * slots)),
        tiles_(tiles),
        tile_bytes_(tile_bytes) {}

  __device__ void init(int boxes, int warps) const {
    for (int s = 0; s < slots; ++s) {
      ptx::mbarrier_init(full_ + 8 * s, boxes);
      ptx::mbarrier_init(read_ + 8 * s, warps);
    }
    ptx::fence_mbarrier_init();
  }

  __device__ std::uint32_t address() const { return tiles_ + slot_ * tile_bytes_; }
  __device__ void wait_full() const { ptx::mbarrier_wait_parity(full_ + 8 * slot_, phase_); }
  __device__ void release() const { ptx::mbarrier_arrive(read_ + 8 * slot_); }
  __device__ void wait_read() const { ptx::mbarrier_wait_parity(read_ + 8 * slot_, phase_); }

  /// The tile in this slot, and the one that will be in it next.
  __device__ int tile() const { return volatile_numbers()[2 * slot_]; }
  __device__ int next_tile() const { return volatile_numbers()[2 * slot_ + 1]; }
  __device__ void set_next_tile(int tile) const { volatile_numbers()[2 * slot_ + 1] = tile; }

  /// Asks for box `box` of `tile`, which begins at row `row`, into slot `slot`. There is nothing to ask for
  /// behind the last tile.
  __device__ void load(const CUtensorMap& map, int slot, int tile, int tiles, int row, int box,
                       int box_bytes) const {
    if (box == 0) volatile_numbers()[2 * slot] = tile;
    const std::uint32_t barrier = full_ + 8 * slot;
    if (tile >= tiles) return ptx::mbarrier_arrive(barrier);
    ptx::mbarrier_arrive_expect_tx(barrier, static_cast<std::uint32_t>(box_bytes));
    ptx::tensor_copy_global_to_shared_4d(tiles_ + slot * tile_bytes_ + box * box_bytes, &map, 0, 16 * box, 0,
                                         row, barrier);
  }
  __device__ int slot() const { return slot_; }

  __device__ void advance() {
    if (++slot_ < slots) return;
    slot_ = 0;
    phase_ ^= 1U;
  }

 private:
  __device__ volatile int* volatile_numbers() const { return numbers_; }

  std::uint32_t full_, read_;
  int* numbers_;
  std::uint32_t tiles_;
  int tile_bytes_;
  int slot_ = 0;
  std::uint32_t phase_ = 0;
};

/// Tiles by a counter that all teams share. The first tiles are the teams' own, and a team draws one ahead.
class TileTickets {
 public:
  __device__ TileTickets(unsigned* counter, int tiles, int first_tiles, int teams, bool draws)
      : counter_(counter), tiles_(tiles), first_tiles_(first_tiles), teams_(teams), draws_(draws) {}
  __device__ void draw_ahead() {
    if (draws_) drawn_ = rows::draw_ticket(counter_, tiles_, teams_);
  }
  __device__ int drawn_tile() const { return static_cast<int>(drawn_) + first_tiles_; }

 private:
  unsigned* counter_;
  int tiles_, first_tiles_, teams_;
  bool draws_;
  unsigned drawn_ = 0;
};

/// The signs of eight elements from `element` of a row on.
__device__ inline void flip(std::uint32_t (&words)[4], const std::uint8_t* signs, int element) {
  const std::uint32_t eight = __ldg(signs + element / 8);
#pragma unroll
  for (int w = 0; w < 4; ++w)
    words[w] ^= pair_signs(eight, w);
}

/// Multiplies the elements of a box by their signs where it lies in shared memory.
/// @tparam staged  as results, see staged_byte
/// @param first    row of X that the box begins with
template <int columns, int tile_rows, bool staged>
__device__ void flip_signs(std::uint32_t box, const std::uint8_t* signs, int first, int order, int lane) {
  constexpr Shape shape{16, columns, tile_rows};
  constexpr int kPieces = shape.tile_columns() / 8;
#pragma unroll 2
  for (int i = lane; i < 16 * kPieces; i += 32) {
    const int row = i / kPieces, piece = i % kPieces, column = 8 * piece % columns;
    if (first + row >= order) continue;
    const std::uint32_t at =
        box + (staged ? staged_byte(shape, row, piece) : box_byte(row, piece, shape.line()));
    std::uint32_t words[4];
    ptx::ld_shared_v4(words, at);
    flip(words, signs, (first + row) * columns + column);
    ptx::st_shared_v4(at, words);
  }
}

/// Constants of the products of stage 2.
struct Stage2Constants {
  std::uint32_t hadamard[2], minus_identity;

  __device__ explicit Stage2Constants(int lane)
      : hadamard{eight_point_fragment(lane), 0}, minus_identity(ptx::minus_identity_fragment(lane)) {
    asm volatile("" : "+r"(hadamard[0]), "+r"(minus_identity));
    hadamard[1] = hadamard[0];
  }
};

template <Dtype dtype>
__device__ std::uint32_t rounded_pair(float low, float high) {
  return dtype == Dtype::f16 ? ptx::cvt_rn_f16x2_f32(low, high) : ptx::cvt_rn_bf16x2_f32(low, high);
}

/// A warp's 16 rows of results on their way out: staged in shared memory, then one box of the output's map.
template <int columns, int tile_rows>
class BoxWriter {
 public:
  __device__ BoxWriter(std::uint32_t staging, int lane)
      : staging_(staging),
        first_(staging + staged_byte(shape(), (lane & 7) + (lane >> 3 & 1) * 8, lane >> 4)) {}

  /// Until the staging may be written again.
  __device__ void wait() const {
    ptx::bulk_copy_wait_group_read<0>();
    __syncwarp();
  }
  /// Scale and the one rounding, of two column tiles from `tile`, an even one, on: rows 0-7 and 8-15 of the
  /// first, then of the second.
  template <Dtype dtype>
  __device__ void put(int tile, const float (&x)[4], const float (&y)[4], const Work& work) const {
    const float scale = work.scale;
    const std::uint32_t words[4] = {
        rounded_pair<dtype>(x[0] * scale, x[1] * scale), rounded_pair<dtype>(x[2] * scale, x[3] * scale),
        rounded_pair<dtype>(y[0] * scale, y[1] * scale), rounded_pair<dtype>(y[2] * scale, y[3] * scale)};
    // A block of lines holds the 16 rows of X, of a line of columns or, packed, of a row of the tile.
    constexpr int kPieces = (shape().packed() ? columns : shape().line()) / 8, kBlock = 16 * 16 * kPieces;
    const int block = tile / kPieces, exchanged = shape().packed() ? block * (kBlock / 128) & 7 : 0;
    ptx::stmatrix_x4((first_ ^ ((tile % kPieces ^ exchanged) << 4)) + block * kBlock, words);
  }
  /// What is put from now on: box `box` of the tile that begins at `row`.
  __device__ void begin(const Work& /*work*/, int box, int row, int /*lane*/) {
    box_ = box;
    row_ = row;
  }
  __device__ void end(const Work& work, int lane) const {
    if (work.signs_last == nullptr) return;
    __syncwarp();
    flip_signs<columns, tile_rows, true>(staging_, work.signs_last, 16 * box_, work.order, lane);
  }
  /// Sends what is staged, if anything is.
  __device__ void send(const CUtensorMap& map, const Work& work, int lane) {
    if (row_ < 0) return;
    const int row = row_;
    row_ = -1;
    if constexpr (shape().packed()) {
      if (work.by_lanes) return store(work, box_, row, lane);
    }
    ptx::fence_proxy_async_shared();
    __syncwarp();
    constexpr int kLines = shape().packed() ? 16 * columns / 64 : 16;
    if (lane == 0) ptx::tensor_copy_shared_to_global_4d(&map, 0, kLines * box_, 0, row, staging_);
    ptx::bulk_copy_commit_group();
  }
  /// The same by the lanes, 16 bytes each.
  __device__ void store(const Work& work, int box, int row, int lane) const {
    constexpr int kPieces = shape().tile_columns() / 8;
    __syncwarp();
#pragma unroll(tile_rows == 1 ? columns / 16 : 1)
    for (int i = lane; i < 16 * kPieces; i += 32) {
      const int x = 16 * box + i / kPieces, piece = i % kPieces, row_of_tile = 8 * piece / columns;
      std::uint32_t words[4];
      ptx::ld_shared_v4(words, staging_ + staged_byte(shape(), i / kPieces, piece));
      ptx::st_global_if(x < work.order && row + row_of_tile < work.rows.count,
                        work.rows.out + (row + row_of_tile) * work.rows.stride_bytes +
                            2 * (x * columns + 8 * piece % columns),
                        words);
    }
  }

 private:
  static constexpr Shape shape() {
    return {16, columns, tile_rows};
  }

  std::uint32_t staging_, first_;
  int box_ = 0, row_ = -1;
};

/// The same without staging: neighbours of a quad exchange words, so that a lane has four elements side by side and a
/// quad a whole sector of 32 bytes.
template <int columns, int tile_rows>
class DirectWriter {
 public:
  __device__ DirectWriter(std::uint32_t /*staging*/, int lane)
      : odd_((lane & 1) != 0), x_(lane >> 2), column_(8 * (lane & 1) + 4 * (lane >> 1 & 1)) {}
  __device__ void wait() const {}
  __device__ void send(const CUtensorMap& /*map*/, const Work& /*work*/, int /*lane*/) const {}

  __device__ void begin(const Work& work, int box, int row, int lane) {
    x_ = 16 * box + (lane >> 2);
    row_ = row;
    first_ = work.rows.out + row * work.rows.stride_bytes + 2 * (x_ * columns + column_);
    upper_ = x_ < work.order, lower_ = x_ + 8 < work.order;
  }
  template <Dtype dtype>
  __device__ void put(int tile, const float (&x)[4], const float (&y)[4], const Work& work) const {
    const int column = 8 * (tile % (columns / 8));
    std::byte* const to = first_ + tile / (columns / 8) * work.rows.stride_bytes + 2 * column;
    const bool exists = tile_rows == 1 || row_ + tile / (columns / 8) < work.rows.count;
    put_row(rounded_pair<dtype>(x[0] * work.scale, x[1] * work.scale),
            rounded_pair<dtype>(y[0] * work.scale, y[1] * work.scale), to, upper_ && exists);
    put_row(rounded_pair<dtype>(x[2] * work.scale, x[3] * work.scale),
            rounded_pair<dtype>(y[2] * work.scale, y[3] * work.scale), to + 16 * columns, lower_ && exists);
  }
  /// Signs that come last: every lane reads again what it has stored. Registers for them are not left over earlier.
  __device__ void end(const Work& work, int /*lane*/) const {
    if (work.signs_last == nullptr) return;
#pragma unroll 1
    for (int i = 0; i < 2 * tile_rows * columns / 16; ++i) {
      const int lower = i & 1, row = i / 2 / (columns / 16), column = i / 2 % (columns / 16) * 16;
      if (!(lower ? lower_ : upper_) || row_ + row >= work.rows.count) continue;
      auto* const words = reinterpret_cast<std::uint32_t*>(first_ + row * work.rows.stride_bytes +
                                                           2 * column + lower * 16 * columns);
      const int element = (x_ + 8 * lower) * columns + column_ + column;
      const std::uint32_t eight = __ldg(work.signs_last + element / 8);
      words[0] ^= pair_signs(eight, element % 8 / 2);
      words[1] ^= pair_signs(eight, element % 8 / 2 + 1);
    }
  }

 private:
  /// Words of two column tiles.
  __device__ void put_row(std::uint32_t of_first, std::uint32_t of_second, std::byte* to, bool exists) const {
    const std::uint32_t got = ptx::shfl_sync_bfly(odd_ ? of_first : of_second, 1);
    const std::uint32_t words[2] = {odd_ ? got : of_first, odd_ ? of_second : got};
    ptx::st_global_if(exists, to, words);
  }

  std::byte* first_ = nullptr;
  bool odd_, upper_ = false, lower_ = false;
  int x_, column_, row_ = 0;
};

/// The end of stage 2: b0-b2, up to four column tiles at once so that their latencies overlap.
template <Dtype dtype, class Writer, int registers>
__device__ void finish(float (&d)[registers], const Stage2Constants& constants, const Work& work,
                       const Writer& writer) {
  static_assert(registers % 16 == 0);
#pragma unroll
  for (int tile = 0; tile < registers / 4; tile += 4) {
    float x[4][4];
#pragma unroll
    for (int i = 0; i < 16; ++i)
      x[i / 4][i % 4] = d[4 * tile + i];
    rows::eight_point_stage(x, constants.hadamard, constants.minus_identity);
    writer.template put<dtype>(tile, x[0], x[1], work);
    writer.template put<dtype>(tile + 2, x[2], x[3], work);
  }
}

/// The same with a second matrix F, whose words lie at shared address `table`, see second_entry: of every group of
/// `second` columns, the sums and the differences of neighbours are operands A, hi and lo side by side in k.
template <Dtype dtype, int second, class Writer, int registers>
__device__ void finish_by_second(float (&d)[registers], std::uint32_t table, const Stage2Constants& constants,
                                 const Work& work, const Writer& writer, int lane) {
  constexpr int kColumnTiles = second / 8, kTiles = second_tiles(second);
#pragma unroll
  for (int first = 0; first < registers / 4; first += kColumnTiles) {
    __syncwarp();  // or the compiler begins several groups, for which there are no registers
    std::uint32_t halves[2 * kTiles][4];  // sums, then differences
    float x[2 * kTiles][4];
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) {
      // Register i of tile t: entries 8 t + 4 (i & 1) + lane, rows 8 (i / 2) from the group's rows on.
      const int tile = i / 4, column_tile = 2 * tile + (i & 1), row = i >> 1 & 1;
      const bool exists = column_tile < kColumnTiles;
      const float even = exists ? d[4 * (first + column_tile) + 2 * row] : 0.0F,
                  odd = exists ? d[4 * (first + column_tile) + 2 * row + 1] : 0.0F;
      x[tile][i % 4] = even + odd;
      x[kTiles + tile][i % 4] = even - odd;
    }
    rows::split(halves, x, constants.minus_identity);
#pragma unroll
    for (int to = 0; to < kTiles; ++to) {
      std::uint32_t words[4 * second_quads(second)];
#pragma unroll
      for (int quad = 0; quad < second_quads(second); ++quad) {
        ptx::ld_shared_v4(reinterpret_cast<std::uint32_t(&)[4]>(words[4 * quad]),
                          table + 4 * second_word_index(second, to, 4 * quad, lane));
      }
      float sums[2][4];
#pragma unroll
      for (int from = 0; from < kTiles; ++from) {
        const std::uint32_t b[2] = {words[from], words[from]};  // for hi and for lo
#pragma unroll
        for (int parity = 0; parity < 2; ++parity) {
          if (from == 0) {
            ptx::mma_sync_m16n8k16_f32_bf16(sums[parity], halves[parity * kTiles], b);
          } else {
            ptx::mma_sync_m16n8k16_f32_bf16_accumulate(sums[parity], halves[parity * kTiles + from], b);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int column_tile = 2 * to + (i & 1), parity = i >> 1 & 1, row = i >> 2;
        if (column_tile < kColumnTiles)
          d[4 * (first + column_tile) + 2 * row + parity] = sums[parity][2 * row + (i & 1)];
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < registers / 4; tile += 2)
    writer.template put<dtype>(tile, reinterpret_cast<float(&)[4]>(d[4 * tile]),
                               reinterpret_cast<float(&)[4]>(d[4 * tile + 4]), work);
}

/// The arguments are those of a Launch whose order is 16 k_steps. A team of warps keeps `slots` tiles under
/// way and takes them one after the other.
template <Dtype dtype, int k_steps, int columns, int tile_rows, int second, int teams, int slots,
          int blocks_per_sm, int passes, bool held, bool direct>
__global__ void __launch_bounds__(
    Launch{{16 * k_steps, columns, tile_rows, second}, teams, slots, blocks_per_sm, passes, held}.threads(),
    blocks_per_sm) transform_rows(const __grid_constant__ Maps maps, const __grid_constant__ Work work) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Launch launch{
      {16 * k_steps, columns, tile_rows, second}, teams, slots, blocks_per_sm, passes, held, false, direct};
  constexpr Shape shape = launch.shape;
  constexpr int kLine = shape.line(), kColumns = shape.tile_columns(), kBoxes = k_steps,
                kWarps = launch.warps(), kBoxBytes = shape.box_bytes(),
                kStagingBoxes = launch.staging_boxes();
  using Matrix = std::conditional_t<held, HeldMatrix<dtype, k_steps>, SignedMatrix<dtype, k_steps>>;
  static_assert(!held || passes == 1);
  extern __shared__ __align__(1024) std::byte shared[];

  const int lane = static_cast<int>(threadIdx.x & 31U);
  const int warp_of_block = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x >> 5), 0);
  const int team = teams == 1 ? 0 : warp_of_block / kWarps, warp = warp_of_block - team * kWarps;
  const bool leads = warp == 0 && lane == 0;  // the thread that speaks for the team
  const int all_teams = static_cast<int>(gridDim.x) * teams;
  const int first_tile = static_cast<int>(blockIdx.x) + team * static_cast<int>(gridDim.x);

  std::byte* const staging = shared + launch.slot_bytes();
  std::byte* const table = staging + launch.staging_bytes();
  std::byte* const barriers = table + launch.second_bytes();
  TileSlots<slots> tiles(barriers + team * TileSlots<slots>::kBytes,
                         ptx::shared_address(shared) + team * slots * shape.tile_bytes(), shape.tile_bytes());
  if (leads) {
    tiles.init(kBoxes, kWarps);
    ptx::griddepcontrol_wait();
    for (int s = 0; s < slots; ++s) {
      const int tile = first_tile + s * all_teams;
#pragma unroll 1
      for (int box = 0; box < kBoxes; ++box)
        tiles.load(maps.in, s, tile, work.tiles, tile_rows * tile, box, kBoxBytes);
    }
    ptx::griddepcontrol_launch_dependents();
  }
  if (threadIdx.x == 32) ptx::prefetch_tensormap(&maps.out);
  // The box of the product that a warp makes in a pass; there may be none. Teams begin at other warpgroups and warps,
  // so that what the last pass leaves over is not always the same scheduler's work.
  constexpr int kGroups = kWarps / 4;
  const int group = passes == 1 ? warp / 4 : (warp / 4 + team) % kGroups;
  const int place = passes == 1 ? warp : 4 * group + (warp + team) % 4;
  const auto own_box = [&](int pass) { return pass * kWarps + place; };
  Matrix matrix[passes];
#pragma unroll
  for (int pass = 0; pass < passes; ++pass)
    matrix[pass] = Matrix(work, own_box(pass) < kBoxes ? own_box(pass) : 0, lane);
  if constexpr (second > 1) {
    for (int i = static_cast<int>(threadIdx.x); i < second_words(second); i += launch.threads())
      reinterpret_cast<std::uint32_t*>(table)[i] = __ldg(work.second + i);
  }
  const Stage2Constants constants(lane);
  using Writer = std::conditional_t<direct, DirectWriter<columns, tile_rows>, BoxWriter<columns, tile_rows>>;
  Writer writer(
      ptx::shared_address(staging) + (team * kStagingBoxes + min(warp, kStagingBoxes - 1)) * kBoxBytes, lane);
  TileTickets tickets(work.counter, work.tiles, slots * all_teams, all_teams, leads);
  __syncthreads();  // the barriers are there

  tickets.draw_ahead();
#pragma unroll 1
  for (;;) {
    tiles.wait_full();
    const int tile = __shfl_sync(0xFFFFFFFFU, lane == 0 ? tiles.tile() : 0, 0);
    if (tile >= work.tiles) break;

    if (work.signs_first != nullptr) {
#pragma unroll 1
      for (int box = warp; box < kBoxes; box += kWarps)
        flip_signs<columns, tile_rows, false>(tiles.address() + box * kBoxBytes, work.signs_first, 16 * box,
                                              work.order, lane);
      ptx::fence_proxy_async_shared();
      if constexpr (teams == 1)
        __syncthreads();
      else
        ptx::bar_sync(1 + team, 32 * kWarps);
    }
    int next_tile = 0;
    const auto draw_next = [&] {
      next_tile = tickets.drawn_tile();
      tickets.draw_ahead();
    };
    const auto release = [&] {
      if (leads) tiles.set_next_tile(next_tile);
      if (lane == 0) tiles.release();
    };
    // A box is free when every warp has read the tile. A warp that has no rows in the last pass waits for that; where
    // all have, they share the boxes.
    const auto refill = [&] {
      constexpr bool kOneIsFree = passes * kWarps > kBoxes;
      if (kOneIsFree ? place != kWarps - 1 : warp >= kBoxes) return;
      if (lane == 0) {
        tiles.wait_read();
        for (int free = kOneIsFree ? 0 : warp; free < kBoxes; free += kOneIsFree ? 1 : kWarps)
          tiles.load(maps.in, tiles.slot(), tiles.next_tile(), work.tiles, tile_rows * tiles.next_tile(),
                     free, kBoxBytes);
      }
      __syncwarp();
    };
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
      constexpr int kLastPass = passes - 1;
      const int first = pass * kWarps;
      if (first + 4 * (kGroups - 1) >= kBoxes && first + 4 * group >= kBoxes) {  // only ever in the last pass
        draw_next();
        release();
        refill();
        continue;
      }
      float d[shape.accumulators()];
      ptx::pin_accumulators(d);
      exact_stage<dtype, kColumns, kLine>(d, matrix[pass], tiles.address());
      writer.send(maps.out, work, lane);
      if (pass == kLastPass) draw_next();
      ptx::wgmma_wait_group<0>();
      ptx::pin_accumulators(d);

      if (pass == kLastPass) release();
      writer.wait();
      const bool has_rows = own_box(pass) < kBoxes;
      if (has_rows) rows::register_butterflies<second == 1 ? 4 : second / 2, columns / 2>(d);
      if (pass == kLastPass) refill();
      if (has_rows) {
        writer.begin(work, own_box(pass), tile_rows * tile, lane);
        if constexpr (second == 1) {
          finish<dtype>(d, constants, work, writer);
        } else {
          finish_by_second<dtype, second>(d, ptx::shared_address(table), constants, work, writer, lane);
        }
        writer.end(work, lane);
      }
    }
    tiles.advance();
    __syncwarp();
  }
  writer.send(maps.out, work, lane);
  ptx::bulk_copy_wait_group_read<0>();
#else
  __trap();  // `supports` says no where there is no code for sm_90a
#endif
}

using Kernel = void (*)(Maps, Work);

}  // namespace fwht::kronecker
