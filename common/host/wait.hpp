// Waiting for work that other ranks take part in, with an end.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "common/host/communicator.hpp"

namespace fwht {

/// How long after an error of a collective the reason may come: the system closes what belongs to a killed
/// process one by one, NCCL's connections before others.
inline constexpr TimeLimit kGrace = std::chrono::seconds(2);

/// `limit` from now on. What lies beyond the clock's range, as that of TimeLimit::max(), never comes.
std::chrono::steady_clock::time_point deadline(TimeLimit limit);

/// Throws std::runtime_error with the reason, where there is one within `grace`.
void throw_reason(const Interruption& interrupted, TimeLimit grace = kGrace);

/// Calls ready() until it is true. Throws std::runtime_error with the reason of `interrupted`, or
/// "<what> within <limit> ms". What ready() throws often shows only that some rank is gone, so a reason that
/// comes within `grace` is thrown instead.
void wait_until(const std::function<bool()>& ready, TimeLimit limit, const Interruption& interrupted,
                const std::string& what, TimeLimit grace = kGrace);

}  // namespace fwht
