// mma_split: rows_in_warps.cuh and rows_across_warps.cuh for many rows that are written as codes.
//
// Codes take more instructions than rows, so that too few warps would wait for memory at a time. A warp therefore takes
// several tiles, one after the other, and copies the next one to shared memory while it works. Each lane copies and
// reads its own vectors: no barrier. What does not depend on the tile, the matrices above all, is worked out once.
#pragma once

#include "common/ptx/griddepcontrol.cuh"
#include "variants/mma_split/storage_rows.cuh"

namespace fwht::mma_split {

/// Template parameters as those of rows_in_warps. The grid is any number of blocks.
template <Dtype dtype, int log_n, rows::LaunchCode code, Access access, Scaling scaling, class Repair,
          class Writer>
__global__ void __launch_bounds__(rows::launch_of(code).threads, rows::launch_of(code).blocks_per_sm)
    rows_in_turns(__grid_constant__ const typename Writer::Arguments arguments) {
  constexpr Tile tile = rows::tile_of(dtype, log_n, rows::launch_of(code));
  const Batch& batch = Writer::batch(arguments);
  static_assert(rows::fits(dtype, log_n, rows::launch_of(code)) && access != Access::elements);
  extern __shared__ uint4 slots[];  // two tiles

  const int self = static_cast<int>(threadIdx.x >> 5);
  uint4* const mine = slots + self * (2 * tile.vectors * 32) + rows::lane_of_warp();
  const auto copy = [&](unsigned block, int slot) {
    if (block <= batch.last_block && !RowAccess<tile, access>::warp_is_idle(batch, self, block))
      RowAccess<tile, access>(batch, self, block).copy_to(mine + slot * (tile.vectors * 32));
    ptx::cp_async_commit_group();
  };
  ptx::griddepcontrol_wait();
  copy(blockIdx.x, 0);
  const DeviceWarp<tile> warp(batch, nullptr);

  int slot = 0;
#pragma unroll 1
  for (unsigned block = blockIdx.x; block <= batch.last_block; block += gridDim.x) {
    copy(block + gridDim.x, slot ^ 1);
    ptx::cp_async_wait_group<1>();
    if (RowAccess<tile, access>::warp_is_idle(batch, self, block)) return;
    const RowAccess<tile, access> io(batch, self, block);
    std::uint32_t words[tile.vectors][4];
#pragma unroll
    for (int v = 0; v < tile.vectors; ++v) {
      const uint4 vector = mine[(slot * tile.vectors + v) * 32];
      words[v][0] = vector.x, words[v][1] = vector.y, words[v][2] = vector.z, words[v][3] = vector.w;
    }
    slot ^= 1;

    // x = 2^-k H words over b0..b7, then over the bits that count vectors
    float x[tile.vectors][8];
    split_transform(warp, words, x);
    rows::vector_butterflies<tile.vector_bits()>(x);

    const bool failed = Repair::template needed<tile>(warp, x);
    Writer::template store_rows<tile, access, scaling, Repair>(arguments, warp, io, self, x, failed);
  }
}

/// Rows that the warps of a block share. Template parameters as those of rows_across_warps.
///
/// @tparam apart  the next row has a place of its own; else it is copied to the exchange buffer
template <Dtype dtype, int log_n, rows::LaunchCode code, Access access, Scaling scaling, bool apart,
          class Repair, class Writer>
__global__ void __launch_bounds__(rows::launch_of(code).threads, rows::launch_of(code).blocks_per_sm)
    shared_rows_in_turns(__grid_constant__ const typename Writer::Arguments arguments) {
  constexpr Tile tile = rows::tile_of(dtype, log_n, rows::launch_of(code));
  const Batch& batch = Writer::batch(arguments);
  static_assert(rows::fits(dtype, log_n, rows::launch_of(code)) && access != Access::elements);

  const int self = static_cast<int>(threadIdx.x >> 5);
  float* const exchange = rows::exchange_of_block();
  // In the buffer: of the two words per element that this warp alone writes, the first half.
  uint4* const mine = reinterpret_cast<uint4*>(exchange) + (apart ? tile.exchange_words() / 4 : 0) +
                      self * (tile.vectors * (apart ? 32 : 64)) + rows::lane_of_warp();
  const auto copy = [&](unsigned block) {
    if (block <= batch.last_block) RowAccess<tile, access>(batch, self, block).copy_to(mine);
    ptx::cp_async_commit_group();
  };
  ptx::griddepcontrol_wait();
  copy(blockIdx.x);
  DeviceWarp<tile> warp(batch, exchange);

#pragma unroll 1
  for (unsigned block = blockIdx.x; block <= batch.last_block; block += gridDim.x) {
    const RowAccess<tile, access> io(batch, self, block);
    ptx::cp_async_wait_group<0>();
    std::uint32_t words[tile.vectors][4];
#pragma unroll
    for (int v = 0; v < tile.vectors; ++v) {
      const uint4 vector = mine[v * 32];
      words[v][0] = vector.x, words[v][1] = vector.y, words[v][2] = vector.z, words[v][3] = vector.w;
    }

    // x = 2^-k H words over b0..b7, then over the bits that count vectors
    float x[tile.vectors][8];
    split_transform(warp, words, x);
    if constexpr (apart) copy(block + gridDim.x);
    rows::vector_butterflies<tile.vector_bits()>(x);

    const bool failed = Repair::template needed<tile>(warp, x);
    __syncwarp();  // a lane's words of the exchange are another lane's data
    Repair::template put_and_meet<tile, access>(batch, warp, block, self, x, failed);
    Writer::template store_share_of_row<tile, access>(arguments, warp, io, self, [&] {
      __syncthreads();  // nobody writes what others have not read
      if constexpr (!apart) copy(block + gridDim.x);
    });
  }
}

}  // namespace fwht::mma_split
