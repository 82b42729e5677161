// The kernel of kronecker; kronecker.cu opens with the idea and the bit card.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "common/device/ptx/bulk_copy.cuh"
#include "common/device/ptx/fragments.hpp"
#include "common/device/ptx/global.cuh"
#include "common/device/ptx/griddepcontrol.cuh"
#include "common/device/ptx/mbarrier.cuh"
#include "common/device/ptx/mma.cuh"
#include "common/device/ptx/named_barrier.cuh"
#include "common/device/ptx/shared.cuh"
#include "common/device/ptx/stmatrix.cuh"
#include "common/device/ptx/tensor_copy.cuh"
#include "common/device/ptx/wgmma.cuh"
#include "common/device/storage.cuh"
#include "variants/kit/box_signs.cuh"
#include "variants/kit/dense_fragments.hpp"
#include "variants/kit/split_stage.cuh"
#include "variants/kit/work.cuh"
#include "variants/kronecker/kronecker.hpp"

/// For nvcc 13.0, see kernel_table.hpp.
using _ZN4fwht9kronecker6LaunchE = fwht::kronecker::Launch;

namespace fwht::kronecker {

using rows::finish;
using rows::put;
using rows::rounded_pair;
using rows::Stage2Constants;
using rows::two_ones;

/// Of input and output, as 4D tensors: columns of a line, rows of the matrix, lines side by side, rows of the
/// problem.
struct Maps {
  CUtensorMap in, out;
};

/// Where lanes write results themselves.
struct Rows {
  std::byte* out;
  std::int64_t stride_bytes;
};

struct Work {
  const std::uint32_t* signs;                    ///< sign_table
  const std::uint32_t* fragments;                ///< of a dense factor; null where `signs` are the matrix
  const std::uint32_t* second;                   ///< second_table
  const std::uint8_t *signs_first, *signs_last;  ///< a bit for each element of a row; null for none
  unsigned*
      counter;  ///< tiles handed out beyond the first ones, zero between launches; null: at a fixed distance
  int tiles, order;
  float scale;
  Rows rows;
  bool sends_at_once;  ///< rows of results leave when they are staged, not under the next stage 1
};

/// What a warp keeps of the matrix where there are registers for it: operand A of every k step.
template <Dtype dtype, int k_steps>
struct HeldMatrix {
  std::uint32_t step[k_steps][4];

  HeldMatrix() = default;
  __device__ HeldMatrix(const Work& work, int block, int lane) {
    ask(work, block, lane);
    expand(work);
  }

  /// The words that hold its signs, which lie here until then, or all of a dense factor.
  __device__ void ask(const Work& work, int block, int lane) {
    if (work.fragments != nullptr) {
#pragma unroll
      for (int s = 0; s < k_steps; ++s) {
        const uint4 words = __ldg(
            reinterpret_cast<const uint4*>(work.fragments + rows::fragment_index(k_steps, block, s, lane)));
        step[s][0] = words.x, step[s][1] = words.y, step[s][2] = words.z, step[s][3] = words.w;
      }
    } else {
#pragma unroll
      for (int s = 0; s < k_steps; s += 4)
        step[s][0] = __ldg(work.signs + sign_word_index(k_steps, block, s / 4, lane));
    }
  }
  __device__ void expand(const Work& work) {
    if (work.fragments == nullptr) {
#pragma unroll
      for (int s = 0; s < k_steps; s += 4) {
        const std::uint32_t word = step[s][0];
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
/// `before_step(s)` waits for what step s reads. A tensor copy brought `steps` k steps.
template <Dtype dtype, int columns, int line, int steps = 1, int k_steps, class Before = Nothing>
__device__ void exact_stage(float (&d)[columns / 2], const HeldMatrix<dtype, k_steps>& matrix,
                            std::uint32_t tile, Before before_step = {}) {
  ptx::wgmma_fence();
#pragma unroll
  for (int s = 0; s < k_steps; ++s) {
    before_step(s);
    const std::uint64_t b = box_descriptor(tile + step_byte(columns, line, steps, s), line, steps);
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
      const std::uint64_t b = box_descriptor(tile + s * (16 * columns * 2), line);
      ptx::wgmma_m64k16<dtype, columns>(d, step[s - 4 * group], b, s > 0);
    }
    ptx::wgmma_commit_group();
    if (group + 1 < sign_words(k_steps)) ptx::wgmma_wait_group<0>();  // the registers of the signs are free
  }
}

/// The tiles that a team has under way. A slot is full when all boxes of its tile are there, and may be
/// filled again when all warps have read it. One box is one k step.
template <Launch launch>
class TileSlots {
  static constexpr int kSlots = launch.slots, kBoxes = launch.shape.k_steps(),
                       kBoxBytes = launch.shape.box_bytes(), kTileBytes = launch.shape.tile_bytes();

 public:
  static constexpr int kBytes = kSlots * 24;  ///< barriers and tile numbers

  /// `memory`: kBytes of shared memory; `slots`: shared address of the first slot; `in`: the input, of which
  /// the launch makes `tiles`. Both are read where they lie, in the kernel's argument: a copy costs uniform
  /// registers.
  __device__ TileSlots(std::byte* memory, std::uint32_t slots, const CUtensorMap& in, const int& tiles)
      : full_(ptx::shared_address(memory)),
        read_(full_ + 8 * kSlots),
        numbers_(reinterpret_cast<int*>(memory + 16 * kSlots)),
        slots_(slots),
        in_(in),
        tiles_(tiles) {}

  __device__ void init() const {
    for (int s = 0; s < kSlots; ++s) {
      ptx::mbarrier_init(full_ + 8 * s, kBoxes);
      ptx::mbarrier_init(read_ + 8 * s, launch.warps());
    }
    ptx::fence_mbarrier_init();
  }
  /// Asks for box `box` of `tile` into slot `slot`. There is nothing to ask for behind the last tile.
  __device__ void load(int slot, int tile, int box) const {
    if (box == 0) volatile_numbers()[2 * slot] = tile;
    const std::uint32_t barrier = full_ + 8 * slot;
    if (tile >= tiles_) return ptx::mbarrier_arrive(barrier);
    ptx::mbarrier_arrive_expect_tx(barrier, static_cast<std::uint32_t>(kBoxBytes));
    ptx::tensor_copy_global_to_shared_4d(slots_ + slot * kTileBytes + box * kBoxBytes, &in_, 0, 16 * box, 0,
                                         launch.shape.rows * tile, barrier);
  }

  // Of the slot at hand.
  __device__ int slot() const { return slot_; }
  __device__ std::uint32_t address() const { return slots_ + slot_ * kTileBytes; }
  /// The tile in it, for all of a warp, once it is there; false where there is none any more.
  __device__ bool take(int& tile, int lane) const {
    ptx::mbarrier_wait_parity(full_ + 8 * slot_, phase_);
    tile = __shfl_sync(0xFFFFFFFFU, lane == 0 ? volatile_numbers()[2 * slot_] : 0, 0);
    return tile < tiles_;
  }
  __device__ void release() const { ptx::mbarrier_arrive(read_ + 8 * slot_); }
  __device__ void wait_read() const { ptx::mbarrier_wait_parity(read_ + 8 * slot_, phase_); }
  /// The tile that comes into it next.
  __device__ int next_tile() const { return volatile_numbers()[2 * slot_ + 1]; }
  __device__ void set_next_tile(int tile) const { volatile_numbers()[2 * slot_ + 1] = tile; }
  __device__ void advance() {
    if (++slot_ < kSlots) return;
    slot_ = 0;
    phase_ ^= 1U;
  }

 private:
  __device__ volatile int* volatile_numbers() const { return numbers_; }

  std::uint32_t full_, read_;
  int* numbers_;
  std::uint32_t slots_;
  const CUtensorMap& in_;
  const int& tiles_;
  int slot_ = 0;
  std::uint32_t phase_ = 0;
};

/// When the slots are asked for at the start. A multiprocessor accepts about 80 KiB of outstanding copies; a
/// thread that issues more stalls with its team. Inside the L2 that costs 10 %, so only the first slot is
/// filled ahead, and the rest under the first stage 1, by all warps.
template <Launch launch>
struct FirstFill {
  const TileSlots<launch>& slots;
  int first_tile, stride;  ///< of the team's tiles
  bool waits;              ///< what is not filled ahead has not been asked for yet

  /// By the thread that speaks for the team.
  __device__ void ahead() const { ask(0, waits ? 1 : launch.slots, 0, 1); }
  __device__ void under_stage_1(int warp, int lane) {
    if (!waits) return;
    if (lane == 0) ask(1, launch.slots, warp, launch.warps());
    __syncwarp();
    waits = false;
  }

 private:
  /// Of slots `from` to `to`, every `step`-th box from `box` on.
  __device__ void ask(int from, int to, int box, int step) const {
    for (int slot = from; slot < to; ++slot) {
#pragma unroll 1
      for (int b = box; b < launch.shape.k_steps(); b += step)
        slots.load(slot, first_tile + slot * stride, b);
    }
  }
};

/// Who waits for a free box and fills it again: a box is free once every warp has read it. If one warp has no
/// rows, it alone does; with more than nine boxes that is too slow, so the warps share them.
template <Launch launch>
struct Refill {
  static constexpr int kBoxes = launch.shape.k_steps(), kWarps = launch.warps();
  static constexpr bool kOneIsFree = launch.passes == 1 && kBoxes < kWarps && kBoxes <= 9;

  __device__ static void slot_at_hand(const TileSlots<launch>& slots, int warp, int lane) {
    if (kOneIsFree ? warp == kWarps - 1 : warp < kBoxes) {
      if (lane == 0) {
        slots.wait_read();
        const int tile = slots.next_tile();
        for (int box = kOneIsFree ? 0 : warp; box < kBoxes; box += kOneIsFree ? 1 : kWarps)
          slots.load(slots.slot(), tile, box);
      }
      __syncwarp();
    }
  }
};

/// Tiles by a counter that all teams share, one drawn ahead, or at a fixed distance where there is none. The
/// first `first_tiles` are the teams' own.
class TileTickets {
 public:
  __device__ TileTickets(unsigned* counter, int tiles, int first_tiles, int teams, bool draws)
      : work_{counter, tiles, teams, static_cast<unsigned>(first_tiles)},
        draws_(draws && counter != nullptr) {}
  __device__ void draw_ahead() {
    if (draws_) drawn_ = work_.draw();
  }
  /// The next tile of the slot that `tile` leaves; another ticket is drawn ahead.
  __device__ int take(int tile) {
    const int next = work_.tile_of(work_.counter == nullptr ? static_cast<unsigned>(tile) : drawn_);
    draw_ahead();
    return next;
  }

 private:
  rows::CountedWork work_;
  bool draws_;
  unsigned drawn_ = 0;
};

/// A warp's 16 rows of results on their way out: staged in shared memory, then one box of the output's map.
template <int line>
class BoxWriter {
 public:
  __device__ BoxWriter(std::uint32_t staging, int lane)
      : staging_(staging), first_(staging + box_byte((lane & 7) + (lane >> 3 & 1) * 8, lane >> 4, line)) {}

  __device__ std::uint32_t staging() const { return staging_; }
  /// Until the staging may be written again.
  __device__ void wait() const {
    ptx::bulk_copy_wait_group_read<0>();
    __syncwarp();
  }
  /// Two column tiles from `tile`, an even one, on: rows 0-7 and 8-15 of the first, then of the second.
  __device__ void put(int tile, const std::uint32_t (&words)[4]) const {
    constexpr int kPieces = line / 8;
    ptx::stmatrix_x4((first_ ^ ((tile % kPieces) << 4)) + tile / kPieces * (16 * 2 * line), words);
  }
  __device__ void send(const CUtensorMap& map, int box, int row, int lane) const {
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane == 0) ptx::tensor_copy_shared_to_global_4d(&map, 0, 16 * box, 0, row, staging_);
    ptx::bulk_copy_commit_group();
  }

  /// The same by the lanes, 16 bytes each, of rows that have a tile each. All are read before one is stored.
  template <int columns>
  __device__ void store(const Work& work, int box, int row, int lane) const {
    constexpr int kTimes = 2 * columns / 32, kPieces = columns / 8;
    std::uint32_t words[kTimes][4];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kTimes; ++i) {
      const int at = 32 * i + lane;
      ptx::ld_shared_v4(words[i], staging_ + box_byte(at / kPieces, at % kPieces, line));
    }
    std::byte* const to = work.rows.out + row * work.rows.stride_bytes + 16 * 2 * columns * box + 16 * lane;
#pragma unroll
    for (int i = 0; i < kTimes; ++i)
      ptx::st_global_if(16 * box + (32 * i + lane) / kPieces < work.order, to + 16 * 32 * i, words[i]);
  }

 private:
  std::uint32_t staging_, first_;
};

/// A box stays staged until the next tile's stage 1 is under way.
template <int line>
class DeferredWriter : public BoxWriter<line> {
 public:
  /// `box`: the first one.
  __device__ DeferredWriter(const CUtensorMap& out, std::uint32_t staging, int box, int lane)
      : BoxWriter<line>(staging, lane), out_(out), box_(box), lane_(lane) {}

  __device__ void staged(int row, int box) { row_ = row, box_ = box; }
  __device__ void send_deferred() {
    if (row_ < 0) return;
    BoxWriter<line>::send(out_, box_, row_, lane_);
    row_ = -1;
  }
  /// Shared memory must outlive the copies that read it.
  __device__ void drain() {
    send_deferred();
    ptx::bulk_copy_wait_group_read<0>();
  }

 private:
  const CUtensorMap& out_;
  int row_ = -1, box_, lane_;
};

/// What becomes of results: rows of the storage type, by tensor copies. Codes: kronecker_encoded.cuh.
struct StorageRows {
  using Arguments = Work;

  template <Dtype dtype, Launch launch>
  class Exit : public DeferredWriter<launch.shape.line()> {
    using Writer = DeferredWriter<launch.shape.line()>;

   public:
    __device__ Exit(const Maps& maps, const Work& work, std::uint32_t staging, std::byte* /*maxima*/,
                    int /*team*/, int box, int lane)
        : Writer(maps.out, staging, box, lane), work_(work) {}

    __device__ void staged(int row, int box) {
      Writer::staged(row, box);
      if (work_.sends_at_once) Writer::send_deferred();
    }

   private:
    const Work& work_;
  };
};

/// Signs of elements before stage 1: of the boxes `warp`, `warp` + `warps` and so on of a tile.
template <Shape shape, int warps, int line_bytes = 16 * 2 * shape.line()>
class TileSigns {
  static constexpr int kBoxes = shape.k_steps(), kTurns = (kBoxes + warps - 1) / warps;

 public:
  __device__ TileSigns(int warp, int lane) : warp_(warp), lane_(lane) {}

  /// Asks for them.
  __device__ TileSigns& ask(const Work& work) {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn)
      of_boxes_[turn].ask(work.signs_first, 16 * (turn * warps + warp_), work.order, lane_);
    return *this;
  }
  /// Where the boxes are at box_at(box), by warps that must meet behind it. Once: the signs move up in their
  /// registers, so that the loop is short.
  template <class BoxAt>
  __device__ void flip(BoxAt box_at) {
#pragma unroll 1
    for (int box = warp_; box < kBoxes; box += warps) {
      of_boxes_[0].flip(box_at(box), lane_);
#pragma unroll
      for (int turn = 1; turn < kTurns; ++turn)
        of_boxes_[turn - 1] = of_boxes_[turn];
    }
    ptx::fence_proxy_async_shared();
  }

 private:
  rows::BoxSigns<shape.columns, shape.tile_columns(), shape.line(), line_bytes> of_boxes_[kTurns];
  int warp_, lane_;
};

/// Behind stage 2, of a box that a warp staged.
template <Shape shape>
__device__ void flip_results(const Work& work, std::uint32_t staging, int box, int lane) {
  __syncwarp();
  rows::flip_signs<shape.columns, shape.tile_columns(), shape.line()>(staging, work.signs_last, 16 * box,
                                                                      work.order, lane);
}

/// By all warps of a team, each of them.
template <Launch launch>
__device__ void meet(int team) {
  if constexpr (launch.teams == 1) {
    __syncthreads();
  } else {
    ptx::bar_sync(1 + team, 32 * launch.warps());
  }
}

/// A team of warps keeps `slots` tiles under way and takes them one after the other.
///
/// @tparam launch  of whole k steps, see whole_steps
/// @tparam Output  StorageRows, or what writes codes
template <Dtype dtype, Launch launch, class Output = StorageRows>
__global__ void __launch_bounds__(launch.threads(), launch.blocks_per_sm)
    transform_rows(const __grid_constant__ Maps maps,
                   const __grid_constant__ typename Output::Arguments work) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Shape shape = launch.shape;
  constexpr int kBoxes = shape.k_steps(), kWarps = launch.warps(), second = shape.second;
  using Matrix = std::conditional_t<launch.held, HeldMatrix<dtype, kBoxes>, SignedMatrix<dtype, kBoxes>>;
  static_assert(!launch.held || launch.passes == 1);
  extern __shared__ __align__(1024) std::byte shared[];

  const int lane = static_cast<int>(threadIdx.x & 31U);
  const int warp_of_block = rows::uniform_warp();
  const int team = warp_of_block / kWarps, warp = warp_of_block % kWarps;
  const bool leads = warp == 0 && lane == 0;  // the thread that speaks for the team
  const int all_teams = static_cast<int>(gridDim.x) * launch.teams;

  std::byte* const staging = shared + launch.slot_bytes();
  std::byte* const table = staging + launch.staging_bytes();
  std::byte* const barriers = table + launch.second_bytes();
  TileSlots<launch> slots(barriers + team * TileSlots<launch>::kBytes,
                          ptx::shared_address(shared) + team * launch.slots * shape.tile_bytes(), maps.in,
                          work.tiles);
  FirstFill<launch> first_fill{slots, static_cast<int>(blockIdx.x) + team * static_cast<int>(gridDim.x),
                               all_teams, work.counter == nullptr && kBoxes > 3};
  if (leads) {
    slots.init();
    ptx::griddepcontrol_wait();
    first_fill.ahead();
    ptx::griddepcontrol_launch_dependents();
  }
  // Warps behind the matrix's last row have no rows of the product.
  const auto own_block = [&](int pass) { return pass * kWarps + warp < kBoxes ? pass * kWarps + warp : 0; };
  Matrix matrix[launch.passes];
#pragma unroll
  for (int pass = 0; pass < launch.passes; ++pass)
    matrix[pass] = Matrix(work, own_block(pass), lane);
  if constexpr (second > 1) {
    rows::load_table<second_words(launch)>(work.second, ptx::shared_address(table),
                                           static_cast<int>(threadIdx.x), launch.threads());
  }
  const Stage2Constants constants(lane);
  typename Output::template Exit<dtype, launch> exit(
      maps, work,
      ptx::shared_address(staging) + (team * launch.staging_boxes() + own_block(0)) * shape.box_bytes(),
      barriers + launch.barrier_bytes(), team, warp, lane);
  TileTickets tickets(work.counter, work.tiles, launch.slots * all_teams, all_teams, leads);
  __syncthreads();  // the barriers are there

  tickets.draw_ahead();
#pragma unroll 1
  for (int tile; slots.take(tile, lane); slots.advance()) {
    if (work.signs_first != nullptr) {
      TileSigns<shape, kWarps>(warp, lane).ask(work).flip([&](int box) {
        return slots.address() + box * shape.box_bytes();
      });
      meet<launch>(team);
    }
#pragma unroll
    for (int pass = 0; pass < launch.passes; ++pass) {
      const int box = pass * kWarps + warp;
      const bool has_rows = box < kBoxes, last = pass == launch.passes - 1;

      float d[shape.accumulators()];
      ptx::pin_accumulators(d);
      exact_stage<dtype, shape.tile_columns(), shape.line()>(d, matrix[pass], slots.address());
      first_fill.under_stage_1(warp, lane);
      exit.send_deferred();
      const int next_tile = last ? tickets.take(tile) : 0;
      ptx::wgmma_wait_group<0>();
      ptx::pin_accumulators(d);
      if (last) {
        if (leads) slots.set_next_tile(next_tile);
        if (lane == 0) slots.release();
      }
      exit.wait();
      if (has_rows) rows::register_butterflies<second == 1 ? 4 : second / 2, shape.columns / 2>(d);
      if (last) Refill<launch>::slot_at_hand(slots, warp, lane);
      if (has_rows) {
        if constexpr (second == 1) {
          finish<dtype>(d, constants, work.scale, exit);
        } else {
          constexpr int kTogether = shape.columns / second % 2 == 0 ? 2 : 1;
          rows::finish_by_second<dtype, second, kTogether>(d, ptx::shared_address(table), constants,
                                                           work.scale, exit, lane);
        }
        if (work.signs_last != nullptr) flip_results<shape>(work, exit.staging(), box, lane);
        exit.staged(shape.rows * tile, box);
      }
    }
    __syncwarp();
  }
  exit.drain();
#else
  __trap();  // `supports` says no where there is no code for sm_90a
#endif
}

/// Takes Maps and the Arguments of its Output, whose front is Work.
using Kernel = const void*;

}  // namespace fwht::kronecker
