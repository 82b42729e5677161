// The one call that most users need: the fastest transform that rounds once.
#pragma once

#include <cstddef>
#include <memory>

#include "common/contract/problem.hpp"
#include "common/contract/variant.hpp"

namespace fwht {

/// The calling thread's CUDA device, whichever that is.
inline constexpr int kCurrentDevice = -1;

/// y[r,:] = problem.scale * Op x[r,:] for rows in memory of CUDA device `device`, by the variant `auto`.
/// Enqueues on `stream` of that device (nullptr: its default stream) and returns; the caller's current device
/// stays. The first call for a problem makes its plan (up to a millisecond: attribute queries, for some plans
/// an allocation) and asks CUDA where the operands lie. Thread-safe. May be called while the stream is
/// captured, the first call for a problem included; a captured graph may run beside anything.
///
/// A plan is for one problem, its number of rows included. transform_plan_limit() plans are kept for later
/// calls, the least recently used one is destroyed first. A plan that was captured is kept for its graph
/// until clear_transform_plans() and does not count.
///
/// Throws BadRequest, before anything is launched, for an invalid problem, one that no variant supports,
/// operands that Plan::execute refuses. Also for an unknown device, no CUDA device at all (the message then
/// names the host variant to use), and, when the plan is made, an operand in memory of another device.
void transform(const void* in, void* out, const Problem& problem, Stream stream = nullptr,
               int device = kCurrentDevice);
/// The same for problems with scales, signs or dense factors.
void transform(const Operands& operands, const Problem& problem, Stream stream = nullptr,
               int device = kCurrentDevice);

/// The same by a variant of device memory other than `auto`. Throws BadRequest for one of host memory.
void transform(const Variant& variant, const Operands& operands, const Problem& problem,
               Stream stream = nullptr, int device = kCurrentDevice);

/// The plan that transform keeps for the problem, for callers that ask once and execute it often, on any
/// stream. It is kept as a captured one is. nullptr where there is none yet, where each stream has its own,
/// and once transform_plan_limit() plans have been given away. Throws BadRequest for an invalid problem and
/// no CUDA device at all.
std::shared_ptr<const Plan> kept_plan(const Variant& variant, const Problem& problem,
                                      int device = kCurrentDevice);

inline constexpr int kMostKnownDevices = 64;
/// this_device(ordinal), asked once for a device of a smaller number than kMostKnownDevices. A missing one is
/// asked for again, and its description lives until this thread asks for another.
const DeviceInfo& known_device(int ordinal);

/// How many plans transform keeps, on all devices together: 1024 unless set.
std::size_t transform_plan_limit();
/// Destroys what is beyond the new limit. Throws BadRequest for 0.
void set_transform_plan_limit(std::size_t plans);

/// Destroys every plan that transform keeps, on all devices, and says how many. Only when no launch of them
/// is pending and no graph that was captured through transform will be launched again.
std::size_t clear_transform_plans();

}  // namespace fwht
