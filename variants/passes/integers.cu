// passes: vectors of integers, whose sums wrap.
#include "variants/passes/passes_plan.cuh"

namespace fwht::passes {

std::unique_ptr<Plan> make_integer_plan(const Problem& problem, const DeviceInfo& device) {
  if (problem.dtype() == Dtype::i32) return make_plan_of<std::uint32_t>(problem, device);
  return make_plan_of<Integer64>(problem, device);
}

}  // namespace fwht::passes
