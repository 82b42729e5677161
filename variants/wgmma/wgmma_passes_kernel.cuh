// wgmma at n = 65536: a resident block makes a row in two passes. Included by wgmma_passes.cu and wgmma_tune.
//
// Idea: an exact stage of order 128 costs half the tensor work an element of order 256 (the pair form). But
// it leaves ten bits to the finish, and the fp32 sums of a whole row fill the registers of an SM. So the 128
// rows of D are made 64 at a time, from the same row in shared memory: the top bit only chooses signs in the
// chain of k steps. The columns are too many for the sums of one warpgroup, too, so two warpgroups take half
// of them each, and meet once, in a half exchange. Either keeps the sums of one b12 and sends those of the
// other, as fp32 through shared memory, and b11 becomes a register bit where b12 was.
//
// Bit card, order 128, N = 128 columns in each of two slices:
//
//   load      16 KiB pieces, linear, into a ring
//   stage 1   k of wgmma   b3-b5 core rows | b12 leading stride | b13-b15 k steps, one a piece
//             D, exact     b0 register | b1-b2 lane 0-1 | b3-b5 lane 2-4 | b6-b9 column tile (register)
//                          b10 slice (register) | b11 warpgroup | b12 register | b13-b14 warp | b15 pass
//   stage 2   b7-b9        FADD between registers
//   exchange  b11, b12     through shared memory, between two warps: b12 warpgroup, b11 register, and FFMA
//             b10          FADD between registers
//   stage 3   b0, b1, b2, b6     mma.sync on bf16 hi + lo, as in the other kernels
//   store     STG.32, a warp writes 128 contiguous bytes
//
// Signs: the one warpgroup needs a + b and a - b, the other b + a and b - a from what it holds and what it
// gets. With a sign s of the warpgroup both are x + s y and s x - y, if the words that the second one gets
// were made negative. The A operand does that: which of the four 8x8 blocks of a fragment is negative
// decides the order and the signs of its rows.
//
// The ring has room for a row and the head of the next one. The head is asked for in the first pass, and the
// tail, in the places of the row's first pieces, in the second one, as soon as the tensor core has read all
// of the row. That is half of the next row in every pass. Butterflies and exchange of the first slice
// run under the tensor core's work on the second one. The mma.sync of the finish cannot (they wait in
// the same pipe).
//
// In place: a block stores into the row when it has multiplied all of it, and keeps it for the second pass in
// shared memory.
//
// Blocks start in groups, one after the other, so that not all of them load, and then all of them store, at
// the same time. Nothing is lost by that while memory is busy with the first rows of the others.
#pragma once

#include "common/device/ptx/griddepcontrol.cuh"
#include "common/device/ptx/named_barrier.cuh"
#include "variants/kit/start_skew.cuh"
#include "variants/wgmma/wgmma_pipeline.cuh"
#include "variants/wgmma/wgmma_stages.cuh"

namespace fwht::wgmma {

/// What a thread exchanges with the thread of the other warpgroup that has the same place there.
struct Partner {
  float4* own;          // where it leaves words
  const float4* other;  // where it finds those of the other
  int barrier;          // of the two warps
  float sign;           // of what it finds

  /// `round` of two, of the sums of a slice: those with register bit 1 set.
  __device__ void send(const float (&d)[kSliceSums], int round) const {
#pragma unroll
    for (int chunk = 0; chunk < kExchangeChunks; ++chunk) {
      const float* x = d + 8 * (round * kExchangeChunks + chunk);
      own[32 * (round * kExchangeChunks + chunk)] = make_float4(x[2], x[3], x[6], x[7]);
    }
  }

  /// And the butterfly over b11.
  __device__ void receive(float (&d)[kSliceSums], int round) const {
#pragma unroll
    for (int chunk = 0; chunk < kExchangeChunks; ++chunk) {
      float* const x = d + 8 * (round * kExchangeChunks + chunk);
      const float4 found = other[32 * (round * kExchangeChunks + chunk)];
      const float y[4] = {found.x, found.y, found.z, found.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = 4 * (e >> 1) + (e & 1);
        const float kept = x[i];
        x[i] = fmaf(sign, y[e], kept);
        x[i + 2] = fmaf(sign, kept, -y[e]);
      }
    }
  }
};

/// Stage 2 of a slice, without b10, and its exchange. One barrier a round is enough: what a round overwrites
/// was read before the barrier that lies between. `meanwhile` is done while the first words travel.
template <class Meanwhile>
__device__ void exchange_slice(float (&d)[kSliceSums], const Partner& partner, Meanwhile meanwhile) {
  rows::register_butterflies<8, kSliceSums, 2, 2>(d);
  partner.send(d, 0);
  meanwhile();
  rows::register_butterflies<8, kSliceSums, 2, 0>(d);
#pragma unroll
  for (int round = 0; round < 2; ++round) {
    ptx::bar_sync(partner.barrier, 64);
    if (round == 0) partner.send(d, 1);
    partner.receive(d, round);
  }
}

/// The row in work and the head of the next one, in the slots of kPassesRing. Two mbarriers of the block:
/// `full`, when all pieces of a row are there; `read`, when all warps have multiplied a row for the last
/// time.
struct PassesPipeline {
  static constexpr Tile kTile = kPasses16.tile();
  static constexpr int kPieces = kPassesRing.pieces, kSlots = kPassesRing.slots, kHead = kPassesRing.head(),
                       kTail = kPassesRing.tail(), kPieceBytes = kTile.k_step_bytes();
  static_assert(kPieces == kTile.k_steps(), "a k step reads one piece");

  std::uint32_t ring, full;  // shared addresses; `read` lies behind `full`
  int at = 0;                // slot of the row's first piece
  std::uint32_t parity = 0;  // of the row's number among those of the block

  __device__ std::uint32_t read() const { return full + 8; }
  __device__ int slot(int piece) const { return at + piece < kSlots ? at + piece : at + piece - kSlots; }
  __device__ std::uint32_t piece(int of_row) const { return ring + slot(of_row) * kPieceBytes; }

  __device__ void init(int readers) const {
    ptx::mbarrier_init(full, kPieces);
    ptx::mbarrier_init(read(), readers);
    ptx::fence_mbarrier_init();
  }
  __device__ void load(const RowBatch& batch, int row, int piece, int slot) const {
    if (row >= batch.rows) return;
    ptx::mbarrier_arrive_expect_tx(full, kPieceBytes);
    ptx::bulk_copy_global_to_shared(ring + slot * kPieceBytes,
                                    batch.in + row * batch.in_stride_bytes + piece * kPieceBytes, kPieceBytes,
                                    full);
  }
  __device__ void wait() const { ptx::mbarrier_wait_parity(full, parity); }
  __device__ void release() const { ptx::mbarrier_arrive(read()); }
  __device__ void wait_for_readers() const { ptx::mbarrier_wait_parity(read(), parity); }
  __device__ void wait_for_readers_of_row_before() const { ptx::mbarrier_wait_parity(read(), parity ^ 1); }
  __device__ void advance() {
    at = slot(kPieces);
    parity ^= 1;
  }
};

/// The row after the one in work. Dynamic: the first row of a block is its own, for each later one a thread
/// draws a ticket, a row ahead, and leaves the row's number for all warps.
template <bool dynamic>
struct NextRow {
  rows::CountedWork work;
  int* place;  // of the number
  bool draws;
  int drawn = 0, row = 0;

  __device__ void draw() {
    if (draws) drawn = work.tile_of(work.draw());
  }
  __device__ void tell() const {
    if (draws) leave(place, drawn);
  }
  /// Half of it in every pass, behind row `at`. The places that are refilled were read in the last pass of
  /// the row before, or in this one.
  __device__ void refill(const RowBatch& batch, const PassesPipeline& pipeline, int pass, int at, int warp,
                         int lane) {
    if (pass == 0) {
      if (lane == 0) {
        pipeline.wait_for_readers_of_row_before();
        row = dynamic ? left_in(place) : at + work.teams;
        if (warp < pipeline.kHead) pipeline.load(batch, row, warp, pipeline.slot(pipeline.kPieces + warp));
      }
      row = __shfl_sync(0xFFFFFFFFU, row, 0);
    } else {
      if (lane == 0 && warp < pipeline.kTail) {
        pipeline.wait_for_readers();
        pipeline.load(batch, row, pipeline.kHead + warp, pipeline.slot(warp));
      }
      __syncwarp();
    }
  }
};

/// Stage 1 of one slice of a warpgroup's columns, as a group of its own.
template <Dtype dtype>
__device__ void multiply_slice(float (&d)[kSliceSums],
                               const Fragments<dtype, PassesPipeline::kPieces>& hadamard,
                               const PassesPipeline& pipeline, int group, int slice) {
  constexpr Tile tile = PassesPipeline::kTile;
  constexpr int kSliceBytes = kSliceColumns / 8 * tile.stride_bytes(), kGroupBytes = 2 * kSliceBytes;
  ptx::wgmma_fence();
#pragma unroll
  for (int s = 0; s < PassesPipeline::kPieces; ++s) {
    const std::uint32_t start = pipeline.piece(s) + group * kGroupBytes + slice * kSliceBytes;
    ptx::wgmma_m64k16<dtype, kSliceColumns>(
        d, hadamard.operand(s), ptx::matrix_descriptor(start, tile.leading_bytes(), tile.stride_bytes()),
        s > 0);
  }
  ptx::wgmma_commit_group();
}

template <Dtype dtype, Launch launch, Scaling scaling>
__global__ void __launch_bounds__(launch.threads(), 1) passes(RowBatch batch, unsigned* next_row) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kWarps = launch.threads() / 32;
  constexpr int kPieces = PassesPipeline::kPieces;
  static_assert(kPieces == launch.load_pieces && kPieces == kWarps, "a warp loads a piece");
  extern __shared__ __align__(1024) std::byte shared[];
  std::byte* const exchange = shared + row_area_bytes(launch);
  std::byte* const bookkeeping = exchange + exchange_bytes(launch);
  PassesPipeline pipeline{ptx::shared_address(shared), ptx::shared_address(bookkeeping)};
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int warp = rows::uniform_warp();
  const int group = warp >> 2, warp_in_group = warp & 3;
  int row = static_cast<int>(blockIdx.x);

  if (threadIdx.x == 0) pipeline.init(kWarps);
  __syncthreads();
  if (lane == 0) {
    ptx::griddepcontrol_wait();
    if (launch.start_groups > 1) rows::spend_clocks(launch.start_step * (blockIdx.x % launch.start_groups));
    pipeline.load(batch, row, warp, warp);
  }
  __syncwarp();
  NextRow<launch.dynamic> next{{next_row, batch.rows, static_cast<int>(gridDim.x), gridDim.x},
                               reinterpret_cast<int*>(bookkeeping + 16),
                               launch.dynamic && threadIdx.x == 0};
  next.draw();
  next.tell();
  const Stage3Constants<scaling, true> constants(lane, batch.scale);
  __syncthreads();
  const auto region = [&](int of_warp) {
    return reinterpret_cast<float4*>(exchange + of_warp * kExchangeBytesPerWarp) + lane;
  };
  const Partner partner{region(warp), region(warp ^ 4), 1 + warp_in_group, group == 0 ? 1.0F : -1.0F};

#pragma unroll 1
  while (row < batch.rows) {
    pipeline.wait();
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass) {
      // Stage 1, exact: the 64 rows of D with b15 = pass, over b3-b5 and b12-b15.
      const Fragments<dtype, kPieces> hadamard(lane, 4 * pass + warp_in_group, negative_block(group));
      float d[2][kSliceSums];
#pragma unroll
      for (int slice = 0; slice < 2; ++slice)
        multiply_slice<dtype>(d[slice], hadamard, pipeline, group, slice);
      if (pass == 1) next.draw();  // under the tensor core

      // Stage 2 and exchange of b11, of the first slice under the tensor core's work on the second one.
      ptx::wgmma_wait_group<1>();
      ptx::pin_accumulators(d[0]);
      exchange_slice(d[0], partner, [] {});
      ptx::wgmma_wait_group<0>();
      ptx::pin_accumulators(d[1]);
      if (pass == 1) {
        next.tell();
        if (lane == 0) pipeline.release();
        __syncwarp();
      }
      exchange_slice(d[1], partner, [&] { next.refill(batch, pipeline, pass, row, warp, lane); });
      rows::butterfly(d[0], d[1]);  // b10

      // Stage 3: b0-b2 and b6, then the words leave.
      std::byte* const to = first_word<kGroupColumns>(batch.out + row * batch.out_stride_bytes,
                                                      passes_piece(pass, warp_in_group, group), lane);
      const bool finite = all_finite(d[0]);
      finish_pairs<dtype, launch.chains>(d[0], finite, constants, lane, RegisterWriter<kGroupColumns>{to});
      finish_pairs<dtype, launch.chains>(d[1], finite, constants, lane,
                                         RegisterWriter<kGroupColumns, kSliceColumns / 16>{to});
      __syncwarp();
    }
    row = next.row;
    pipeline.advance();
  }
#else
  __trap();  // `supports` says no where there is no code for sm_90a
#endif
}

}  // namespace fwht::wgmma
