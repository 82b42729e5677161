// How a launch is timed in each mode. Variants and copy kernels go through the same functions.
#pragma once

#include <cstdint>
#include <functional>

#include "common/device/gpu_timer.hpp"
#include "experiments/harness/mode.hpp"
#include "experiments/harness/slices.hpp"
#include "experiments/harness/subject.hpp"

namespace fwht::harness {

/// What alternating mode needs beside the launch itself.
struct Alternation {
  Launch reference;       ///< the copy that precedes every launch
  double share_us = 0.0;  ///< its own share of a pair, see reference_share
};

/// How many slices the mode runs over: one, or for cold as many as cold_count says.
std::int64_t slice_count(Mode mode, const Buffers& buffers, std::int64_t l2_bytes, std::int64_t cold_bytes);

/// Microseconds per launch of `launch` over the slices in the mode. Throws what the launch throws, and
/// std::runtime_error when alternating leaves no time for the launch.
Timing time_in_mode(Mode mode, const Launch& launch, const Alternation& alternation, Slices& slices,
                    TimerOptions options = {});

/// Microseconds of the reference copy when it alternates with itself: half of a pair of two.
double reference_share(const Launch& reference, Slices& slices);

/// From the time per launch of a sequence copy, launch, copy, launch, ... to the time of the launch: twice
/// that, less the copy's share; the launches are those of the subject. Throws std::runtime_error when nothing
/// is left.
Timing subtract_share(Timing per_launch, double share_us);

}  // namespace fwht::harness
