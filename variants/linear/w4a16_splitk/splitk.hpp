// w4a16_splitk and w4a16_data_parallel: the kernels of arXiv 2402.00025, with its decomposition and its
// arithmetic.
#pragma once

#include <memory>

#include "common/contract/linear/variant.hpp"

namespace fwht::linear::splitk {

/// data_parallel: one block a tile of 16 tokens x 32 outputs. split_4, _8, _16: k blocks dealt in turn to so
/// many blocks a tile, whose results fp16 atomics add. f32: split 4, partial sums in fp32, added in order by
/// the last block.
extern const LinearVariant data_parallel, split_4, split_8, split_16, f32;

std::unique_ptr<LinearPlan> make_data_parallel(const LinearProblem& problem, const DeviceInfo& device);
std::unique_ptr<LinearPlan> make_split_4(const LinearProblem& problem, const DeviceInfo& device);
std::unique_ptr<LinearPlan> make_split_8(const LinearProblem& problem, const DeviceInfo& device);
std::unique_ptr<LinearPlan> make_split_16(const LinearProblem& problem, const DeviceInfo& device);
std::unique_ptr<LinearPlan> make_f32(const LinearProblem& problem, const DeviceInfo& device);

/// Tokens, outputs and rows of a block's tile.
inline constexpr int kTokens = 16, kOutputs = 32, kRows = 128;

}  // namespace fwht::linear::splitk
