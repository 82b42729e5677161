// cudaProfilerStart and cudaProfilerStop around what is profiled.
#include <cuda_profiler_api.h>

#include <vector>

#include "common/cuda_check.hpp"
#include "experiments/profile/region.hpp"

namespace fwht::profile {
namespace {

class CaptureStream {
 public:
  CaptureStream() { FWHT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~CaptureStream() {
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
    cudaStreamDestroy(stream_);
  }
  CaptureStream(const CaptureStream&) = delete;
  CaptureStream& operator=(const CaptureStream&) = delete;

  cudaGraph_t capture(const Enqueue& enqueue) {
    FWHT_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    try {
      enqueue(stream_);
    } catch (...) {
      cudaStreamEndCapture(stream_, &graph_);  // the error that counts is the one under way
      throw;
    }
    FWHT_CUDA(cudaStreamEndCapture(stream_, &graph_));
    return graph_;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaGraph_t graph_ = nullptr;
};

}  // namespace

std::int64_t count_kernels(const Enqueue& enqueue) {
  CaptureStream stream;
  cudaGraph_t graph = stream.capture(enqueue);
  std::size_t count = 0;
  FWHT_CUDA(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  if (count > 0) FWHT_CUDA(cudaGraphGetNodes(graph, nodes.data(), &count));
  std::int64_t kernels = 0;
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    FWHT_CUDA(cudaGraphNodeGetType(node, &type));
    if (type == cudaGraphNodeTypeKernel) ++kernels;
  }
  return kernels;
}

void run_profiled(const Enqueue& enqueue) {
  FWHT_CUDA(cudaDeviceSynchronize());
  FWHT_CUDA(cudaProfilerStart());
  enqueue(nullptr);
  FWHT_CUDA(cudaDeviceSynchronize());
  FWHT_CUDA(cudaProfilerStop());
}

}  // namespace fwht::profile
