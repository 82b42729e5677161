// What a profiler sees of a process: exactly the launches that stand in a region.
#pragma once

#include <cstdint>

#include "common/device/gpu_timer.hpp"

namespace fwht::profile {

/// How many kernels one call of `enqueue` launches: it is captured, not run. Their number tells which of the
/// profiler's rows belong to the call.
std::int64_t count_kernels(const Enqueue& enqueue);

/// Runs `enqueue` with the profiler on and waits for it. Without a profiler it just runs.
void run_profiled(const Enqueue& enqueue);

}  // namespace fwht::profile
