// passes: few long rows, which the blocks of a cluster share.
//
// Idea: one block takes 2.5 to 6.5 us for a long row, nearly all of it for shared memory and barriers. The
// blocks of a cluster have an eighth or a sixteenth of the row each. They exchange once, by stores to each
// other's shared memory, between the lower bits and the four highest. Rows of twice and four times the length
// that a block holds take one pass over memory so, where others take two.
//
// Bit card of n = 2^L over 2^C blocks. A thread has 16 elements.
//   round                 registers            lanes        warps              blocks
//   0: b0-b3              b0-b3                b4-b8        b9 ..              b_(L-C) .. b_(L-1)
//   1: b4-b7              b4-b7                b0-b3, b8    b9 ..              b_(L-C) .. b_(L-1)
//   last: .. b_(L-5)      b_(L-8) .. b_(L-5)   b0-b4        the rest           b_(L-C) .. b_(L-1)
//   highest four          b_(L-4) .. b_(L-1)   b0-b4        b5 .. b_(L-C-5)    b_(L-C-4) .. b_(L-5)
// Bits are taken in ascending order: bit for bit what passes give.
#pragma once

#include <cstdint>

#include "common/device/ptx/cluster.cuh"
#include "common/device/ptx/mbarrier.cuh"
#include "variants/passes/tile_kernels.cuh"

namespace fwht::passes {

/// What a thread has in a round, from shared memory or there.
template <ClusterRow row, int round, bool stores, class Number>
__device__ void move_chunk(Number (&x)[16][1], Number* shared, int thread) {
  const int first = row.word(row.element(round, thread, 0));
  if constexpr (round == 0) {
    move_units<stores>(x, [&](int k) { return shared + (first ^ row.word(k)); });
  } else {
    move_numbers<stores>(x, [&](int k) { return shared + (first ^ row.word(row.element(round, 0, k))); });
  }
}

/// From this round on, all bits of the row but the four highest. A thread ends with what it has in the last.
template <ClusterRow row, int round, class Number>
__device__ void chunk_rounds(Number (&x)[16][1], Number* shared, int thread) {
  move_chunk<row, round, false>(x, shared, thread);
  register_butterflies<row.first_new_bit(round)>(x);
  if constexpr (round + 1 < row.rounds()) {
    move_chunk<row, round, true>(x, shared, thread);
    if constexpr (round == 0) {
      __syncwarp();
    } else {
      __syncthreads();
    }
    chunk_rounds<row, round + 1>(x, shared, thread);
  }
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
/// What the blocks of a cluster send each other, counted by a barrier of each.
template <ClusterRow row, class Number>
class ClusterExchange {
 public:
  /// By all threads, before anything is sent.
  __device__ ClusterExchange(Number* received, int rank, int thread)
      : received_(received), rank_(rank), thread_(thread) {
    __shared__ std::uint64_t arrival;
    barrier_ = ptx::shared_address(&arrival);
    if (thread == 0) {
      ptx::mbarrier_init(barrier_, 1);
      ptx::fence_mbarrier_init();
    }
    ptx::barrier_cluster_arrive_relaxed();
  }

  __device__ void send(const Number (&x)[16][1]) const {
    if (thread_ == 0) ptx::mbarrier_arrive_expect_tx(barrier_, sizeof(Number) << row.log_chunk());
    ptx::barrier_cluster_wait();  // all blocks are there
    const std::uint32_t first = ptx::shared_address(received_ + row.sent_to(rank_, thread_, 0));
#pragma unroll
    for (int owner = 0; owner < row.blocks(); ++owner) {
      const std::uint32_t there = ptx::mapa(first, owner), arrived = ptx::mapa(barrier_, owner);
#pragma unroll
      for (int k = 0; k < 16; ++k) {
        if (row.owner(k) != owner) continue;
        ptx::st_async_shared_cluster(there + row.sent_to(0, 0, k) * static_cast<int>(sizeof(Number)),
                                     bits_of(x[k][0]), arrived);
      }
    }
  }

  __device__ void receive(Number (&x)[16][1]) const {
    ptx::mbarrier_wait_parity_cluster(barrier_, 0);
#pragma unroll
    for (int k = 0; k < 16; ++k)
      x[k][0] = received_[k * row.threads() + thread_];
  }

 private:
  Number* received_;
  int rank_, thread_;
  std::uint32_t barrier_;
};
#endif

/// A cluster per row.
template <class Number, int log_n, int log_blocks, class Stored = Number>
__global__ void __launch_bounds__(1 << (log_n - log_blocks - 4))
    cluster_rows([[maybe_unused]] __grid_constant__ const LongVectors<Number, Stored, Stored> vectors) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr ClusterRow row{log_n, log_blocks, sizeof(Number)};
  Number* const chunk = reinterpret_cast<Number*>(exchange_of_block);
  const int thread = static_cast<int>(threadIdx.x), rank = static_cast<int>(ptx::cluster_ctarank());
  const ClusterExchange<row, Number> exchange(chunk + (1 << row.log_chunk()), rank, thread);
  const std::int64_t start = std::int64_t{blockIdx.x >> log_blocks} * vectors.row_stride;
  ptx::griddepcontrol_wait();
  Number x[16][1];
  const Stored* const from = vectors.in + start + (rank << row.log_chunk()) + row.loaded(thread, 0);
#pragma unroll
  for (int k = 0; k < 16; ++k)
    load(from + row.loaded(0, k), x[k]);
  ptx::griddepcontrol_launch_dependents_behind(static_cast<std::uint32_t>(bits_of(x[0][0])), gridDim.y - 1);
  const int first = row.word(row.loaded(thread, 0));
  move_numbers<true>(x, [&](int k) { return chunk + (first ^ row.word(row.loaded(0, k))); });
  __syncwarp();
  chunk_rounds<row, 0>(x, chunk, thread);
  exchange.send(x);
  exchange.receive(x);
  register_butterflies<0>(x);
  Stored* const to = vectors.out + start + row.result(rank, thread, 0);
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    if constexpr (std::is_floating_point_v<Number>) x[k][0] *= vectors.scale;
    store<false>(to + row.result(0, 0, k), x[k]);
  }
#endif
}

}  // namespace fwht::passes
