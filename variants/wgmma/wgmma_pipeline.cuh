// wgmma: how rows come into shared memory and how they leave the SM. Each struct is one role with its
// barriers.
#pragma once

#include <cstdint>

#include "common/device/ptx/bulk_copy.cuh"
#include "common/device/ptx/mbarrier.cuh"
#include "common/device/ptx/stmatrix.cuh"
#include "common/device/ptx/wgmma.cuh"
#include "variants/kit/tile_ring.cuh"
#include "variants/kit/work.cuh"
#include "variants/wgmma/wgmma_kernels.hpp"

namespace fwht::wgmma {

/// Rows in flight: slots in shared memory that bulk copies fill and the tensor core reads where they lie.
template <int slots, int pieces, int row_bytes, int readers>
class RowRing : public rows::TileRing<slots, pieces, readers> {
  using Ring = rows::TileRing<slots, pieces, readers>;

 public:
  static constexpr int kPieceBytes = row_bytes / pieces;

  /// Shared addresses: of the barriers, and of slot 0.
  __device__ RowRing(std::uint32_t barriers, std::uint32_t rows) : Ring(barriers), rows_(rows) {}

  __device__ std::uint32_t row() const { return rows_ + Ring::place() * row_bytes; }
  /// Asks for a piece of the row at `from`.
  __device__ void load(const std::byte* from, int into, int piece) const {
    rows::load_bytes(rows_ + into * row_bytes + piece * kPieceBytes, from + piece * kPieceBytes, kPieceBytes,
                     Ring::full(into, piece));
  }
  /// Ahead of k step s of `steps`: until the piece that the step begins is there.
  template <int steps>
  __device__ void wait_for_step(int s) const {
    constexpr int kStepsPerPiece = steps / pieces;
    if (s % kStepsPerPiece != 0) return;
    Ring::wait(s / kStepsPerPiece);
    ptx::wgmma_fence();
  }

 private:
  std::uint32_t rows_;
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

  __device__ rows::CountedWork work(const RowBatch& batch) const {
    return {counter, batch.rows, stride, static_cast<unsigned>(slots * stride)};
  }
  /// The row in `slot`, or false when there is none any more.
  template <class Pipeline>
  __device__ bool take(int& row, const RowBatch& batch, const Pipeline& pipeline, int lane) {
    if constexpr (!dynamic) return row < batch.rows;
    pipeline.wait(0);
    // By the thread that will arrive for this warp, so that the next row is written after this.
    if (lane == 0) row = left_in(row_in + pipeline.place());
    row = __shfl_sync(0xFFFFFFFFU, row, 0);
    held = drawn;
    return row < batch.rows;
  }
  __device__ void draw(const RowBatch& batch) {
    if (draws) drawn = work(batch).draw();
  }
  /// What was drawn a row ago is the row after this one in `slot`.
  __device__ void pass_on(const RowBatch& batch, int slot) const {
    if (draws) leave(next_in + slot, work(batch).tile_of(held));
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
    const int next = work(batch).tile_of(static_cast<unsigned>(row));
    if (lane != 0 || warp >= Pipeline::kPieces || (!dynamic && next >= batch.rows)) return;
    pipeline.wait_for_readers();
    for (int piece = warp; piece < Pipeline::kPieces; piece += warps)
      load(dynamic ? left_in(next_in + pipeline.place()) : next, batch, pipeline, pipeline.place(), piece);
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
/// @tparam first_pair  of the row's column-tile pairs, that pair 0 is
template <int columns, int first_pair = 0>
struct RegisterWriter {
  std::byte* first_word;  // of this lane

  __device__ void write(int pair, const std::uint32_t (&words)[4]) const {
#pragma unroll
    for (int q = 0; q < 4; ++q)
      *reinterpret_cast<std::uint32_t*>(
          first_word + staged_offset(log2_floor(columns) - 3, first_pair + pair, q, 0)) = words[q];
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
