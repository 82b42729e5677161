#include "variants/wgmma/wgmma_pair_kernel.cuh"

namespace fwht::wgmma {

Kernel pair_kernel(Dtype dtype, Scaling scaling) {
  const auto of = [&](auto on_f16, auto on_bf16) {
    return Kernel{.plain = dtype == Dtype::f16 ? on_f16 : on_bf16};
  };
  if (scaling == Scaling::constants)
    return of(pair<Dtype::f16, Scaling::constants>, pair<Dtype::bf16, Scaling::constants>);
  return of(pair<Dtype::f16, Scaling::results>, pair<Dtype::bf16, Scaling::results>);
}

}  // namespace fwht::wgmma
