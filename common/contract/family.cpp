#include "common/contract/family.hpp"

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
#ifdef FWHT_WITHOUT_SM90
  return {"built without sm_90 code, which programmatic dependent launch needs (CMAKE_CUDA_ARCHITECTURES)"};
#else
  if (device.has_cuda() && device.compute_capability() != 90) {
    return {concat(device.name, " has compute capability ", device.compute_major, ".", device.compute_minor,
                   "; programmatic dependent launch is offered on 9.0")};
  }
  return {};
#endif
}

}  // namespace fwht
