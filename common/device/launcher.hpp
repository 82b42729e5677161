// The only place that fills cudaLaunchConfig, and what a plan asks about its kernel before it launches it.
// Included by CUDA sources only.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <type_traits>

#include "common/device/cuda_check.hpp"
#include "common/host/error.hpp"
#include "common/host/text.hpp"

namespace fwht {

inline constexpr std::int64_t kMostGridLayers = 65535;  // blocks in the y or z dimension

struct LaunchGrid {
  std::int64_t blocks = 1;
  int threads = 0;            // of a block
  int shared = 0;             // dynamic shared memory of a block in bytes
  int cluster = 1;            // blocks
  bool programmatic = false;  // the launch may begin before the one in front of it has ended
  std::int64_t layers = 1;    // blocks in the y dimension
  std::int64_t depth = 1;     // blocks in the z dimension
  bool cooperative = false;   // all blocks run at once, so that they may wait for each other
};

/// What the runtime takes for a grid.
class LaunchConfig {
 public:
  /// Throws BadRequest for more blocks than a grid may have.
  LaunchConfig(const LaunchGrid& grid, cudaStream_t stream) {
    constexpr std::int64_t kMostBlocks = std::numeric_limits<int>::max();
    if (grid.blocks > kMostBlocks || grid.layers > kMostGridLayers || grid.depth > kMostGridLayers) {
      throw BadRequest(concat("a grid of ", grid.blocks, " x ", grid.layers, " x ", grid.depth,
                              " blocks exceeds the limit of ", kMostBlocks, " x ", kMostGridLayers, " x ",
                              kMostGridLayers));
    }
    if (grid.programmatic) {
      attributes_[config_.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes_[config_.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (grid.cluster > 1) {
      attributes_[config_.numAttrs].id = cudaLaunchAttributeClusterDimension;
      attributes_[config_.numAttrs++].val.clusterDim = {static_cast<unsigned>(grid.cluster), 1, 1};
    }
    if (grid.cooperative) {
      attributes_[config_.numAttrs].id = cudaLaunchAttributeCooperative;
      attributes_[config_.numAttrs++].val.cooperative = 1;
    }
    config_.gridDim = dim3(static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.layers),
                           static_cast<unsigned>(grid.depth));
    config_.blockDim = dim3(static_cast<unsigned>(grid.threads));
    config_.dynamicSmemBytes = static_cast<std::size_t>(grid.shared);
    config_.stream = stream;
    config_.attrs = attributes_;
  }
  LaunchConfig(const LaunchConfig&) = delete;
  LaunchConfig& operator=(const LaunchConfig&) = delete;

  const cudaLaunchConfig_t* get() const { return &config_; }

 private:
  cudaLaunchAttribute attributes_[3]{};
  cudaLaunchConfig_t config_{};
};

/// `arguments`: the address of each.
inline void launch_at(const void* kernel, const LaunchGrid& grid, cudaStream_t stream, void** arguments) {
  const LaunchConfig config(grid, stream);
  FWHT_CUDA(cudaLaunchKernelExC(config.get(), kernel, arguments));
}

template <class... Parameters>
void launch(void (*kernel)(Parameters...), const LaunchGrid& grid, cudaStream_t stream,
            std::type_identity_t<Parameters>... arguments) {
  void* addresses[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  launch_at(reinterpret_cast<const void*>(kernel), grid, stream, addresses);
}

/// A kernel as it is asked about: by its address, whatever it takes.
class KernelAddress {
 public:
  KernelAddress(const void* address) : address_(address) {}
  template <class... Parameters>
  KernelAddress(void (*kernel)(Parameters...)) : address_(reinterpret_cast<const void*>(kernel)) {}

  operator const void*() const { return address_; }

 private:
  const void* address_;
};

/// Dynamic shared memory that every kernel may have without asking.
inline constexpr int kSharedWithoutAsking = 48 * 1024;

/// How many blocks a multiprocessor holds at once; allow_shared comes first.
inline int resident_blocks(KernelAddress kernel, int threads, int shared) {
  int blocks = 0;
  FWHT_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads,
                                                          static_cast<std::size_t>(shared)));
  return blocks;
}

inline cudaFuncAttributes attributes_of(KernelAddress kernel) {
  cudaFuncAttributes attributes{};
  FWHT_CUDA(cudaFuncGetAttributes(&attributes, kernel));
  return attributes;
}

/// Plans of several sizes share a kernel, so its limit only grows.
inline void allow_shared(KernelAddress kernel, int bytes) {
  if (bytes <= kSharedWithoutAsking) return;
  static std::mutex growing;
  const std::lock_guard lock(growing);
  if (attributes_of(kernel).maxDynamicSharedSizeBytes >= bytes) return;
  FWHT_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

inline int registers_of(KernelAddress kernel) {
  return attributes_of(kernel).numRegs;
}

}  // namespace fwht
