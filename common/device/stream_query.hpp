// What a library call has to know of the caller's CUDA state, and what it must leave as it was. Implemented
// by backend_cuda.cu, or by without_cuda.cpp in a build without CUDA.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/contract/variant.hpp"
#include "common/host/error.hpp"

namespace fwht {

/// The device asked for does not exist, or none does; the C interface tells it from values that break a rule.
class NoCuda : public BadRequest {
 public:
  using BadRequest::BadRequest;
};

/// The calling thread's CUDA device. Throws NoCuda when there is none, or in a build without CUDA.
int current_device();

/// While it lives, `device` is the calling thread's CUDA device; afterwards the previous one is again. Throws
/// NoCuda for a device that this machine does not have.
class DeviceScope {
 public:
  explicit DeviceScope(int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

  int device() const { return device_; }

 private:
  int device_ = 0, previous_ = 0;
};

/// Throws BadRequest, naming pointer and devices, for memory of another device and for host memory that
/// kernels on `device` cannot reach. Managed and page-locked memory pass.
void require_reachable(std::string_view name, const void* pointer, int device);

struct StreamState {
  /// Of no other stream while the program runs, destroyed ones included; of no other stream of the same
  /// capture while the stream is captured.
  std::uint64_t id = 0;
  std::uint64_t capture_id = 0;  ///< of the graph that the stream is being captured into; 0: none
  bool is_per_thread = false;    ///< cudaStreamPerThread: another stream in every thread
};
StreamState state_of(Stream stream);

/// Whether all work of the stream is done; throws when any of it failed. Asked by who will not wait for ever.
bool is_done(Stream stream);

/// While it lives, the calling thread may allocate and free although a stream is being captured
/// (cudaStreamCaptureModeRelaxed).
class CaptureAllowed {
 public:
  CaptureAllowed();
  ~CaptureAllowed();
  CaptureAllowed(const CaptureAllowed&) = delete;
  CaptureAllowed& operator=(const CaptureAllowed&) = delete;

 private:
  int previous_mode_ = 0;
};

}  // namespace fwht
