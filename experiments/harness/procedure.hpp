// How a launch is timed in each mode. Variants and copy kernels go through the same functions.
#pragma once

#include <cstdint>
#include <functional>

#include "common/gpu_timer.hpp"
#include "common/numerics.hpp"
#include "common/problem.hpp"
#include "experiments/harness/mode.hpp"
#include "experiments/harness/slices.hpp"

namespace fwht::harness {

/// One launch on one slice.
using Launch = std::function<void(const void* in, void* out, Stream)>;

/// What alternating mode needs beside the launch itself.
struct Alternation {
  Launch reference;       ///< the copy that precedes every launch
  double share_us = 0.0;  ///< its own share of a pair, see reference_share
};

/// How many slices of `bytes` bytes the mode runs over: one, or for cold as many as cold_count says.
std::int64_t slice_count(Mode mode, Placement placement, std::int64_t bytes, std::int64_t l2_bytes,
                         std::int64_t cold_bytes);

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

/// How often a plan may run in place on its own result before the data has grown or shrunk too far to be
/// typical (by 2^6 in f16, 2^40 in bf16 and f32; standard deviation 1 at the start). At least 1.
std::int64_t applications_in_place(const Numerics& numerics, const Problem& problem);

}  // namespace fwht::harness
