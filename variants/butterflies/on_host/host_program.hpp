// For tests: the kernels of butterflies on the host, by the maps and the programs that they run on the
// device.
#pragma once

#include "variants/kit/launch_regime.hpp"
#include "variants/kit/on_host/host_rows.hpp"

namespace fwht::butterflies {

/// What the kernel of the regime does with contiguous rows.
rows::HostRun run_on_host(const Problem& problem, const rows::Bits& in, Regime regime = Regime::dram);

}  // namespace fwht::butterflies
