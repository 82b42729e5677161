// What needs CUDA, in a build without it: host memory only, and no device work to time.
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "common/device/gpu_timer.hpp"
#include "common/device/host_memory.hpp"
#include "common/device/memory.hpp"
#include "common/device/memory_backend.hpp"
#include "common/device/stream_query.hpp"

namespace fwht {
namespace {

[[noreturn]] void no_cuda() {
  throw std::runtime_error("device memory or device work asked for in a build without CUDA");
}

}  // namespace

namespace backend {

std::byte* allocate(Memory memory, std::size_t bytes) {
  if (memory == Memory::device) no_cuda();
  return host_allocate(bytes);
}

void release(Memory, std::byte* data) noexcept {
  host_release(data);
}

void fill(Memory memory, std::byte* data, unsigned char byte, std::size_t bytes) {
  if (memory == Memory::device) no_cuda();
  std::memset(data, byte, bytes);
}

void copy(Memory to_memory, std::byte* to, Memory from_memory, const std::byte* from, std::size_t bytes) {
  if (to_memory == Memory::device || from_memory == Memory::device) no_cuda();
  std::memcpy(to, from, bytes);
}

void describe_cuda(DeviceInfo& info, int) {
  info.why_no_cuda = "built without CUDA (" FWHT_WHY_NO_CUDA ")";  // the cause, from cmake/cuda.cmake
}

}  // namespace backend

void synchronize(Memory memory) {
  if (memory == Memory::device) no_cuda();
}

int current_device() {
  throw NoCuda("built without CUDA (" FWHT_WHY_NO_CUDA ")");
}
DeviceScope::DeviceScope(int) {
  current_device();
}
DeviceScope::~DeviceScope() = default;
void require_reachable(std::string_view, const void*, int) {
  no_cuda();
}
StreamState state_of(Stream) {
  no_cuda();
}
bool is_done(Stream) {
  no_cuda();
}
CaptureAllowed::CaptureAllowed() = default;  // nothing is captured
CaptureAllowed::~CaptureAllowed() = default;

std::int64_t free_bytes(Memory memory) {
  if (memory == Memory::device) no_cuda();
  return backend::host_free_bytes();
}

Timing time_on_device(std::span<const Enqueue>, const TimerOptions&) {
  no_cuda();
}
Timing time_empty_kernel() {
  no_cuda();
}

}  // namespace fwht
