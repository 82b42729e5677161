// A build without CUDA: engine.cpp refuses device memory before a guard is asked for.
#include "fwht.h"
#include "python/src/device.hpp"

namespace fwht::c_abi {

std::int32_t device_count() {
  return 0;
}
std::int32_t device_of(const void*) {
  return FWHT_HOST;
}
DeviceGuard::DeviceGuard(std::int32_t ordinal) : previous_(ordinal) {}
DeviceGuard::~DeviceGuard() = default;

}  // namespace fwht::c_abi
