#include <cuda_runtime_api.h>

#include "fwht.h"
#include "python/src/device.hpp"

namespace fwht::c_abi {

std::int32_t device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

std::int32_t device_of(const void* pointer) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, pointer) != cudaSuccess) {
    cudaGetLastError();  // no driver: all memory is the host's
    return FWHT_HOST;
  }
  const bool on_device = attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  return on_device ? attributes.device : FWHT_HOST;
}

}  // namespace fwht::c_abi
