// The device halves in a build without CUDA: no peaks, and no profiled region.
#include <stdexcept>

#include "experiments/profile/peaks.hpp"
#include "experiments/profile/region.hpp"

namespace fwht::profile {

std::vector<Peak> peaks(const DeviceInfo&) {
  return {};
}

std::int64_t count_kernels(const Enqueue&) {
  throw std::runtime_error("kernels counted in a build without CUDA");
}

void run_profiled(const Enqueue&) {
  throw std::runtime_error("kernels profiled in a build without CUDA");
}

}  // namespace fwht::profile
