// Attention of all rows on the device, fp32 for the methods under test and FP64 for the reference, by one
// kernel.
//
// A block takes `tile_rows` queries of one head and walks over tiles of keys. Scores are made by register
// tiles (thread (tx, ty) of 16 x 16 has rows ty + 16 i and keys tx + 16 j). Weights go through shared memory,
// then its share of the output (rows ty + 16 i, columns tx + 16 c). Rows in shared memory are one element
// longer than d, so that the 16 keys of a half-warp lie in 16 banks. Simple rather than fast: tensor cores
// would bring roundings of their own.
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <vector>

#include "common/device/launcher.hpp"
#include "common/device/memory.hpp"
#include "experiments/studies/attention/attention.hpp"
#include "experiments/studies/quantization/formats.hpp"

namespace fwht::attention {
namespace {

using quantization::kE4m3;
using quantization::round_to;

constexpr int kSide = 16;
constexpr int kThreads = kSide * kSide;

__device__ float as_float(__half x) {
  return __half2float(x);
}
__device__ float as_float(float x) {
  return x;
}

/// max over a block of threads; the result in every thread.
__device__ float block_max(float x) {
  __shared__ float parts[kThreads / 32];
  for (int step = 16; step > 0; step /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, step));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  float largest = 0.0F;
  for (const float part : parts)
    largest = fmaxf(largest, part);
  __syncthreads();
  return largest;
}

/// Block (piece, head) casts `rows` rows of a head together; rows = 0: no cast.
template <class Raw>
__global__ void load_rows(const Raw* raw, float* to, std::int64_t head_elements, std::int64_t piece_elements,
                          bool cast) {
  const std::int64_t first = blockIdx.y * head_elements + blockIdx.x * piece_elements;
  float scale = 0.0F;
  if (cast) {
    float largest = 0.0F;
    for (std::int64_t i = threadIdx.x; i < piece_elements; i += kThreads)
      largest = fmaxf(largest, fabsf(as_float(raw[first + i])));
    scale = block_max(largest) / kE4m3.largest;
  }
  for (std::int64_t i = threadIdx.x; i < piece_elements; i += kThreads) {
    const float x = as_float(raw[first + i]);
    to[first + i] = scale > 0.0F ? round_to(kE4m3, x / scale) * scale : x;
  }
}

struct Inputs {
  const float *q, *k, *v;
  int n;
  std::int64_t head_elements;
};

__device__ float exponential(float x) {
  return expf(x);
}
__device__ double exponential(double x) {
  return exp(x);
}

/// Over the 16 threads that share rows.
template <class Real>
__device__ Real row_max(Real x) {
  for (int step = kSide / 2; step > 0; step /= 2) {
    const Real other = __shfl_xor_sync(0xFFFFFFFFU, x, step);
    x = x > other ? x : other;
  }
  return x;
}
template <class Real>
__device__ Real row_sum(Real x) {
  for (int step = kSide / 2; step > 0; step /= 2)
    x += __shfl_xor_sync(0xFFFFFFFFU, x, step);
  return x;
}

template <class Real, int d, int tile>
struct Shared {
  Real q[tile][d + 1], kv[tile][d + 1], weights[tile][tile + 1];
};

template <class Real, int d, int tile>
__device__ void load_tile(Real (&to)[tile][d + 1], const float* from) {
  for (int i = threadIdx.x; i < tile * d; i += kThreads)
    to[i / d][i % d] = from[i];
}

template <class Real, int d, int tile>
__global__ void __launch_bounds__(kThreads) attend(Inputs in, Arithmetic arithmetic, Real* out) {
  constexpr int kOwn = tile / kSide, kColumns = d / kSide;
  extern __shared__ unsigned char raw_shared[];
  auto& shared = *reinterpret_cast<Shared<Real, d, tile>*>(raw_shared);
  const int tx = threadIdx.x % kSide, ty = threadIdx.x / kSide;
  const std::int64_t head = blockIdx.y * in.head_elements, first_row = blockIdx.x * std::int64_t{tile} * d;
  const Real scale = Real(1) / sqrt(Real(d));

  load_tile<Real, d, tile>(shared.q, in.q + head + first_row);
  Real largest[kOwn], sum[kOwn], acc[kOwn][kColumns];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    largest[i] = -INFINITY;
    sum[i] = 0;
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      acc[i][c] = 0;
  }

  // Standard softmax needs maximum and sum of a row before the first weight: a pass of its own.
  for (int pass = arithmetic.flash ? 1 : 0; pass < 2; ++pass) {
    for (int key = 0; key < in.n; key += tile) {
      __syncthreads();
      load_tile<Real, d, tile>(shared.kv, in.k + head + std::int64_t{key} * d);
      __syncthreads();
      Real s[kOwn][kOwn] = {};
#pragma unroll 4
      for (int c = 0; c < d; ++c) {
        Real a[kOwn], b[kOwn];
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          a[i] = shared.q[ty + kSide * i][c];
          b[i] = shared.kv[tx + kSide * i][c];
        }
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
#pragma unroll
          for (int j = 0; j < kOwn; ++j)
            s[i][j] += a[i] * b[j];
        }
      }
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        Real now = -INFINITY;
#pragma unroll
        for (int j = 0; j < kOwn; ++j) {
          s[i][j] *= scale;
          if (arithmetic.half_softmax) s[i][j] = half_rounded(s[i][j]);
          now = now > s[i][j] ? now : s[i][j];
        }
        if (arithmetic.flash || pass == 0) {
          now = row_max(now);
          now = now > largest[i] ? now : largest[i];
          const Real shrink = exponential(largest[i] - now);
          largest[i] = now;
          Real part = 0;
#pragma unroll
          for (int j = 0; j < kOwn; ++j)
            part += exponential(s[i][j] - now);
          sum[i] = sum[i] * shrink + row_sum(part);
#pragma unroll
          for (int c = 0; c < kColumns; ++c)
            acc[i][c] *= shrink;
        }
#pragma unroll
        for (int j = 0; j < kOwn; ++j) {
          Real weight = exponential(s[i][j] - largest[i]);
          if (!arithmetic.flash) weight /= sum[i];
          if (arithmetic.half_softmax) weight = half_rounded(weight);
          shared.weights[ty + kSide * i][tx + kSide * j] =
              rounded(arithmetic.weights, arithmetic.weight_scale, weight);
        }
      }
      if (pass == 0) continue;
      __syncthreads();
      load_tile<Real, d, tile>(shared.kv, in.v + head + std::int64_t{key} * d);
      __syncthreads();
#pragma unroll 4
      for (int j = 0; j < tile; ++j) {
        Real w[kOwn];
#pragma unroll
        for (int i = 0; i < kOwn; ++i)
          w[i] = shared.weights[ty + kSide * i][j];
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const Real value = shared.kv[j][tx + kSide * c];
#pragma unroll
          for (int i = 0; i < kOwn; ++i)
            acc[i][c] += w[i] * value;
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const Real value = arithmetic.flash ? acc[i][c] / sum[i] : acc[i][c];
      out[head + first_row + (ty + kSide * i) * d + tx + kSide * c] = half_rounded(value);
    }
  }
}

/// One block a head: sums of (out - reference)^2 and reference^2 over its first `count` elements, always in
/// the same order.
__global__ void compare(const float* out, const double* reference, std::int64_t head_elements,
                        std::int64_t count, HeadError* errors) {
  const std::int64_t first = blockIdx.x * head_elements;
  __shared__ double errors2[kThreads], references2[kThreads];
  double error2 = 0.0, reference2 = 0.0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) {
    const double truth = reference[first + i], error = out[first + i] - truth;
    error2 += error * error;
    reference2 += truth * truth;
  }
  errors2[threadIdx.x] = error2;
  references2[threadIdx.x] = reference2;
  __syncthreads();
  if (threadIdx.x != 0) return;
  HeadError all;
  for (int i = 0; i < kThreads; ++i) {
    all.error2 += errors2[i] / static_cast<double>(count);
    all.reference2 += references2[i] / static_cast<double>(count);
  }
  errors[blockIdx.x] = all;
}

class DeviceEngine final : public Engine {
 public:
  explicit DeviceEngine(AttentionShape layout)
      : layout_(layout),
        raw_(Memory::device, bytes<float>()),
        out_(Memory::device, bytes<float>()),
        errors_(Memory::device, sizeof(HeadError) * static_cast<std::size_t>(layout.heads)) {
    for (Buffer& operand : operands_)
      operand = Buffer(Memory::device, bytes<float>());
  }

  void load(Slot slot, const std::vector<std::byte>& raw, Dtype dtype, Cast cast, int n) override {
    raw_.upload(raw.data(), raw.size());
    // Without a cast the pieces only share the work.
    const int rows = cast == Cast::per_tensor ? n : kBlockRows;
    const dim3 grid(static_cast<unsigned>(n / rows), static_cast<unsigned>(layout_.heads));
    auto* to = static_cast<float*>(operands_[static_cast<int>(slot)].data());
    const std::int64_t piece = std::int64_t{rows} * layout_.d;
    if (dtype == Dtype::f16) {
      load_rows<<<grid, kThreads>>>(static_cast<const __half*>(raw_.data()), to, head_elements(), piece,
                                    cast != Cast::none);
    } else {
      load_rows<<<grid, kThreads>>>(static_cast<const float*>(raw_.data()), to, head_elements(), piece,
                                    cast != Cast::none);
    }
    FWHT_CUDA(cudaGetLastError());
  }

  void make_reference(int n) override {
    Buffer& reference = references_[n];
    if (reference.bytes() == 0) reference = Buffer(Memory::device, bytes<double>());
    run<double>(Arithmetic{}, n, static_cast<double*>(reference.data()));
    synchronize(Memory::device);
  }

  std::vector<HeadError> errors(const Arithmetic& arithmetic, int n) override {
    auto* out = static_cast<float*>(out_.data());
    run<float>(arithmetic, n, out);
    compare<<<static_cast<unsigned>(layout_.heads), kThreads>>>(
        out, static_cast<const double*>(references_.at(n).data()), head_elements(),
        std::int64_t{n} * layout_.d, static_cast<HeadError*>(errors_.data()));
    FWHT_CUDA(cudaGetLastError());
    std::vector<HeadError> result(static_cast<std::size_t>(layout_.heads));
    errors_.download(result.data(), sizeof(HeadError) * result.size());
    return result;
  }

  int compared_rows(int n) const override { return n; }

 private:
  template <class T>
  std::size_t bytes() const {
    return sizeof(T) * static_cast<std::size_t>(layout_.elements());
  }
  std::int64_t head_elements() const { return std::int64_t{layout_.rows} * layout_.d; }

  template <class Real>
  void run(const Arithmetic& arithmetic, int n, Real* out) {
    switch (layout_.d) {
      case 64:
        return launch<Real, 64, 64>(arithmetic, n, out);
      case 128:
        return launch<Real, 128, 64>(arithmetic, n, out);
      case 256:  // shared memory holds 32 rows of 256 doubles, not 64
        return launch < Real, 256, sizeof(Real) == 8 ? 32 : 64 > (arithmetic, n, out);
      default:
        throw std::runtime_error("attention for d = 64, 128 and 256 only");
    }
  }

  template <class Real, int d, int tile>
  void launch(const Arithmetic& arithmetic, int n, Real* out) {
    static_assert(kBlockRows % tile == 0);
    constexpr int kBytes = sizeof(Shared<Real, d, tile>);
    allow_shared(attend<Real, d, tile>, kBytes);
    const auto pointer = [&](Slot slot) {
      return static_cast<const float*>(operands_[static_cast<int>(slot)].data());
    };
    const Inputs in{pointer(Slot::q), pointer(Slot::k), pointer(Slot::v), n, head_elements()};
    const dim3 grid(static_cast<unsigned>(n / tile), static_cast<unsigned>(layout_.heads));
    attend<Real, d, tile><<<grid, kThreads, kBytes>>>(in, arithmetic, out);
    FWHT_CUDA(cudaGetLastError());
  }

  AttentionShape layout_;
  Buffer raw_, out_, errors_, operands_[3];
  std::map<int, Buffer> references_;
};

}  // namespace

std::unique_ptr<Engine> make_device_engine(AttentionShape layout) {
  return std::make_unique<DeviceEngine>(layout);
}

}  // namespace fwht::attention
