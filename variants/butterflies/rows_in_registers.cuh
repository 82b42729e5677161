// butterflies: rows in the registers of one warp, or of the warps of one block.
//
//   where    e: register inside the 16-byte vector, l: lane, v: vector of the lane, w: warp
//   16-bit data
//     n =  2 .. 8    b0.. e, other rows beside it                     FADD
//     n = 16, 32     b0-b2 e | b3.. l                                 FADD | SHFL + FFMA
//   fp32 data
//     n =  2, 4      b0.. e                                           FADD
//     n =  8 .. 128  b0-b1 e | b2.. l                                 FADD | SHFL + FFMA
//     n = 256 ..     ... | b7.. v and w        then FADD over v | exchange (w <-> v) + FADD over w
//        w has none or b7 at n = 256, up to two bits at 512 and 1024, three at 2048
#pragma once

#include "variants/butterflies/device_warp.cuh"
#include "variants/kit/launch_trigger.cuh"

namespace fwht::butterflies {

/// @tparam dtype    f16, bf16 or f32
/// @tparam log_n    log2 of the row length
/// @tparam code     the launch, as rows::code_of packs it
/// @tparam access   how memory is reached
/// @tparam trigger  where the next kernel of the stream is let in: at_end, at_start or behind_loads
template <Dtype dtype, int log_n, rows::LaunchCode code, Access access, Trigger trigger>
__global__ void __launch_bounds__(rows::launch_of(code).threads, rows::launch_of(code).blocks_per_sm)
    rows_in_warps(__grid_constant__ const Batch batch) {
  constexpr Tile tile = rows::tile_of(dtype, log_n, rows::launch_of(code));
  static_assert(rows::fits(dtype, log_n, rows::launch_of(code)));
  static_assert(trigger != Trigger::behind_matrices && !rows::at_exchange(trigger));
  using Next = rows::LaunchTrigger<trigger>;

  const int self = static_cast<int>(threadIdx.x >> 5);
  if (RowAccess<tile, access>::warp_is_idle(batch, self)) return;
  const RowAccess<tile, access> io(batch, self);
  // Behind the wait: before it, every later launch would come at once and wait in the places of this one.
  Next::wait_for_previous();
  Next::reached(Trigger::at_start);

  std::uint32_t words[tile.vectors][4];
  io.load(words);
  Next::reached(Trigger::behind_loads);

  // x = 2^-k H words over the bits of elements and lanes, then those that count vectors
  const DeviceWarp<tile> warp(batch, nullptr);
  float x[tile.vectors][tile.vector_elements()];
  rows::widened_butterflies<tile>(warp, words, x);
  rows::vector_butterflies<tile.vector_bits()>(x);

  // y = scale 2^k x, rounded once
  rows::store_rows<Scaling::results>(batch, io, x);
}

/// @tparam dtype    f32
/// @tparam log_n    log2 of the row length
/// @tparam code     the launch, as rows::code_of packs it
/// @tparam access   how memory is reached
/// @tparam trigger  where the next kernel of the stream is let in: anywhere but behind_matrices
template <Dtype dtype, int log_n, rows::LaunchCode code, Access access, Trigger trigger>
__global__ void __launch_bounds__(rows::launch_of(code).threads, rows::launch_of(code).blocks_per_sm)
    rows_across_warps(__grid_constant__ const Batch batch) {
  constexpr Tile tile = rows::tile_of(dtype, log_n, rows::launch_of(code));
  static_assert(rows::fits(dtype, log_n, rows::launch_of(code)) && trigger != Trigger::behind_matrices);
  using Next = rows::LaunchTrigger<trigger>;

  const int self = static_cast<int>(threadIdx.x >> 5);  // and of the row
  const RowAccess<tile, access> io(batch, self);
  Next::wait_for_previous();
  Next::reached(Trigger::at_start);

  std::uint32_t words[tile.vectors][4];
  io.load(words);
  Next::reached(Trigger::behind_loads);

  // x = 2^-k H words over the bits of elements and lanes, then those that count vectors
  DeviceWarp<tile> warp(batch, rows::exchange_of_block());
  float x[tile.vectors][tile.vector_elements()];
  rows::widened_butterflies<tile>(warp, words, x);
  rows::vector_butterflies<tile.vector_bits()>(x);

  Next::reached(Trigger::before_exchange);
  rows::exchange_put(warp, self, x);
  __syncthreads();
  Next::reached(Trigger::behind_exchange);

  // y = scale 2^k H x over the bits that count warps
  rows::store_share_of_row<tile, access, Scaling::results>(batch, warp, io, self);
}

}  // namespace fwht::butterflies
