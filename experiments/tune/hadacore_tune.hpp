// The launch configurations that hadacore_tune measures.
#pragma once

#include "experiments/tune/launch_tune.hpp"
#include "variants/hadacore/hadacore.hpp"

namespace fwht::hadacore {

/// Every candidate for this n: fp16 sums for f16, fp32 sums for bf16; none for f32.
std::vector<LaunchCandidate> candidates(Dtype dtype, int log_n);

}  // namespace fwht::hadacore
