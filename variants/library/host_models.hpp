// Plan::numerics without a plan: what a machine without the device needs to emulate a variant.
#pragma once

#include <optional>

#include "common/contract/variant.hpp"

namespace fwht {

/// What the plan of a supported problem with aligned, contiguous rows promises on `device`; pure. None where
/// only the plan knows. A variant with an emulation (reference/emulation) has a line in host_models.cpp.
std::optional<Numerics> numerics_without_plan(const Variant& variant, const Problem& problem,
                                              const DeviceInfo& device);

}  // namespace fwht
