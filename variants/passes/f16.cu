// passes: vectors of f16.
#include "variants/passes/rounded_plan.cuh"

namespace fwht::passes {

std::unique_ptr<Plan> make_f16_plan(const Problem& problem, const DeviceInfo& device) {
  if (auto plan = make_cluster_plan<float, __half>(problem, device)) return plan;
  return std::make_unique<RoundedPlan<__half>>(problem, device);
}

}  // namespace fwht::passes
