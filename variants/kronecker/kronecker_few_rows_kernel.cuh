// The kernel of kronecker for few long rows.
//
// One row keeps one multiprocessor busy for microseconds, most of them behind stage 1. Here the blocks of a
// cluster make a row together, a warpgroup each. Every block reads all of the row, a line wide, so that one
// tensor copy brings many k steps, and makes 64 rows of the product: nothing but one barrier is exchanged.
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
    __device__ void behind_stage_1() const { ptx::barrier_cluster_arrive(); }
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

/// @tparam launch  one that is spread, of whole k steps, see whole_steps
/// @tparam Output  SpreadStorageRows, or what writes codes
template <Dtype dtype, Launch launch, class Output = SpreadStorageRows>
__global__ void __launch_bounds__(128)
    spread_rows(const __grid_constant__ Maps maps, const __grid_constant__ typename Output::Arguments work) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Shape shape = launch.shape;
  constexpr int k_steps = shape.k_steps(), columns = shape.columns;
  constexpr int kLine = shape.line(), kPieces = launch.pieces(), kSteps = launch.piece_steps();
  static_assert(kLine == columns, "a piece is one box");
  extern __shared__ __align__(1024) std::byte shared[];
  const int lane = static_cast<int>(threadIdx.x & 31U);
  const int warp = rows::uniform_warp();
  const int box = static_cast<int>(ptx::cluster_ctarank()) * 4 + warp;  // that this warp makes
  const int row = static_cast<int>(ptx::clusterid());
  const std::uint32_t tile = ptx::shared_address(shared), staging = tile + launch.slot_bytes(),
                      full = staging + launch.staging_bytes();
  const bool has_rows = 16 * box < work.order;

  if (threadIdx.x == 0) {
    for (int piece = 0; piece < kPieces; ++piece)
      ptx::mbarrier_init(full + 8 * piece, 1);
    ptx::fence_mbarrier_init();
    ptx::griddepcontrol_wait();
#pragma unroll 1
    for (int piece = 0; piece < kPieces; ++piece) {
      const std::uint32_t barrier = full + 8 * piece, bytes = kSteps * shape.box_bytes();
      ptx::mbarrier_arrive_expect_tx(barrier, bytes);
      ptx::tensor_copy_global_to_shared_4d(tile + piece * bytes, &maps.in, 0, 16 * kSteps * piece, 0, row,
                                           barrier);
    }
    ptx::griddepcontrol_launch_dependents();
  }
  const HeldMatrix<dtype, k_steps> matrix(work, box, lane);
  const Stage2Constants constants(lane);
  typename Output::template Exit<dtype, launch> exit(work, staging + warp * shape.box_bytes(),
                                                     shared + launch.shared_bytes(), row, box, lane);
  __syncthreads();  // the barriers are there
  const auto wait_for = [&](int piece) { ptx::mbarrier_wait_parity(full + 8 * piece, 0); };
  if (work.signs_first != nullptr) {
#pragma unroll 1
    for (int piece = 0; piece < kPieces; ++piece)
      wait_for(piece);
    SignFlip<shape>::of_tile(
        work, [&](int step) { return tile + step * shape.box_bytes(); }, warp, 4, lane);
    __syncthreads();
  }

  // Stage 1, exact.
  float d[shape.accumulators()];
  exact_stage<dtype, columns, kLine>(d, matrix, tile, [&](int s) {
    if (s % kSteps != 0) return;
    wait_for(s / kSteps);
    ptx::wgmma_fence();
  });
  exit.behind_stage_1();
  ptx::wgmma_wait_group<0>();
  ptx::pin_accumulators(d);

  // Stage 2.
  if (has_rows) {
    rows::register_butterflies<4, columns / 2>(d);
    finish<dtype>(d, constants, work.scale, exit);
    if (work.signs_last != nullptr) SignFlip<shape>::of_results(work, exit.staging(), box, lane);
  }
  exit.end(has_rows);
#else
  __trap();  // `supports` says no where there is no code for sm_90a
#endif
}

}  // namespace fwht::kronecker
