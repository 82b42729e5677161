// One warp (mma) or warpgroup (wgmma) a dot: its operands in row 0 of A and all columns of B, its addend in
// element (0, 0) of D, from where the result is read.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <vector>

#include "common/device/cuda_check.hpp"
#include "common/device/memory.hpp"
#include "common/device/ptx/bulk_copy.cuh"
#include "common/device/ptx/mbarrier.cuh"
#include "common/device/ptx/mma.cuh"
#include "common/device/ptx/mma_accumulate.cuh"
#include "common/device/ptx/wgmma.cuh"
#include "common/device/ptx/wgmma_descriptor.hpp"
#include "experiments/studies/probes/probes.hpp"

namespace fwht::probes {
namespace {

struct DotBatch {
  const std::uint16_t *a, *b;  // dot after dot, `steps` times kStep bit patterns
  const float* c;
  float* d;
  int steps;
};

__device__ std::uint32_t pair_at(const std::uint16_t* values, int i) {
  return values[i] | (std::uint32_t{values[i + 1]} << 16);
}

/// Fragment of A with the step's values in row 0: lane t < 4 holds columns 2t, 2t+1 and 8 + 2t, 9 + 2t of row
/// 0.
__device__ void load_a(std::uint32_t (&fragment)[4], const std::uint16_t* values, int lane, bool owns_row_0) {
  const bool mine = owns_row_0 && lane < 4;
  fragment[0] = mine ? pair_at(values, 2 * lane) : 0;
  fragment[1] = 0;
  fragment[2] = mine ? pair_at(values, 8 + 2 * lane) : 0;
  fragment[3] = 0;
}

/// Fragment of B with the values in every column.
__device__ void load_b(std::uint32_t (&fragment)[2], const std::uint16_t* values, int lane) {
  fragment[0] = pair_at(values, 2 * (lane % 4));
  fragment[1] = pair_at(values, 8 + 2 * (lane % 4));
}

template <Instruction instruction>
__global__ void mma_dots(DotBatch batch) {
  const int lane = threadIdx.x;
  const std::int64_t first = std::int64_t{blockIdx.x} * batch.steps * kStep;
  std::uint32_t half[2] = {};
  float full[4] = {};
  if (lane == 0) {
    half[0] = __half_as_ushort(__float2half_rn(batch.c[blockIdx.x]));
    full[0] = batch.c[blockIdx.x];
  }
  for (int s = 0; s < batch.steps; ++s) {
    std::uint32_t a[4], b[2];
    load_a(a, batch.a + first + s * kStep, lane, true);
    load_b(b, batch.b + first + s * kStep, lane);
    if constexpr (instruction == Instruction::mma_f16_f16) {
      ptx::mma_sync_m16n8k16_f16_f16_accumulate(half, a, b);
    } else if constexpr (instruction == Instruction::mma_f32_f16) {
      ptx::mma_sync_m16n8k16_f32_f16_accumulate(full, a, b);
    } else {
      ptx::mma_sync_m16n8k16_f32_bf16_accumulate(full, a, b);
    }
  }
  if (lane != 0) return;
  batch.d[blockIdx.x] = instruction == Instruction::mma_f16_f16
                            ? __half2float(__ushort_as_half(static_cast<unsigned short>(half[0] & 0xFFFFU)))
                            : full[0];
}

constexpr int kColumns = 64;
constexpr int kLeadingBytes = 8 * kColumns * 2;  // eight rows of B

/// Eight columns are 16 bytes, eight rows of them 128 bytes, the next columns follow.
[[maybe_unused]] __device__ std::uint64_t descriptor(const void* shared) {
  return ptx::matrix_descriptor(ptx::shared_address(shared), kLeadingBytes, 128);
}

template <Dtype dtype>
__global__ void __launch_bounds__(128) wgmma_dots([[maybe_unused]] DotBatch batch) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ alignas(1024) std::uint16_t operand[kStep * kColumns];
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t first = std::int64_t{blockIdx.x} * batch.steps * kStep;
  float d[32] = {};
  if (thread == 0) d[0] = batch.c[blockIdx.x];
  for (int s = 0; s < batch.steps; ++s) {
    __syncthreads();
    for (int i = thread; i < kStep * kColumns; i += 128) {
      const int k = ((i >> 3) & 7) | ((i >> 9) << 3);  // every column has the same values
      operand[i] = batch.b[first + s * kStep + k];
    }
    ptx::fence_proxy_async_shared();
    __syncthreads();
    std::uint32_t a[4];
    load_a(a, batch.a + first + s * kStep, thread % 32, thread < 32);
    ptx::pin_accumulators(d);
    ptx::wgmma_fence();
    ptx::wgmma_m64k16<dtype, 64>(d, a, descriptor(operand), true);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    ptx::pin_accumulators(d);
  }
  if (thread == 0) batch.d[blockIdx.x] = d[0];
#endif
}

void launch(Instruction instruction, const DotBatch& batch, unsigned dots) {
  switch (instruction) {
    case Instruction::mma_f16_f16:
      return mma_dots<Instruction::mma_f16_f16><<<dots, 32>>>(batch);
    case Instruction::mma_f32_f16:
      return mma_dots<Instruction::mma_f32_f16><<<dots, 32>>>(batch);
    case Instruction::mma_f32_bf16:
      return mma_dots<Instruction::mma_f32_bf16><<<dots, 32>>>(batch);
    case Instruction::wgmma_f32_f16:
      return wgmma_dots<Dtype::f16><<<dots, 128>>>(batch);
    case Instruction::wgmma_f32_bf16:
      return wgmma_dots<Dtype::bf16><<<dots, 128>>>(batch);
  }
}

template <class T>
Buffer uploaded(const std::vector<T>& values) {
  Buffer buffer(Memory::device, values.size() * sizeof(T));
  buffer.upload(values.data(), values.size() * sizeof(T));
  return buffer;
}

std::vector<double> evaluate(Instruction instruction, const std::vector<Dot>& dots) {
  const Dtype operand = operand_of(instruction);
  std::vector<std::uint16_t> a, b;
  std::vector<float> c, d(dots.size());
  for (const Dot& dot : dots) {
    for (const double x : dot.a)
      a.push_back(static_cast<std::uint16_t>(encode(operand, x)));
    for (const double x : dot.b)
      b.push_back(static_cast<std::uint16_t>(encode(operand, x)));
    c.push_back(static_cast<float>(dot.c));
  }
  const Buffer device_a = uploaded(a), device_b = uploaded(b), device_c = uploaded(c);
  Buffer device_d(Memory::device, d.size() * sizeof(float));
  launch(instruction,
         {static_cast<const std::uint16_t*>(device_a.data()),
          static_cast<const std::uint16_t*>(device_b.data()), static_cast<const float*>(device_c.data()),
          static_cast<float*>(device_d.data()), static_cast<int>(dots.front().a.size()) / kStep},
         static_cast<unsigned>(dots.size()));
  FWHT_CUDA(cudaGetLastError());
  device_d.download(d.data(), d.size() * sizeof(float));
  return {d.begin(), d.end()};
}

}  // namespace

Evaluate by_device() {
  return evaluate;
}

}  // namespace fwht::probes
