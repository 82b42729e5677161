// Tiles on their way through shared memory: places that asynchronous copies fill and warps read, around and
// around.
#pragma once

#include <cstdint>

#include "common/device/ptx/bulk_copy.cuh"
#include "common/device/ptx/mbarrier.cuh"
#include "variants/kit/ring_place.hpp"

namespace fwht::rows {

/// Two kinds of mbarrier: `full` of a place and piece completes when the bytes of the piece are there; `read`
/// of a place, when all its readers have used the tile, so that it may be filled anew. The phase of all
/// barriers of a place flips once a tile.
/// @tparam places   tiles under way
/// @tparam pieces   that a tile arrives in, so that work begins before the last bytes are there
/// @tparam readers  warps that use a tile; 0: a place is used once, and there are no `read` barriers
/// @tparam fillers  arrivals that complete `full` beside the bytes
template <int places, int pieces, int readers, int fillers = 1>
class TileRing {
 public:
  static constexpr int kPieces = pieces;
  static constexpr int kBarrierBytes = 8 * places * (pieces + (readers > 0 ? 1 : 0));

  /// Shared address of the barriers, `full` of every place and piece, then `read` of every place.
  __device__ explicit TileRing(std::uint32_t barriers) : barriers_(barriers) {}

  __device__ std::uint32_t full(int place, int piece = 0) const {
    return barriers_ + 8 * (place * pieces + piece);
  }
  __device__ std::uint32_t read(int place) const { return barriers_ + 8 * (places * pieces + place); }

  /// By one thread, before anything else.
  __device__ void init() const {
    for (int place = 0; place < places; ++place) {
#pragma unroll
      for (int piece = 0; piece < pieces; ++piece)
        ptx::mbarrier_init(full(place, piece), fillers);
      if (readers > 0) ptx::mbarrier_init(read(place), readers);
    }
    ptx::fence_mbarrier_init();
  }

  // Of the place at hand.
  __device__ int place() const {
    return at_.place;
  }
  __device__ void wait(int piece = 0) const {
    ptx::mbarrier_wait_parity(full(at_.place, piece), at_.phase);
  }
  /// By one lane of every reader, when the tile has been used.
  __device__ void release() const {
    ptx::mbarrier_arrive(read(at_.place));
  }
  __device__ void wait_for_readers() const {
    ptx::mbarrier_wait_parity(read(at_.place), at_.phase);
  }
  /// By who fills the place: until the tile that was here a round ago has been used; at once in the first
  /// round.
  __device__ void wait_for_room() const {
    ptx::mbarrier_wait_parity(read(at_.place), at_.phase ^ 1U);
  }
  __device__ void advance() {
    at_.advance();
  }

 private:
  std::uint32_t barriers_;
  RingPlace<places> at_;
};

/// Asks for contiguous bytes and has them complete `full`.
__device__ inline void load_bytes(std::uint32_t to, const std::byte* from, int bytes, std::uint32_t full) {
  ptx::mbarrier_arrive_expect_tx(full, static_cast<std::uint32_t>(bytes));
  ptx::bulk_copy_global_to_shared(to, from, static_cast<std::uint32_t>(bytes), full);
}

}  // namespace fwht::rows
