// auto: the dispatcher as an ordinary variant. It transforms nothing itself; a plan is the plan of the
// variant that was fastest for such a problem, by the tuning table of the device.
#pragma once

#include <memory>

#include "common/variant.hpp"

namespace fwht::automatic {  // "auto" is a keyword

extern const Variant variant;

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device);

/// One rounding, the scale exact to fp32, rows to themselves: what `auto` asks of every variant that it
/// picks.
bool is_as_exact_as_can_be(const Numerics& numerics, double scale);

}  // namespace fwht::automatic
