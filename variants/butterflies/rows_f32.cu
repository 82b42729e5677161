#include "variants/butterflies/kernels.hpp"
#include "variants/butterflies/launches.hpp"
#include "variants/butterflies/rows_in_registers.cuh"
#include "variants/kit/kernel_table.hpp"

namespace fwht::butterflies {

rows::Kernel rows_f32(const KernelId& id) {
  using Kernels = Table<KernelId, rows::Kernel>;
  static const auto kTable =
      table_of<Kernels, 1, kLargestWideLogN, kKernelsOfSize>([](Kernels& kernels, auto log_n, auto i) {
        constexpr KernelId here = kernels_of_size(Dtype::f32, log_n())[i()];
        constexpr rows::LaunchCode code = rows::code_of(here.launch);
        if constexpr (here.launch.form == rows::Form::in_warps) {
          kernels.add(here, rows_in_warps<Dtype::f32, log_n(), code, here.access, here.trigger>);
        } else if constexpr (here.launch.form == rows::Form::across_warps) {
          kernels.add(here, rows_across_warps<Dtype::f32, log_n(), code, here.access, here.trigger>);
        }
      });
  return kTable.find(id);
}

}  // namespace fwht::butterflies
