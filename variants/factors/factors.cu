// factors: any operator, factor by factor, in fp32 on the CUDA cores.
//
// Idea: a block keeps some rows in shared memory as fp32 numbers, from the load to the store. A matrix factor is a
// small matrix product: a thread makes 8 x 4 sums in registers, then all are written over the data. A Sylvester
// factor is passes of up to 16-point butterflies; of the fastest one, a warp does 32 points between its lanes while
// it stores. One rounding, at the store.
//
// Bit card (28 x 512, one row a block of 512 threads):
//   stage 1    28 digits, stride 512     thread: rows 8 r .. 8 r + 7 of the matrix, columns q, q + 128, q + 256, q + 384
//   stage 2    b5-b8                     thread: 16 numbers, 32 apart
//   store      b0-b1 in a thread's vector, b2-b4 between lanes by shuffles, scale, rounding
#include <algorithm>
#include <vector>

#include "common/cuda_check.hpp"
#include "common/device_array.cuh"
#include "common/hadamard_matrices.hpp"
#include "common/static_dispatch.hpp"
#include "common/storage.cuh"
#include "variants/factors/factors.hpp"

namespace fwht::factors {
namespace {

constexpr int kPerThread = 4;  // elements of one access to global memory
constexpr int kMostStages = 3 * static_cast<int>(Operator::kMostFactors);

struct Work {
  Stage stages[kMostStages];
  int stage_count, store_levels, rows_per_block, n;
  std::int64_t rows, stride_in, stride_out;
  const std::uint8_t *signs_first, *signs_last;  // null: none
  float scale;
  bool whole_vectors;  // four elements of a row are aligned, and never of two rows
};

__device__ bool is_negative(const std::uint8_t* signs, int i) {
  return signs[i >> 3] >> (i & 7) & 1;
}

/// Four consecutive elements in global memory, aligned.
template <Dtype dtype>
__device__ void load_four(const typename Storage<dtype>::Element* from, float (&x)[kPerThread]) {
  if constexpr (dtype == Dtype::f32) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
  } else {
    using Pair = typename Storage<dtype>::Pair;
    const uint2 words = *reinterpret_cast<const uint2*>(from);
    const float2 low = Storage<dtype>::to_float2(reinterpret_cast<const Pair&>(words.x)),
                 high = Storage<dtype>::to_float2(reinterpret_cast<const Pair&>(words.y));
    x[0] = low.x, x[1] = low.y, x[2] = high.x, x[3] = high.y;
  }
}

template <Dtype dtype>
__device__ void store_four(typename Storage<dtype>::Element* to, const float (&x)[kPerThread]) {
  if constexpr (dtype == Dtype::f32) {
    *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
  } else {
    const auto low = Storage<dtype>::from_float2(x[0], x[1]), high = Storage<dtype>::from_float2(x[2], x[3]);
    *reinterpret_cast<uint2*>(to) =
        make_uint2(reinterpret_cast<const unsigned&>(low), reinterpret_cast<const unsigned&>(high));
  }
}

/// Rows from global memory, the signs that come first multiplied in.
template <Dtype dtype>
__device__ void load_rows(const Work& work, const typename Storage<dtype>::Element* in, int elements,
                          float* x) {
#pragma unroll 4
  for (int at = kPerThread * static_cast<int>(threadIdx.x); at < elements;
       at += kPerThread * static_cast<int>(blockDim.x)) {
    float four[kPerThread] = {};
    if (work.whole_vectors) {
      const int row = work.rows_per_block == 1 ? 0 : at / work.n;
      load_four<dtype>(in + row * work.stride_in + (at - row * work.n), four);
    }
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      if (at + i >= elements) break;
      const int row = work.rows_per_block == 1 ? 0 : (at + i) / work.n, column = at + i - row * work.n;
      float value =
          work.whole_vectors ? four[i] : Storage<dtype>::to_float(in[row * work.stride_in + column]);
      if (work.signs_first != nullptr && is_negative(work.signs_first, column)) value = -value;
      x[at + i] = value;
    }
  }
}

/// Every column times the matrix, the results over the data.
__device__ void multiply(const Stage& stage, int elements, float* x) {
  const int columns = stage.columns(elements), quads = stage.quads(elements), items = stage.items(elements);
  const int padded = stage.padded_order();
  for (int first = 0; first < items; first += static_cast<int>(blockDim.x)) {
    const int item = first + static_cast<int>(threadIdx.x);
    const int tile_row = item / quads * kTileRows, quad = item % quads;
    float sums[kTileRows][kTileColumns] = {};
    int column_at[kTileColumns];
#pragma unroll
    for (int c = 0; c < kTileColumns; ++c)
      column_at[c] = stage.first_of(min(quad + c * quads, columns - 1));
    if (item < items) {
      const float* entries = stage.entries + tile_row;
      const float* digits = x;
#pragma unroll 4
      for (int j = 0; j < stage.order; ++j) {
        const float4 low = __ldg(reinterpret_cast<const float4*>(entries)),
                     high = __ldg(reinterpret_cast<const float4*>(entries) + 1);
        const float matrix[kTileRows] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int c = 0; c < kTileColumns; ++c) {
          const float value = digits[column_at[c]];
#pragma unroll
          for (int i = 0; i < kTileRows; ++i)
            sums[i][c] = fmaf(matrix[i], value, sums[i][c]);
        }
        entries += padded;
        digits += stage.stride;
      }
    }
    if (!stage.items_are_apart()) __syncthreads();
    if (item < items) {
#pragma unroll
      for (int c = 0; c < kTileColumns; ++c) {
        if (quad + c * quads >= columns) break;
#pragma unroll
        for (int i = 0; i < kTileRows; ++i) {
          if (tile_row + i < stage.order) x[column_at[c] + (tile_row + i) * stage.stride] = sums[i][c];
        }
      }
    }
  }
}

/// H of 2^levels points on every column.
template <int levels>
__device__ void butterflies(const Stage& stage, int elements, float* x) {
  constexpr int kPoints = 1 << levels;
  for (int column = static_cast<int>(threadIdx.x); column < elements / kPoints;
       column += static_cast<int>(blockDim.x)) {
    float* const at = x + stage.first_of(column);
    float values[kPoints];
#pragma unroll
    for (int i = 0; i < kPoints; ++i)
      values[i] = at[i * stage.stride];
#pragma unroll
    for (int half = 1; half < kPoints; half *= 2) {
#pragma unroll
      for (int i = 0; i < kPoints; ++i) {
        if (i & half) continue;
        const float a = values[i], b = values[i + half];
        values[i] = a + b;
        values[i + half] = a - b;
      }
    }
#pragma unroll
    for (int i = 0; i < kPoints; ++i)
      at[i * stage.stride] = values[i];
  }
}

/// The fastest bits: two in the thread's numbers, the next three in the lane.
__device__ void finish_in_warp(int levels, float (&x)[kPerThread]) {
#pragma unroll
  for (int level = 0; level < 2; ++level) {
    if (level >= levels) return;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      if (i >> level & 1) continue;
      const float a = x[i], b = x[i + (1 << level)];
      x[i] = a + b;
      x[i + (1 << level)] = a - b;
    }
  }
#pragma unroll
  for (int level = 2; level < kStoreLevels; ++level) {
    if (level >= levels) return;
    const int lane_bit = 1 << (level - 2);
    const bool upper = (threadIdx.x & lane_bit) != 0;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const float other = __shfl_xor_sync(0xFFFFFFFFU, x[i], lane_bit);
      x[i] = upper ? other - x[i] : x[i] + other;
    }
  }
}

/// Rows to global memory: the fastest bits, the scale, the signs that come last, the one rounding.
template <Dtype dtype>
__device__ void store_rows(const Work& work, const float* x, int elements,
                           typename Storage<dtype>::Element* out) {
  const int warp_first = kPerThread * (static_cast<int>(threadIdx.x) & ~31),
            lane_first = kPerThread * (static_cast<int>(threadIdx.x) & 31);
  for (int warp_at = warp_first; warp_at < elements; warp_at += kPerThread * static_cast<int>(blockDim.x)) {
    const int at = warp_at + lane_first;
    float four[kPerThread];
#pragma unroll
    for (int i = 0; i < kPerThread; ++i)
      four[i] = at + i < elements ? x[at + i] : 0.0F;
    finish_in_warp(work.store_levels, four);
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      four[i] *= work.scale;
      if (work.signs_last != nullptr && at + i < elements && is_negative(work.signs_last, (at + i) % work.n))
        four[i] = -four[i];
    }
    if (at >= elements) continue;
    if (work.whole_vectors) {
      const int row = work.rows_per_block == 1 ? 0 : at / work.n;
      store_four<dtype>(out + row * work.stride_out + (at - row * work.n), four);
      continue;
    }
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      if (at + i >= elements) break;
      const int row = work.rows_per_block == 1 ? 0 : (at + i) / work.n;
      out[row * work.stride_out + (at + i - row * work.n)] = Storage<dtype>::from_float(four[i]);
    }
  }
}

template <Dtype dtype>
__global__ void __launch_bounds__(kMostThreads)
    rows_by_factors(const __grid_constant__ Work work, const typename Storage<dtype>::Element* in,
                    typename Storage<dtype>::Element* out) {
  extern __shared__ float4 shared[];
  float* const x = reinterpret_cast<float*>(shared);
  const std::int64_t first_row = std::int64_t{blockIdx.x} * work.rows_per_block;
  const int rows = static_cast<int>(min(std::int64_t{work.rows_per_block}, work.rows - first_row));
  const int elements = rows * work.n;

  load_rows<dtype>(work, in + first_row * work.stride_in, elements, x);
  for (int s = 0; s < work.stage_count; ++s) {
    __syncthreads();
    const Stage& stage = work.stages[s];
    switch (stage.levels) {
      case 0:
        multiply(stage, elements, x);
        break;
      case 1:
        butterflies<1>(stage, elements, x);
        break;
      case 2:
        butterflies<2>(stage, elements, x);
        break;
      case 3:
        butterflies<3>(stage, elements, x);
        break;
      default:
        butterflies<kMostLevels>(stage, elements, x);
    }
  }
  __syncthreads();
  store_rows<dtype>(work, x, elements, out + first_row * work.stride_out);
}

/// A dense factor as a stage wants it, a thread an entry; the padding stays zero.
template <Dtype dtype>
__global__ void write_entries(const typename Storage<dtype>::Element* dense, int order, bool transposed,
                              int padded, float* entries) {
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), i = at / order, j = at % order;
  if (i < order) entries[j * padded + i] = Storage<dtype>::to_float(dense[transposed ? j * order + i : at]);
}

/// Entries of all matrices one behind the other; those of dense factors are zero until they are known.
std::vector<float> tables_of(const Operator& op, const Program& program, std::vector<std::size_t>& begins) {
  std::vector<float> tables;
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const Stage& stage = program.stages[s];
    begins.push_back(tables.size());
    if (stage.levels > 0) continue;
    const int padded = stage.padded_order();
    tables.resize(tables.size() + static_cast<std::size_t>(padded) * static_cast<std::size_t>(stage.order));
    const Factor& factor = op.factors()[static_cast<std::size_t>(program.factor_of[s])];
    if (factor.basis != Basis::hadamard) continue;
    const SignMatrix& matrix = hadamard_matrix(factor.order);
    for (int i = 0; i < stage.order; ++i) {
      for (int j = 0; j < stage.order; ++j) {
        const bool negative = factor.transposed ? matrix.is_negative(j, i) : matrix.is_negative(i, j);
        tables[begins.back() + static_cast<std::size_t>(j * padded + i)] = negative ? -1.0F : 1.0F;
      }
    }
  }
  return tables;
}

class FactorsPlan final : public Plan {
 public:
  explicit FactorsPlan(const Problem& problem) : Plan(problem), program_(program_of(problem.op)) {
    std::vector<std::size_t> begins;
    const std::vector<float> tables = tables_of(problem.op, program_, begins);
    tables_ = DeviceArray(tables.data(), tables.size() * sizeof(float));
    for (std::size_t s = 0; s < program_.stages.size(); ++s) {
      Stage& stage = program_.stages[s];
      if (stage.levels == 0) stage.entries = tables_.as<float>() + begins[s];
    }
    dispatch_dtype(problem.dtype(), [&](auto dtype) {
      FWHT_CUDA(cudaFuncSetAttribute(rows_by_factors<dtype()>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared_bytes())));
    });
  }

  bool one_stream_at_a_time() const override { return problem().op.has_dense(); }  // their entries
  Numerics numerics() const override { return numerics_of(problem()); }
  Settings settings() const override {
    return {{"passes", static_cast<std::int64_t>(program_.stages.size())},
            {"threads", std::int64_t{program_.threads}},
            {"rows_per_block", std::int64_t{program_.rows_per_block}},
            {"shared_bytes", static_cast<std::int64_t>(shared_bytes())}};
  }

 private:
  std::size_t shared_bytes() const {
    return static_cast<std::size_t>(program_.rows_per_block * problem().n()) * sizeof(float);
  }

  void enqueue(const Operands& operands, Stream stream) const override {
    dispatch_dtype(problem().dtype(), [&](auto dtype) { run<dtype()>(operands, stream); });
  }

  template <Dtype dtype>
  void run(const Operands& operands, Stream stream) const {
    using Element = typename Storage<dtype>::Element;
    if (problem().op.has_dense()) write_dense<dtype>(static_cast<const Element*>(operands.dense), stream);
    const Work work = work_for(operands);
    const auto blocks = static_cast<unsigned>(ceil_div(work.rows, work.rows_per_block));
    rows_by_factors<dtype><<<blocks, static_cast<unsigned>(program_.threads), shared_bytes(), stream>>>(
        work, static_cast<const Element*>(operands.in), static_cast<Element*>(operands.out));
    FWHT_CUDA(cudaGetLastError());
  }

  template <Dtype dtype>
  void write_dense(const typename Storage<dtype>::Element* dense, Stream stream) const {
    for (std::size_t s = 0; s < program_.stages.size(); ++s) {
      const Stage& stage = program_.stages[s];
      const Factor& factor = problem().op.factors()[static_cast<std::size_t>(program_.factor_of[s])];
      if (factor.basis != Basis::dense) continue;
      constexpr int kThreads = 256;
      const int entries = stage.order * stage.order;
      write_entries<dtype><<<static_cast<unsigned>(ceil_div(entries, kThreads)), kThreads, 0, stream>>>(
          dense, stage.order, factor.transposed, stage.padded_order(), stage.entries);
      FWHT_CUDA(cudaGetLastError());
      dense += entries;
    }
  }

  Work work_for(const Operands& operands) const {
    const Problem& p = problem();
    Work work{};
    std::copy(program_.stages.begin(), program_.stages.end(), work.stages);
    work.stage_count = static_cast<int>(program_.stages.size());
    work.store_levels = program_.store_levels;
    work.rows_per_block = program_.rows_per_block;
    work.n = static_cast<int>(p.n());
    work.rows = p.rows;
    work.stride_in = p.in.row_stride;
    work.stride_out = p.out.row_stride;
    const auto* const signs = static_cast<const std::uint8_t*>(operands.signs);
    (p.op.signs_come_last() ? work.signs_last : work.signs_first) = signs;
    work.scale = static_cast<float>(p.scale);
    const auto addresses =
        reinterpret_cast<std::uintptr_t>(operands.in) | reinterpret_cast<std::uintptr_t>(operands.out);
    work.whole_vectors = p.n() % kPerThread == 0 && p.in.row_stride % kPerThread == 0 &&
                         p.out.row_stride % kPerThread == 0 &&
                         addresses % static_cast<std::uintptr_t>(kPerThread * bytes_of(p.dtype())) == 0;
    return work;
  }

  Program program_;
  DeviceArray tables_;
};

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo&) {
  return std::make_unique<FactorsPlan>(problem);
}

}  // namespace fwht::factors
