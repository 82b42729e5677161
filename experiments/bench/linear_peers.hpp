// Linear layers of others as variants: checked against FP64, timed by the same protocol, beside the same
// limit.
#pragma once

#include <span>
#include <vector>

#include "common/contract/linear/variant.hpp"
#include "experiments/bench/linear_peers.h"

namespace fwht::bench {

inline constexpr std::size_t kMostLinearPeers = 4;

/// One variant for each, in device memory, without rotation. They serve until this is called again; `peers`
/// must live as long. Throws BadRequest for more than kMostLinearPeers, and for a peer without name, settings
/// or functions.
std::vector<const LinearVariant*> linear_variants_of(std::span<const fwht_bench_linear_peer> peers);

}  // namespace fwht::bench
