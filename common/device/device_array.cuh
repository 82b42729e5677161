// Device memory that a plan owns. Included by CUDA sources only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

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

/// A table that nothing changes, on the current device; null for an empty one. Equal ones are one, and none
/// is freed: a captured graph reads it after the plan has gone. Tables follow from operators and shapes of
/// kernels, so they stay few and small.
template <class Entry>
const Entry* kept_table(const std::vector<Entry>& table) {
  if (table.empty()) return nullptr;
  using Tables = std::map<std::pair<int, std::vector<Entry>>, DeviceArray>;
  static std::mutex making;
  static Tables& kept = *new Tables;  // not destroyed: the driver may end before
  int device = 0;
  FWHT_CUDA(cudaGetDevice(&device));
  const std::lock_guard lock(making);
  const std::pair key(device, table);
  auto found = kept.find(key);
  if (found == kept.end())
    found = kept.emplace(key, DeviceArray(table.data(), table.size() * sizeof(Entry))).first;
  return found->second.template as<Entry>();
}

}  // namespace fwht
