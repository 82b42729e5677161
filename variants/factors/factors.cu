// factors: any operator, factor by factor, in fp32 on the CUDA cores.
//
// Idea: a block keeps some rows in shared memory as fp32 numbers, from the load to the store. A matrix factor
// is a small matrix product: a thread makes 8 x 4 sums in registers, then all are written over the data. A
// Sylvester factor is passes of up to 16-point butterflies; of the fastest one, a warp does 32 points between
// its lanes while it stores. One rounding, at the store.
//
// Bit card (28 x 512, one row a block of 512 threads):
//   stage 1    28 digits, stride 512     thread: rows 8 r .. 8 r + 7 of the matrix, columns 4 q .. 4 q + 3
//   stage 2    b5-b8                     thread: 16 numbers, 32 apart
//   store      b0-b1 in a thread's vector, b2-b4 between lanes by shuffles, scale, rounding
#include <algorithm>
#include <vector>

#include "common/contract/hadamard_matrices.hpp"
#include "common/device/cuda_check.hpp"
#include "common/device/device_array.cuh"
#include "common/device/launcher.hpp"
#include "common/device/plan_scratch.cuh"
#include "common/device/ptx/global.cuh"
#include "common/device/ptx/shared.cuh"
#include "common/device/storage.cuh"
#include "common/host/static_dispatch.hpp"
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

/// The compiler splits the store of a struct, so that it is one instruction by name.
template <Dtype dtype>
__device__ void store_four(typename Storage<dtype>::Element* to, const float (&x)[kPerThread]) {
  if constexpr (dtype == Dtype::f32) {
    const std::uint32_t words[] = {__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                                   __float_as_uint(x[3])};
    ptx::st_global_if(true, to, words);
  } else {
    const auto low = Storage<dtype>::from_float2(x[0], x[1]), high = Storage<dtype>::from_float2(x[2], x[3]);
    const std::uint32_t words[] = {reinterpret_cast<const std::uint32_t&>(low),
                                   reinterpret_cast<const std::uint32_t&>(high)};
    ptx::st_global_if(true, to, words);
  }
}

/// The same in shared memory, as fp32.
__device__ void store_four_shared(float* to, const float (&x)[4]) {
  ptx::st_shared_v4(
      static_cast<std::uint32_t>(__cvta_generic_to_shared(to)),
      {__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3])});
}

/// -1 where the bit is set, else 1.
__device__ float sign_of(unsigned bits, int i) {
  return (bits >> i & 1U) != 0 ? -1.0F : 1.0F;
}

/// Row and column of an element among a block's rows.
struct Place {
  int row, column;
  __device__ Place(const Work& work, int at)
      : row(work.rows_per_block == 1 ? 0 : at / work.n), column(at - row * work.n) {}
};

/// Rows from global memory, the signs that come first multiplied in. `vectors`: four elements of a row are
/// aligned, and never of two rows.
template <Dtype dtype, bool vectors>
__device__ void load_rows(const Work& work, const typename Storage<dtype>::Element* in, int elements,
                          float* x) {
  constexpr int kStep = vectors ? kPerThread : 1;
#pragma unroll 4
  for (int at = kStep * static_cast<int>(threadIdx.x); at < elements;
       at += kStep * static_cast<int>(blockDim.x)) {
    const Place place(work, at);
    const auto* const from = in + place.row * work.stride_in + place.column;
    if constexpr (vectors) {
      float four[kPerThread];
      load_four<dtype>(from, four);
      if (work.signs_first != nullptr) {
        const unsigned bits = work.signs_first[place.column >> 3] >> (place.column & 4);
#pragma unroll
        for (int i = 0; i < kPerThread; ++i)
          four[i] *= sign_of(bits, i);
      }
      store_four_shared(x + at, four);
    } else {
      const float value = Storage<dtype>::to_float(*from);
      const bool negative = work.signs_first != nullptr && is_negative(work.signs_first, place.column);
      x[at] = negative ? -value : value;
    }
  }
}

/// The columns of one item of a product. Adjacent ones, where the stride is a multiple of four, move
/// together.
template <bool adjacent>
struct Columns {
  int at[adjacent ? 1 : kTileColumns];  // index of digit 0
  int count;                            // of those that exist

  __device__ Columns(const Stage& stage, int elements, int quad) : at{}, count(kTileColumns) {
    if constexpr (adjacent) {
      at[0] = stage.first_of(stage.column_of(elements, quad, 0));
    } else {
      const int columns = stage.columns(elements), quads = stage.quads(elements);
      count = (columns - quad + quads - 1) / quads;
#pragma unroll
      for (int c = 0; c < kTileColumns; ++c)
        at[c] = stage.first_of(min(stage.column_of(elements, quad, c), columns - 1));
    }
  }
  __device__ void load(const float* digit, float (&values)[kTileColumns]) const {
    if constexpr (adjacent) {
      const float4 four = *reinterpret_cast<const float4*>(digit + at[0]);
      values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
    } else {
#pragma unroll
      for (int c = 0; c < kTileColumns; ++c)
        values[c] = digit[at[c]];
    }
  }
  __device__ void store(float* digit, const float (&values)[kTileColumns]) const {
    if constexpr (adjacent) {
      store_four_shared(digit + at[0], values);
    } else {
#pragma unroll
      for (int c = 0; c < kTileColumns; ++c) {
        if (c < count) digit[at[c]] = values[c];
      }
    }
  }
};

/// Every column times the matrix, the results over the data.
template <bool adjacent>
__device__ void multiply(const Stage& stage, int elements, float* x) {
  const int quads = stage.quads(elements), items = stage.items(elements), padded = stage.padded_order();
  for (int first = 0; first < items; first += static_cast<int>(blockDim.x)) {
    const int item = first + static_cast<int>(threadIdx.x);
    const int tile_row = item / quads * kTileRows;
    const Columns<adjacent> columns(stage, elements, item < items ? item % quads : 0);
    float sums[kTileRows][kTileColumns] = {};
    if (item < items) {
      const float* entries = stage.entries + tile_row;
      const float* digit = x;
#pragma unroll 2
      for (int j = 0; j < stage.order; ++j) {
        const float4 low = __ldg(reinterpret_cast<const float4*>(entries)),
                     high = __ldg(reinterpret_cast<const float4*>(entries) + 1);
        const float matrix[kTileRows] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        float values[kTileColumns];
        columns.load(digit, values);
#pragma unroll
        for (int i = 0; i < kTileRows; ++i) {
#pragma unroll
          for (int c = 0; c < kTileColumns; ++c)
            sums[i][c] = fmaf(matrix[i], values[c], sums[i][c]);
        }
        entries += padded;
        digit += stage.stride;
      }
    }
    if (!stage.items_are_apart()) __syncthreads();
    if (item < items) {
      float* digit = x + tile_row * stage.stride;
#pragma unroll
      for (int i = 0; i < kTileRows; ++i, digit += stage.stride) {
        if (tile_row + i < stage.order) columns.store(digit, sums[i]);
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
    const float sign = (threadIdx.x & lane_bit) != 0 ? -1.0F : 1.0F;  // the upper one subtracts itself
#pragma unroll
    for (int i = 0; i < kPerThread; ++i)
      x[i] = fmaf(sign, x[i], __shfl_xor_sync(0xFFFFFFFFU, x[i], lane_bit));
  }
}

/// Rows to global memory: the fastest bits, the scale, the signs that come last, the one rounding.
template <Dtype dtype, bool vectors>
__device__ void store_rows(const Work& work, const float* x, int elements,
                           typename Storage<dtype>::Element* out) {
  const int warp_first = kPerThread * (static_cast<int>(threadIdx.x) & ~31),
            lane_first = kPerThread * (static_cast<int>(threadIdx.x) & 31);
  // All lanes of a warp go on together.
  for (int warp_at = warp_first; warp_at < elements; warp_at += kPerThread * static_cast<int>(blockDim.x)) {
    const int at = warp_at + lane_first;
    float four[kPerThread] = {};
    if constexpr (vectors) {
      if (at < elements) load_four<Dtype::f32>(x + at, four);
    } else {
#pragma unroll
      for (int i = 0; i < kPerThread; ++i)
        if (at + i < elements) four[i] = x[at + i];
    }
    finish_in_warp(work.store_levels, four);
    if (at >= elements) continue;
    if constexpr (vectors) {
      const Place place(work, at);
      unsigned bits = 0;
      if (work.signs_last != nullptr) bits = work.signs_last[place.column >> 3] >> (place.column & 4);
#pragma unroll
      for (int i = 0; i < kPerThread; ++i)
        four[i] *= work.scale * sign_of(bits, i);
      store_four<dtype>(out + place.row * work.stride_out + place.column, four);
    } else {
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
        if (at + i >= elements) break;
        const Place place(work, at + i);
        const bool negative = work.signs_last != nullptr && is_negative(work.signs_last, place.column);
        const float value = four[i] * work.scale;
        out[place.row * work.stride_out + place.column] =
            Storage<dtype>::from_float(negative ? -value : value);
      }
    }
  }
}

template <Dtype dtype, bool vectors>
__global__ void __launch_bounds__(kMostThreads)
    rows_by_factors(const __grid_constant__ Work work, const typename Storage<dtype>::Element* in,
                    typename Storage<dtype>::Element* out) {
  extern __shared__ float4 shared[];
  float* const x = reinterpret_cast<float*>(shared);
  const std::int64_t first_row = std::int64_t{blockIdx.x} * work.rows_per_block;
  const int rows = static_cast<int>(min(std::int64_t{work.rows_per_block}, work.rows - first_row));
  const int elements = rows * work.n;

  load_rows<dtype, vectors>(work, in + first_row * work.stride_in, elements, x);
  for (int s = 0; s < work.stage_count; ++s) {
    __syncthreads();
    const Stage& stage = work.stages[s];
    switch (stage.levels) {
      case 0:
        stage.columns_are_adjacent() ? multiply<true>(stage, elements, x)
                                     : multiply<false>(stage, elements, x);
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
  store_rows<dtype, vectors>(work, x, elements, out + first_row * work.stride_out);
}

/// A dense factor as a stage wants it, a thread an entry, the padding zero.
template <Dtype dtype>
__global__ void write_entries(const typename Storage<dtype>::Element* dense, int order, bool transposed,
                              int padded, float* entries) {
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), j = at / padded, i = at % padded;
  if (j >= order) return;
  entries[at] = i < order ? Storage<dtype>::to_float(dense[transposed ? j * order + i : i * order + j]) : 0;
}

/// Numbers of a stage's matrix, padding included.
std::size_t entry_count(const Stage& stage) {
  return static_cast<std::size_t>(stage.padded_order()) * static_cast<std::size_t>(stage.order);
}

/// Entries as a stage wants them.
std::vector<float> entries_of(const Stage& stage, const Factor& factor) {
  std::vector<float> entries(entry_count(stage));
  const SignMatrix& matrix = named_matrix(factor);
  for (int i = 0; i < stage.order; ++i) {
    for (int j = 0; j < stage.order; ++j) {
      const bool negative = factor.transposed ? matrix.is_negative(j, i) : matrix.is_negative(i, j);
      entries[static_cast<std::size_t>(j * stage.padded_order() + i)] = negative ? -1.0F : 1.0F;
    }
  }
  return entries;
}

class FactorsPlan final : public Plan {
 public:
  explicit FactorsPlan(const Problem& problem) : Plan(problem), program_(program_of(problem.op)) {
    std::size_t dense_entries = 0;
    for (std::size_t s = 0; s < program_.stages.size(); ++s) {
      Stage& stage = program_.stages[s];
      if (stage.levels > 0) continue;
      if (is_dense(s))
        dense_entries += entry_count(stage);
      else
        stage.entries = kept_table(entries_of(stage, factor_of(s)));
    }
    if (dense_entries > 0) dense_ = PlanScratch(static_cast<std::int64_t>(dense_entries * sizeof(float)));
    dispatch_dtype(problem.dtype(), [&](auto dtype) {
      for (const auto kernel : {rows_by_factors<dtype(), false>, rows_by_factors<dtype(), true>}) {
        allow_shared(kernel, static_cast<int>(shared_bytes()));
      }
    });
  }

  bool one_stream_at_a_time() const override { return dense_.is_owned(); }
  std::int64_t scratch_bytes() const override { return dense_.bytes(); }
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
    Work work = work_for(operands);
    if (problem().op.has_dense()) write_dense<dtype>(operands, work, stream);
    const auto blocks = static_cast<unsigned>(ceil_div(work.rows, work.rows_per_block));
    const auto kernel =
        whole_vectors(operands) ? rows_by_factors<dtype, true> : rows_by_factors<dtype, false>;
    kernel<<<blocks, static_cast<unsigned>(program_.threads), shared_bytes(), stream>>>(
        work, static_cast<const Element*>(operands.in), static_cast<Element*>(operands.out));
    FWHT_CUDA(cudaGetLastError());
  }

  const Factor& factor_of(std::size_t stage) const {
    return problem().op.factors()[static_cast<std::size_t>(program_.factor_of[stage])];
  }
  bool is_dense(std::size_t stage) const { return factor_of(stage).basis == Basis::dense; }

  /// And says to the stages where they are.
  template <Dtype dtype>
  void write_dense(const Operands& operands, Work& work, Stream stream) const {
    const auto* dense = static_cast<const typename Storage<dtype>::Element*>(operands.dense);
    auto* entries = dense_.of<float>(operands);
    for (std::size_t s = 0; s < program_.stages.size(); ++s) {
      if (!is_dense(s)) continue;
      Stage& stage = work.stages[s];
      constexpr int kThreads = 256;
      const auto count = static_cast<int>(entry_count(stage));
      write_entries<dtype><<<static_cast<unsigned>(ceil_div(count, kThreads)), kThreads, 0, stream>>>(
          dense, stage.order, factor_of(s).transposed, stage.padded_order(), entries);
      FWHT_CUDA(cudaGetLastError());
      stage.entries = entries;
      entries += count;
      dense += stage.order * stage.order;
    }
  }

  /// Four elements of a row are aligned, and never of two rows.
  bool whole_vectors(const Operands& operands) const {
    const Problem& p = problem();
    const auto addresses =
        reinterpret_cast<std::uintptr_t>(operands.in) | reinterpret_cast<std::uintptr_t>(operands.out);
    return p.n() % kPerThread == 0 && p.in.row_stride % kPerThread == 0 &&
           p.out.row_stride % kPerThread == 0 &&
           addresses % static_cast<std::uintptr_t>(kPerThread * bytes_of(p.dtype())) == 0;
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
    return work;
  }

  Program program_;
  PlanScratch dense_;  // entries of dense factors
};

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo&) {
  return std::make_unique<FactorsPlan>(problem);
}

}  // namespace fwht::factors
