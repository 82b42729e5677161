// w4a16: which variant serves how many tokens, all of one packing.
#pragma once

#include "variants/linear/registry.hpp"

namespace fwht::linear::by_tokens {

/// The variant whose plan is made, where it supports the problem.
const LinearVariant& choice_for(const LinearProblem& problem, const DeviceInfo& device);

}  // namespace fwht::linear::by_tokens
