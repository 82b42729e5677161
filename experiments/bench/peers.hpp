// Kernels of others as contestants of the sweep, and linear layers of others as variants: checked against
// FP64, timed by the same protocol, beside the same limit.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "common/contract/linear/variant.hpp"
#include "common/device/device_info.hpp"
#include "experiments/bench/linear_peers.h"
#include "experiments/bench/peers.h"
#include "experiments/sweep/jobs.hpp"

namespace fwht::bench {

/// Takes contiguous rows in device memory and operators without signs and dense factors, what `peer` supports
/// of them. Nothing is known of its arithmetic: it is judged by harness::kPeerErrors. What its functions
/// report becomes a reason or std::runtime_error. `peer` and `device` must outlive it. Throws BadRequest for
/// a peer without name, settings or functions.
sweep::Contestant contestant_of(const fwht_bench_peer& peer, const DeviceInfo& device);

inline constexpr std::size_t kMostLinearPeers = 4;

/// One variant for each, in device memory, without rotation. They serve until this is called again; `peers`
/// must live as long. Throws BadRequest for more than kMostLinearPeers, and for a peer without name, settings
/// or functions.
std::vector<const LinearVariant*> linear_variants_of(std::span<const fwht_bench_linear_peer> peers);

// What the C functions of a peer answer: 0, or something else and one sentence.
using Sentence = std::array<char, 1024>;

inline Support support_of(std::int32_t answer, const Sentence& why) {
  if (answer == 0) return {};
  return {why[0] == '\0' ? "it gives no reason" : why.data()};
}

inline void require_done(const char* peer, std::int32_t answer, const Sentence& why) {
  if (answer != 0) throw std::runtime_error(fmt::format("{}: {}", peer, why.data()));
}

}  // namespace fwht::bench
