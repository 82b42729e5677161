#include "experiments/harness/device_work.hpp"

#include <algorithm>

#include "common/device/cuda_check.hpp"
#include "common/host/bits.hpp"

namespace fwht::harness::device {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 4096;
using Offset = unsigned long long;  // what atomicMin takes

__device__ bool equal(uint4 a, uint4 b) {
  return a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w;
}
__device__ bool equal(unsigned short a, unsigned short b) {
  return a == b;
}

// Each place against the one a period before: when all agree, all agree with the first period.
template <class Word>
__global__ void find_break(const Word* data, std::int64_t period, std::int64_t words, Offset* first) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = period + std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < words; i += step) {
    if (!equal(data[i], data[i - period])) atomicMin(first, static_cast<Offset>(i));
  }
}

template <class Word>
std::int64_t launch(const void* data, std::int64_t period, std::int64_t bytes) {
  constexpr std::int64_t kBytes = sizeof(Word);
  constexpr Offset kNone = ~Offset{0};
  Offset first = kNone;
  Offset* result = nullptr;
  FWHT_CUDA(cudaMalloc(&result, sizeof first));
  FWHT_CUDA(cudaMemcpy(result, &first, sizeof first, cudaMemcpyHostToDevice));
  const std::int64_t blocks = std::min(ceil_div((bytes - period) / kBytes, kThreads), kMostBlocks);
  find_break<<<static_cast<unsigned>(blocks), kThreads>>>(static_cast<const Word*>(data), period / kBytes,
                                                          bytes / kBytes, result);
  const cudaError_t launched = cudaGetLastError();
  const cudaError_t copied = cudaMemcpy(&first, result, sizeof first, cudaMemcpyDeviceToHost);
  cudaFree(result);
  FWHT_CUDA(launched);
  FWHT_CUDA(copied);
  return first == kNone ? -1 : static_cast<std::int64_t>(first) * kBytes;
}

}  // namespace

std::int64_t period_break(const void* data, std::int64_t period, std::int64_t bytes) {
  const bool vectors =
      period % 16 == 0 && bytes % 16 == 0 && reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
  return vectors ? launch<uint4>(data, period, bytes) : launch<unsigned short>(data, period, bytes);
}

void enqueue_copy(void* to, const void* from, std::int64_t bytes, Stream stream) {
  FWHT_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream));
}

void make_current(int ordinal) {
  FWHT_CUDA(cudaSetDevice(ordinal));
}

std::string pci_bus_id(int ordinal) {
  char id[32] = "";
  FWHT_CUDA(cudaDeviceGetPCIBusId(id, sizeof(id), ordinal));
  return id;
}

}  // namespace fwht::harness::device
