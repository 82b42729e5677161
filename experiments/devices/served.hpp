// Who serves what on which device: what `auto` chooses for every problem that is timed anywhere, on every
// device that is described. All of it is worked out on the host.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/contract/linear/problem.hpp"
#include "common/contract/problem.hpp"
#include "common/device/device_info.hpp"

namespace fwht::devices {

/// The device problems of every built-in grid, each once.
std::vector<Problem> timed_problems();
/// The layers of every list of fwht_linear.
std::vector<LinearProblem> timed_layers();

/// The variant that `auto` plans with, "rotate_then_quantize:factors" where that plans with another; "-"
/// where none supports the problem.
std::string server_of(const Problem& problem, const DeviceInfo& device);
std::string server_of(const LinearProblem& problem, const DeviceInfo& device);

/// Dynamic shared memory and threads of a block that the variant's host side chooses for the problem; zeros
/// where only make_plan knows, which needs a device.
struct BlockNeeds {
  std::int64_t shared_bytes = 0;
  int threads = 0;
};
BlockNeeds block_needs(std::string_view variant, const Problem& problem, const DeviceInfo& device);

/// As experiments/devices/served.csv: a line for row lengths that are served alike, a column for each device.
/// Ordinary launches only: programmatic ones depend on the architectures of the build.
std::string served_csv();

}  // namespace fwht::devices
