// A build without CUDA has no device copies.
#include "experiments/limit/copy_kernels.hpp"

namespace fwht::limit {

std::vector<CopyKernel> device_copies(const DeviceInfo&) {
  return {};
}

}  // namespace fwht::limit
