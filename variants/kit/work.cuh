// Which tiles a team makes: at a fixed distance, or by a counter in global memory that all teams of a launch
// share, so that a team that finishes early takes more.
#pragma once

namespace fwht::rows {

/// This thread's warp in its block, through a shuffle, so that the compiler knows it to be uniform.
__device__ inline int uniform_warp() {
  return __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x >> 5), 0);
}

/// The first `first` tiles are the teams' own; the others are drawn. Each team draws once more than it needs;
/// the last draw of a launch puts the counter back to 0. atomicInc, because the compiler gathers an atomicAdd
/// over the warp and waits for it at once.
struct CountedWork {
  unsigned* counter;
  int tiles, teams;
  unsigned first;

  /// A ticket takes long to come: draw it ahead, and ask for its tile when that is wanted.
  __device__ unsigned draw() const { return atomicInc(counter, static_cast<unsigned>(tiles + teams - 1)); }
  /// Static work has no counter: its ticket is the tile at hand, and the next one lies at the distance
  /// `first`.
  __device__ int tile_of(unsigned ticket) const { return static_cast<int>(ticket + first); }
};

}  // namespace fwht::rows
