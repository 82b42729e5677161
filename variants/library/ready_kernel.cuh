// What a kernel that no plan owns is asked once a device, so that a call asks for nothing and may be
// captured.
#pragma once

#include <map>
#include <mutex>
#include <utility>

#include "variants/passes/passes_plan.cuh"

namespace fwht::walsh {

/// Shared memory, and its share of the L1, of a kernel on the current device.
inline void make_ready(KernelAddress kernel, int threads, int shared, const DeviceInfo& device) {
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, int> known;  // the most shared memory so far, and 1
  int ordinal = 0;
  FWHT_CUDA(cudaGetDevice(&ordinal));
  const std::lock_guard lock(mutex);
  int& most = known[{kernel, ordinal}];
  if (most > shared) return;
  passes::ready(kernel, threads, shared, false, device);
  most = shared + 1;
}

}  // namespace fwht::walsh
