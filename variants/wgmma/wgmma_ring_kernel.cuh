// wgmma, form ring: resident blocks with several rows in flight. Included by wgmma_ring.cu and wgmma_tune.
//
// A block has `teams` independent teams: `parts` warpgroups that share a row and have `slots` rows in flight.
// No warp is set aside as a producer: a slot that all warps have read is refilled by the first ones, a piece
// each, between stages 2 and 3, when nobody has to wait for the others any more. (Right behind the exact
// stage the slower warps are waited for; a count of the readers, the last of which refills, is an atomic with
// a fence for every warp.)
#pragma once

#include "common/device/ptx/griddepcontrol.cuh"
#include "common/device/ptx/named_barrier.cuh"
#include "variants/wgmma/wgmma_pipeline.cuh"
#include "variants/wgmma/wgmma_stages.cuh"

namespace fwht::wgmma {

template <Dtype dtype, Launch launch, Scaling scaling>
__global__ void __launch_bounds__(launch.threads(), launch.blocks_per_sm)
    ring(RowBatch batch, unsigned* next_row) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Tile tile = launch.tile();
  constexpr int kColumns = tile.columns(), kSteps = tile.k_steps(), kPieces = launch.load_pieces;
  constexpr int kTeams = launch.teams, kSlots = launch.slots, kWarps = 4 * launch.parts();
  using Pipeline = RowRing<kSlots, kPieces, tile.row_bytes(), kWarps>;
  using Writer = StagingWriter<kColumns, launch.store_pieces, launch.deferred>;

  // Everything lives in the dynamic part, rows first, where the alignment of the block's memory is theirs.
  extern __shared__ __align__(1024) std::byte shared[];
  std::byte* const table = shared + row_area_bytes(launch);
  std::byte* const all_staging = table + table_bytes(launch);
  std::byte* const bookkeeping = all_staging + staging_bytes(launch);
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int block_warp = rows::uniform_warp();
  const int team = block_warp / kWarps, upper_m = block_warp % kWarps;
  const bool leader = lane == 0 && upper_m == 0;  // of the team
  Pipeline pipeline{ptx::shared_address(bookkeeping) + team * Pipeline::kBarrierBytes,
                    ptx::shared_address(shared) + team * kSlots * tile.row_bytes()};
  Writer writer{ptx::shared_address(all_staging) + block_warp * Writer::kBytes, lane};
  int* const row_in = reinterpret_cast<int*>(bookkeeping + kTeams * Pipeline::kBarrierBytes) + team * kSlots;
  const int stride = static_cast<int>(gridDim.x) * kTeams;
  const int first = static_cast<int>(blockIdx.x) + team * static_cast<int>(gridDim.x);
  RowTickets<launch.dynamic, kSlots> tickets{stride, row_in, row_in + kTeams * kSlots, next_row,
                                             launch.dynamic && leader};

  // One thread of the team issues, in order: spread over the warps, the first loads start sooner, but the
  // first row arrives later, among the others.
  if (leader) {
    pipeline.init();
    ptx::griddepcontrol_wait();
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
        tickets.load(first + slot * stride, batch, pipeline, slot, piece);
    }
  }
  const auto hadamard = hadamard_operand<dtype, launch>(table, lane, upper_m);
  const Stage3Constants<scaling, !launch.table> constants(lane, batch.scale);
  if constexpr (launch.table) {
    __syncthreads();
  } else {
    ptx::bar_sync(1 + team, 32 * kWarps);
  }
  tickets.draw(batch);

#pragma unroll 1
  for (int row = first; tickets.take(row, batch, pipeline, lane); row += stride) {
    // Stage 1, exact: D = H X over b3-b5 and the bits of k above the columns, fp32.
    float d[kColumns / 2];
    exact_stage<dtype, launch>(d, hadamard, pipeline.row(),
                               [&](int s) { pipeline.template wait_for_step<kSteps>(s); });
    writer.send_deferred();
    // Under the tensor core, because the next wait for any memory may be one for this too.
    tickets.draw(batch);
    ptx::wgmma_wait_group<0>();
    ptx::pin_accumulators(d);
    tickets.pass_on(batch, pipeline.place());
    if (lane == 0) {
      pipeline.release();
      writer.wait_until_sent();  // the row before, from this staging
    }
    __syncwarp();

    writer.out = batch.out + row * batch.out_stride_bytes + upper_m * Writer::kBytes;

    // Stage 2: butterflies over the column tiles, b7 and above (joined: b6 too).
    rows::register_butterflies<launch.joined ? 4 : 8, kColumns / 2>(d);

    tickets.template refill<kWarps>(row, batch, pipeline, lane, upper_m);

    // Stage 3: b0-b2 and b6 (joined: b0-b2), then the words leave.
    finish_pairs<dtype, launch.chains, launch.joined>(d, all_finite(d), constants, lane, writer);
    writer.end_row();
    pipeline.advance();
    __syncwarp();
  }
  writer.send_deferred();
  // Shared memory must outlive the copies that read it.
  if (lane == 0) writer.wait_until_sent();
#else
  __trap();  // `supports` says no where there is no code for sm_90a
#endif
}

}  // namespace fwht::wgmma
