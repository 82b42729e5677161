// auto: which linear layer is meant where none is named.
#pragma once

#include "variants/linear/registry.hpp"

namespace fwht::linear::automatic {

/// The variant whose plan is made; nullptr where none supports the problem.
const LinearVariant* choice_for(const LinearProblem& problem, const DeviceInfo& device);

}  // namespace fwht::linear::automatic
