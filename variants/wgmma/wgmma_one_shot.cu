#include "variants/wgmma/wgmma_dispatch.cuh"
#include "variants/wgmma/wgmma_one_shot_kernel.cuh"

namespace fwht::wgmma {
namespace {

struct OneShot {
  static constexpr Form form = Form::one_shot;
  template <Dtype dtype, int log_n, class Choice, Scaling scaling>
  static Kernel kernel() {
    return {.plain = one_shot<dtype, log_n, Choice, scaling>};
  }
};

}  // namespace

Kernel one_shot_kernel(const Launch& launch, int log_n, Dtype dtype, Scaling scaling) {
  return listed_kernel<OneShot>(launch, log_n, dtype, scaling);
}

}  // namespace fwht::wgmma
