#include "variants/mma_split/rows_across_warps.cuh"

#include "variants/kit/find_kernel.hpp"
#include "variants/mma_split/kernels.hpp"

namespace fwht::mma_split {

rows::Kernel f16_across_warps(const KernelId& id) {
  return rows::find_kernel<kSmallestLogN, kLargestLogN, kKernelsOfSize>([&](auto log_n, auto i) {
    constexpr KernelId here = kernels_of_size(Dtype::f16, log_n())[i()];
    rows::Kernel kernel = nullptr;
    if constexpr (here.launch.form == rows::Form::across_warps) {
      if (here == id)
        kernel = rows_across_warps<Dtype::f16, log_n(), rows::code_of(here.launch), here.access, here.trigger,
                                   here.scaling>;
    }
    return kernel;
  });
}

}  // namespace fwht::mma_split
