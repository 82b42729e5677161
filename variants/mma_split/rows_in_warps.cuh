// mma_split: rows of 64 .. 1024, where codes are written to 4096, each in the registers of one warp.
//
//   where    e: register inside the 16-byte vector, l: lane, v: vector of the lane
//   n =   64      b0-b2 e | b3-b5 l | 8 rows in l, more in v   b0,b1,b3,b4: mma 1 | b2,b5: mma 2
//   n =  128      b0-b2 e | b3-b6 l | 4 rows in l, more in v   b0,b1,b3,b4: mma 1 | b2,b5,b6: mma 2
//   n =  256      b0-b2 e | b3-b7 l | rows in v                b0,b1,b3,b4: mma 1 | b2,b5-b7: mma 2
//   n =  512 ..      ...  | b8 .. b11 v                        the same, then FADD over v
//
// 16-byte loads and stores in natural order at both ends, no shuffle, no shared memory.
#pragma once

#include "variants/kit/launch_trigger.cuh"
#include "variants/mma_split/storage_rows.cuh"

namespace fwht::mma_split {

/// @tparam dtype    f16 or bf16
/// @tparam log_n    log2 of the row length
/// @tparam code     the launch, as rows::code_of packs it
/// @tparam access   how memory is reached
/// @tparam trigger  where the next kernel of the stream is let in: at_end, behind_loads or behind_matrices
/// @tparam scaling  constants: the scale is 2^-k, so the matrices have it and the results are not multiplied
/// @tparam Repair   what is done about infinities and NaN
/// @tparam Writer   what is written: rows of the storage type, or codes and scales (encoded_rows.cuh); and
///   what rows
///                  are put through first (prologue.cuh)
template <Dtype dtype, int log_n, rows::LaunchCode code, Access access, Trigger trigger, Scaling scaling,
          class Repair = NonFiniteRepair, class Writer = StorageRows>
__global__ void __launch_bounds__(rows::launch_of(code).threads, rows::launch_of(code).blocks_per_sm)
    rows_in_warps(__grid_constant__ const typename Writer::Arguments arguments) {
  constexpr Tile tile = rows::tile_of(dtype, log_n, rows::launch_of(code));
  const Batch& batch = Writer::batch(arguments);
  static_assert(rows::fits(dtype, log_n, rows::launch_of(code)));
  static_assert(trigger != Trigger::at_start && !rows::at_exchange(trigger));
  using Next = rows::LaunchTrigger<trigger>;

  const int self = static_cast<int>(threadIdx.x >> 5);
  if (RowAccess<tile, access>::warp_is_idle(batch, self)) return;
  const RowAccess<tile, access> io(batch, self);
  Next::wait_for_previous();

  // words: `vectors` times eight numbers of 16 bits
  std::uint32_t words[tile.vectors][4];
  io.load(words);
  Next::reached(Trigger::behind_loads);
  const std::uint32_t zero = Writer::template fetch_arguments<tile, access>(arguments);
  typename Writer::template Prologue<tile, access> prologue(arguments, io, self);
  prologue.apply(io, words);
  words[0][0] ^= zero;

  // x = 2^-k H words over b0..b7: exact first stage, split into bf16 hi + lo, second stage
  const DeviceWarp<tile> warp(batch, nullptr, Writer::template kLogOfFirstStage<tile>);
  Next::matrices_are_there(warp.word_of_matrices(), batch.zero);
  float x[tile.vectors][8];
  split_transform(warp, words, x);

  // x = H x over b8 ..
  rows::vector_butterflies<tile.vector_bits()>(x);

  // y = scale 2^k x, rounded once
  const bool failed = Repair::template needed<tile>(warp, x);
  Writer::template store_rows<tile, access, scaling, Repair>(arguments, warp, io, prologue, self, x, failed);
}

}  // namespace fwht::mma_split
