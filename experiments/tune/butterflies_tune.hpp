// The launch configurations that butterflies_tune measures.
#pragma once

#include <string>

#include "experiments/tune/launch_tune.hpp"

namespace fwht::butterflies {

/// The columns of a candidate's values.
std::string candidate_columns();

/// Every candidate for this n; none where the variant does not serve it.
std::vector<LaunchCandidate> candidates(Dtype dtype, int log_n);

}  // namespace fwht::butterflies
