// warp_shuffle: the design of fast-hadamard-transform (Dao AI Lab), as section 2.4 of the HadaCore paper
// describes it.
//
// What this rung changes against `naive`: a row is read once and written once; in between it lives in the
// fp32 registers of one block, so there is one rounding instead of log2(n), and one pass over memory. What
// limits it: (a) n <= 256: blocks are so small that the rate at which blocks start (1.6 a ns on an H200)
// binds; (b) n >= 1024: the shuffle and shared-memory pipe. Every element is shuffled once a lane bit (5),
// goes through shared memory there and back (4 words), and is shuffled again for the warp bits (2-3). That is
// 12-13 words an element against the 8 that keep up with DRAM, hence about 0.6 of a copy. (c) One row a
// block: no overlap of load, exchange and store within a row, and few blocks fit at n = 32768.
//
// Bit card (16-bit data; n = 2^L; fp32 data has 2 element bits instead of 3 and one chunk bit more):
//   L <= 3         b0..b(L-1) register                                                          1 thread
//   L = 4..8       b0-b2 register | b3.. lane                                                   2..32 threads
//   L = 9          b0-b2 register | b3-b7 lane | b8 chunk (register)                            32 threads
//   L = 10         b0-b2 register | b3-b7 lane | b8-b9 warp                                     128 threads
//   L = 11..15     b0-b2 register | b3-b7 lane | b8-b10 warp | b11.. chunk (register)           256 threads
//   butterflies: register: FADD; lane: SHFL.BFLY + FFMA(+-1); warp: shared memory puts the warp bits into
//   lanes, SHFL.BFLY + FFMA, shared memory puts them back; chunk: FADD. Always in ascending order of the
//   index bits, so the result equals the plain host loop bit for bit.
#include <cstdint>

#include "common/device/cuda_check.hpp"
#include "common/device/launcher.hpp"
#include "common/device/storage.cuh"
#include "common/host/bits.hpp"
#include "common/host/static_dispatch.hpp"
#include "variants/kit/grid.hpp"
#include "variants/warp_shuffle/warp_shuffle.hpp"

namespace fwht::warp_shuffle {
namespace {

template <Dtype dtype, int log_n>
inline constexpr Geometry kGeometry{log_n, static_cast<int>(bytes_of(dtype))};

struct RowBatch {
  const void* in;
  void* out;
  std::int64_t rows, row_stride;
  float scale;
  bool vectors_fit;  // 16-byte accesses are allowed
};

/// Butterflies over one array dimension that lies in registers.
template <int log_count, int outer, class At>
__device__ void register_butterflies(At at) {
#pragma unroll
  for (int half = 1; half < (1 << log_count); half *= 2) {
#pragma unroll
    for (int i = 0; i < (1 << log_count); ++i) {
      if (i & half) continue;
#pragma unroll
      for (int o = 0; o < outer; ++o) {
        float &low = at(o, i), &high = at(o, i | half);
        const float a = low, b = high;
        low = a + b;
        high = a - b;
      }
    }
  }
}

/// Butterflies over the lowest `log_lanes` lane bits.
template <int log_lanes, int chunks, int elements>
__device__ void lane_butterflies(float (&x)[chunks][elements]) {
  constexpr unsigned kActive = log_lanes == 5 ? 0xFFFFFFFFU : (1U << (1 << log_lanes)) - 1U;
  const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
  for (int bit = 0; bit < log_lanes; ++bit) {
    const float sign = (lane >> bit) & 1 ? -1.0F : 1.0F;
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
#pragma unroll
      for (int e = 0; e < elements; ++e) {
        const float other = __shfl_xor_sync(kActive, x[c][e], 1 << bit);
        x[c][e] = fmaf(sign, x[c][e], other);  // exact product: one rounding, the same as a + b or a - b
      }
    }
  }
}

/// Full-warp shuffles are needed for the warp bits too, whatever the number of lane bits.
template <int log_bits, int chunks, int elements>
__device__ void warp_bit_butterflies(float (&x)[chunks][elements]) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
  for (int bit = 0; bit < log_bits; ++bit) {
    const float sign = (lane >> bit) & 1 ? -1.0F : 1.0F;
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
#pragma unroll
      for (int e = 0; e < elements; ++e) {
        x[c][e] = fmaf(sign, x[c][e], __shfl_xor_sync(0xFFFFFFFFU, x[c][e], 1 << bit));
      }
    }
  }
}

/// Swaps (warp, lane) with (thread / 32, thread mod 32) of the transposed numbering, through shared memory;
/// `back` undoes it. At most Geometry::chunks_per_exchange() chunks at a time.
template <Dtype dtype, int log_n, bool back, int chunks, int elements>
__device__ void exchange(float4* shared, float (&x)[chunks][elements]) {
  constexpr Geometry g = kGeometry<dtype, log_n>;
  constexpr int kQuads = elements / 4, kBatch = g.chunks_per_exchange();
  const int thread = static_cast<int>(threadIdx.x);
  const int own = exchange_slot(thread >> 5, thread & 31, g.log_warps());
  const int other = exchange_slot(exchanged_warp(thread, g.log_warps()),
                                  exchanged_lane(thread, g.log_warps()), g.log_warps());
  const int write = back ? other : own, read = back ? own : other;
#pragma unroll
  for (int first = 0; first < chunks; first += kBatch) {
    __syncthreads();  // the slots may still be read from the batch before
#pragma unroll
    for (int c = 0; c < kBatch; ++c) {
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        const float* v = &x[first + c][4 * q];
        shared[(c * kQuads + q) * g.threads() + write] = make_float4(v[0], v[1], v[2], v[3]);
      }
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kBatch; ++c) {
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        const float4 v = shared[(c * kQuads + q) * g.threads() + read];
        float* to = &x[first + c][4 * q];
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
      }
    }
  }
}

template <Dtype dtype, int log_n>
__global__ void __launch_bounds__(kGeometry<dtype, log_n>.threads()) transform_rows(RowBatch batch) {
  constexpr Geometry g = kGeometry<dtype, log_n>;
  constexpr int kElements = g.elements(), kChunks = g.chunks();
  constexpr bool kWholeVectors = kElements == Storage<dtype>::kPerVector;
  using Element = typename Storage<dtype>::Element;
  extern __shared__ float4 shared[];

  const std::int64_t row = std::int64_t{blockIdx.y} * gridDim.x + blockIdx.x;
  if (row >= batch.rows) return;
  const Element* in = static_cast<const Element*>(batch.in) + row * batch.row_stride;
  Element* out = static_cast<Element*>(batch.out) + row * batch.row_stride;
  const int thread = static_cast<int>(threadIdx.x);

  float x[kChunks][kElements];
  if (kWholeVectors && batch.vectors_fit) {
    if constexpr (kWholeVectors) {
      uint4 vectors[kChunks];
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        vectors[c] = *reinterpret_cast<const uint4*>(in + g.element_of(thread, c, 0));
      }
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
        unpack<dtype>(vectors[c], x[c]);
    }
  } else {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int e = 0; e < kElements; ++e)
        x[c][e] = Storage<dtype>::to_float(in[g.element_of(thread, c, e)]);
    }
  }

  register_butterflies<g.log_elements, kChunks>([&](int c, int e) -> float& { return x[c][e]; });
  lane_butterflies<g.log_lanes()>(x);
  if constexpr (g.log_warps() > 0) {
    exchange<dtype, log_n, false>(shared, x);
    warp_bit_butterflies<g.log_warps()>(x);
    exchange<dtype, log_n, true>(shared, x);
  }
  register_butterflies<g.log_chunks(), kElements>([&](int e, int c) -> float& { return x[c][e]; });

#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int e = 0; e < kElements; ++e)
      x[c][e] *= batch.scale;
  }
  if (kWholeVectors && batch.vectors_fit) {
    if constexpr (kWholeVectors) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        *reinterpret_cast<uint4*>(out + g.element_of(thread, c, 0)) = pack<dtype>(x[c]);
      }
    }
  } else {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int e = 0; e < kElements; ++e)
        out[g.element_of(thread, c, e)] = Storage<dtype>::from_float(x[c][e]);
    }
  }
}

template <class Body>
void dispatch(const Problem& problem, Body&& body) {
  dispatch_dtype(problem.dtype(), [&](auto dtype) {
    dispatch_int<1, kLargestLogN>(log2_floor(problem.n()), [&](auto log_n) { body(dtype, log_n); });
  });
}

class WarpShufflePlan final : public Plan {
 public:
  explicit WarpShufflePlan(const Problem& problem)
      : Plan(problem), geometry_(log2_floor(problem.n()), static_cast<int>(bytes_of(problem.dtype()))) {
    dispatch(problem,
             [&](auto dtype, auto log_n) { registers_ = registers_of(transform_rows<dtype(), log_n()>); });
  }

  Numerics numerics() const override { return single_rounding(Sums::fp32, problem()); }

  Settings settings() const override {
    return {{"blocks", problem().rows},
            {"threads", std::int64_t{geometry_.threads()}},
            {"registers", std::int64_t{registers_}},
            {"shared_bytes", std::int64_t{geometry_.shared_bytes()}},
            {"elements_per_thread", std::int64_t{geometry_.elements() * geometry_.chunks()}}};
  }

 private:
  void enqueue(const Operands& operands, Stream stream) const override {
    const Problem& p = problem();
    const auto misalignment =
        (reinterpret_cast<std::uintptr_t>(operands.in) | reinterpret_cast<std::uintptr_t>(operands.out) |
         static_cast<std::uintptr_t>(p.row_stride() * bytes_of(p.dtype()))) %
        16;
    const RowBatch batch{operands.in,      operands.out, p.rows, p.row_stride(), static_cast<float>(p.scale),
                         misalignment == 0};
    dispatch(p, [&](auto dtype, auto log_n) {
      transform_rows<dtype(), log_n()><<<rows::grid_of(p.rows), geometry_.threads(),
                                         static_cast<std::size_t>(geometry_.shared_bytes()), stream>>>(batch);
    });
    FWHT_CUDA(cudaGetLastError());
  }

  Geometry geometry_;
  int registers_ = 0;
};

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo&) {
  return std::make_unique<WarpShufflePlan>(problem);
}

}  // namespace fwht::warp_shuffle
