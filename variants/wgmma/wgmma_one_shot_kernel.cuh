// wgmma, form one_shot: a row is made once and the block ends. Included by wgmma_one_shot.cu and wgmma_tune.
//
// One row per block of one warpgroup, or per cluster of such blocks: each reads the whole row and makes the
// outputs of its 64 rows of D, so that nothing but one barrier is exchanged. The hardware scheduler balances
// and overlaps blocks.
#pragma once

#include "common/device/ptx/cluster.cuh"
#include "common/device/ptx/griddepcontrol.cuh"
#include "variants/wgmma/wgmma_pipeline.cuh"
#include "variants/wgmma/wgmma_stages.cuh"

namespace fwht::wgmma {

template <Dtype dtype, Launch launch, Scaling scaling>
__global__ void __launch_bounds__(128, launch.blocks_per_sm) one_shot(RowBatch batch) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Tile tile = launch.tile();
  constexpr int kColumns = tile.columns(), kSteps = tile.k_steps(), kPieces = launch.load_pieces;
  constexpr bool kCluster = launch.cluster() > 1;
  using Pipeline = RowRing<1, kPieces, tile.row_bytes(), 0>;
  extern __shared__ __align__(1024) std::byte shared[];  // the row, the table, barriers
  std::byte* const table = shared + tile.row_bytes();
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int warp = rows::uniform_warp();
  const int rank = kCluster ? static_cast<int>(ptx::cluster_ctarank()) : 0;
  const int upper_m = 4 * rank + warp;
  const std::int64_t row = blockIdx.x >> launch.log_parts;
  const Pipeline pipeline{ptx::shared_address(table + table_bytes(launch)), ptx::shared_address(shared)};

  if (threadIdx.x == 0) {
    pipeline.init();
    ptx::griddepcontrol_wait();  // everything else of the block follows the loads
#pragma unroll
    for (int i = 0; i < kPieces; ++i)  // the blocks of a cluster start at different pieces
      pipeline.load(batch.in + row * batch.in_stride_bytes, 0, (i + rank) % kPieces);
    if (batch.eager) ptx::griddepcontrol_launch_dependents();
  }
  const auto hadamard = hadamard_operand<dtype, launch>(table, lane, upper_m);
  const Stage3Constants<scaling, false> constants(lane, batch.scale);
  __syncthreads();

  // Stage 1, exact: D = H X over b3-b5 and the bits of k above the columns, fp32.
  float d[kColumns / 2];
  exact_stage<dtype, launch>(d, hadamard, pipeline.row(),
                             [&](int s) { pipeline.template wait_for_step<kSteps>(s); });
  if constexpr (kCluster) ptx::barrier_cluster_arrive_relaxed();  // this block has read all of the row
  ptx::wgmma_wait_group<0>();
  ptx::pin_accumulators(d);
  // In place, nobody may store before all blocks of the cluster have read.
  if constexpr (kCluster) ptx::barrier_cluster_wait();

  // Stage 2: butterflies over the column tiles, b7 and above. Stage 3: b0-b2 and b6, then the words leave.
  const RegisterWriter<kColumns> writer{
      first_word<kColumns>(batch.out + row * batch.out_stride_bytes, upper_m, lane)};
  rows::register_butterflies<8, kColumns / 2>(d);
  finish_pairs<dtype, launch.chains>(d, all_finite(d), constants, lane, writer);
#else
  __trap();  // `supports` says no where there is no code for sm_90a
#endif
}

}  // namespace fwht::wgmma
