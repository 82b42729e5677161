// The launches that wgmma_tune measures.
#pragma once

#include "experiments/tune/launch_tune.hpp"
#include "variants/wgmma/wgmma.hpp"

namespace fwht::wgmma {

/// None for bf16: the same instructions at the same rates as fp16.
std::vector<LaunchCandidate> candidates(Dtype dtype, int log_n);

}  // namespace fwht::wgmma
