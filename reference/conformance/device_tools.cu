#include "reference/conformance/device_tools.hpp"

#include "common/device/cuda_objects.hpp"
#include "common/device/device_array.cuh"
#include "common/device/launcher.hpp"
#include "common/device/ptx/griddepcontrol.cuh"

namespace fwht::conformance {
namespace {

__global__ void fill_shared(int words, int* sink) {
  extern __shared__ int shared[];
  for (int i = static_cast<int>(threadIdx.x); i < words; i += static_cast<int>(blockDim.x))
    shared[i] = -1;
  __syncthreads();
  if (sink != nullptr) *sink = shared[(threadIdx.x * 7) % words];  // never: keeps the stores alive
}

__global__ void count_departures(const unsigned short* data, std::int64_t words, std::int64_t period,
                                 unsigned long long* count) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  unsigned long long own = 0;
  for (std::int64_t i = period + std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) {
    own += data[i] != data[i % period];
  }
  if (own != 0) atomicAdd(count, own);
}

// Waits for the kernel before it, then `delay_ns`, then copies.
__global__ void copy_late(const std::uint32_t* from, std::uint32_t* to, std::int64_t words,
                          unsigned delay_ns) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  for (unsigned slept = 0; slept < delay_ns; slept += 1000)
    __nanosleep(1000);
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step)
    to[i] = from[i];
}

void launch_copy_late(const void* from, void* to, std::int64_t bytes, unsigned delay_ns,
                      cudaStream_t stream) {
  constexpr int kBlocks = 16;  // leaves room for the next kernel beside it
  launch(copy_late, {.blocks = kBlocks, .threads = 256, .programmatic = true}, stream,
         static_cast<const std::uint32_t*>(from), static_cast<std::uint32_t*>(to), bytes / 4, delay_ns);
}

}  // namespace

void execute_between_eager_neighbours(const Plan& plan, const void* source, void* in, void* out, void* result,
                                      std::int64_t bytes) {
  const OwnedStream stream;
  launch_copy_late(source, in, bytes, 50'000, stream);
  plan.execute(in, out, stream);
  launch_copy_late(out, result, bytes, 0, stream);
  stream.wait();
}

void fill_shared_memory_with_nan() {
  int device = 0, bytes = 0, sms = 0;
  FWHT_CUDA(cudaGetDevice(&device));
  FWHT_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  FWHT_CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
  allow_shared(fill_shared, bytes);
  fill_shared<<<2 * sms, 1024, static_cast<std::size_t>(bytes)>>>(bytes / 4, nullptr);
  FWHT_CUDA(cudaGetLastError());
}

void execute_on_new_stream(const Plan& plan, const void* in, void* out) {
  const OwnedStream stream;
  plan.execute(in, out, stream);
  stream.wait();
}

void execute_captured(const Plan& plan, const void* in, void* out, int replays,
                      const std::function<void()>& between) {
  const OwnedStream stream;
  const CapturedGraph graph(
      stream, [&](cudaStream_t captured) { plan.execute(in, out, captured); }, cudaStreamCaptureModeGlobal);
  const ExecutableGraph executable(stream, graph);
  if (between) between();
  for (int i = 0; i < replays; ++i)
    executable.launch(stream);
  stream.wait();
}

void execute_concurrently(const Plan& first, const void* first_in, void* first_out, const Plan& second,
                          const void* second_in, void* second_out) {
  const OwnedStream a, b;
  first.execute(first_in, first_out, a);
  second.execute(second_in, second_out, b);
  a.wait();
  b.wait();
}

std::int64_t count_departures_from_period(const void* data, std::int64_t words, std::int64_t period) {
  const DeviceArray memory(sizeof(unsigned long long));
  auto* const counter = memory.as<unsigned long long>();
  FWHT_CUDA(cudaMemset(counter, 0, sizeof *counter));
  count_departures<<<4096, 256>>>(static_cast<const unsigned short*>(data), words, period, counter);
  FWHT_CUDA(cudaGetLastError());
  unsigned long long count = 0;
  FWHT_CUDA(cudaMemcpy(&count, counter, sizeof count, cudaMemcpyDefault));
  return static_cast<std::int64_t>(count);
}

}  // namespace fwht::conformance
