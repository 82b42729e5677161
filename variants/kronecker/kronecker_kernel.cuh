// The kernel of kronecker; kronecker.cu opens with the idea and the bit card.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "common/ptx/bulk_copy.cuh"
#include "common/ptx/fragments.hpp"
#include "common/ptx/griddepcontrol.cuh"
#include "common/ptx/mbarrier.cuh"
#include "common/ptx/mma.cuh"
#include "common/ptx/stmatrix.cuh"
#include "common/ptx/tensor_copy.cuh"
#include "common/ptx/wgmma.cuh"
#include "common/storage.cuh"
#include "variants/kronecker/kronecker.hpp"

namespace fwht::kronecker {

/// Of input and output, as 4D tensors: 64 columns, rows of the matrix, blocks of 64 columns, rows of the
/// problem.
struct Maps {
  CUtensorMap in, out;
};

struct Work {
  const std::uint32_t* signs;  ///< sign_table
  unsigned* counter;           ///< rows handed out beyond the first ones; zero between launches
  int rows;
  float scale;
};

/// What a warp keeps of the matrix: operand A of every k step, +-1.
template <Dtype dtype, int k_steps>
struct SignedOnes {
  std::uint32_t step[k_steps][4];

  template <class Shape>
  __device__ SignedOnes(const std::uint32_t* signs, const Shape& shape, int warp, int lane) {
    constexpr std::uint32_t kOnes = dtype == Dtype::f16 ? 0x3C003C00U : 0x3F803F80U;
#pragma unroll
    for (int group = 0; group < (k_steps + 3) / 4; ++group) {
      const std::uint32_t word = __ldg(signs + sign_word_index(shape, warp, group, lane));
#pragma unroll
      for (int s = 4 * group; s < k_steps && s < 4 * group + 4; ++s) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          step[s][r] = signed_ones(kOnes, word, s, r);
          // Without this the compiler expands them between the wgmmas and serialises those (C7520).
          asm volatile("" : "+r"(step[s][r]));
        }
      }
    }
  }
};

/// The rows that a team has under way. A slot is full when all boxes of its row are there, and may be filled
/// again when all warps have read it. One box is one k step and is asked for by the warp of that number.
template <int slots>
class RowSlots {
 public:
  static constexpr int kBytes = slots * 24;  ///< barriers and row numbers

  /// `memory`: kBytes of shared memory; `rows`: shared address of the first slot.
  __device__ RowSlots(std::byte* memory, std::uint32_t rows, int row_bytes)
      : full_(ptx::shared_address(memory)),
        read_(full_ + 8 * slots),
        numbers_(reinterpret_cast<int*>(memory + 16 * slots)),
        rows_(rows),
        row_bytes_(row_bytes) {}

  __device__ void init(int boxes, int warps) const {
    for (int s = 0; s < slots; ++s) {
      ptx::mbarrier_init(full_ + 8 * s, boxes);
      ptx::mbarrier_init(read_ + 8 * s, warps);
    }
    ptx::fence_mbarrier_init();
  }

  __device__ std::uint32_t address() const { return rows_ + slot_ * row_bytes_; }
  __device__ void wait_full() const { ptx::mbarrier_wait_parity(full_ + 8 * slot_, phase_); }
  __device__ void release() const { ptx::mbarrier_arrive(read_ + 8 * slot_); }
  __device__ void wait_read() const { ptx::mbarrier_wait_parity(read_ + 8 * slot_, phase_); }

  /// The row in this slot, and the one that will be in it next.
  __device__ int row() const { return volatile_numbers()[2 * slot_]; }
  __device__ int next_row() const { return volatile_numbers()[2 * slot_ + 1]; }
  __device__ void set_next_row(int row) const { volatile_numbers()[2 * slot_ + 1] = row; }

  /// Asks for box `box` of `row` into slot `slot`. There is nothing to ask for behind the last row.
  __device__ void load(const CUtensorMap& map, int slot, int row, int rows, int box, int box_bytes) const {
    if (box == 0) volatile_numbers()[2 * slot] = row;
    const std::uint32_t barrier = full_ + 8 * slot;
    if (row >= rows) return ptx::mbarrier_arrive(barrier);
    ptx::mbarrier_arrive_expect_tx(barrier, static_cast<std::uint32_t>(box_bytes));
    ptx::tensor_copy_global_to_shared_4d(rows_ + slot * row_bytes_ + box * box_bytes, &map, 0, 16 * box, 0,
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
  std::uint32_t rows_;
  int row_bytes_;
  int slot_ = 0;
  std::uint32_t phase_ = 0;
};

/// Rows by a counter that all teams share: a team that finishes early takes more. The first rows are the
/// teams' own. Every team draws once ahead, so a launch draws rows + teams numbers, and the counter is zero
/// again behind it.
class RowTickets {
 public:
  __device__ RowTickets(unsigned* counter, int rows, int first_rows, int teams, bool draws)
      : counter_(counter),
        last_(static_cast<unsigned>(rows + teams - 1)),
        first_rows_(first_rows),
        draws_(draws) {}
  __device__ void draw_ahead() {
    if (draws_) drawn_ = atomicInc(counter_, last_);
  }
  __device__ int drawn_row() const { return static_cast<int>(drawn_) + first_rows_; }

 private:
  unsigned* counter_;
  unsigned last_, drawn_ = 0;
  int first_rows_;
  bool draws_;
};

/// Stage 1, exact: the matrix times the raw row, one wgmma for every 16 rows.
template <Dtype dtype, int columns, int k_steps>
__device__ void exact_stage(float (&d)[columns / 2], const SignedOnes<dtype, k_steps>& matrix,
                            std::uint32_t row) {
  ptx::wgmma_fence();
#pragma unroll
  for (int s = 0; s < k_steps; ++s) {
    const std::uint64_t b = descriptor(row + s * (16 * columns * 2));
    ptx::wgmma_m64k16<dtype, columns>(d, matrix.step[s], b, s > 0);
  }
  ptx::wgmma_commit_group();
}

/// Stage 2, upper bits: butterflies between column tiles (eight columns, four registers a thread).
template <int registers>
__device__ void tile_butterflies(float (&d)[registers]) {
#pragma unroll
  for (int half = 4; half < registers; half *= 2) {
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      if ((i & half) != 0) continue;
      const float a = d[i], b = d[i | half];
      d[i] = a + b;
      d[i | half] = a - b;
    }
  }
}

/// Stage 2, b0-b2, of four column tiles at once so that their latencies overlap: every number as a pair hi +
/// lo of bf16 numbers, side by side in k, through H8 above H8.
struct SplitConstants {
  std::uint32_t hadamard, minus_identity;

  __device__ explicit SplitConstants(int lane)
      : hadamard(eight_point_fragment(lane)), minus_identity(ptx::minus_identity_fragment(lane)) {
    asm volatile("" : "+r"(hadamard), "+r"(minus_identity));
  }
};

__device__ inline void split_tiles(float (&x)[4][4], const SplitConstants& constants) {
  std::uint32_t halves[4][4];  // hi of the lower and the upper eight rows, then lo
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    halves[i][0] = ptx::prmt<0x7632>(__float_as_uint(x[i][0]), __float_as_uint(x[i][1]));
    halves[i][1] = ptx::prmt<0x7632>(__float_as_uint(x[i][2]), __float_as_uint(x[i][3]));
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    ptx::mma_sync_m16n8k8_f32_bf16_accumulate(x[i], halves[i][0], halves[i][1], constants.minus_identity);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    halves[i][2] = ptx::cvt_rn_bf16x2_f32(x[i][0], x[i][1]);
    halves[i][3] = ptx::cvt_rn_bf16x2_f32(x[i][2], x[i][3]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    ptx::mma_sync_m16n8k16_f32_bf16(x[i], halves[i], {constants.hadamard, constants.hadamard});
}

template <Dtype dtype>
__device__ std::uint32_t rounded_pair(float low, float high) {
  return dtype == Dtype::f16 ? ptx::cvt_rn_f16x2_f32(low, high) : ptx::cvt_rn_bf16x2_f32(low, high);
}

/// A warp's 16 rows of results on their way out: staged in shared memory, then one box of the output's map.
class BoxWriter {
 public:
  __device__ BoxWriter(std::uint32_t staging, int lane)
      : staging_(staging), quarter_((lane & 7) + (lane >> 3 & 1) * 8), piece_(lane >> 4) {}

  /// Until the staging may be written again.
  __device__ void wait() const {
    ptx::bulk_copy_wait_group_read<0>();
    __syncwarp();
  }
  /// The words of two column tiles from `tile` on: rows 0-7 and 8-15 of the first, then of the second.
  __device__ void put(int tile, const std::uint32_t (&words)[4]) const {
    ptx::stmatrix_x4(staging_ + box_byte(quarter_, tile + piece_), words);
  }
  __device__ void send(const CUtensorMap& map, int box, int row, int lane) const {
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane == 0) ptx::tensor_copy_shared_to_global_4d(&map, 0, 16 * box, 0, row, staging_);
    ptx::bulk_copy_commit_group();
  }

 private:
  std::uint32_t staging_;
  int quarter_, piece_;
};

/// b0-b2, the scale and the one rounding, four column tiles after the other.
template <Dtype dtype, int registers>
__device__ void finish(float (&d)[registers], const SplitConstants& constants, float scale,
                       const BoxWriter& writer) {
#pragma unroll
  for (int tile = 0; tile < registers / 4; tile += 4) {
    float x[4][4];
#pragma unroll
    for (int i = 0; i < 16; ++i)
      x[i / 4][i % 4] = d[4 * tile + i];
    split_tiles(x, constants);
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const std::uint32_t words[4] = {rounded_pair<dtype>(x[i][0] * scale, x[i][1] * scale),
                                      rounded_pair<dtype>(x[i][2] * scale, x[i][3] * scale),
                                      rounded_pair<dtype>(x[i + 1][0] * scale, x[i + 1][1] * scale),
                                      rounded_pair<dtype>(x[i + 1][2] * scale, x[i + 1][3] * scale)};
      writer.put(tile + i, words);
    }
  }
}

/// Rows of order x columns elements. A team of warps keeps `slots` rows under way and takes them one after
/// the other.
/// @tparam order, columns  Shape
/// @tparam teams, slots, blocks_per_sm  Launch
template <Dtype dtype, int order, int columns, int teams, int slots, int blocks_per_sm>
__global__ void __launch_bounds__(teams* Shape{order, columns}.warps() * 32, blocks_per_sm)
    transform_rows(const __grid_constant__ Maps maps, const __grid_constant__ Work work) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Shape shape{order, columns};
  constexpr int kBoxes = shape.k_steps(), kWarps = shape.warps(), kBoxBytes = shape.box_bytes();
  extern __shared__ __align__(1024) std::byte shared[];

  const int lane = static_cast<int>(threadIdx.x & 31U);
  const int warp_of_block = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x >> 5), 0);
  const int team = warp_of_block / kWarps, warp = warp_of_block % kWarps;
  const bool leads = warp == 0 && lane == 0;  // the thread that speaks for the team
  const bool has_rows = warp < kBoxes;        // of the product: others lie behind the matrix's last row
  const int all_teams = static_cast<int>(gridDim.x) * teams;
  const int first_row = static_cast<int>(blockIdx.x) + team * static_cast<int>(gridDim.x);

  std::byte* const staging = shared + teams * slots * shape.row_bytes();
  std::byte* const barriers = staging + teams * shape.row_bytes();
  RowSlots<slots> rows(barriers + team * RowSlots<slots>::kBytes,
                       ptx::shared_address(shared) + team * slots * shape.row_bytes(), shape.row_bytes());
  if (leads) {
    rows.init(kBoxes, kWarps);
    ptx::griddepcontrol_wait();
    for (int s = 0; s < slots; ++s) {
#pragma unroll 1
      for (int box = 0; box < kBoxes; ++box)
        rows.load(maps.in, s, first_row + s * all_teams, work.rows, box, kBoxBytes);
    }
    ptx::griddepcontrol_launch_dependents();
  }
  const SignedOnes<dtype, kBoxes> matrix(work.signs, shape, has_rows ? warp : 0, lane);
  const SplitConstants split(lane);
  const BoxWriter writer(ptx::shared_address(staging) + (team * kBoxes + (has_rows ? warp : 0)) * kBoxBytes,
                         lane);
  RowTickets tickets(work.counter, work.rows, slots * all_teams, all_teams, leads);
  __syncthreads();  // the barriers are there

  tickets.draw_ahead();
  float d[shape.accumulators()];
  int staged_row = -1;
#pragma unroll 1
  for (;;) {
    rows.wait_full();
    const int row = __shfl_sync(0xFFFFFFFFU, lane == 0 ? rows.row() : 0, 0);
    if (row >= work.rows) break;

    ptx::pin_accumulators(d);
    exact_stage<dtype, columns, kBoxes>(d, matrix, rows.address());
    if (has_rows && staged_row >= 0) writer.send(maps.out, warp, staged_row, lane);
    const int next_row = tickets.drawn_row();
    tickets.draw_ahead();
    ptx::wgmma_wait_group<0>();
    ptx::pin_accumulators(d);

    if (leads) rows.set_next_row(next_row);
    if (lane == 0) rows.release();
    writer.wait();
    if (has_rows) {
      tile_butterflies(d);
      if (lane == 0) {  // a box is free when every warp has read the row
        rows.wait_read();
        rows.load(maps.in, rows.slot(), rows.next_row(), work.rows, warp, kBoxBytes);
      }
      __syncwarp();
      finish<dtype>(d, split, work.scale, writer);
      staged_row = row;
    }
    rows.advance();
    __syncwarp();
  }
  if (has_rows && staged_row >= 0) writer.send(maps.out, warp, staged_row, lane);
  ptx::bulk_copy_wait_group_read<0>();
#else
  __trap();  // `supports` says no where there is no code for sm_90a
#endif
}

using Kernel = void (*)(Maps, Work);

}  // namespace fwht::kronecker
