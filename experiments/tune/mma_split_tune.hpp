// The launch configurations that mma_split_tune measures.
#pragma once

#include "experiments/tune/launch_tune.hpp"
#include "variants/mma_split/mma_split.hpp"

namespace fwht::mma_split {

/// Every candidate for this n, and the first of them once more without the look for infinities and NaN, and
/// with a last multiplication where it needs none.
std::vector<LaunchCandidate> candidates(Dtype dtype, int log_n);

}  // namespace fwht::mma_split
