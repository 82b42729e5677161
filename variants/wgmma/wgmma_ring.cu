#include "variants/wgmma/wgmma_dispatch.cuh"
#include "variants/wgmma/wgmma_ring_kernel.cuh"

namespace fwht::wgmma {
namespace {

struct Ring {
  static constexpr Form form = Form::ring;
  template <Dtype dtype, int log_n, class Choice, Scaling scaling>
  static Kernel kernel() {
    return {.counting = ring<dtype, log_n, Choice, scaling>};
  }
};

}  // namespace

Kernel ring_kernel(const Launch& launch, int log_n, Dtype dtype, Scaling scaling) {
  return listed_kernel<Ring>(launch, log_n, dtype, scaling);
}

}  // namespace fwht::wgmma
