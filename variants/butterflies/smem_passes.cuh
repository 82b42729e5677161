// butterflies: fp32 rows of 2048 .. 32768 in shared memory, one block a row, which three passes take to
// registers and back, with FADD alone.
//
//   where    r: register of a lane, l: lane, w: warp; five bits of r, or six with 16 vectors a lane
//     b0-b4 r, b5-b9 l | b5-b9 r, b0-b4 l | b10.. r, above b0.. l and w
//   in ascending order of the index bits, bit for bit the plain host loop.
//
// A shuffle costs shared memory as much as a store of the same word. Five of them for the lane bits and an
// exchange are seven words an element, two exchanges four. So the row stays in shared memory from load to
// store. A lane takes 32 consecutive elements, then every 32nd of its warp's, then, behind the only barrier
// of the block, every 1024th of the row. cp.async brings the row there, which spares the lines of the L1 that
// loads to registers hold until they arrive and of which such buffers leave few.
#pragma once

#include "variants/butterflies/device_warp.cuh"
#include "variants/kit/launch_trigger.cuh"
#include "variants/kit/start_skew.cuh"

namespace fwht::butterflies {

/// @tparam dtype    f32
/// @tparam log_n    log2 of the row length
/// @tparam code     the launch, as rows::code_of packs it: 8 or 16 vectors a lane
/// @tparam access   how memory is reached
/// @tparam trigger  where the next kernel of the stream is let in: anywhere but behind_matrices
template <Dtype dtype, int log_n, rows::LaunchCode code, Access access, Trigger trigger>
__global__ void __launch_bounds__(rows::launch_of(code).threads, rows::launch_of(code).blocks_per_sm)
    smem_passes(__grid_constant__ const Batch batch) {
  constexpr rows::Launch launch = rows::launch_of(code);
  constexpr Tile tile = rows::tile_of(dtype, log_n, launch);
  static_assert(rows::fits(dtype, log_n, launch) && trigger != Trigger::behind_matrices);
  static_assert(dtype == Dtype::f32 && (launch.vectors == 8 || launch.vectors == 16));
  using Next = rows::LaunchTrigger<trigger>;
  using Start = rows::StartSkew<launch.skew.clocks, launch.skew.groups, launch.blocks_per_sm>;

  const int self = static_cast<int>(threadIdx.x >> 5);  // and of the row
  RowAccess<tile, access> io(batch, self);
  if constexpr (Start::kWaits) io.work_out_addresses_first();
  Next::wait_for_previous();
  Next::reached(Trigger::at_start);
  Start::wait_for_turn(batch.multiprocessors);

  io.template load_to<RunBuffer>(rows::exchange_of_block(), self);
  Next::reached(Trigger::behind_loads);

  // H over b0-b4, over b5-b9
  DeviceWarp<tile, RunBuffer> warp(batch, rows::exchange_of_block());
  warp.sync();
  passes_of_warp<tile>(warp, self);

  Next::reached(Trigger::before_exchange);
  __syncthreads();
  Next::reached(Trigger::behind_exchange);

  // y = scale H x over b10 and above
  rows::store_share_of_row<tile, access, Scaling::results>(batch, warp, io, self);
}

}  // namespace fwht::butterflies
