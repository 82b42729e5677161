// Blocks that start apart.
#pragma once

namespace fwht::rows {

__device__ inline void spend_clocks(unsigned clocks) {  // no less than these
  const auto start = static_cast<unsigned>(clock());
  while (static_cast<unsigned>(clock()) - start < clocks) {
  }
}

/// The first blocks of a launch would all load, then all compute, then all store, leaving memory idle in
/// between. Delaying some of them costs nothing: the early loads keep memory busy, and the late ones arrive
/// when they would have anyway. Turns assume that blocks fill the multiprocessors one after the other; where
/// they do not, only time is lost.
///
/// @tparam clocks         between a turn and the next; 0: nobody waits
/// @tparam groups         block i takes turn i mod groups; 0: the blocks of one multiprocessor take turns
/// @tparam blocks_per_sm  how many are resident: only the first blocks wait
template <int clocks, int groups, int blocks_per_sm>
struct StartSkew {
  static constexpr bool kWaits = clocks > 0;

  __device__ static void wait_for_turn(unsigned multiprocessors) {
    if constexpr (kWaits) {
      const unsigned block = blockIdx.x;
      if (block >= blocks_per_sm * multiprocessors) return;
      unsigned wait = 0;
      if constexpr (groups > 0) {
        wait = block % groups * clocks;
      } else {
#pragma unroll
        for (int turn = 1; turn < blocks_per_sm; ++turn)
          wait += block >= turn * multiprocessors ? clocks : 0;
      }
      if (wait != 0) spend_clocks(wait);
    }
  }
};

}  // namespace fwht::rows
