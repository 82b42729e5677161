// w4a16_pipelined: what supports() decides, how weights are packed, which kernel runs; no CUDA in here.
#pragma once

#include <memory>

#include "common/contract/linear/variant.hpp"
#include "variants/linear/w4a16_pipelined/layout.hpp"

namespace fwht::linear::pipelined {

extern const LinearVariant variant;
extern const LinearVariant
    rotating;  ///< the same, which rotates its tokens itself: rotated_w4a16's second rung

std::unique_ptr<LinearPlan> make_plan(const LinearProblem& problem, const DeviceInfo& device);

/// Groups inside a step of 128 k: 4, 2 or 1; larger groups are written out as several of 128.
int scales_of(const LinearProblem& problem);
Layout layout_of(const LinearProblem& problem);

/// Index in kForms of what runs the problem on the device.
int form_for(const LinearProblem& problem, const DeviceInfo& device);

/// Behind the layout's three parts: with act_order, which row of the layer each sorted row is (int32 [k]).
std::int64_t order_at(const LinearProblem& problem);
std::int64_t packed_bytes(const LinearProblem& problem);

/// Enqueues sorted[token][i] = x[token][order[i]], by the order that the packed weights have: a launch in
/// front of a layer that reads x as sorted rows meet it.
void gather(const LinearProblem& problem, const LinearOperands& operands, void* sorted, Stream stream);

/// The weights as the kernel reads them; rows sorted by group. `packed` is zeroed.
void pack(const LinearProblem& problem, const GptqWeights& weights, std::byte* packed);

}  // namespace fwht::linear::pipelined
