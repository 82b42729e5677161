#include <random>

#include "common/device/cuda_check.hpp"
#include "common/device/launcher.hpp"
#include "common/device/tensor_map.hpp"
#include "variants/linear/w4a16_pipelined/pipelined.hpp"
#include "variants/linear/w4a16_prefill/kernels.hpp"
#include "variants/linear/w4a16_prefill/prefill.hpp"

namespace fwht::linear::prefill {
namespace {

/// A number that no memory holds by chance, and no other plan's launch.
std::uint64_t new_number() {
  std::random_device source;
  return (std::uint64_t{source()} << 32 | source()) | 1U;
}

class PrefillPlan final : public LinearPlan {
 public:
  PrefillPlan(const LinearProblem& problem, const DeviceInfo& device)
      : LinearPlan(problem),
        layout_(pipelined::layout_of(problem)),
        choice_(choose(problem, device.sm_count)),
        form_(kForms[choice_.form]),
        launch_(new_number()),
        kernel_(kernel_of(form_)),
        registers_(registers_of(kernel_)) {}

  std::int64_t packed_bytes() const override { return pipelined::packed_bytes(problem()); }
  std::string packing() const override { return "operand_a"; }
  std::int64_t workspace_bytes() const override {
    return room_for({sorted_bytes(), partial_bytes(), ready_bytes()});
  }

  Numerics numerics() const override {
    Numerics numerics = layer_numerics(problem());
    Step& product = numerics.steps.back();
    product.chained = static_cast<int>(problem().k / 16);
    product.unit_changes = static_cast<int>(layout_.steps * layout_.scales);
    numerics.promises.batch_invariant = false;  // m decides how tiles are cut
    return numerics;
  }

  Settings settings() const override {
    const Division& division = choice_.division;
    return {{"tokens", std::int64_t{form_.tokens}},
            {"blocks", std::int64_t{division.workers}},
            {"threads", std::int64_t{kThreads}},
            {"stages", std::int64_t{form_.stages}},
            {"whole_waves", std::int64_t{division.whole_waves}},
            {"sharers", std::int64_t{division.sharers}},
            {"registers", std::int64_t{registers_}},
            {"shared_bytes", std::int64_t{form_.shared_bytes(layout_.scales)}},
            {"in_front", std::string(problem().act_order ? "gather_tokens" : "none")}};
  }

 private:
  /// May have all the shared memory: a multiprocessor holds one block of any form.
  Kernel kernel_of(const Form& form) const {
    const Kernels& kernels = problem().dtype == Dtype::f16 ? kernels_f16() : kernels_bf16();
    const Kernel kernel = kernels.find({form, problem().dtype, layout_.scales});
    allow_shared(kernel, kMostShared);
    return kernel;
  }
  /// Tokens in the order of the sorted rows.
  std::int64_t sorted_bytes() const { return problem().act_order ? problem().m * problem().k * 2 : 0; }
  /// A tile's sums for every worker that may have to give them to another one.
  std::int64_t partial_bytes() const {
    const Division& division = choice_.division;
    return division.cuts() ? std::int64_t{division.workers} * form_.tokens * kOutputs * 4 : 0;
  }
  std::int64_t ready_bytes() const {
    const Division& division = choice_.division;
    return division.cuts() ? std::int64_t{division.workers} * kMostSharers * 8 : 0;
  }

  void pack_into(const GptqWeights& weights, std::byte* packed) const override {
    pipelined::pack(problem(), weights, packed);
  }

  void enqueue(const LinearOperands& operands, Stream stream) const override {
    const LinearProblem& p = problem();
    const auto* weights = static_cast<const std::byte*>(operands.weights);
    LinearOperands rest = operands;
    const void* tokens = operands.x;
    if (p.act_order) {
      void* const sorted = take_part(rest, sorted_bytes());
      pipelined::gather(p, operands, sorted, stream);
      tokens = sorted;
    }
    const Division& division = choice_.division;
    const bool meets = division.cuts();
    void* partials = meets ? take_part(rest, partial_bytes()) : nullptr;
    void* ready = meets ? take_part(rest, ready_bytes()) : nullptr;
    const auto tiles = static_cast<cuuint64_t>(layout_.tiles), steps = static_cast<cuuint64_t>(layout_.steps),
               k = static_cast<cuuint64_t>(p.k), m = static_cast<cuuint64_t>(p.m);
    constexpr cuuint32_t kTiles = kOutputs / kTileOutputs, kWords = kStepBytes / 4;
    const cuuint32_t scales = 8U * static_cast<cuuint32_t>(layout_.scales);
    const auto x = [&](int rows) {
      return tensor_map(tokens, tensor_element(p.dtype),
                        Tensor<2>{{k, m},
                                  {k * 2},
                                  {64, static_cast<cuuint32_t>(rows)},
                                  CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B});
    };
    // Words and scales in order: [tile][step][.].
    const auto of_weights = [&](cuuint32_t count) {
      return Tensor<3>{{count, steps, tiles}, {count * 4U, steps * count * 4U}, {count, 1, kTiles}};
    };
    const Arguments arguments{
        .x = {x(form_.tokens), x(static_cast<int>(p.m) - (division.tokens - 1) * form_.tokens)},
        .words = tensor_map(weights, CU_TENSOR_MAP_DATA_TYPE_UINT32, of_weights(kWords)),
        .scales =
            tensor_map(weights + layout_.scales_at(), CU_TENSOR_MAP_DATA_TYPE_UINT32, of_weights(scales)),
        .zeros = weights + layout_.zeros_at(),
        .y = operands.y,
        .partials = static_cast<float4*>(partials),
        .ready = static_cast<std::uint64_t*>(ready),
        .launch = launch_,
        .division = PreparedDivision(division),
        .m = static_cast<int>(p.m),
        .n = static_cast<int>(p.n),
        .steps = static_cast<int>(layout_.steps),
        .tiles = static_cast<int>(layout_.tiles),
        .lowest_zero = p.zero_points == ZeroPoints::v1 ? 1 : 0};
    launch(kernel_,
           {.blocks = division.workers,
            .threads = kThreads,
            .shared = form_.shared_bytes(layout_.scales),
            .cooperative = meets},
           stream, arguments);
  }

  pipelined::Layout layout_;
  Chosen choice_;
  Form form_;
  std::uint64_t launch_;
  Kernel kernel_ = nullptr;
  int registers_ = 0;
};

}  // namespace

std::unique_ptr<LinearPlan> make_plan(const LinearProblem& problem, const DeviceInfo& device) {
  return std::make_unique<PrefillPlan>(problem, device);
}

}  // namespace fwht::linear::prefill
