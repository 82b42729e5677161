// w4a16_prefill: what supports() decides and how a layer is cut; no CUDA in here.
#pragma once

#include <array>
#include <memory>

#include "common/contract/linear/variant.hpp"
#include "variants/linear/w4a16_prefill/layout.hpp"

namespace fwht::linear::prefill {

extern const LinearVariant variant;

std::unique_ptr<LinearPlan> make_plan(const LinearProblem& problem, const DeviceInfo& device);

/// [n]: clusters of n blocks that a device runs at once, a block on a multiprocessor; [1]: multiprocessors.
/// They lie in groups of 16 or 18, where a cluster must find room: larger ones leave some without work.
using Residents = std::array<int, kMostSharers + 1>;

/// The form and the division that take the fewest clocks by a model of measured times.
struct Chosen {
  int form = 0;  ///< index in kForms
  Division division;
};
Chosen choose(const LinearProblem& problem, const Residents& residents);

}  // namespace fwht::linear::prefill
