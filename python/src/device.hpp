// What the C ABI asks of the CUDA runtime. Implemented by device_cuda.cpp, or by device_host.cpp in a build
// without CUDA.
#pragma once

#include <cstdint>

namespace fwht::c_abi {

/// CUDA devices of this machine; 0 where CUDA cannot be used.
std::int32_t device_count();

/// Ordinal of the CUDA device whose memory `pointer` is, or FWHT_HOST.
std::int32_t device_of(const void* pointer);

/// Makes `ordinal` the calling thread's CUDA device while it lives. Touches nothing where it is so already.
class DeviceGuard {
 public:
  explicit DeviceGuard(std::int32_t ordinal);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  std::int32_t previous_;
  bool changed_ = false;
};

}  // namespace fwht::c_abi
