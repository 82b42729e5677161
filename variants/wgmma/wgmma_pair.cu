#include "variants/wgmma/wgmma_pair.cuh"

#include "variants/wgmma/wgmma_pair_kernel.cuh"

namespace fwht::wgmma {

RowKernel pair_kernel(Dtype dtype, Scaling scaling) {
  if (scaling == Scaling::constants)
    return dtype == Dtype::f16 ? pair<Dtype::f16, Scaling::constants> : pair<Dtype::bf16, Scaling::constants>;
  return dtype == Dtype::f16 ? pair<Dtype::f16, Scaling::results> : pair<Dtype::bf16, Scaling::results>;
}

}  // namespace fwht::wgmma
