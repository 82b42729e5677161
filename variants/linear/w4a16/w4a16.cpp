// w4a16: one packing for every number of tokens. A plan is that of w4a16_pipelined or w4a16_prefill, which
// read the same packed weights, or of a transform and one of them behind it.
#include "variants/linear/w4a16/w4a16.hpp"

namespace fwht::linear::by_tokens {
namespace {

/// From so many tokens on w4a16_prefill is taken for layers of so many weights: each row adds layers. Beyond
/// 32 tokens w4a16_pipelined reads the weights twice; docs/linear.md has the times of both.
struct From {
  std::int64_t tokens, weights;
};
constexpr From kPrefillFrom[] = {{33, std::int64_t{1} << 24}, {129, 0}};

bool is_for_prefill(const LinearProblem& problem) {
  for (const From& from : kPrefillFrom)
    if (problem.m >= from.tokens && problem.n * problem.k >= from.weights) return true;
  return false;
}

Support supports(const LinearProblem& problem, const DeviceInfo& device) {
  return choice_for(problem, device).supports(problem, device);
}

std::unique_ptr<LinearPlan> make_plan(const LinearProblem& problem, const DeviceInfo& device) {
  return choice_for(problem, device).make_plan(problem, device);
}

}  // namespace

const LinearVariant& choice_for(const LinearProblem& problem, const DeviceInfo& device) {
  const bool rotates = problem.rotates();
  const LinearVariant& many = rotates ? rotated::before_prefill : prefill::variant;
  if (is_for_prefill(problem) && many.supports(problem, device)) return many;
  return rotates ? rotated::variant : pipelined::variant;
}

constinit const LinearVariant variant = {
    "w4a16", "w4a16_pipelined for few tokens, w4a16_prefill for many, on one packing; a transform in front",
    Memory::device, supports, make_plan};

}  // namespace fwht::linear::by_tokens
