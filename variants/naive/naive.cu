// naive: the CUDA-core baseline. One launch a stage; every stage reads and writes all data in global memory.
//
// What this rung shows: the cost of synchronising through global memory. log2(n) stages move log2(n) times
// the bytes of a copy, and nothing else limits it: one addition an element a stage is 1/30 of what the CUDA
// cores could do in that time. Expected: log2(n) copies.
//
// Bit card (16-bit data; fp32 has vectors of 4, so b0-b1 within the vector):
//   stage 0..2     b0-b2   both partners in one thread's 16-byte vector       one vector in, one vector out
//   stage s >= 3   b_s     partners in two vectors of one thread, 2^s apart   two vectors in, two vectors out
// Consecutive threads take consecutive vectors, so every access of a warp is 512 contiguous bytes.
#include <cstdint>
#include <span>
#include <vector>

#include "common/contract/hadamard_matrices.hpp"
#include "common/device/cuda_check.hpp"
#include "common/device/device_array.cuh"
#include "common/device/storage.cuh"
#include "common/host/bits.hpp"
#include "common/host/static_dispatch.hpp"
#include "variants/naive/naive.hpp"

namespace fwht::naive {
namespace {

__device__ std::int64_t global_thread() {
  return std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
}

// Partners inside one vector. Item = vector; 2^log_vectors of them a row, row starts row_stride vectors
// apart.
template <Dtype dtype, int half>
__global__ void __launch_bounds__(kThreads)
    stage_within_vector(const uint4* in, uint4* out, std::int64_t vectors, int log_vectors,
                        std::int64_t row_stride, float factor) {
  const std::int64_t item = global_thread();
  if (item >= vectors) return;
  const std::int64_t row = item >> log_vectors;
  const std::int64_t at = row * row_stride + (item - (row << log_vectors));
  float x[Storage<dtype>::kPerVector], y[Storage<dtype>::kPerVector];
  unpack<dtype>(in[at], x);
#pragma unroll
  for (int i = 0; i < Storage<dtype>::kPerVector; ++i) {
    const float difference_or_sum = (i & half) ? x[i ^ half] - x[i] : x[i] + x[i ^ half];
    y[i] = difference_or_sum * factor;
  }
  out[at] = pack<dtype>(y);
}

// Partners in two vectors that differ in bit `bit` of the vector index. Item = pair of vectors.
template <Dtype dtype>
__global__ void __launch_bounds__(kThreads)
    stage_across_vectors(const uint4* in, uint4* out, std::int64_t pairs, int log_pairs, int bit,
                         std::int64_t row_stride, float factor) {
  const std::int64_t item = global_thread();
  if (item >= pairs) return;
  const std::int64_t row = item >> log_pairs;
  const std::int64_t low = row * row_stride + lower_partner(item - (row << log_pairs), bit);
  const std::int64_t high = low + (std::int64_t{1} << bit);
  const uint4 low_vector = in[low], high_vector = in[high];
  float a[Storage<dtype>::kPerVector], b[Storage<dtype>::kPerVector];
  unpack<dtype>(low_vector, a);
  unpack<dtype>(high_vector, b);
#pragma unroll
  for (int i = 0; i < Storage<dtype>::kPerVector; ++i) {
    const float sum = a[i] + b[i], difference = a[i] - b[i];
    a[i] = sum * factor;
    b[i] = difference * factor;
  }
  out[low] = pack<dtype>(a);
  out[high] = pack<dtype>(b);
}

// Any alignment, any stride, any n: one pair of elements a thread.
template <Dtype dtype>
__global__ void __launch_bounds__(kThreads)
    stage_by_element(const typename Storage<dtype>::Element* in, typename Storage<dtype>::Element* out,
                     std::int64_t pairs, int log_pairs, int bit, std::int64_t row_stride, float factor) {
  const std::int64_t item = global_thread();
  if (item >= pairs) return;
  const std::int64_t row = item >> log_pairs;
  const std::int64_t low = row * row_stride + lower_partner(item - (row << log_pairs), bit);
  const std::int64_t high = low + (std::int64_t{1} << bit);
  const float a = Storage<dtype>::to_float(in[low]), b = Storage<dtype>::to_float(in[high]);
  const float sum = a + b, difference = a - b;
  out[low] = Storage<dtype>::from_float(sum * factor);
  out[high] = Storage<dtype>::from_float(difference * factor);
}

/// A factor, or one bit of a Sylvester factor, on f32 data of any operator: one column a thread.
__global__ void __launch_bounds__(kThreads)
    stage_of_factor(FactorStage stage, const float* entries, bool transposed, const float* in, float* out,
                    std::int64_t columns, std::int64_t columns_per_row, std::int64_t row_stride,
                    float scale) {
  const std::int64_t item = global_thread();
  if (item >= columns) return;
  const std::int64_t row = item / columns_per_row;
  const std::int64_t at = row * row_stride + stage.first_of(item - row * columns_per_row);
  float x[kLargestOrder];
#pragma unroll
  for (int j = 0; j < kLargestOrder; ++j)
    x[j] = j < stage.order ? in[at + j * stage.stride] : 0.0F;
  for (int i = 0; i < stage.order; ++i) {
    float sum = 0.0F;
#pragma unroll
    for (int j = 0; j < kLargestOrder; ++j) {
      if (j < stage.order)
        sum = fmaf(entries[transposed ? j * stage.order + i : i * stage.order + j], x[j], sum);
    }
    out[at + i * stage.stride] = sum * scale;
  }
}

unsigned blocks_for(std::int64_t items) {
  return static_cast<unsigned>(ceil_div(items, kThreads));
}

class NaivePlan final : public Plan {
 public:
  explicit NaivePlan(const Problem& problem)
      : Plan(problem), factors_(stage_factors(problem.dtype(), problem.n(), problem.scale)) {}

  Numerics numerics() const override { return numerics_of(problem()); }

  Settings settings() const override {
    return {{"stages", static_cast<std::int64_t>(factors_.size())},
            {"threads", std::int64_t{kThreads}},
            {"passes_over_memory", static_cast<std::int64_t>(factors_.size())}};
  }

 private:
  void enqueue(const Operands& operands, Stream stream) const override {
    dispatch_dtype(problem().dtype(), [&](auto dtype) { run<dtype()>(operands.in, operands.out, stream); });
  }

  template <Dtype dtype>
  void run(const void* in, void* out, Stream stream) const {
    for (int stage = 0; stage < static_cast<int>(factors_.size()); ++stage) {
      run_stage<dtype>(stage == 0 ? in : out, out, stage, stream);
    }
    FWHT_CUDA(cudaGetLastError());
  }

  template <Dtype dtype>
  void run_stage(const void* in, void* out, int stage, Stream stream) const {
    constexpr int kPerVector = Storage<dtype>::kPerVector;
    constexpr int kLogPerVector = kPerVector == 8 ? 3 : 2;
    const auto misalignment =
        (reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out)) % 16;
    const Problem& p = problem();
    const float factor = factors_[static_cast<std::size_t>(stage)];
    const bool vectors_fit = misalignment == 0 && (p.row_stride() % kPerVector == 0 || p.contiguous());
    if (vectors_fit && p.n() >= kPerVector) {
      const int log_vectors = log2_floor(p.n()) - kLogPerVector;
      if (stage >= kLogPerVector) {
        const std::int64_t pairs = p.rows << (log_vectors - 1);
        stage_across_vectors<dtype><<<blocks_for(pairs), kThreads, 0, stream>>>(
            static_cast<const uint4*>(in), static_cast<uint4*>(out), pairs, log_vectors - 1,
            stage - kLogPerVector, p.row_stride() / kPerVector, factor);
      } else {
        launch_within<dtype>(in, out, stage, p.rows << log_vectors, log_vectors, p.row_stride() / kPerVector,
                             factor, stream);
      }
      return;
    }
    // Short contiguous rows share vectors; the few rows behind the last full vector go element by element.
    std::int64_t first_row = 0;
    if (vectors_fit && p.contiguous()) {
      const std::int64_t vectors = p.elements() / kPerVector;
      first_row = vectors * kPerVector / p.n();
      if (vectors > 0) launch_within<dtype>(in, out, stage, vectors, 0, 1, factor, stream);
    }
    if (first_row == p.rows) return;
    using Element = typename Storage<dtype>::Element;
    const int log_pairs = log2_floor(p.n()) - 1;
    const std::int64_t pairs = (p.rows - first_row) << log_pairs, offset = first_row * p.row_stride();
    stage_by_element<dtype><<<blocks_for(pairs), kThreads, 0, stream>>>(
        static_cast<const Element*>(in) + offset, static_cast<Element*>(out) + offset, pairs, log_pairs,
        stage, p.row_stride(), factor);
  }

  template <Dtype dtype>
  static void launch_within(const void* in, void* out, int stage, std::int64_t vectors, int log_vectors,
                            std::int64_t row_stride, float factor, Stream stream) {
    constexpr int kLastStage = Storage<dtype>::kPerVector == 8 ? 2 : 1;
    dispatch_int<0, kLastStage>(stage, [&](auto s) {
      stage_within_vector<dtype, (1 << s())><<<blocks_for(vectors), kThreads, 0, stream>>>(
          static_cast<const uint4*>(in), static_cast<uint4*>(out), vectors, log_vectors, row_stride, factor);
    });
  }

  std::vector<float> factors_;
};

/// An operator of several factors, on f32 data.
class FactorPlan final : public Plan {
 public:
  explicit FactorPlan(const Problem& problem) : Plan(problem), stages_(factor_stages(problem.op)) {
    std::vector<float> tables{1.0F, 1.0F, 1.0F, -1.0F};  // one bit of a Sylvester factor
    for (const Factor& factor : problem.op.factors()) {
      begins_.push_back(tables.size());
      if (!factor.is_named()) continue;
      const SignMatrix& matrix = named_matrix(factor);
      for (int i = 0; i < matrix.order(); ++i) {
        for (int j = 0; j < matrix.order(); ++j)
          tables.push_back(static_cast<float>(matrix(i, j)));
      }
    }
    tables_ = kept_table(tables);
  }

  Numerics numerics() const override { return numerics_of(problem()); }
  Settings settings() const override {
    return {{"stages", static_cast<std::int64_t>(stages_.size())},
            {"threads", std::int64_t{kThreads}},
            {"passes_over_memory", static_cast<std::int64_t>(stages_.size())}};
  }

 private:
  void enqueue(const Operands& operands, Stream stream) const override {
    const Problem& p = problem();
    const std::span<const Factor> factors = p.op.factors();
    const float* in = static_cast<const float*>(operands.in);
    float* const out = static_cast<float*>(operands.out);
    const float* dense = static_cast<const float*>(operands.dense);
    for (const FactorStage& stage : stages_) {
      const Factor& factor = factors[static_cast<std::size_t>(stage.factor)];
      const float* entries = tables_;
      if (factor.is_named()) entries += begins_[static_cast<std::size_t>(stage.factor)];
      if (factor.basis == Basis::dense) {
        entries = dense;
        dense += factor.order * factor.order;
      }
      const std::int64_t per_row = p.n() / stage.order, columns = p.rows * per_row;
      const bool is_last = &stage == &stages_.back();
      stage_of_factor<<<blocks_for(columns), kThreads, 0, stream>>>(
          stage, entries, factor.transposed, in, out, columns, per_row, p.row_stride(),
          is_last ? static_cast<float>(p.scale) : 1.0F);
      in = out;
    }
    FWHT_CUDA(cudaGetLastError());
  }

  std::vector<FactorStage> stages_;
  std::vector<std::size_t> begins_;  // of each factor's table
  const float* tables_ = nullptr;
};

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo&) {
  if (!problem.op.is_sylvester()) return std::make_unique<FactorPlan>(problem);
  return std::make_unique<NaivePlan>(problem);
}

}  // namespace fwht::naive
