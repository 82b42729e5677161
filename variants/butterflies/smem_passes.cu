#include "variants/butterflies/smem_passes.cuh"

#include "variants/butterflies/kernels.hpp"
#include "variants/butterflies/launches.hpp"
#include "variants/kit/kernel_table.hpp"

namespace fwht::butterflies {

rows::Kernel passes_f32(const KernelId& id) {
  using Kernels = Table<KernelId, rows::Kernel>;
  static const auto kTable =
      table_of<Kernels, 1, kLargestWideLogN, kKernelsOfSize>([](Kernels& kernels, auto log_n, auto i) {
        constexpr KernelId here = kernels_of_size(Dtype::f32, log_n())[i()];
        if constexpr (here.launch.form == rows::Form::smem_passes) {
          kernels.add(
              here, smem_passes<Dtype::f32, log_n(), rows::code_of(here.launch), here.access, here.trigger>);
        }
      });
  return kTable.find(id);
}

}  // namespace fwht::butterflies
