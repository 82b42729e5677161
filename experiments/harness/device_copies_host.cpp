// A build without CUDA has no device copies.
#include "experiments/harness/copy_kernels.hpp"

namespace fwht::harness {

std::vector<CopyKernel> device_copies(const DeviceInfo&) {
  return {};
}

}  // namespace fwht::harness
