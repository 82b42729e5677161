// auto: the variant that is meant where none is named, in a fixed order; for many tokens the dense product,
// where 16-bit weights are faster.
#include "common/host/text.hpp"
#include "variants/linear/registry.hpp"

namespace fwht::linear::automatic {
namespace {

/// In order of preference; the first that supports the problem is taken.
constexpr const LinearVariant* kChoices[] = {&by_tokens::variant, &splitk::f32, &dense::dequantize_first};

/// From here on 16-bit weights are faster at every n = k that was measured (4096, 8192, 16384), but for
/// kPrefillFrom to kPrefillTo tokens of layers with kPrefillWeights weights.
constexpr std::int64_t kDenseFrom = 33, kPrefillFrom = 65, kPrefillTo = 128,
                       kPrefillWeights = std::int64_t{1} << 25;

const LinearVariant* choice_for(const LinearProblem& problem, const DeviceInfo& device) {
  if (problem.m >= kPrefillFrom && problem.m <= kPrefillTo && problem.n * problem.k >= kPrefillWeights &&
      prefill::variant.supports(problem, device))
    return &prefill::variant;
  if (problem.m >= kDenseFrom && dense::fp16.supports(problem, device)) return &dense::fp16;
  const auto found = supporting<LinearLayers>(kChoices, problem, device);
  return found.empty() ? nullptr : found.front();
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

std::unique_ptr<LinearPlan> make_plan(const LinearProblem& problem, const DeviceInfo& device) {
  return choice_for(problem, device)->make_plan(problem, device);
}

}  // namespace

constinit const LinearVariant variant = {
    "auto",
    "the first of a fixed order that supports the problem; from 33 tokens on dense_fp16 or w4a16_prefill",
    Memory::device, supports, make_plan};

}  // namespace fwht::linear::automatic
