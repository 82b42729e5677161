#include "common/bits.hpp"
#include "common/cuda_check.hpp"
#include "variants/linear/w4a16_pipelined/kernels.hpp"
#include "variants/linear/w4a16_pipelined/pipelined.hpp"

namespace fwht::linear::pipelined {
namespace {

class PipelinedPlan final : public LinearPlan {
 public:
  explicit PipelinedPlan(const LinearProblem& problem)
      : LinearPlan(problem), layout_(layout_of(problem)), form_(kForms[form_for(problem.m)]) {
    const int index = form_for(problem.m);
    kernel_ =
        problem.dtype == Dtype::f16 ? kernel_f16(index, layout_.scales) : kernel_bf16(index, layout_.scales);
    FWHT_CUDA(
        cudaFuncSetAttribute(kernel_, cudaFuncAttributeMaxDynamicSharedMemorySize, form_.shared_bytes()));
    cudaFuncAttributes attributes{};
    FWHT_CUDA(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel_)));
    registers_ = attributes.numRegs;
  }

  std::int64_t packed_bytes() const override { return layout_.bytes(); }

  LinearNumerics numerics() const override {
    LinearNumerics numerics;
    numerics.batch_invariant = form_.k_warps == kForms[0].k_warps;  // the shares of k fix the order of sums
    return numerics;
  }

  Settings settings() const override {
    return {{"blocks", blocks()},
            {"threads", std::int64_t{form_.threads()}},
            {"tiles_per_warp", std::int64_t{form_.tiles_per_warp}},
            {"row_warps", std::int64_t{form_.row_warps}},
            {"k_warps", std::int64_t{form_.k_warps}},
            {"ahead", std::int64_t{form_.ahead}},
            {"registers", std::int64_t{registers_}},
            {"shared_bytes", std::int64_t{form_.shared_bytes()}}};
  }

 private:
  std::int64_t blocks() const { return ceil_div(layout_.tiles, form_.tiles()); }

  void pack_into(const GptqWeights& weights, std::byte* packed) const override {
    pipelined::pack(problem(), weights, packed);
  }

  void enqueue(const LinearOperands& operands, Stream stream) const override {
    const LinearProblem& p = problem();
    const Arguments arguments{static_cast<const std::byte*>(operands.weights),
                              operands.x,
                              operands.y,
                              layout_,
                              static_cast<int>(p.m),
                              static_cast<int>(p.n),
                              static_cast<int>(p.k),
                              p.zero_points == ZeroPoints::v1 ? 1 : 0};
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim =
        dim3(static_cast<unsigned>(blocks()), static_cast<unsigned>(ceil_div(p.m, form_.tokens)));
    config.blockDim = dim3(static_cast<unsigned>(form_.threads()));
    config.dynamicSmemBytes = static_cast<std::size_t>(form_.shared_bytes());
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = p.programmatic_launch ? 1 : 0;
    FWHT_CUDA(cudaLaunchKernelEx(&config, kernel_, arguments));
  }

  Layout layout_;
  Form form_;
  Kernel kernel_ = nullptr;
  int registers_ = 0;
};

}  // namespace

std::unique_ptr<LinearPlan> make_plan(const LinearProblem& problem, const DeviceInfo&) {
  return std::make_unique<PipelinedPlan>(problem);
}

}  // namespace fwht::linear::pipelined
