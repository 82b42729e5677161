// Device memory that a plan owns. Included by CUDA sources only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

#include "common/device/cuda_objects.hpp"

namespace fwht {

class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::size_t bytes) {
    if (bytes > 0) FWHT_CUDA(cudaMalloc(&memory_, bytes));
  }
  /// With this content when it returns.
  DeviceArray(const void* content, std::size_t bytes) : DeviceArray(bytes) {
    if (bytes == 0) return;
    const OwnedStream stream;
    FWHT_CUDA(cudaMemcpyAsync(memory_, content, bytes, cudaMemcpyHostToDevice, stream));
    stream.wait();
  }
  ~DeviceArray() { cudaFree(memory_); }
  DeviceArray(DeviceArray&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }

  /// Null where there are no bytes.
  template <class T>
  T* as() const {
    return static_cast<T*>(memory_);
  }

 private:
  void* memory_ = nullptr;
};

}  // namespace fwht
