// cudaProfilerStart and cudaProfilerStop around what is profiled.
#include <cuda_profiler_api.h>

#include <vector>

#include "common/device/cuda_objects.hpp"
#include "experiments/profile/region.hpp"

namespace fwht::profile {
std::int64_t count_kernels(const Enqueue& enqueue) {
  const OwnedStream stream;
  const CapturedGraph graph(stream, enqueue);
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
