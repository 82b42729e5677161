// passes: vectors of fp64.
#include "variants/passes/passes_plan.cuh"

namespace fwht::passes {

std::unique_ptr<Plan> make_fp64_plan(const Problem& problem, const DeviceInfo& device) {
  return make_plan_of<double>(problem, device);
}

}  // namespace fwht::passes
