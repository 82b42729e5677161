// mma_split: rows of 1024 .. 16384, each in the registers of the warps of one block.
//
//   where    e: register inside the 16-byte vector, l: lane, v: vector of the lane, w: warp
//   n = 1024 ..   b0-b2 e | b3-b7 l | b8.. v, w above
//      b0,b1,b3,b4: mma 1 | b2,b5-b7: mma 2 | FADD over v | exchange (w <-> v) | FADD over w
//      w has the highest bits, log2 of the warps that share a row: one to three, as the launch says
//      (launches.hpp, plain_launches.hpp, encoded_launches.hpp)
//
// The exchange adds two words of shared memory an element to the one of load and store, and has no bank
// conflict (rows::ExchangeBuffer).
#pragma once

#include "variants/kit/launch_trigger.cuh"
#include "variants/kit/start_skew.cuh"
#include "variants/mma_split/storage_rows.cuh"

namespace fwht::mma_split {

/// @tparam dtype    f16 or bf16
/// @tparam log_n    log2 of the row length
/// @tparam code     the launch, as rows::code_of packs it
/// @tparam access   how memory is reached
/// @tparam trigger  where the next kernel of the stream is let in: anywhere but at_start
/// @tparam scaling  constants: the scale is 2^-k, so the matrices have it and the results are not multiplied
/// @tparam Repair   what is done about infinities and NaN
/// @tparam Writer   what is written: rows of the storage type, or codes and scales (encoded_rows.cuh); and
///   what rows
///                  are put through first (prologue.cuh)
template <Dtype dtype, int log_n, rows::LaunchCode code, Access access, Trigger trigger, Scaling scaling,
          class Repair = NonFiniteRepair, class Writer = StorageRows>
__global__ void __launch_bounds__(rows::launch_of(code).threads, rows::launch_of(code).blocks_per_sm)
    rows_across_warps(__grid_constant__ const typename Writer::Arguments arguments) {
  const Batch& batch = Writer::batch(arguments);
  constexpr rows::Launch launch = rows::launch_of(code);
  constexpr Tile tile = rows::tile_of(dtype, log_n, launch);
  static_assert(rows::fits(dtype, log_n, launch) && trigger != Trigger::at_start);
  using Next = rows::LaunchTrigger<trigger>;
  using Start = rows::StartSkew<launch.skew.clocks, launch.skew.groups, launch.blocks_per_sm>;

  const int self = static_cast<int>(threadIdx.x >> 5);  // and of the row
  RowAccess<tile, access> io(batch, self);
  if constexpr (Start::kWaits) io.work_out_addresses_first();
  Next::wait_for_previous();
  Start::wait_for_turn(batch.multiprocessors);

  // words: `vectors` times eight numbers of 16 bits
  std::uint32_t words[tile.vectors][4];
  io.load(words);
  Next::reached(Trigger::behind_loads);
  const std::uint32_t zero = Writer::template fetch_arguments<tile, access>(arguments);
  typename Writer::template Prologue<tile, access> prologue(arguments, io, self);
  prologue.apply(io, words);
  words[0][0] ^= zero;

  // x = 2^-k H words over b0..b7: exact first stage, split into bf16 hi + lo, second stage
  DeviceWarp<tile> warp(batch, rows::exchange_of_block(), Writer::template kLogOfFirstStage<tile>);
  Next::matrices_are_there(warp.word_of_matrices(), batch.zero);
  float x[tile.vectors][8];
  split_transform(warp, words, x);

  // x = H x over the bits that count vectors
  rows::vector_butterflies<tile.vector_bits()>(x);

  const bool failed = Repair::template needed<tile>(warp, x);
  Next::reached(Trigger::before_exchange);
  const bool row_failed =
      Repair::template put_and_meet<tile, access, Writer>(batch, warp, prologue, self, x, failed);
  Next::reached(Trigger::behind_exchange);

  // y = scale 2^k H x over the bits that count warps, rounded once
  Writer::template store_share_of_row<tile, access, scaling>(arguments, warp, io, prologue, self, row_failed);
}

}  // namespace fwht::mma_split
