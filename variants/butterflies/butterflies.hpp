// butterflies: the variant and its numerics. launches.hpp has the launch table, passes_program.hpp what a
// warp computes in a pass, rows_in_registers.cuh and smem_passes.cuh the kernels.
#pragma once

#include <memory>

#include "common/contract/variant.hpp"
#include "variants/kit/batch.hpp"

namespace fwht::butterflies {

extern const Variant variant;

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device);

/// k: sums are formed of data times 2^-k, and the final multiplier is scale 2^k. For bf16, whose numbers
/// reach as far as fp32, k = log2 n, so that no partial sum exceeds max|x|, unless scale 2^k would overflow;
/// 0 for f16, whose sums cannot leave fp32, and for f32, where 2^-k would round subnormals.
int shrink_exponent(const Problem& problem);
rows::Factors factors(const Problem& problem);

Numerics numerics_of(const Problem& problem);

}  // namespace fwht::butterflies
