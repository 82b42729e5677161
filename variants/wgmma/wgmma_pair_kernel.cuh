// wgmma at n = 65536: a cluster of two blocks makes a row together. Included by wgmma_pair.cu.
//
// Idea: the fp32 sums of such a row are all the registers of an SM. So its outputs are made in quarters
// of 64 rows of D, each by one warpgroup of a block of two, and each from the whole row. The upper bits of a
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

#include "common/device/ptx/cluster.cuh"
#include "common/device/ptx/griddepcontrol.cuh"
#include "common/device/ptx/named_barrier.cuh"
#include "variants/wgmma/wgmma_pipeline.cuh"
#include "variants/wgmma/wgmma_stages.cuh"

namespace fwht::wgmma {

/// The row in work and the head of the next one, in the slots of kPairRing, the same in both blocks of the
/// cluster. Its mbarriers: `head_full` and `tail_full`, when the bytes of either are there; `read_first`,
/// when all warps of the cluster have read the first kTail pieces, and `read`, when they have read all.
/// `landed`, when the other block has all of the row. The `full` and `landed` ones are pairs, for even and
/// odd rows of the cluster.
struct PairPipeline {
  static constexpr Tile kTile = kPair16.tile();
  static constexpr int kPieces = kPairRing.pieces, kSlots = kPairRing.slots, kHead = kPairRing.head(),
                       kTail = kPairRing.tail(), kPieceBytes = kTile.row_bytes() / kPieces,
                       kStepsPerPiece = kTile.k_steps() / kPieces;

  std::uint32_t ring;                   // shared address; the barriers lie behind the slots
  int rank;                             // of this block in the cluster
  int at = 0;                           // slot of the row's first piece
  std::uint32_t parity = 0, phase = 0;  // bits 0 and 1 of the row's number among those of the cluster

  __device__ std::uint32_t head_full(std::uint32_t odd) const {
    return ring + kSlots * kPieceBytes + 8 * odd;
  }
  __device__ std::uint32_t tail_full(std::uint32_t odd) const {
    return ring + kSlots * kPieceBytes + 16 + 8 * odd;
  }
  __device__ std::uint32_t read_first() const { return ring + kSlots * kPieceBytes + 32; }
  __device__ std::uint32_t read() const { return ring + kSlots * kPieceBytes + 40; }
  __device__ std::uint32_t landed(std::uint32_t odd) const {
    return ring + kSlots * kPieceBytes + 48 + 8 * odd;
  }
  __device__ int slot(int piece) const { return at + piece < kSlots ? at + piece : at + piece - kSlots; }
  __device__ std::uint32_t k_step(int s) const {
    return ring + slot(s / kStepsPerPiece) * kPieceBytes + s % kStepsPerPiece * kTile.k_step_bytes();
  }

  __device__ void init(int warps) const {
    for (int odd = 0; odd < 2; ++odd) {
      ptx::mbarrier_init(head_full(odd), 1);
      ptx::mbarrier_init(tail_full(odd), 1);
      ptx::mbarrier_init(landed(odd), 1);
    }
    ptx::mbarrier_init(read_first(), 2 * warps);
    ptx::mbarrier_init(read(), 2 * warps);
    ptx::fence_mbarrier_init();
  }
  /// For every load, one thread of each block announces the bytes, before or after they come; one of one
  /// block loads them for both.
  __device__ void announce(const RowBatch& batch, int row, int pieces, std::uint32_t barrier) const {
    if (row < batch.rows) ptx::mbarrier_arrive_expect_tx(barrier, pieces * kPieceBytes);
  }
  __device__ void load(const RowBatch& batch, int row, int piece, int into, std::uint32_t barrier) const {
    if (row >= batch.rows || PairLoads::loader(piece) != rank) return;
    ptx::bulk_copy_global_to_shared_multicast(ring + into * kPieceBytes,
                                              batch.in + row * batch.in_stride_bytes + piece * kPieceBytes,
                                              kPieceBytes, barrier, 3);
  }
  /// At both blocks. No data of this thread go with it, and the wgmmas that read the row are done.
  __device__ void arrive(std::uint32_t barrier) const {
    ptx::mbarrier_arrive(barrier);
    ptx::mbarrier_arrive_cluster(ptx::mapa(barrier, rank ^ 1));
  }
  __device__ void wait() const {
    ptx::mbarrier_wait_parity(head_full(parity), phase);
    ptx::mbarrier_wait_parity(tail_full(parity), phase);
  }
  __device__ void tell_other_block() const {
    ptx::mbarrier_arrive_cluster(ptx::mapa(landed(parity), rank ^ 1));
  }
  __device__ void wait_for_other_block() const { ptx::mbarrier_wait_parity(landed(parity), phase); }
  /// By the second warpgroup, which is the last to multiply: the tail of the next row, `next`, where this
  /// one's first pieces were, and the head of the row after that, where the others were.
  __device__ void refill_tail(const RowBatch& batch, int next, int warp, int lane) const {
    ptx::mbarrier_wait_parity(read_first(), parity);
    if (lane == 0) {
      const int piece = PairLoads::tail_piece(warp);
      if (piece < kTail) load(batch, next, kHead + piece, slot(piece), tail_full(parity ^ 1));
      if (warp == 7) announce(batch, next, kTail, tail_full(parity ^ 1));
    }
    __syncwarp();
  }
  __device__ void refill_head(const RowBatch& batch, int next_but_one, int warp, int lane) const {
    ptx::mbarrier_wait_parity(read(), parity);
    if (lane == 0) {
      const int piece = PairLoads::head_piece(warp, rank);
      if (piece < kHead) load(batch, next_but_one, piece, slot(kTail + piece), head_full(parity));
      if (warp == 7) announce(batch, next_but_one, kHead, head_full(parity));
    }
    __syncwarp();
  }
  __device__ void advance() {
    at = slot(kPieces);
    phase ^= parity;
    parity ^= 1;
  }
};

/// Words leave when the other block has the row.
struct PairWriter : RegisterWriter<PairPipeline::kTile.columns()> {
  const PairPipeline& pipeline;

  __device__ void write(int pair, const std::uint32_t (&words)[4]) const {
    if (pair == 0) pipeline.wait_for_other_block();
    RegisterWriter::write(pair, words);
  }
};

template <Dtype dtype, Launch launch, Scaling scaling>
__global__ void __launch_bounds__(launch.threads(), 1) pair(RowBatch batch) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Tile tile = PairPipeline::kTile;
  constexpr int kColumns = tile.columns(), kSteps = tile.k_steps(), kWarps = launch.threads() / 32;
  constexpr int kPieces = PairPipeline::kPieces, kHead = PairPipeline::kHead, kTail = PairPipeline::kTail;
  static_assert(kPieces == kWarps, "a warp starts the load of a piece");
  extern __shared__ __align__(1024) std::byte shared[];
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int warp = rows::uniform_warp();
  const int rank = static_cast<int>(ptx::cluster_ctarank());
  PairPipeline pipeline{ptx::shared_address(shared), rank};
  const int stride = static_cast<int>(gridDim.x) / 2, first = static_cast<int>(blockIdx.x) / 2;

  if (threadIdx.x == 0) pipeline.init(kWarps);
  ptx::barrier_cluster_arrive_relaxed();  // what init() wrote is fenced there
  ptx::barrier_cluster_wait();
  if (lane == 0) {
    ptx::griddepcontrol_wait();
    if (warp == 0) {
      pipeline.announce(batch, first, kHead, pipeline.head_full(0));
      pipeline.announce(batch, first, kTail, pipeline.tail_full(0));
      pipeline.announce(batch, first + stride, kHead, pipeline.head_full(1));
    }
    pipeline.load(batch, first, warp, warp, warp < kHead ? pipeline.head_full(0) : pipeline.tail_full(0));
  }
  __syncwarp();
  const Stage3Constants<scaling, true> constants(lane, batch.scale);
  const int upper_m = 8 * rank + warp, group = warp >> 2;
  // The warpgroups of a block take turns with the tensor core, so that the one finishes while the other
  // multiplies.
  constexpr int kTurn = 1;  // and the next: named barriers
  if (group == 1) ptx::bar_arrive(kTurn, 32 * kWarps);

#pragma unroll 1
  for (int row = first; row < batch.rows; row += stride) {
    const Fragments<dtype, kSteps> hadamard(lane, upper_m);
    pipeline.wait();
    if (threadIdx.x == 0) pipeline.tell_other_block();
    // The head of the second row is asked for now, so that the first row comes sooner.
    if (row == first && lane == 0 && warp < kHead)
      pipeline.load(batch, first + stride, warp, kPieces + warp, pipeline.head_full(1));

    // Stage 1, exact: D = H X over b3-b5 and b11-b15. The first kTail pieces are a group of their own.
    float d[kColumns / 2];
    ptx::bar_sync(kTurn + group, 32 * kWarps);
    ptx::wgmma_fence();
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (s == kTail * PairPipeline::kStepsPerPiece) ptx::wgmma_commit_group();
      ptx::wgmma_m64k16<dtype, kColumns>(
          d, hadamard.operand(s),
          ptx::matrix_descriptor(pipeline.k_step(s), tile.leading_bytes(), tile.stride_bytes()), s > 0);
    }
    ptx::wgmma_commit_group();
    ptx::bar_arrive(kTurn + (group ^ 1), 32 * kWarps);
    ptx::wgmma_wait_group<1>();
    if (lane == 0) pipeline.arrive(pipeline.read_first());
    if (group == 1) pipeline.refill_tail(batch, row + stride, warp, lane);
    ptx::wgmma_wait_group<0>();
    ptx::pin_accumulators(d);
    if (lane == 0) pipeline.arrive(pipeline.read());
    if (group == 1) pipeline.refill_head(batch, row + 2 * stride, warp, lane);

    // Stage 2: butterflies over b7-b10. Stage 3: b0-b2 and b6, then the words leave, when the other block has
    // the row.
    const PairWriter writer{{first_word<kColumns>(batch.out + row * batch.out_stride_bytes, upper_m, lane)},
                            pipeline};
    rows::register_butterflies<8, kColumns / 2>(d);
    finish_pairs<dtype, launch.chains>(d, all_finite(d), constants, lane, writer);
    pipeline.advance();
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
