#include <algorithm>

#include "common/contract/linear/gptq_layout.hpp"
#include "common/device/cublaslt.hpp"
#include "common/device/launcher.hpp"
#include "common/device/storage.cuh"
#include "common/host/bits.hpp"
#include "common/host/parallel_for.hpp"
#include "common/host/text.hpp"
#include "variants/linear/dense/dense.hpp"

namespace fwht::linear::dense {
namespace {

/// A product has at least one token; a plan for none is never executed.
cublaslt::Matmul product_of(const LinearProblem& p, cublaslt::Right right) {
  return {p.dtype, p.m == 0 ? 1 : p.m, p.n, p.k, right};
}

Numerics numerics_of_library(const LinearProblem& problem) {
  Numerics numerics = layer_numerics(problem);
  numerics.steps.back().weights = WeightRounding::once;
  numerics.steps.back().chained = static_cast<int>(problem.k / 16);
  numerics.promises.batch_invariant = false;  // the library may take another kernel for another m
  return numerics;
}

class Fp16Plan final : public LinearPlan {
 public:
  Fp16Plan(const LinearProblem& problem, int threads)
      : LinearPlan(problem), product_(product_of(problem, cublaslt::Right::rows_of_n)), threads_(threads) {}

  std::int64_t packed_bytes() const override { return problem().n * problem().k * 2; }
  std::string packing() const override { return concat("columns_", name_of(problem().dtype)); }
  std::int64_t workspace_bytes() const override { return room_for({product_.workspace_bytes()}); }
  Numerics numerics() const override { return numerics_of_library(problem()); }
  Settings settings() const override { return {{"cublaslt", cublaslt::Matmul::version()}}; }

 private:
  void pack_into(const GptqWeights& weights, std::byte* packed) const override {
    parallel_for(weights.n, threads_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c)
        for (std::int64_t i = 0; i < weights.k; ++i)
          store_element(problem().dtype, packed, c * weights.k + i, weights.weight(i, c));
    });
  }
  void enqueue(const LinearOperands& given, Stream stream) const override {
    LinearOperands operands = given;
    void* const workspace = take_part(operands, product_.workspace_bytes());
    product_.enqueue(operands.x, operands.weights, operands.y, workspace, stream);
  }

  cublaslt::Matmul product_;
  int threads_;  // that pack
};

constexpr int kThreads = 256;

/// Eight rows of one column a thread: one word of qweight. W[k][n], each weight rounded once.
template <Dtype dtype>
__global__ void __launch_bounds__(kThreads)
    dequantize(GptqView view, void* to, int n, int k, int group_rows) {
  auto* weights = static_cast<typename Storage<dtype>::Element*>(to);
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (column >= n) return;
  for (int row = static_cast<int>(blockIdx.y) * 8; row < k; row += static_cast<int>(gridDim.y) * 8) {
    const std::uint32_t word = view.qweight[std::int64_t{row / 8} * n + column];
    const std::int64_t group = row / group_rows;
    const float scale = __half2float(__ushort_as_half(view.scales[group * n + column]));
    int zero = 8;
    if (view.qzeros != nullptr)
      zero = static_cast<int>(view.qzeros[group * (n / 8) + column / 8] >> (4 * (column % 8)) & 15U) +
             view.lowest_zero;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int q = static_cast<int>(word >> (4 * i) & 15U);
      weights[std::int64_t{row + i} * n + column] =
          Storage<dtype>::from_float(scale * static_cast<float>(q - zero));
    }
  }
}

class DequantizeFirstPlan final : public LinearPlan {
 public:
  explicit DequantizeFirstPlan(const LinearProblem& problem)
      : LinearPlan(problem), layout_(problem), product_(product_of(problem, cublaslt::Right::rows_of_k)) {}

  std::int64_t packed_bytes() const override { return layout_.bytes; }
  std::string packing() const override { return kGptqPacking; }
  std::int64_t workspace_bytes() const override {
    return room_for({weight_bytes(), product_.workspace_bytes()});
  }
  Numerics numerics() const override { return numerics_of_library(problem()); }
  Settings settings() const override {
    return {{"cublaslt", cublaslt::Matmul::version()}, {"workspace_bytes", workspace_bytes()}};
  }

 private:
  void pack_into(const GptqWeights& weights, std::byte* packed) const override {
    write_gptq(layout_, weights, packed);
  }

  std::int64_t weight_bytes() const { return problem().n * problem().k * 2; }  // in 16 bits

  void enqueue(const LinearOperands& given, Stream stream) const override {
    const LinearProblem& p = problem();
    LinearOperands operands = given;
    void* const weights = take_part(operands, weight_bytes());
    void* const workspace = take_part(operands, product_.workspace_bytes());
    const GptqView view(p, operands.weights);
    launch(p.dtype == Dtype::f16 ? dequantize<Dtype::f16> : dequantize<Dtype::bf16>,
           {.blocks = ceil_div(p.n, kThreads),
            .threads = kThreads,
            .layers = std::min(p.k / 8, kMostGridLayers)},
           stream, view, weights, static_cast<int>(p.n), static_cast<int>(p.k),
           static_cast<int>(p.group_rows()));
    product_.enqueue(operands.x, weights, operands.y, workspace, stream);
  }

  GptqLayout layout_;
  cublaslt::Matmul product_;
};

}  // namespace

std::unique_ptr<LinearPlan> make_fp16(const LinearProblem& problem, const DeviceInfo& device) {
  return std::make_unique<Fp16Plan>(problem, device.host_threads);
}

std::unique_ptr<LinearPlan> make_dequantize_first(const LinearProblem& problem, const DeviceInfo&) {
  return std::make_unique<DequantizeFirstPlan>(problem);
}

}  // namespace fwht::linear::dense
