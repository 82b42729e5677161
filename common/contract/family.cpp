#include "common/contract/family.hpp"

#include "common/device/architectures.hpp"

namespace fwht {

Support require_cuda(const DeviceInfo& device, int compute_capability) {
  if (!device.has_cuda()) return {device.why_no_cuda};
  if (device.compute_capability() < compute_capability) {
    return {concat(device.name, " has compute capability ", device.compute_major, ".", device.compute_minor,
                   ", at least ", compute_capability / 10, ".", compute_capability % 10, " is needed")};
  }
  return {};
}

Support require_programmatic_launch(const DeviceInfo& device) {
  if (!device.has_cuda()) return {};
  constexpr int kNeeded = 90;
  if (device.compute_capability() < kNeeded) {
    return {concat(device.name, " has compute capability ", device.compute_major, ".", device.compute_minor,
                   "; programmatic dependent launch needs at least 9.0")};
  }
  const int code = code_on(FWHT_ARCHITECTURES, device);
  if (code >= kNeeded) return {};
  return {concat("built without code for sm_", device.compute_capability(), ", which programmatic dependent ",
                 "launch on ", device.name, " needs (CMAKE_CUDA_ARCHITECTURES)")};
}

}  // namespace fwht
