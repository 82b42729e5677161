// Rows handed out by a counter in global memory that all teams of a launch share: a team that finishes early
// takes more.
#pragma once

namespace fwht::rows {

/// Draws from the counter that hands out the rows of a launch beyond the first ones of every team. Each team
/// draws once more than it needs; the last draw of a launch puts the counter back to 0. atomicInc, because
/// the compiler gathers an atomicAdd over the warp and waits for it at once.
__device__ inline unsigned draw_ticket(unsigned* counter, int rows, int teams) {
  return atomicInc(counter, static_cast<unsigned>(rows + teams - 1));
}

}  // namespace fwht::rows
