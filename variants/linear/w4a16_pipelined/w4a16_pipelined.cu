#include <algorithm>
#include <cmath>

#include "common/device/launcher.hpp"
#include "common/host/bits.hpp"
#include "variants/linear/w4a16_pipelined/arrange_tokens.cuh"
#include "variants/linear/w4a16_pipelined/kernels.hpp"
#include "variants/linear/w4a16_pipelined/pipelined.hpp"

namespace fwht::linear::pipelined {
namespace {

class PipelinedPlan final : public LinearPlan {
 public:
  PipelinedPlan(const LinearProblem& problem, const DeviceInfo& device)
      : LinearPlan(problem),
        layout_(layout_of(problem)),
        form_(kForms[form_for(problem, device)]),
        behind_programmatic_(static_cast<bool>(require_programmatic_launch(device))) {
    LinearProblem one_token = problem;
    one_token.m = 1;
    batch_invariant_ = form_.sums_as(kForms[form_for(one_token, device)]);
    const Kernels& kernels = problem.dtype == Dtype::f16 ? kernels_f16() : kernels_bf16();
    kernel_ = kernels.find({form_, problem.dtype, layout_.scales});
    allow_shared(kernel_, shared_bytes());
    registers_ = registers_of(kernel_);
  }

  std::int64_t packed_bytes() const override { return pipelined::packed_bytes(problem()); }
  std::string packing() const override { return "operand_a"; }
  std::int64_t workspace_bytes() const override { return room_for({arranged_bytes()}); }

  Numerics numerics() const override {
    Numerics numerics = layer_numerics(problem(), form_.rotates);
    numerics.promises.batch_invariant = batch_invariant_;
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
            {"cluster", std::int64_t{form_.cluster}},
            {"wgmma", std::int64_t{form_.wgmma ? 1 : 0}},
            {"shared_bytes", std::int64_t{shared_bytes()}},
            {"in_front", std::string(form_.wgmma           ? "stage_tokens"
                                     : problem().act_order ? "gather_tokens"
                                                           : "none")}};
  }

 private:
  int shared_bytes() const { return form_.shared_bytes(static_cast<int>(problem().k / form_.cluster)); }
  std::int64_t blocks() const { return ceil_div(layout_.tiles, form_.tiles()) * form_.cluster; }

  void pack_into(const GptqWeights& weights, std::byte* packed) const override {
    pipelined::pack(problem(), weights, packed);
  }

  /// Stages of wgmma are whole.
  std::int64_t arranged_tokens() const {
    return form_.wgmma ? ceil_div(problem().m, form_.tokens) * form_.tokens : problem().m;
  }

  bool arranges() const { return problem().act_order || form_.wgmma; }
  std::int64_t arranged_bytes() const { return arranges() ? arranged_tokens() * problem().k * 2 : 0; }

  /// Tokens in the order of the sorted rows, or as stages of wgmma, or both.
  void arrange(const LinearOperands& operands, void* arranged, Stream stream) const {
    const LinearProblem& p = problem();
    const auto* order =
        reinterpret_cast<const std::int32_t*>(static_cast<const std::byte*>(operands.weights) + order_at(p));
    launch(form_.wgmma ? stage_tokens : gather_tokens,
           {.blocks = ceil_div(p.k, kArrangeThreads * 8),
            .threads = kArrangeThreads,
            .programmatic = p.programmatic_launch,
            .layers = arranged_tokens()},
           stream, static_cast<const std::uint16_t*>(operands.x), p.act_order ? order : nullptr,
           static_cast<std::byte*>(arranged), static_cast<int>(p.m), static_cast<int>(p.k), form_.tokens);
  }

  void enqueue(const LinearOperands& given, Stream stream) const override {
    const LinearProblem& p = problem();
    LinearOperands operands = given;
    if (arranges()) {
      void* const arranged = take_part(operands, arranged_bytes());
      arrange(operands, arranged, stream);
      operands.x = arranged;
    }
    const Arguments arguments{static_cast<const std::byte*>(operands.weights),
                              operands.x,
                              operands.y,
                              layout_,
                              static_cast<int>(p.m),
                              static_cast<int>(p.n),
                              static_cast<int>(p.k),
                              p.zero_points == ZeroPoints::v1 ? 1 : 0,
                              p.programmatic_launch || (arranges() && behind_programmatic_),
                              static_cast<int>(p.rotation_order()),
                              static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.rotation_order())))};
    launch(kernel_,
           {.blocks = blocks(),
            .threads = form_.threads(),
            .shared = shared_bytes(),
            .cluster = form_.cluster,
            .programmatic = arguments.programmatic,
            .layers = ceil_div(p.m, form_.tokens)},
           stream, arguments);
  }

  Layout layout_;
  Form form_;
  Kernel kernel_ = nullptr;
  int registers_ = 0;
  bool batch_invariant_ = false;
  bool behind_programmatic_;  // a kernel of its own comes first: launches may overlap
};

}  // namespace

void gather(const LinearProblem& problem, const LinearOperands& operands, void* sorted, Stream stream) {
  const auto* packed = static_cast<const std::byte*>(operands.weights);
  for (std::int64_t first = 0; first < problem.m; first += kMostGridLayers) {
    const std::int64_t count = std::min(kMostGridLayers, problem.m - first), at = first * problem.k;
    launch(gather_tokens,
           {.blocks = ceil_div(problem.k, kArrangeThreads * 8), .threads = kArrangeThreads, .layers = count},
           stream, static_cast<const std::uint16_t*>(operands.x) + at,
           reinterpret_cast<const std::int32_t*>(packed + order_at(problem)),
           static_cast<std::byte*>(sorted) + at * 2, static_cast<int>(count), static_cast<int>(problem.k), 0);
  }
}

std::unique_ptr<LinearPlan> make_plan(const LinearProblem& problem, const DeviceInfo& device) {
  return std::make_unique<PipelinedPlan>(problem, device);
}

}  // namespace fwht::linear::pipelined
