// Kernels of others as contestants of the sweep: checked against FP64, timed by the same protocol, beside the
// same limit.
#pragma once

#include "common/device/device_info.hpp"
#include "experiments/bench/peers.h"
#include "experiments/sweep/jobs.hpp"

namespace fwht::bench {

/// Takes contiguous rows in device memory and operators without signs and dense factors, what `peer` supports
/// of them. Nothing is known of its arithmetic: it is judged by harness::kPeerErrors. What its functions
/// report becomes a reason or std::runtime_error. `peer` and `device` must outlive it. Throws BadRequest for
/// a peer without name, settings or functions.
sweep::Contestant contestant_of(const fwht_bench_peer& peer, const DeviceInfo& device);

}  // namespace fwht::bench
