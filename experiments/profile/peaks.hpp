// Kernels that each drive one resource of the device as hard as it goes. The roofline divides by what the
// profiler counts for them, in the same run and with the same counters, instead of by numbers of a data
// sheet.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/contract/variant.hpp"
#include "common/device/device_info.hpp"

namespace fwht::profile {

struct Peak {
  /// "fp32", "shuffle", "shared", "mma_sync", "mma_sync_fp32" (both of its instructions, in one stream),
  /// "wgmma", "blocks" (the rate at which they start), "l2", "dram_..."
  std::string name;
  std::string why_not;  ///< empty, or one sentence why this device cannot run it
  std::int64_t bytes;   ///< of the buffer that it wants
  std::function<void(void* buffer, Stream)> enqueue;
};

/// All peaks; a build without CUDA has none. The device must be there.
std::vector<Peak> peaks(const DeviceInfo& device);

}  // namespace fwht::profile
