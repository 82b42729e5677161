// w4a16_pipelined: what supports() decides, how weights are packed, which kernel runs; no CUDA in here.
#pragma once

#include <memory>

#include "common/linear/variant.hpp"
#include "variants/linear/w4a16_pipelined/layout.hpp"

namespace fwht::linear::pipelined {

extern const LinearVariant variant;

std::unique_ptr<LinearPlan> make_plan(const LinearProblem& problem, const DeviceInfo& device);

/// Groups inside a step of 128 k: 4, 2 or 1; larger groups are written out as several of 128.
int scales_of(const LinearProblem& problem);
Layout layout_of(const LinearProblem& problem);

/// Index in kForms: the first form that takes so many tokens in one block, else the last.
int form_for(std::int64_t m);

/// The weights as the kernel reads them; rows sorted by group. `packed` is zeroed.
void pack(const LinearProblem& problem, const GptqWeights& weights, std::byte* packed);

}  // namespace fwht::linear::pipelined
