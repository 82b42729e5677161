// rotated_w4a16: y = W (H x) in two launches. The first ladder's transform writes H x, rounded, into the
// workspace; w4a16_pipelined follows by programmatic dependent launch: its first weights are under way
// while x is rotated. rotated_w4a16_prefill: the same in front of w4a16_prefill, by ordinary launches.
#include <algorithm>
#include <utility>

#include "common/contract/linear/rotation_layout.hpp"
#include "common/contract/scratch.hpp"
#include "common/host/text.hpp"
#include "variants/auto/auto.hpp"
#include "variants/linear/registry.hpp"
#include "variants/registry.hpp"

namespace fwht::linear::rotated {
namespace {

/// It lets the layer in early, which only programmatic launches do. They are safe where none is asked for:
/// the transform waits for what is before it before it lets the layer in.
Problem rotation_of(const LinearProblem& problem, const DeviceInfo& device) {
  Problem rotation = fwht::rotation_of(problem);
  rotation.programmatic_launch = true;
  rotation.programmatic_launch = static_cast<bool>(fwht::automatic::variant.supports(rotation, device));
  return rotation;
}

LinearProblem layer_of(LinearProblem problem, const LinearVariant& layer, const DeviceInfo& device) {
  problem.rotation = {};
  problem.programmatic_launch =
      &layer == &pipelined::variant && static_cast<bool>(require_programmatic_launch(device));
  return problem;
}

/// What `auto` takes among the transforms that own no memory, or take it from the caller: the layer's plan
/// serves every stream at once.
std::unique_ptr<Plan> rotation_plan(const Problem& problem, const DeviceInfo& device) {
  const ScratchOfCallers none;
  for (const Variant* variant : fwht::automatic::candidates(problem, device)) {
    std::unique_ptr<Plan> made = variant->make_plan(problem, device);
    if (fwht::automatic::is_as_exact_as_can_be(made->numerics(), problem.scale) &&
        made->alignment() <= LinearPlan::kAlignment && !made->one_stream_at_a_time())
      return made;
  }
  throw BadRequest(concat("no transform for ", to_string(problem), " serves every stream at once"));
}

class RotatedPlan final : public LinearPlan {
 public:
  RotatedPlan(const LinearProblem& problem, const LinearVariant& layer, const DeviceInfo& device)
      : LinearPlan(problem),
        rotation_(rotation_plan(rotation_of(problem, device), device)),
        layer_(fwht::plan(layer, layer_of(problem, layer, device), device)),
        behind_(problem, layer_->packed_bytes()) {}

  std::int64_t packed_bytes() const override { return behind_.bytes; }
  std::string packing() const override {
    return concat(layer_->packing(), behind_.bytes > layer_->packed_bytes() ? "+rotation" : "");
  }
  std::int64_t workspace_bytes() const override {
    return room_for({rotated_bytes(), rotation_->scratch_bytes(), layer_->workspace_bytes()});
  }

  Numerics numerics() const override {
    Numerics numerics = layer_->numerics();
    const std::vector<Step> rotation = rotation_->numerics().steps;
    numerics.steps.insert(numerics.steps.begin(), rotation.begin(), rotation.end());
    numerics.promises.batch_invariant = false;  // another number of rows may take another transform
    return numerics;
  }

  Settings settings() const override {
    Settings all = layer_->settings();
    for (auto [name, value] : rotation_->settings())
      all.emplace_back("rotation_" + name, std::move(value));
    return all;
  }

 private:
  void pack_into(const GptqWeights& weights, std::byte* packed) const override {
    GptqWeights of_layer = weights;
    of_layer.signs.clear();
    of_layer.dense.clear();
    std::ranges::copy(layer_->pack(of_layer), packed);
    behind_.write(weights, packed);
  }

  std::int64_t rotated_bytes() const { return problem().m * problem().k * bytes_of(problem().dtype); }

  void enqueue(const LinearOperands& given, Stream stream) const override {
    LinearOperands operands = given;
    void* const rotated = take_part(operands, rotated_bytes());
    fwht::Operands of_rotation = behind_.operands(problem().rotation, operands.x, rotated, operands.weights);
    if (rotation_->scratch_bytes() > 0) of_rotation.scratch = take_part(operands, rotation_->scratch_bytes());
    rotation_->execute(of_rotation, stream);
    operands.x = rotated;
    layer_->execute(operands, stream);
  }

  std::unique_ptr<Plan> rotation_;
  std::unique_ptr<LinearPlan> layer_;
  RotationLayout behind_;
};

template <const LinearVariant& layer>
Support supports(const LinearProblem& problem, const DeviceInfo& device) {
  if (!problem.rotates()) return {"no rotation is asked for"};
  if (problem.programmatic_launch) {
    const bool offered = &layer == &pipelined::variant;
    if (Support launch = offered ? require_programmatic_launch(device) : require_ordinary_launch(problem);
        !launch)
      return launch;
  }
  if (Support alone = layer.supports(layer_of(problem, layer, device), device); !alone) return alone;
  return fwht::automatic::variant.supports(rotation_of(problem, device), device);
}

template <const LinearVariant& layer>
std::unique_ptr<LinearPlan> make_plan(const LinearProblem& problem, const DeviceInfo& device) {
  return std::make_unique<RotatedPlan>(problem, layer, device);
}

}  // namespace

constinit const LinearVariant variant = {"rotated_w4a16", "the transform, then w4a16_pipelined behind it",
                                         Memory::device, supports<pipelined::variant>,
                                         make_plan<pipelined::variant>};
constinit const LinearVariant before_prefill = {"rotated_w4a16_prefill",
                                                "the transform, then w4a16_prefill behind it", Memory::device,
                                                supports<prefill::variant>, make_plan<prefill::variant>};

}  // namespace fwht::linear::rotated
