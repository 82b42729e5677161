// passes: vectors of bf16.
#include "variants/passes/rounded_plan.cuh"

namespace fwht::passes {

std::unique_ptr<Plan> make_bf16_plan(const Problem& problem, const DeviceInfo& device) {
  if (auto plan = make_cluster_plan<float, __nv_bfloat16>(problem, device)) return plan;
  return std::make_unique<RoundedPlan<__nv_bfloat16>>(problem, device);
}

}  // namespace fwht::passes
