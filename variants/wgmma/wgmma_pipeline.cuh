// wgmma: how rows come into shared memory and how they leave the SM. Each struct is one role with its
// barriers.
#pragma once

#include <cstdint>

#include "common/device/ptx/bulk_copy.cuh"
#include "common/device/ptx/mbarrier.cuh"
#include "common/device/ptx/stmatrix.cuh"
#include "common/device/ptx/wgmma.cuh"
#include "variants/kit/row_counter.cuh"
#include "variants/wgmma/wgmma_kernels.hpp"

namespace fwht::wgmma {

/// Rows in flight: slots in shared memory that bulk copies fill and the tensor core reads where they lie.
/// Two kinds of mbarrier: `full` of a slot and piece completes when the bytes of the piece are there; `read`
/// of a slot, when all warps have multiplied its row, so that it may be filled anew. The phase of all
/// barriers of a slot flips once a row.
/// @tparam slots    rows in flight
/// @tparam pieces   that a row arrives in, so that the first k steps begin before the last bytes are there
/// @tparam readers  warps that read a row; 0: a slot is used once, and there are no `read` barriers
template <int slots, int pieces, int row_bytes, int readers>
struct SlotPipeline {
  static constexpr int kSlots = slots, kPieces = pieces, kPieceBytes = row_bytes / pieces;
  static constexpr int kBarrierBytes = 8 * slots * (pieces + (readers > 0 ? 1 : 0));

  std::uint32_t
      barriers;  // shared address, of kBarrierBytes: `full` of every slot and piece, `read` of every slot
  std::uint32_t rows;  // shared address of slot 0
  int slot = 0;        // of the row in work
  std::uint32_t phase = 0;

  __device__ std::uint32_t full(int of_slot, int piece) const {
    return barriers + 8 * (of_slot * pieces + piece);
  }
  __device__ std::uint32_t read(int of_slot) const { return barriers + 8 * slots * pieces + 8 * of_slot; }
  __device__ std::uint32_t row() const { return rows + slot * row_bytes; }

  /// By one thread, before anything else.
  __device__ void init() const {
    for (int s = 0; s < slots; ++s) {
#pragma unroll
      for (int piece = 0; piece < pieces; ++piece)
        ptx::mbarrier_init(full(s, piece), 1);
      if (readers > 0) ptx::mbarrier_init(read(s), readers);
    }
    ptx::fence_mbarrier_init();
  }
  /// Asks for a piece of the row at `from`.
  __device__ void load(const std::byte* from, int into, int piece) const {
    ptx::mbarrier_arrive_expect_tx(full(into, piece), kPieceBytes);
    ptx::bulk_copy_global_to_shared(rows + into * row_bytes + piece * kPieceBytes, from + piece * kPieceBytes,
                                    kPieceBytes, full(into, piece));
  }
  __device__ void wait(int piece) const {
    ptx::mbarrier_wait_parity(full(slot, piece), phase);
  }
  /// Ahead of k step s of `steps`: until the piece that the step begins is there.
  template <int steps>
  __device__ void wait_for_step(int s) const {
    constexpr int kStepsPerPiece = steps / pieces;
    if (s % kStepsPerPiece != 0) return;
    wait(s / kStepsPerPiece);
    ptx::wgmma_fence();
  }
  /// By one lane of every warp, when the row has been multiplied.
  __device__ void release() const {
    ptx::mbarrier_arrive(read(slot));
  }
  __device__ void wait_for_readers() const {
    ptx::mbarrier_wait_parity(read(slot), phase);
  }
  __device__ void advance() {
    if (++slot == slots) slot = 0, phase ^= 1;
  }
};

/// A word that one thread of a block leaves for others, which come by an mbarrier. Atomic, because racecheck
/// does not follow the order that a barrier of single lanes gives.
__device__ inline void leave(int* word, int value) {
  atomicExch(word, value);
}
__device__ inline int left_in(int* word) {
  return atomicCAS(word, 0, 0);
}

/// Which rows a team makes. Static: every stride-th one. Dynamic: its first `slots` ones, then what it draws,
/// a row ahead: one ticket at the start, and one a row. Whoever loads a slot writes the row's number beside
/// it; a number past the last row means that the slot stays empty.
template <bool dynamic, int slots>
struct RowTickets {
  int stride;             // from a row of the team to its next, where rows are static; the number of teams
  int *row_in, *next_in;  // for each slot: the row that comes to it, and the one after that
  unsigned* counter;
  bool draws;  // this thread does, for its team
  unsigned drawn = 0, held = 0;

  /// The row in `slot`, or false when there is none any more.
  template <class Pipeline>
  __device__ bool take(int& row, const RowBatch& batch, const Pipeline& pipeline, int lane) {
    if constexpr (!dynamic) return row < batch.rows;
    pipeline.wait(0);
    // By the thread that will arrive for this warp, so that the next row is written after this.
    if (lane == 0) row = left_in(row_in + pipeline.slot);
    row = __shfl_sync(0xFFFFFFFFU, row, 0);
    held = drawn;
    return row < batch.rows;
  }
  __device__ void draw(const RowBatch& batch) {
    if (draws) drawn = rows::draw_ticket(counter, batch.rows, stride);
  }
  /// What was drawn a row ago is the row after this one in `slot`.
  __device__ void pass_on(int slot) const {
    if (draws) leave(next_in + slot, static_cast<int>(held) + slots * stride);
  }
  /// Asks for a piece of `row`.
  template <class Pipeline>
  __device__ void load(int row, const RowBatch& batch, const Pipeline& pipeline, int slot, int piece) const {
    if (dynamic && piece == 0) leave(row_in + slot, row);
    if (row >= batch.rows) {
      if (dynamic && piece == 0) ptx::mbarrier_arrive(pipeline.full(slot, 0));
      return;
    }
    pipeline.load(batch.in + row * batch.in_stride_bytes, slot, piece);
  }
  /// Once all `warps` have read the slot of `row`, asks for the row after it there: the first warps do, a
  /// piece each.
  template <int warps, class Pipeline>
  __device__ void refill(int row, const RowBatch& batch, const Pipeline& pipeline, int lane, int warp) const {
    // One condition: behind two branches ptxas takes `row` for a number of every thread's own.
    const int next = row + slots * stride;
    if (lane != 0 || warp >= Pipeline::kPieces || (!dynamic && next >= batch.rows)) return;
    pipeline.wait_for_readers();
    for (int piece = warp; piece < Pipeline::kPieces; piece += warps)
      load(dynamic ? left_in(next_in + pipeline.slot) : next, batch, pipeline, pipeline.slot, piece);
  }
};

/// Where `lane` stores its first word (column-tile pair 0, q = 0) of `row`; word q of a pair lies
/// staged_offset(.., pair, q, 0) behind it. A store of its own pointer plus a constant is one instruction;
/// from the sum of all terms the compiler works out every address anew.
/// @param piece  of 16 rows of D, contiguous in the row: the upper bits of m
template <int columns>
__device__ std::byte* first_word(std::byte* row, int piece, int lane) {
  return row + piece * staged_bytes_per_warp(columns) +
         staged_offset(log2_floor(columns) - 3, 0, 0, lane >> 2) + 4 * (lane & 3);
}

/// Stores a warp's finished words straight from registers: STG.32, of a warp 128 contiguous bytes each.
template <int columns>
struct RegisterWriter {
  std::byte* first_word;  // of this lane

  __device__ void write(int pair, const std::uint32_t (&words)[4]) const {
#pragma unroll
    for (int q = 0; q < 4; ++q)
      *reinterpret_cast<std::uint32_t*>(first_word + staged_offset(log2_floor(columns) - 3, pair, q, 0)) =
          words[q];
  }
};

/// Takes a warp's finished words out by bulk copies: stmatrix into the warp's own staging, which is one
/// contiguous piece of the row, then copies of it.
/// @tparam pieces    that the staging is sent in, each as soon as its column-tile pairs are there
/// @tparam deferred  a row is sent under the exact stage of the next one, where the warps have nothing else
/// to do: the
///                   fence waits until the staging is written
template <int columns, int pieces, bool deferred>
struct StagingWriter {
  static_assert(!deferred || pieces == 1, "the staged row is sent as one piece");
  static constexpr int kBytes = staged_bytes_per_warp(columns), kPairs = columns / 16,
                       kPairsPerPiece = kPairs / pieces;

  std::uint32_t staging;  // shared address of kBytes
  int lane;
  std::byte* out = nullptr;      // the warp's place in the row in work
  std::byte* waiting = nullptr;  // deferred: that of the row before, which waits in staging

  __device__ void write(int pair, const std::uint32_t (&words)[4]) const {
    ptx::stmatrix_x4(staging + staged_offset(log2_floor(columns) - 3, pair, lane >> 3, lane & 7), words);
    if (!deferred && (pair + 1) % kPairsPerPiece == 0) send(out, pair + 1 - kPairsPerPiece);
  }
  __device__ void send_deferred() const {
    if (deferred && waiting != nullptr) send(waiting, 0);
  }
  /// Column-tile pairs are contiguous in the row all together; of a part of them, the lower and the upper
  /// eight rows of D lie apart.
  __device__ void send(std::byte* to, int first_pair) const {
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane != 0) return;
    if constexpr (pieces == 1) {
      ptx::bulk_copy_shared_to_global(to, staging, kBytes);
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = 256 * first_pair + half * (kBytes / 2);
        ptx::bulk_copy_shared_to_global(to + at, staging + at, 256 * kPairsPerPiece);
      }
    }
    ptx::bulk_copy_commit_group();
  }
  /// By lane 0: until what was sent has been read.
  __device__ void wait_until_sent() const {
    ptx::bulk_copy_wait_group_read<0>();
  }
  __device__ void end_row() {
    if (deferred) waiting = out;
  }
};

}  // namespace fwht::wgmma
