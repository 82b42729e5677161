#include "variants/kit/dense_fragments.hpp"

#include "common/device/cuda_check.hpp"
#include "common/device/launcher.hpp"

namespace fwht::rows {
namespace {

__global__ void expand(DenseFactor factor, int k_steps, int words, std::uint32_t* fragments) {
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (index < words) fragments[index] = fragment_word(factor, k_steps, index);
}

}  // namespace

void expand_dense(const DenseFactor& factor, int k_steps, int words, std::uint32_t* fragments,
                  Stream stream) {
  constexpr int kThreads = 256;
  expand<<<static_cast<unsigned>((words + kThreads - 1) / kThreads), kThreads, 0, stream>>>(factor, k_steps,
                                                                                            words, fragments);
  FWHT_CUDA(cudaGetLastError());
}

}  // namespace fwht::rows
