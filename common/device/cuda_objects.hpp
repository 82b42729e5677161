// Owners of CUDA's objects, so that what throws leaks none. Included by CUDA sources only.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <utility>

#include "common/device/cuda_check.hpp"

namespace fwht {

/// Does not wait for the default stream: uploads there are not ordered before it, and it may be used while
/// another stream is captured.
class OwnedStream {
 public:
  OwnedStream() { FWHT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~OwnedStream() { cudaStreamDestroy(stream_); }
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;

  operator cudaStream_t() const { return stream_; }
  void wait() const { FWHT_CUDA(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// With a time stamp.
class OwnedEvent {
 public:
  OwnedEvent() { FWHT_CUDA(cudaEventCreate(&event_)); }
  ~OwnedEvent() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  OwnedEvent(OwnedEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  OwnedEvent& operator=(OwnedEvent&&) = delete;

  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Microseconds between two recorded events.
inline double elapsed_us(const OwnedEvent& start, const OwnedEvent& stop) {
  float milliseconds = 0.0F;
  FWHT_CUDA(cudaEventElapsedTime(&milliseconds, start, stop));
  return 1e3 * static_cast<double>(milliseconds);
}

/// What `enqueue` puts on the stream. A launch that throws leaves the stream out of the capture mode.
class CapturedGraph {
 public:
  /// By default of this thread alone: others may allocate and capture meanwhile.
  CapturedGraph(cudaStream_t stream, const std::function<void(cudaStream_t)>& enqueue,
                cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    FWHT_CUDA(cudaStreamBeginCapture(stream, mode));
    try {
      enqueue(stream);
    } catch (...) {
      cudaStreamEndCapture(stream, &graph_);
      if (graph_ != nullptr) cudaGraphDestroy(graph_);
      cudaGetLastError();  // the error that counts is the one under way
      throw;
    }
    FWHT_CUDA(cudaStreamEndCapture(stream, &graph_));
  }
  ~CapturedGraph() {
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  operator cudaGraph_t() const { return graph_; }

 private:
  cudaGraph_t graph_ = nullptr;
};

/// Ready to be launched any number of times.
class ExecutableGraph {
 public:
  ExecutableGraph(cudaStream_t stream, const CapturedGraph& graph) : ExecutableGraph(graph) {
    FWHT_CUDA(cudaGraphUpload(executable_, stream));
  }
  ~ExecutableGraph() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
  }
  ExecutableGraph(const ExecutableGraph&) = delete;
  ExecutableGraph& operator=(const ExecutableGraph&) = delete;

  void launch(cudaStream_t stream) const { FWHT_CUDA(cudaGraphLaunch(executable_, stream)); }

 private:
  explicit ExecutableGraph(const CapturedGraph& graph) {
    FWHT_CUDA(cudaGraphInstantiate(&executable_, graph, 0));
  }

  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace fwht
