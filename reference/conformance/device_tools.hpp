// What the conformance checks need of CUDA; in a build without it every function throws. All but
// fill_shared_memory_with_nan have finished on return.
#pragma once

#include <cstdint>
#include <functional>

#include "common/contract/variant.hpp"

namespace fwht::conformance {

/// Leaves NaN in the shared memory of every SM, so that a kernel that reads what it did not write is found
/// out.
void fill_shared_memory_with_nan();

/// Executes the plan on a stream of its own.
void execute_on_new_stream(const Plan& plan, const void* in, void* out);

/// Captures one execution in a CUDA graph and replays it, `between` called after the capture. Capture fails
/// when the plan allocates, synchronises or uses another stream.
void execute_captured(const Plan& plan, const void* in, void* out, int replays,
                      const std::function<void()>& between = {});

/// Two plans on two streams at the same time.
void execute_concurrently(const Plan& first, const void* first_in, void* first_out, const Plan& second,
                          const void* second_in, void* second_out);

/// Executes the plan behind a kernel that writes its input late: it lets dependent launches begin at once,
/// waits for 50 microseconds, and only then copies `bytes` (a multiple of 4) from `source` to `in`. The
/// output is copied to `result` by a kernel that follows in the same manner. A plan that does not wait for
/// the kernel before it, or that lets the next one read too early, gives wrong results.
void execute_between_eager_neighbours(const Plan& plan, const void* source, void* in, void* out, void* result,
                                      std::int64_t bytes);

/// Number of 16-bit words i >= period with data[i] != data[i mod period]. `data` is device memory.
std::int64_t count_departures_from_period(const void* data, std::int64_t words, std::int64_t period);

}  // namespace fwht::conformance
