// auto: the dispatcher as an ordinary variant. It transforms nothing itself; a plan is the plan of the
// variant that was fastest for such a problem, by the tuning table of the device.
#pragma once

#include <memory>
#include <vector>

#include "common/contract/variant.hpp"

namespace fwht::automatic {  // "auto" is a keyword

extern const Variant variant;

/// The variants that support the problem, in the order in which a plan tries them: the choice of the device's
/// tuning table, then the rule's. Throws BadRequest for a table in FWHT_TUNING that cannot be used.
std::vector<const Variant*> candidates(const Problem& problem, const DeviceInfo& device);

/// The plan of the first candidate that is as exact as can be; where that one needs aligned pointers, the
/// plan of another one for all others.
std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device);

/// One rounding, the scale exact to fp32, rows to themselves: what `auto` asks of every variant that it
/// picks.
bool is_as_exact_as_can_be(const Numerics& numerics, double scale);

}  // namespace fwht::automatic
