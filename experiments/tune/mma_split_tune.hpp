// The launch configurations that mma_split_tune measures.
#pragma once

#include <string>

#include "experiments/tune/launch_tune.hpp"

namespace fwht::mma_split {

/// The columns of a candidate's values.
std::string candidate_columns();

/// Every candidate for this n, and the first of them once more without the look for infinities and NaN, and
/// with a last multiplication where it needs none. None where the variant does not serve it.
std::vector<LaunchCandidate> candidates(Dtype dtype, int log_n);

}  // namespace fwht::mma_split
