#include "variants/wgmma/wgmma_passes.cuh"

#include "variants/wgmma/wgmma_passes_kernel.cuh"

namespace fwht::wgmma {
namespace {

template <bool dynamic>
struct Chosen {
  static constexpr Launch launch = dynamic ? kDynamicPassesLaunch : kPassesLaunch;
};

template <class Choice>
RingKernel kernel(Dtype dtype, Scaling scaling) {
  if (scaling == Scaling::constants) {
    return dtype == Dtype::f16 ? passes<Dtype::f16, Choice, Scaling::constants>
                               : passes<Dtype::bf16, Choice, Scaling::constants>;
  }
  return dtype == Dtype::f16 ? passes<Dtype::f16, Choice, Scaling::results>
                             : passes<Dtype::bf16, Choice, Scaling::results>;
}

}  // namespace

RingKernel passes_kernel(Dtype dtype, Scaling scaling, bool dynamic) {
  return dynamic ? kernel<Chosen<true>>(dtype, scaling) : kernel<Chosen<false>>(dtype, scaling);
}

}  // namespace fwht::wgmma
