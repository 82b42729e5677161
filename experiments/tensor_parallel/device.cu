// The CUDA half of the study: the activation, graphs and events of one rank.
#include <cuda_fp16.h>

#include <cstdint>
#include <vector>

#include "common/device/cuda_objects.hpp"
#include "common/device/memory.hpp"
#include "experiments/tensor_parallel/layer.hpp"

namespace fwht::tensor_parallel {
namespace {

// A pair of columns a thread.
template <bool silu>
__global__ void activate_kernel(const __half2* in, __half2* out, int pairs) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), row = static_cast<int>(blockIdx.y);
  if (i >= pairs) return;
  const float2 gate = __half22float2(in[std::int64_t{row} * 2 * pairs + i]);
  const float2 up = __half22float2(in[std::int64_t{row} * 2 * pairs + pairs + i]);
  const auto act = [](float x) { return silu ? x / (1.0F + __expf(-x)) : x; };
  out[std::int64_t{row} * pairs + i] = __floats2half2_rn(act(gate.x) * up.x, act(gate.y) * up.y);
}

}  // namespace

void activate_on_device(Activation activation, const void* in, void* out, std::int64_t rows,
                        std::int64_t width, Stream stream) {
  const int pairs = static_cast<int>(width / 2);
  constexpr int kThreads = 128;
  const dim3 grid(static_cast<unsigned>((pairs + kThreads - 1) / kThreads), static_cast<unsigned>(rows));
  const auto kernel = activation == Activation::silu ? activate_kernel<true> : activate_kernel<false>;
  kernel<<<grid, kThreads, 0, stream>>>(static_cast<const __half2*>(in), static_cast<__half2*>(out), pairs);
  FWHT_CUDA(cudaGetLastError());
}

void run_once(Communicator& communicator, const std::function<void(Stream)>& enqueue, TimeLimit limit) {
  const OwnedStream stream;
  FWHT_CUDA(cudaDeviceSynchronize());  // uploads on the default stream are not ordered before this one
  enqueue(stream);
  communicator.finish(stream, limit);
}

std::vector<double> time_together(Communicator& communicator, const std::function<void(Stream)>& enqueue,
                                  int replays, TimeLimit limit) {
  const OwnedStream stream;
  Buffer start(Memory::device, 64);
  const float zero[16] = {};
  start.upload(zero, sizeof zero);
  FWHT_CUDA(cudaDeviceSynchronize());
  enqueue(stream);  // loads modules and connects ranks outside any graph
  communicator.all_reduce(start.data(), 1, Dtype::f32, stream);
  communicator.finish(stream, limit);

  const ExecutableGraph graph(stream, CapturedGraph(stream, enqueue));
  const std::vector<OwnedEvent> starts(static_cast<std::size_t>(replays)),
      stops(static_cast<std::size_t>(replays));
  graph.launch(stream);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    communicator.all_reduce(start.data(), 1, Dtype::f32, stream);
    FWHT_CUDA(cudaEventRecord(starts[i], stream));
    graph.launch(stream);
    FWHT_CUDA(cudaEventRecord(stops[i], stream));
  }
  communicator.finish(stream, limit);
  std::vector<double> times_us;
  for (std::size_t i = 0; i < starts.size(); ++i)
    times_us.push_back(elapsed_us(starts[i], stops[i]));
  return times_us;
}

}  // namespace fwht::tensor_parallel
