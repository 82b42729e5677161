// The kernel of kronecker for few long rows.
//
// One row keeps one multiprocessor busy for microseconds, most of them behind stage 1. Here the blocks of a
// cluster make a row together, a warpgroup each. Every block reads all of the row and makes 64 rows of the
// product: nothing but one barrier is exchanged. Where a row is a line wide, one tensor copy brings many k
// steps. Copies and the signs of the matrix are under way together, and all before one is waited for.
// Bits are owned as in kronecker_kernel.cuh, with the rank in the cluster above the warp. Lanes store the
// results themselves: a tensor copy out would start later.
#pragma once

#include <cstddef>

#include "common/device/ptx/cluster.cuh"
#include "variants/kronecker/kronecker_kernels.hpp"

namespace fwht::kronecker {

/// Rows of the storage type.
struct SpreadStorageRows {
  using Arguments = Work;

  template <Dtype dtype, Launch launch>
  class Exit {
   public:
    __device__ Exit(const Work& work, std::uint32_t staging, std::byte* /*maxima*/, int row, int box,
                    int lane)
        : work_(work), writer_(staging, lane), row_(row), box_(box), lane_(lane) {}

    /// This block has read all of the row. In place, nobody may store before all blocks have.
    __device__ void behind_stage_1() const { ptx::barrier_cluster_arrive_relaxed(); }
    __device__ std::uint32_t staging() const { return writer_.staging(); }
    __device__ void put(int tile, const std::uint32_t (&words)[4]) const { writer_.put(tile, words); }
    __device__ void end(bool has_rows) const {
      ptx::barrier_cluster_wait();
      if (has_rows) writer_.template store<launch.shape.columns>(work_, box_, row_, lane_);
    }

   private:
    const Work& work_;
    BoxWriter<launch.shape.line()> writer_;
    int row_, box_, lane_;
  };
};

/// Tensor copies of a row, and the barriers that they complete. The copies of a long row take one thread as
/// long as the product takes, so that the warps share them.
template <Launch launch>
class RowPieces {
  static constexpr int kPieces = launch.pieces(), kSteps = launch.piece_steps();
  static constexpr std::uint32_t kBytes = kSteps * launch.shape.box_bytes();

 public:
  __device__ RowPieces(std::uint32_t tile, std::uint32_t full) : tile_(tile), full_(full) {}

  __device__ void init() const {
    for (int piece = 0; piece < kPieces; ++piece)
      ptx::mbarrier_init(full_ + 8 * piece, 1);
    ptx::fence_mbarrier_init();
  }
  /// Of the pieces of row `row` those of one of so many threads.
  __device__ void ask(const CUtensorMap& in, int row, int thread, int threads) const {
#pragma unroll 1
    for (int piece = thread; piece < kPieces; piece += threads) {
      const std::uint32_t barrier = full_ + 8 * piece;
      ptx::mbarrier_arrive_expect_tx(barrier, kBytes);
      ptx::tensor_copy_global_to_shared_4d(tile_ + piece * kBytes, &in, 0, 16 * kSteps * piece, 0, row,
                                           barrier);
    }
  }
  __device__ void wait(int piece) const {
    ptx::mbarrier_wait_parity(full_ + 8 * piece, 0);
  }

 private:
  std::uint32_t tile_, full_;
};

/// @tparam launch  one that is spread, of whole k steps, see whole_steps
/// @tparam Output  SpreadStorageRows, or what writes codes
template <Dtype dtype, Launch launch, class Output = SpreadStorageRows>
__global__ void __launch_bounds__(launch.threads())
    spread_rows(const __grid_constant__ Maps maps, const __grid_constant__ typename Output::Arguments work) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Shape shape = launch.shape;
  constexpr int k_steps = shape.k_steps(), columns = shape.columns, second = shape.second;
  constexpr int kWarps = launch.warps(), kSteps = launch.piece_steps();
  extern __shared__ __align__(1024) std::byte shared[];
  const int lane = static_cast<int>(threadIdx.x & 31U);
  const int warp = rows::uniform_warp();
  const int box = static_cast<int>(ptx::cluster_ctarank()) * kWarps + warp;  // that this warp makes
  const int row = static_cast<int>(ptx::clusterid());
  const std::uint32_t tile = ptx::shared_address(shared), table = tile + launch.slot_bytes();
  const RowPieces<launch> pieces(tile, table + launch.second_bytes());

  HeldMatrix<dtype, k_steps> matrix;
  matrix.ask(work, box, lane);  // under way while the copies are asked for
  if (threadIdx.x == 0) pieces.init();
  __syncthreads();  // the barriers are there
  ptx::griddepcontrol_wait();
  if (lane == 0) pieces.ask(maps.in, row, warp, kWarps);
  ptx::griddepcontrol_launch_dependents();
  // Every block flips all of the row. Behind a second matrix signs would take registers that it needs.
  constexpr bool kAsksAhead = second == 1;
  TileSigns<shape, kWarps, line_bytes(shape.line(), kSteps)> signs(warp, lane);
  rows::BoxSigns<columns, columns, shape.line()> signs_of_results;
  if constexpr (kAsksAhead) {
    if (work.signs_first != nullptr) {
      signs.ask(work);
    } else if (work.signs_last != nullptr) {
      signs_of_results.ask(work.signs_last, 16 * box, work.order, lane);
    }
  }
  if constexpr (second > 1) {
    rows::load_table<second_words(launch)>(work.second, table, static_cast<int>(threadIdx.x),
                                           launch.threads());
  }
  matrix.expand(work);
  const Stage2Constants constants(lane);
  typename Output::template Exit<dtype, launch> exit(work, tile + warp * shape.box_bytes(),
                                                     shared + launch.shared_bytes(), row, box, lane);
  if (work.signs_first != nullptr) {
    if constexpr (!kAsksAhead) signs.ask(work);
    signs.flip([&](int step) {
      pieces.wait(step / kSteps);
      return tile + step_byte(columns, shape.line(), kSteps, step);
    });
    __syncthreads();
  }

  // Stage 1, exact.
  float d[shape.accumulators()];
  exact_stage<dtype, columns, shape.line(), kSteps>(d, matrix, tile, [&](int s) {
    if (s % kSteps != 0) return;
    pieces.wait(s / kSteps);
    ptx::wgmma_fence();
  });
  exit.behind_stage_1();
  ptx::wgmma_wait_group<0>();
  ptx::pin_accumulators(d);
  __syncthreads();  // all warps have read the tile, so results are staged in its place; the table is there

  // Stage 2.
  const bool has_rows = 16 * box < work.order;
  if (has_rows) {
    rows::register_butterflies<second == 1 ? 4 : second / 2, columns / 2>(d);
    if constexpr (second == 1) {
      finish<dtype>(d, constants, work.scale, exit);
    } else {
      rows::finish_by_second<dtype, second, 1>(d, table, constants, work.scale, exit, lane);
    }
    if (work.signs_last != nullptr) {
      if constexpr (!kAsksAhead) signs_of_results.ask(work.signs_last, 16 * box, work.order, lane);
      __syncwarp();
      signs_of_results.flip(exit.staging(), lane);
    }
  }
  exit.end(has_rows);
#else
  __trap();  // `supports` says no where there is no code for sm_90a
#endif
}

}  // namespace fwht::kronecker
