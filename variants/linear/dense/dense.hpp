// dense_fp16 and dequantize_then_dense: what 4 bits must beat, and the line that fusing removes.
#pragma once

#include <memory>

#include "common/contract/linear/variant.hpp"

namespace fwht::linear::dense {

/// fp16: the weights dequantized once, when they are packed; cuBLASLt. dequantize_first: dequantized in every
/// launch by a kernel of its own, then cuBLASLt.
extern const LinearVariant fp16, dequantize_first;

std::unique_ptr<LinearPlan> make_fp16(const LinearProblem& problem, const DeviceInfo& device);
std::unique_ptr<LinearPlan> make_dequantize_first(const LinearProblem& problem, const DeviceInfo& device);

}  // namespace fwht::linear::dense
