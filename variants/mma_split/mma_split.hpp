// mma_split: the variant and its numerics. launches.hpp has the launch table, split_program.hpp what a warp
// computes, rows_in_warps.cuh, rows_across_warps.cuh and streamed_rows.cuh the kernels.
#pragma once

#include <memory>

#include "common/contract/variant.hpp"
#include "variants/kit/batch.hpp"

namespace fwht::mma_split {

extern const Variant variant;

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device);
/// For problems whose output is encoded.
std::unique_ptr<Plan> make_encoded_plan(const Problem& problem, const DeviceInfo& device);

/// For rows of 32768 and 65536.
std::unique_ptr<Plan> make_streamed_plan(const Problem& problem, const DeviceInfo& device);

/// k: sums are formed of data times 2^-k, and the final multiplier is scale 2^k. Both factors are exact. For
/// f16, whose sums cannot leave fp32, 2^-k is the scale where that is a power of two, so that nothing is left
/// to multiply by. For other data k = log2 n, so that no partial sum exceeds max|x|; 0 where scale 2^k would
/// overflow.
int shrink_exponent(const Problem& problem);
rows::Factors factors(const Problem& problem);

/// What a plan promises on a device of this compute capability (90 for sm_90).
Numerics numerics_of(const Problem& problem, int compute_capability);

}  // namespace fwht::mma_split
