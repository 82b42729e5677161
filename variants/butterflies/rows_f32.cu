#include "variants/butterflies/kernels.hpp"
#include "variants/butterflies/launches.hpp"
#include "variants/butterflies/rows_in_registers.cuh"
#include "variants/kit/find_kernel.hpp"

namespace fwht::butterflies {

rows::Kernel rows_f32(const KernelId& id) {
  return rows::find_kernel<1, kLargestWideLogN, kKernelsOfSize>([&](auto log_n, auto i) {
    constexpr KernelId here = kernels_of_size(Dtype::f32, log_n())[i()];
    constexpr rows::LaunchCode code = rows::code_of(here.launch);
    rows::Kernel kernel = nullptr;
    if constexpr (here.launch.form == rows::Form::in_warps) {
      if (here == id) kernel = rows_in_warps<Dtype::f32, log_n(), code, here.access, here.trigger>;
    } else if constexpr (here.launch.form == rows::Form::across_warps) {
      if (here == id) kernel = rows_across_warps<Dtype::f32, log_n(), code, here.access, here.trigger>;
    }
    return kernel;
  });
}

}  // namespace fwht::butterflies
