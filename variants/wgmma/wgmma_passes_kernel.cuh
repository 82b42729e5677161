// wgmma at n = 65536: a resident block makes a row in two passes. Included by wgmma_passes.cu and wgmma_tune.
//
// Idea: an exact stage of order 128 costs half the tensor work an element of order 256 (the pair form), but
// leaves ten bits to the finish, and the fp32 sums of a whole row fill the registers of an SM. So the 128
// rows of D are made 64 at a time, from the same row in shared memory: the top bit only chooses signs in the
// chain of k steps. The columns are too many for the sums of one warpgroup, too, so two warpgroups take half
// of them each, and meet once, in a half exchange: either keeps the sums of one b12 and sends those of the
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
// were made negative, and the A operand does that: which of the four 8x8 blocks of a fragment is negative
// decides the order and the signs of its rows.
//
// The ring has room for a row and the head of the next one. The head is asked for in the first pass, and the
// tail, in the places of the row's first pieces, in the second one, as soon as the tensor core has read all
// of the row: half of the next row in every pass. Butterflies and exchange of the first slice run under the
// tensor core's work on the second one. The mma.sync of the finish cannot (they wait in the same pipe).
//
// In place: a block stores into the row when it has multiplied all of it, and keeps it for the second pass in
// shared memory.
//
// Blocks start in groups, one after the other, so that not all of them load, and then all of them store, at
// the same time. Nothing is lost by that while memory is busy with the first rows of the others.
#pragma once

#include "common/ptx/griddepcontrol.cuh"
#include "common/ptx/named_barrier.cuh"
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
  column_butterflies<8, 2, 2>(d);
  partner.send(d, 0);
  meanwhile();
  column_butterflies<8, 2, 0>(d);
#pragma unroll
  for (int round = 0; round < 2; ++round) {
    ptx::bar_sync(partner.barrier, 64);
    if (round == 0) partner.send(d, 1);
    partner.receive(d, round);
  }
}

/// The butterfly over b10.
__device__ inline void slice_butterfly(float (&lower)[kSliceSums], float (&upper)[kSliceSums]) {
#pragma unroll
  for (int i = 0; i < kSliceSums; ++i) {
    const float a = lower[i], b = upper[i];
    lower[i] = a + b;
    upper[i] = a - b;
  }
}

__device__ inline void spend_clocks(int clocks) {
  const long long start = clock64();
  while (clock64() - start < clocks) {
  }
}

template <Dtype dtype, class Choice, Scaling scaling>
__global__ void __launch_bounds__(Choice::launch.threads(), 1) passes(RowBatch batch, unsigned* next_row) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Launch launch = Choice::launch;
  constexpr Tile tile = tile_of(launch, 16);
  // Plain constants: a lambda would capture `tile` itself, and read it at run time.
  constexpr int kPieces = tile.k_steps(), kPieceBytes = tile.k_step_bytes(), kSlots = kPassesRing.slots;
  constexpr int kHead = kPassesRing.head(), kTail = kPassesRing.tail(), kWarps = launch.threads() / 32;
  constexpr int kLeading = tile.leading_bytes(), kStride = tile.stride_bytes();
  constexpr int kSliceBytes = kSliceColumns / 8 * kStride, kGroupBytes = 2 * kSliceBytes;
  constexpr bool kDynamic = launch.dynamic;
  static_assert(kPieces == launch.load_pieces && kPieces == kWarps);
  extern __shared__ __align__(1024) std::byte shared[];
  std::byte* const exchange = shared + row_area_bytes(launch, 16);
  std::byte* const bookkeeping = exchange + exchange_bytes(launch);
  const std::uint32_t ring = ptx::shared_address(shared);
  // Barriers: all bytes of the block's next row; all warps have read the row for the last time.
  const std::uint32_t full = ptx::shared_address(bookkeeping), read = full + 8;
  int* const next_in = reinterpret_cast<int*>(bookkeeping + 16);  // dynamic: the block's next row
  const int lane = static_cast<int>(threadIdx.x) & 31;
  // Through a shuffle, so that the compiler knows it to be uniform.
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) >> 5, 0);
  const int group = warp >> 2, warp_in_group = warp & 3;
  const int stride = static_cast<int>(gridDim.x);
  int row = static_cast<int>(blockIdx.x), next = 0;

  const auto load = [&](int of_row, int piece, int slot) {
    if (of_row >= batch.rows) return;
    ptx::mbarrier_arrive_expect_tx(full, kPieceBytes);
    ptx::bulk_copy_global_to_shared(ring + slot * kPieceBytes,
                                    batch.in + of_row * batch.row_stride_bytes + piece * kPieceBytes,
                                    kPieceBytes, full);
  };
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(full, kPieces);
    ptx::mbarrier_init(read, kWarps);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (lane == 0) {
    ptx::griddepcontrol_wait();
    if (launch.start_groups > 1)
      spend_clocks(launch.start_step * static_cast<int>(blockIdx.x % launch.start_groups));
    load(row, warp, warp);
  }
  __syncwarp();
  // Dynamic rows: the first one of a block is its own, for each later one it draws a ticket, a row ahead: one
  // at the start, and one a row. The last draw of a launch puts the counter back to 0.
  const bool draws = kDynamic && threadIdx.x == 0;
  const auto draw = [&] { return static_cast<int>(draw_ticket(next_row, batch.rows, stride)) + stride; };
  if (draws) leave(next_in, draw());
  const Stage3Constants<scaling, true> constants(lane, batch.scale);
  __syncthreads();
  const auto region = [&](int of_warp) {
    return reinterpret_cast<float4*>(exchange + of_warp * kExchangeBytesPerWarp) + lane;
  };
  const Partner partner{region(warp), region(warp ^ 4), 1 + warp_in_group, group == 0 ? 1.0F : -1.0F};

  int at = 0;  // slot of the row's first piece
  std::uint32_t parity = 0;
  const auto slot = [&](int piece) { return at + piece < kSlots ? at + piece : at + piece - kSlots; };
#pragma unroll 1
  while (row < batch.rows) {
    ptx::mbarrier_wait_parity(full, parity);
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass) {
      const Fragments<dtype, kPieces> hadamard(lane, 4 * pass + warp_in_group, negative_block(group));
      float d[2][kSliceSums];
#pragma unroll
      for (int slice = 0; slice < 2; ++slice) {
        ptx::wgmma_fence();
#pragma unroll
        for (int s = 0; s < kPieces; ++s) {
          const int start = slot(s) * kPieceBytes + group * kGroupBytes + slice * kSliceBytes;
          ptx::wgmma_m64k16<dtype, kSliceColumns>(d[slice], hadamard.operand(s),
                                                  descriptor(ring + start, kLeading, kStride), s > 0);
        }
        ptx::wgmma_commit_group();
      }
      int drawn = 0;
      if (draws && pass == 1) drawn = draw();  // under the tensor core
      ptx::wgmma_wait_group<1>();
      ptx::pin_accumulators(d[0]);
      exchange_slice(d[0], partner, [] {});
      ptx::wgmma_wait_group<0>();
      ptx::pin_accumulators(d[1]);
      if (pass == 1) {
        if (draws) leave(next_in, drawn);
        if (lane == 0) ptx::mbarrier_arrive(read);
        __syncwarp();
      }
      // The places that are refilled were read in the last pass of the row before, or in this one.
      const auto refill = [&] {
        if (pass == 0) {
          if (lane == 0) {
            ptx::mbarrier_wait_parity(read, parity ^ 1);
            next = kDynamic ? left_in(next_in) : row + stride;
            if (warp < kHead) load(next, warp, slot(kPieces + warp));
          }
          next = __shfl_sync(0xFFFFFFFFU, next, 0);
        } else {
          if (lane == 0 && warp < kTail) {
            ptx::mbarrier_wait_parity(read, parity);
            load(next, kHead + warp, slot(warp));
          }
          __syncwarp();
        }
      };
      exchange_slice(d[1], partner, refill);
      slice_butterfly(d[0], d[1]);

      const int piece = passes_piece(pass, warp_in_group, group);
      const RegisterWriter<kGroupColumns> writer{batch.out + row * batch.row_stride_bytes +
                                                 first_word_offset<kGroupColumns>(piece, lane)};
      const bool finite = all_finite(d[0]);
#pragma unroll
      for (int slice = 0; slice < 2; ++slice) {
        finish_pairs<dtype, launch.chains>(d[slice], finite, constants, lane,
                                           [&](int pair, const std::uint32_t(&words)[4]) {
                                             writer.write(slice * (kSliceColumns / 16) + pair, words);
                                           });
      }
      __syncwarp();
    }
    row = next;
    at = slot(kPieces);
    parity ^= 1;
  }
#else
  __trap();  // `supports` says no where there is no code for sm_90a
#endif
}

}  // namespace fwht::wgmma
