// A build without CUDA.
#include "fwht.h"
#include "python/src/device.hpp"

namespace fwht::c_abi {

std::int32_t device_count() {
  return 0;
}
std::int32_t device_of(const void*) {
  return FWHT_HOST;
}

}  // namespace fwht::c_abi
