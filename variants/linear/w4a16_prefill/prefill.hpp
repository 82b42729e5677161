// w4a16_prefill: what supports() decides and how a layer is cut; no CUDA in here.
#pragma once

#include <memory>

#include "common/contract/linear/variant.hpp"
#include "variants/linear/w4a16_prefill/layout.hpp"

namespace fwht::linear::prefill {

extern const LinearVariant variant;

std::unique_ptr<LinearPlan> make_plan(const LinearProblem& problem, const DeviceInfo& device);

/// The form and the division that take the fewest clocks by a model of measured times.
struct Chosen {
  int form = 0;  ///< index in kForms
  Division division;
};
Chosen choose(const LinearProblem& problem, int multiprocessors);

}  // namespace fwht::linear::prefill
