// What a library call has to know of the caller's CUDA state. Implemented by backend_cuda.cu, or by
// backend_host.cpp in a build without CUDA.
#pragma once

#include <cstdint>

#include "common/variant.hpp"

namespace fwht {

/// The calling thread's CUDA device. Throws BadRequest when there is none, or in a build without CUDA.
int current_device();

struct StreamState {
  std::uint64_t capture_id = 0;  ///< of the graph that the stream is being captured into; 0: none
  bool is_per_thread = false;    ///< cudaStreamPerThread: another stream in every thread
};
StreamState state_of(Stream stream);

/// While it lives, the calling thread may allocate although a stream is being captured
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
