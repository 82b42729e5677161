#include "variants/butterflies/smem_passes.cuh"

#include "variants/butterflies/kernels.hpp"
#include "variants/butterflies/launches.hpp"
#include "variants/kit/find_kernel.hpp"

namespace fwht::butterflies {

rows::Kernel passes_f32(const KernelId& id) {
  return rows::find_kernel<1, kLargestWideLogN, kKernelsOfSize>([&](auto log_n, auto i) {
    constexpr KernelId here = kernels_of_size(Dtype::f32, log_n())[i()];
    rows::Kernel kernel = nullptr;
    if constexpr (here.launch.form == rows::Form::smem_passes) {
      if (here == id)
        kernel = smem_passes<Dtype::f32, log_n(), rows::code_of(here.launch), here.access, here.trigger>;
    }
    return kernel;
  });
}

}  // namespace fwht::butterflies
