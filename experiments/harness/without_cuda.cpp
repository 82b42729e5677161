// The device half in a build without CUDA: no copies, and no work.
#include <stdexcept>

#include "experiments/harness/copy_kernels.hpp"
#include "experiments/harness/device_work.hpp"

namespace fwht::harness {

std::vector<CopyKernel> device_copies(const DeviceInfo&) {
  return {};
}

namespace device {

std::int64_t period_break(const void*, std::int64_t, std::int64_t) {
  throw std::runtime_error("device memory compared in a build without CUDA");
}

void enqueue_copy(void*, const void*, std::int64_t, Stream) {
  throw std::runtime_error("device memory copied in a build without CUDA");
}

void make_current(int) {
  throw std::runtime_error("a device chosen in a build without CUDA");
}

std::string pci_bus_id(int) {
  throw std::runtime_error("a device asked for in a build without CUDA");
}

}  // namespace device
}  // namespace fwht::harness
