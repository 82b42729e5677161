// The one call that most users need: the fastest transform that rounds once.
#pragma once

#include "common/problem.hpp"
#include "common/variant.hpp"

namespace fwht {

/// y[r,:] = problem.scale * H_n x[r,:] for rows in device memory, by the variant `auto` on the current CUDA
/// device. Enqueues on `stream` (nullptr: the default stream) and returns. The first call for a problem makes
/// its plan (up to a millisecond: attribute queries, for some plans an allocation); plans are kept until
/// clear_transform_plans(). Thread-safe. May be called while the stream is captured, the first call for a
/// problem included; a captured graph may run beside anything.
///
/// Throws BadRequest, before anything is launched, for an invalid problem, one that no variant supports,
/// pointers that Plan::execute refuses, and without a CUDA device.
void transform(const void* in, void* out, const Problem& problem, Stream stream = nullptr);

/// Destroys every plan that transform keeps, on all devices, and says how many. Only when no launch of them
/// is pending and no graph that was captured through transform will be launched again.
std::size_t clear_transform_plans();

}  // namespace fwht
