// The CUDA back end of memory and device queries.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "common/device/cuda_check.hpp"
#include "common/device/cuda_objects.hpp"
#include "common/device/host_memory.hpp"
#include "common/device/memory.hpp"
#include "common/device/memory_backend.hpp"
#include "common/device/stream_query.hpp"
#include "common/host/error.hpp"

namespace fwht {
namespace backend {

std::byte* allocate(Memory memory, std::size_t bytes) {
  if (memory == Memory::host) return host_allocate(bytes);
  void* data = nullptr;
  check_cuda(cudaMalloc(&data, bytes), "cudaMalloc(&data, bytes)", std::to_string(bytes) + " bytes");
  return static_cast<std::byte*>(data);
}

void release(Memory memory, std::byte* data) noexcept {
  if (memory == Memory::host) {
    host_release(data);
  } else {
    cudaFree(data);
  }
}

void fill(Memory memory, std::byte* data, unsigned char byte, std::size_t bytes) {
  if (memory == Memory::host) {
    std::memset(data, byte, bytes);
  } else {
    // cudaMemset does not wait for the device, nor do non-blocking streams for it.
    const OwnedStream stream;
    FWHT_CUDA(cudaMemsetAsync(data, byte, bytes, stream));
    stream.wait();
  }
}

void copy(Memory to_memory, std::byte* to, Memory from_memory, const std::byte* from, std::size_t bytes) {
  if (to_memory == Memory::host && from_memory == Memory::host) {
    std::memcpy(to, from, bytes);
  } else {
    // From pageable memory it may return before all of it has arrived, within a device at once.
    FWHT_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
    FWHT_CUDA(cudaStreamSynchronize(nullptr));
  }
}

void describe_cuda(DeviceInfo& info, int ordinal) {
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess || count == 0) {
    cudaGetLastError();
    info.why_no_cuda = std::string("no CUDA device") +
                       (status == cudaSuccess ? "" : std::string(": ") + cudaGetErrorString(status));
    return;
  }
  if (ordinal < 0 || ordinal >= count) {
    info.why_no_cuda =
        "no CUDA device " + std::to_string(ordinal) + ": this machine has " + std::to_string(count);
    return;
  }
  cudaDeviceProp properties{};
  if (const cudaError_t status = cudaGetDeviceProperties(&properties, ordinal); status != cudaSuccess) {
    cudaGetLastError();
    info.why_no_cuda = std::string("no usable CUDA device: ") + cudaGetErrorString(status);
    return;
  }
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    cudaDeviceGetAttribute(&value, which, ordinal);
    return value;
  };
  info.why_no_cuda.clear();
  info.name = properties.name;
  info.ordinal = ordinal;
  info.compute_major = properties.major;
  info.compute_minor = properties.minor;
  info.sm_count = properties.multiProcessorCount;
  info.clock_khz = attribute(cudaDevAttrClockRate);
  info.max_threads_per_sm = properties.maxThreadsPerMultiProcessor;
  info.max_blocks_per_sm = properties.maxBlocksPerMultiProcessor;
  info.registers_per_sm = properties.regsPerMultiprocessor;
  info.shared_bytes_per_block = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin);
  info.shared_bytes_per_sm = static_cast<std::int64_t>(properties.sharedMemPerMultiprocessor);
  info.l2_bytes = properties.l2CacheSize;
  info.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  cudaDriverGetVersion(&info.driver_version);
  cudaRuntimeGetVersion(&info.runtime_version);
}

}  // namespace backend

void synchronize(Memory memory) {
  if (memory == Memory::device) FWHT_CUDA(cudaDeviceSynchronize());
}

std::int64_t free_bytes(Memory memory) {
  if (memory == Memory::host) return backend::host_free_bytes();
  std::size_t free = 0, total = 0;
  FWHT_CUDA(cudaMemGetInfo(&free, &total));
  return static_cast<std::int64_t>(free);
}

int current_device() {
  int ordinal = 0;
  if (const cudaError_t status = cudaGetDevice(&ordinal); status != cudaSuccess) {
    cudaGetLastError();
    throw NoCuda(std::string("no CUDA device: ") + cudaGetErrorString(status));
  }
  return ordinal;
}

DeviceScope::DeviceScope(int device) : device_(device), previous_(current_device()) {
  if (device_ == previous_) return;
  int count = 0;
  FWHT_CUDA(cudaGetDeviceCount(&count));
  if (device_ < 0 || device_ >= count) {
    throw NoCuda("no CUDA device " + std::to_string(device_) + ": this machine has " + std::to_string(count));
  }
  FWHT_CUDA(cudaSetDevice(device_));
}

DeviceScope::~DeviceScope() {
  if (device_ != previous_) cudaSetDevice(previous_);
}

void require_reachable(std::string_view name, const void* pointer, int device) {
  cudaPointerAttributes attributes{};
  FWHT_CUDA(cudaPointerGetAttributes(&attributes, pointer));
  const auto refuse = [&](const std::string& what) {
    char address[2 + 2 * sizeof pointer + 1];
    std::snprintf(address, sizeof address, "%#llx",
                  static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(pointer)));
    throw BadRequest(std::string(name) + "=" + address + " is " + what + std::to_string(device));
  };
  if (attributes.type == cudaMemoryTypeDevice && attributes.device != device) {
    refuse("memory of CUDA device " + std::to_string(attributes.device) + ", the call is for device ");
  }
  if (attributes.type == cudaMemoryTypeUnregistered) {
    int reaches_all_memory = 0;
    FWHT_CUDA(cudaDeviceGetAttribute(&reaches_all_memory, cudaDevAttrPageableMemoryAccess, device));
    if (reaches_all_memory == 0) refuse("host memory, which is out of reach for CUDA device ");
  }
}

StreamState state_of(Stream stream) {
  StreamState state{0, 0, stream == cudaStreamPerThread};
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long capture = 0, id = 0;
  FWHT_CUDA(cudaStreamGetCaptureInfo(stream, &status, &capture));
  if (status == cudaStreamCaptureStatusNone) {
    FWHT_CUDA(cudaStreamGetId(stream, &id));
    state.id = id;
  } else {  // CUDA does not tell the number of a stream that is being captured
    state.capture_id = capture;
    state.id = reinterpret_cast<std::uintptr_t>(stream);
  }
  return state;
}

bool is_done(Stream stream) {
  const cudaError_t status = cudaStreamQuery(stream);
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check_cuda(status, "cudaStreamQuery(stream)");
  return true;
}

CaptureAllowed::CaptureAllowed() {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  FWHT_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  previous_mode_ = static_cast<int>(mode);
}

CaptureAllowed::~CaptureAllowed() {
  auto mode = static_cast<cudaStreamCaptureMode>(previous_mode_);
  cudaThreadExchangeStreamCaptureMode(&mode);
}

}  // namespace fwht
