// passes: vectors of fp32; the other types are in f16.cu, bf16.cu, integers.cu and fp64.cu.
#include "variants/passes/passes_plan.cuh"

namespace fwht::passes {

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  switch (problem.dtype()) {
    case Dtype::f16:
      return make_f16_plan(problem, device);
    case Dtype::bf16:
      return make_bf16_plan(problem, device);
    case Dtype::f64:
      return make_fp64_plan(problem, device);
    case Dtype::i32:
    case Dtype::i64:
      return make_integer_plan(problem, device);
    default:
      return make_plan_of<float>(problem, device);
  }
}

}  // namespace fwht::passes
