// The peak kernels: as many resident warps as the loop needs, no memory traffic beside the one that is
// driven.
#include "common/device/cuda_check.hpp"
#include "common/device/ptx/mma.cuh"
#include "common/device/ptx/wgmma.cuh"
#include "common/device/sm90a.hpp"
#include "experiments/harness/copy_kernels.hpp"
#include "experiments/profile/peaks.hpp"

namespace fwht::profile {
namespace {

constexpr int kThreads = 256, kBlocksPerSm = 4;
constexpr int kRounds = 2048;  // hundreds of microseconds: start and end of the grid weigh about a percent
constexpr int kSumsPerProduct = 4;  // together shorter than the product
constexpr int kPasses = 16;         // over the data in the L2
constexpr int kBlocks = 1 << 16;    // of nothing: how fast blocks start

// A store that never happens, which the compiler cannot know: results count as used.
__device__ void use(float value, void* sink) {
  if (value == 1.2345e30F) *static_cast<float*>(sink) = value;
}

// 16 independent chains a thread: FADD has a latency of 4 cycles.
__global__ void __launch_bounds__(kThreads) fp32_kernel(float step, void* sink) {
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i)
    x[i] = static_cast<float>(threadIdx.x + i);
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int i = 0; i < 16; ++i)
      x[i] += step;
  }
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < 16; ++i)
    sum += x[i];
  use(sum, sink);
}

__global__ void __launch_bounds__(kThreads) shuffle_kernel(int lane_mask, void* sink) {
  std::uint32_t x[8];
#pragma unroll
  for (int i = 0; i < 8; ++i)
    x[i] = threadIdx.x * 8 + i;
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      x[i] = ptx::shfl_sync_bfly(x[i], lane_mask);
  }
  std::uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    sum ^= x[i];
  use(__uint_as_float(sum), sink);
}

// Every load takes its address from the data (zeros) of an earlier one, so that none can be hoisted.
__global__ void __launch_bounds__(kThreads) shared_kernel(void* sink) {
  __shared__ uint4 data[4 * kThreads];
  for (int i = threadIdx.x; i < 4 * kThreads; i += kThreads)
    data[i] = {0, 0, 0, 0};
  __syncthreads();
  uint4 x[4] = {};
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      x[i] = data[i * kThreads + threadIdx.x + x[i].x];
  }
  use(__uint_as_float(x[0].y + x[1].z + x[2].w + x[3].x), sink);
}

__global__ void __launch_bounds__(kThreads) mma_sync_kernel(void* sink) {
  const std::uint32_t a[4] = {threadIdx.x, threadIdx.x + 1, threadIdx.x + 2, threadIdx.x + 3};
  const std::uint32_t b[2] = {threadIdx.x ^ 5, threadIdx.x ^ 9};
  float d[8][4] = {};
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      ptx::mma_sync_m16n8k16_f32_bf16_accumulate(d[i], a, b);
  }
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    sum += d[i][0] + d[i][3];
  use(sum, sink);
}

// Not a peak: additions behind each product of mma_sync_kernel, which would hide under it if the two had
// nothing in common.
__global__ void __launch_bounds__(kThreads) mma_sync_fp32_kernel(float step, void* sink) {
  const std::uint32_t a[4] = {threadIdx.x, threadIdx.x + 1, threadIdx.x + 2, threadIdx.x + 3};
  const std::uint32_t b[2] = {threadIdx.x ^ 5, threadIdx.x ^ 9};
  float d[8][4] = {}, x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i)
    x[i] = static_cast<float>(threadIdx.x + i);
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      ptx::mma_sync_m16n8k16_f32_bf16_accumulate(d[i], a, b);
#pragma unroll
      for (int j = 0; j < kSumsPerProduct; ++j)
        x[(kSumsPerProduct * i + j) % 16] += step;
    }
  }
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    sum += d[i][0] + d[i][3];
#pragma unroll
  for (int i = 0; i < 16; ++i)
    sum += x[i];
  use(sum, sink);
}

// m64n256k16: the largest tile, so that the operand in registers costs least. Two warpgroups an SM.
__global__ void __launch_bounds__(kThreads) wgmma_kernel([[maybe_unused]] void* sink) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ __align__(128) std::uint32_t operand[16 * 256 / 2];
  for (int i = threadIdx.x; i < 16 * 256 / 2; i += kThreads)
    operand[i] = 0x3C003C00U + static_cast<std::uint32_t>(i);
  __syncthreads();
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(operand));
  // Start, leading and stride offset in units of 16 bytes, no swizzle (PTX ISA, "Matrix Descriptor Format").
  const std::uint64_t descriptor =
      ((address & 0x3FFFFU) >> 4) | (std::uint64_t{4096 >> 4} << 16) | (std::uint64_t{128 >> 4} << 32);
  const std::uint32_t a[4] = {threadIdx.x, threadIdx.x + 1, threadIdx.x + 2, threadIdx.x + 3};
  float d[128] = {};
  for (int round = 0; round < kRounds / 4; ++round) {
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      ptx::wgmma_m64k16<Dtype::f16, 256>(d, a, descriptor, true);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
  }
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < 128; ++i)
    sum += d[i];
  use(sum, sink);
#endif
}

// Reads and writes all data again and again, past the L1, every pass with another block at every place. An SM
// that met its own addresses again would see more than the L2 gives to a kernel that follows another one.
__global__ void __launch_bounds__(kThreads) l2_kernel(std::int64_t vectors, void* buffer) {
  auto* data = static_cast<uint4*>(buffer);
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (int pass = 0; pass < kPasses; ++pass) {
    const unsigned place = (blockIdx.x + 37 * pass) % gridDim.x;
    for (std::int64_t i = std::int64_t{place} * kThreads + threadIdx.x; i < vectors; i += 2 * step) {
      uint4 a = __ldcg(data + i), b = {};
      if (i + step < vectors) b = __ldcg(data + i + step);
      a.x ^= 1;
      b.x ^= 1;
      __stcg(data + i, a);
      if (i + step < vectors) __stcg(data + i + step, b);
    }
  }
}

__global__ void blocks_kernel(void* /*sink*/) {}

template <class... Parameters, class... Arguments>
Peak arithmetic(std::string name, void (*kernel)(Parameters...), int blocks, Arguments... arguments) {
  return {std::move(name), "", 256, [=](void* buffer, Stream stream) {
            kernel<<<blocks, kThreads, 0, stream>>>(arguments..., buffer);
            FWHT_CUDA(cudaGetLastError());
          }};
}

std::string wgmma_refusal(const DeviceInfo& device) {
  if (device.compute_capability() != 90) return "wgmma exists in compute capability 9.0 (Hopper) only";
  return kBuiltForHopper ? "" : "built without sm_90a code, which wgmma needs";
}

Peak dram_copy(const harness::CopyKernel& copy) {
  const std::int64_t bytes = std::int64_t{512} << 20;
  return {"dram_" + copy.name, copy.why_not, bytes, [copy, bytes](void* buffer, Stream stream) {
            copy.enqueue(buffer, buffer, {bytes, bytes}, harness::sign_mask(Dtype::f16), stream);
          }};
}

}  // namespace

std::vector<Peak> peaks(const DeviceInfo& device) {
  const int blocks = device.sm_count * kBlocksPerSm;
  std::vector<Peak> list = {arithmetic("fp32", fp32_kernel, blocks, 1.0F),
                            arithmetic("shuffle", shuffle_kernel, blocks, 1),
                            arithmetic("shared", shared_kernel, blocks),
                            arithmetic("mma_sync", mma_sync_kernel, blocks),
                            arithmetic("mma_sync_fp32", mma_sync_fp32_kernel, blocks, 1.0F),
                            arithmetic("blocks", blocks_kernel, kBlocks),
                            arithmetic("wgmma", wgmma_kernel, device.sm_count)};
  list.back().why_not = wgmma_refusal(device);
  const std::int64_t in_l2 = device.l2_bytes / 4 / 4096 * 4096;
  list.push_back(arithmetic("l2", l2_kernel, 2 * blocks, in_l2 / 16));
  list.back().bytes = in_l2;
  const std::vector<harness::CopyKernel> copies = harness::copy_kernels(Memory::device, device);
  for (const char* name : {"one_shot_v1_t256", "one_shot_v2_t256"})
    list.push_back(dram_copy(harness::find_copy(copies, name)));
  return list;
}

}  // namespace fwht::profile
