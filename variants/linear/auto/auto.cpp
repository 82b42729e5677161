#include "variants/linear/auto/auto.hpp"

#include <algorithm>
#include <memory>
#include <string>

#include "common/host/text.hpp"
#include "variants/auto/device_class.hpp"

namespace fwht::linear::automatic {
namespace {

using fwht::automatic::MeasuredOn;

/// In order of preference; the first that supports the problem is taken.
constexpr const LinearVariant* kChoices[] = {&by_tokens::variant, &splitk::f32, &dense::dequantize_first};

/// From how many tokens on 16-bit weights are faster, but for prefill_from to prefill_to tokens of layers
/// with prefill_weights weights.
struct Crossovers : MeasuredOn {
  std::int64_t dense_from, prefill_from, prefill_to, prefill_weights;
};

/// One line a device: at every n = k that was measured there (4096, 8192, 16384). A class that nobody
/// measured goes by the first.
std::span<const Crossovers> measured() {
  static const Crossovers all[] = {{{"NVIDIA H200", 90, 132}, 33, 33, 192, std::int64_t{1} << 25}};
  return all;
}

std::string picked_by(const DeviceInfo& device) {
  const Crossovers* own = fwht::automatic::of_class(measured(), device);
  if (own == nullptr)
    return concat("rule: nothing was measured for sm_", device.compute_capability(), " or below");
  return fwht::automatic::said_of(*own, device);
}

Support supports(const LinearProblem& problem, const DeviceInfo& device) {
  if (choice_for(problem, device) != nullptr) return {};
  std::string reasons;
  for (const LinearVariant* variant : kChoices) {
    reasons +=
        concat(reasons.empty() ? "" : "; ", variant->name, ": ", variant->supports(problem, device).why_not);
  }
  return {reasons};
}

/// The plan that was picked, which says so.
class AutoLayerPlan final : public LinearPlan {
 public:
  AutoLayerPlan(const LinearProblem& problem, const LinearVariant& picked, const DeviceInfo& device)
      : LinearPlan(problem),
        name_(picked.name),
        picked_by_(picked_by(device)),
        plan_(picked.make_plan(problem, device)) {}

  std::int64_t packed_bytes() const override { return plan_->packed_bytes(); }
  std::string packing() const override { return plan_->packing(); }
  std::int64_t workspace_bytes() const override { return plan_->workspace_bytes(); }
  Numerics numerics() const override { return plan_->numerics(); }

  Settings settings() const override {
    Settings all{{"picked", name_}, {"picked_by", picked_by_}};
    const Settings inner = plan_->settings();
    all.insert(all.end(), inner.begin(), inner.end());
    return all;
  }

 private:
  void pack_into(const GptqWeights& weights, std::byte* packed) const override {
    const std::vector<std::byte> made = plan_->pack(weights);
    std::copy(made.begin(), made.end(), packed);
  }

  void enqueue(const LinearOperands& operands, Stream stream) const override {
    plan_->execute(operands, stream);
  }

  std::string name_, picked_by_;
  std::unique_ptr<LinearPlan> plan_;
};

std::unique_ptr<LinearPlan> make_plan(const LinearProblem& problem, const DeviceInfo& device) {
  return std::make_unique<AutoLayerPlan>(problem, *choice_for(problem, device), device);
}

}  // namespace

const LinearVariant* choice_for(const LinearProblem& problem, const DeviceInfo& device) {
  const Crossovers* own = fwht::automatic::of_class(measured(), device);
  const Crossovers& from = own != nullptr ? *own : measured().front();
  if (problem.m >= from.prefill_from && problem.m <= from.prefill_to &&
      problem.n * problem.k >= from.prefill_weights && prefill::variant.supports(problem, device))
    return &prefill::variant;
  if (problem.m >= from.dense_from && dense::fp16.supports(problem, device)) return &dense::fp16;
  const auto found = supporting<LinearLayers>(kChoices, problem, device);
  return found.empty() ? nullptr : found.front();
}

constinit const LinearVariant variant = {
    "auto",
    "the first of a fixed order that supports the problem; from 33 tokens on dense_fp16 or w4a16_prefill",
    Memory::device, supports, make_plan};

}  // namespace fwht::linear::automatic
