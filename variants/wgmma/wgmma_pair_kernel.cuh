// wgmma at n = 65536: a cluster of two blocks makes a row together. Included by wgmma_pair.cu.
//
// Idea: the fp32 sums of such a row are all the registers of an SM, so that its outputs are made in quarters
// of 64 rows of D, each by one warpgroup of a block of two, and each from the whole row: the upper bits of a
// quarter only choose signs in its chain of k steps. Both blocks therefore have the whole row in shared
// memory. It comes from memory once: the blocks take turns to load its pieces, by multicast into both. (The
// other way, a half of the row in each block and then a butterfly over b15 through distributed shared memory,
// would move half of the sums in fp32 between the blocks.)
//
// Bit card, order 256, N = 256 columns:
//
//   load      16 KiB pieces, linear, the same slot of the ring in both blocks
//   stage 1   k of wgmma   b3-b5 core rows | b11 leading stride | b12-b15 k steps, two of a piece
//             D, exact     b0 register | b1-b2 lane 0-1 | b3-b5 lane 2-4 | b6-b10 column tile (register)
//                          b11 register | b12-b13 warp | b14 warpgroup | b15 block
//   stage 2   b7-b10             FADD between registers
//   stage 3   b0, b1, b2, b6     mma.sync on bf16 hi + lo, as in the other kernels
//   store     STG.32, a warp writes 128 contiguous bytes
//
// The ring has room for a row and the head of the next one. The head comes while a row is in work, and the
// tail takes the places of the row's first pieces as soon as their k steps are done in both blocks, long
// before the chain ends. All k steps follow each other without a wait between them, because the compiler
// orders registers at every such wait, which drains the tensor core.
//
// In place: a block stores into the row from when both have all of it in shared memory (`landed`).
//
// What limits it: order 256 is twice the tensor work an element of order 128, and the clock falls under it.
// The turns overlap it with the finish only in part, since stage 3 needs the tensor core, too, and a store
// instruction waits for those before it.
#pragma once

#include "common/ptx/cluster.cuh"
#include "common/ptx/griddepcontrol.cuh"
#include "common/ptx/named_barrier.cuh"
#include "variants/wgmma/wgmma_pipeline.cuh"
#include "variants/wgmma/wgmma_stages.cuh"

namespace fwht::wgmma {

template <Dtype dtype, Scaling scaling>
__global__ void __launch_bounds__(kPair16.threads(), 1) pair(RowBatch batch) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Tile tile = tile_of(kPair16, 16);
  // Plain constants: a lambda would capture `tile` itself, and read it at run time.
  constexpr int kColumns = tile.columns(), kSteps = tile.k_steps();
  constexpr int kPieceBytes = tile.row_bytes() / kPairRing.pieces, kStepsPerPiece = kSteps / kPairRing.pieces;
  constexpr int kPieces = kPairRing.pieces, kSlots = kPairRing.slots, kHead = kPairRing.head(),
                kTail = kPairRing.tail();
  constexpr int kWarps = kPair16.threads() / 32;
  static_assert(kPieces == kWarps);  // that start the first loads
  extern __shared__ __align__(1024) std::byte shared[];
  const std::uint32_t ring = ptx::shared_address(shared);
  // Barriers, those in pairs for even and odd rows of the cluster: bytes of the head and of the tail; all
  // warps of the cluster have read the first kTail pieces, and all pieces; the other block has all of the
  // row.
  const std::uint32_t head_full = ring + kSlots * kPieceBytes, tail_full = head_full + 16,
                      read_first = head_full + 32, read = head_full + 40, landed = head_full + 48;
  const int lane = static_cast<int>(threadIdx.x) & 31;
  // Through a shuffle, so that the compiler knows it to be uniform.
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) >> 5, 0);
  const int rank = static_cast<int>(ptx::cluster_ctarank());
  const int stride = static_cast<int>(gridDim.x) / 2, first = static_cast<int>(blockIdx.x) / 2;

  // For every load, one thread of each block announces the bytes, before or after they come; one of one block
  // loads them for both.
  const auto announce = [&](int row, int pieces, std::uint32_t barrier) {
    if (row < batch.rows) ptx::mbarrier_arrive_expect_tx(barrier, pieces * kPieceBytes);
  };
  const auto load = [&](int row, int piece, int slot, std::uint32_t barrier) {
    if (row >= batch.rows || PairLoads::loader(piece) != rank) return;
    ptx::bulk_copy_global_to_shared_multicast(ring + slot * kPieceBytes,
                                              batch.in + row * batch.in_stride_bytes + piece * kPieceBytes,
                                              kPieceBytes, barrier, 3);
  };
  // At both blocks. No data of this thread go with it, and the wgmmas that read the row are done.
  const auto arrive = [&](std::uint32_t barrier) {
    ptx::mbarrier_arrive(barrier);
    ptx::mbarrier_arrive_cluster(ptx::mapa(barrier, rank ^ 1));
  };

  if (threadIdx.x == 0) {
    for (int parity = 0; parity < 2; ++parity) {
      ptx::mbarrier_init(head_full + 8 * parity, 1);
      ptx::mbarrier_init(tail_full + 8 * parity, 1);
      ptx::mbarrier_init(landed + 8 * parity, 1);
    }
    ptx::mbarrier_init(read_first, 2 * kWarps);
    ptx::mbarrier_init(read, 2 * kWarps);
    ptx::fence_mbarrier_init();
  }
  ptx::barrier_cluster_arrive();
  ptx::barrier_cluster_wait();
  if (lane == 0) {
    ptx::griddepcontrol_wait();
    if (warp == 0) {
      announce(first, kHead, head_full);
      announce(first, kTail, tail_full);
      announce(first + stride, kHead, head_full + 8);
    }
    load(first, warp, warp, warp < kHead ? head_full : tail_full);
  }
  __syncwarp();
  const Stage3Constants<scaling, true> constants(lane, batch.scale);
  const int upper_m = 8 * rank + warp, group = warp >> 2;
  // The warpgroups of a block take turns with the tensor core, so that the one finishes while the other
  // multiplies.
  constexpr int kTurn = 1;  // and the next: named barriers
  if (group == 1) ptx::bar_arrive(kTurn, 32 * kWarps);

  int at = 0;                           // slot of the row's first piece
  std::uint32_t parity = 0, phase = 0;  // bits 0 and 1 of the row's number among those of the cluster
  const auto slot = [&](int piece) { return at + piece < kSlots ? at + piece : at + piece - kSlots; };
#pragma unroll 1
  for (int row = first; row < batch.rows; row += stride) {
    const Fragments<dtype, kSteps> hadamard(lane, upper_m);
    ptx::mbarrier_wait_parity(head_full + 8 * parity, phase);
    ptx::mbarrier_wait_parity(tail_full + 8 * parity, phase);
    if (threadIdx.x == 0) ptx::mbarrier_arrive_cluster(ptx::mapa(landed + 8 * parity, rank ^ 1));
    // The head of the second row is asked for now, so that the first row comes sooner.
    if (row == first && lane == 0 && warp < kHead) load(first + stride, warp, kPieces + warp, head_full + 8);

    float d[kColumns / 2];
    ptx::bar_sync(kTurn + group, 32 * kWarps);
    ptx::wgmma_fence();
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (s == kTail * kStepsPerPiece) ptx::wgmma_commit_group();
      const int start = slot(s / kStepsPerPiece) * kPieceBytes + s % kStepsPerPiece * tile.k_step_bytes();
      ptx::wgmma_m64k16<dtype, kColumns>(
          d, hadamard.operand(s), descriptor(ring + start, tile.leading_bytes(), tile.stride_bytes()), s > 0);
    }
    ptx::wgmma_commit_group();
    ptx::bar_arrive(kTurn + (group ^ 1), 32 * kWarps);
    ptx::wgmma_wait_group<1>();
    if (lane == 0) arrive(read_first);
    // The second warpgroup, which is the last to multiply, brings what follows.
    if (group == 1) {
      ptx::mbarrier_wait_parity(read_first, parity);
      if (lane == 0) {
        const std::uint32_t barrier = tail_full + 8 * (parity ^ 1);
        const int piece = PairLoads::tail_piece(warp);
        if (piece < kTail) load(row + stride, kHead + piece, slot(piece), barrier);
        if (warp == 7) announce(row + stride, kTail, barrier);
      }
      __syncwarp();
    }
    ptx::wgmma_wait_group<0>();
    ptx::pin_accumulators(d);
    if (lane == 0) arrive(read);
    if (group == 1) {
      ptx::mbarrier_wait_parity(read, parity);
      if (lane == 0) {
        const std::uint32_t barrier = head_full + 8 * parity;
        const int piece = PairLoads::head_piece(warp, rank);
        if (piece < kHead) load(row + 2 * stride, piece, slot(kTail + piece), barrier);
        if (warp == 7) announce(row + 2 * stride, kHead, barrier);
      }
      __syncwarp();
    }

    const RegisterWriter<kColumns> writer{
        first_word<kColumns>(batch.out + row * batch.out_stride_bytes, upper_m, lane)};
    column_butterflies(d);
    finish_pairs<dtype, kPair16.chains>(d, all_finite(d), constants, lane,
                                        [&](int pair, const std::uint32_t(&words)[4]) {
                                          if (pair == 0)
                                            ptx::mbarrier_wait_parity(landed + 8 * parity, phase);
                                          writer.write(pair, words);
                                        });
    at = slot(kPieces);
    phase ^= parity;
    parity ^= 1;
  }
  if (group == 0) ptx::bar_sync(kTurn, 32 * kWarps);  // as many as the other one's
  // No block may end while the other one still arrives at its barriers.
  ptx::barrier_cluster_arrive();
  ptx::barrier_cluster_wait();
#else
  __trap();  // `supports` says no where there is no code for sm_90a
#endif
}

}  // namespace fwht::wgmma
