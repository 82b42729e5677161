// The limit of a problem: the best copy kernel over the same bytes, measured in the same run and mode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "common/device_info.hpp"
#include "common/gpu_timer.hpp"
#include "experiments/harness/copy_kernels.hpp"
#include "experiments/harness/mode.hpp"
#include "experiments/harness/procedure.hpp"
#include "experiments/harness/slices.hpp"

namespace fwht::harness {

struct Limit {
  std::string kernel;  ///< the fastest
  Timing timing;
};

class Limits {
 public:
  /// Called once for every copy kernel and key, in the order of measuring.
  using Record = std::function<void(Memory, std::int64_t useful_bytes, Placement, Mode,
                                    const std::string& kernel, const Timing&)>;

  /// `cold_bytes`: how much memory a rotation may take, see cold_count.
  Limits(const DeviceInfo& device, Workspace& workspace, std::int64_t cold_bytes, Record record);

  /// The limit for a problem that reads useful_bytes / 2 and writes as many. Measured when first asked for.
  /// Throws OutOfMemory when the buffers do not fit, BadRequest without a device.
  const Limit& best(std::int64_t useful_bytes, Placement placement, Mode mode);

  /// What alternating mode needs for a problem of that size; the reference flips the signs of `dtype`.
  Alternation alternation(std::int64_t useful_bytes, Placement placement, Dtype dtype);

 private:
  const std::vector<CopyKernel>& kernels(Memory memory);
  Slices& slices(std::int64_t useful_bytes, Placement placement, Mode mode);
  Limit measure(std::int64_t useful_bytes, Placement placement, Mode mode);

  const DeviceInfo& device_;
  Workspace& workspace_;
  std::int64_t cold_bytes_;
  Record record_;
  std::vector<std::byte> random_;  // f16 normal numbers
  std::map<Memory, std::vector<CopyKernel>> kernels_;
  std::map<std::tuple<std::int64_t, Placement, Mode>, Limit> known_;
  std::map<std::pair<std::int64_t, Placement>, double> shares_us_;
};

}  // namespace fwht::harness
