// For tests: the kernels of mma_split on the host, by the maps and the program that they run on the device,
// with the tensor core's arithmetic emulated.
#pragma once

#include "reference/emulation.hpp"
#include "variants/kit/launch_regime.hpp"
#include "variants/kit/on_host/host_rows.hpp"

namespace fwht::mma_split {

/// What the kernel of the regime does with contiguous rows. `failures`: warps that took the exact path.
/// `signs`: bits, where the operator has signs.
rows::HostRun run_on_host(const Problem& problem, const rows::Bits& in,
                          const reference::TensorCore& core = reference::kHopperTensorCore,
                          Regime regime = Regime::dram, const void* signs = nullptr);

/// Rows of 32768 and 65536 (host_streamed.cpp), with the sums exchanged in so many rounds.
rows::HostRun run_streamed(const Problem& problem, const rows::Bits& in,
                           const reference::TensorCore& core = reference::kHopperTensorCore, int rounds = 2);

/// The two algorithms, each compiled by itself (host_in_warps.cpp, host_across_warps.cpp). False where the
/// kernel of `id` is of the other.
bool run_in_warps(const rows::KernelId& id, const Problem& problem, const rows::Bits& in,
                  const rows::RowSigns& signs, const reference::TensorCore& core, rows::HostRun& run);
bool run_across_warps(const rows::KernelId& id, const Problem& problem, const rows::Bits& in,
                      const rows::RowSigns& signs, const reference::TensorCore& core, rows::HostRun& run);

}  // namespace fwht::mma_split
