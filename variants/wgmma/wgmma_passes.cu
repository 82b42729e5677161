#include "variants/wgmma/wgmma_passes_kernel.cuh"

namespace fwht::wgmma {

const Kernels& passes_kernels() {
  static const auto kTable = table_of_each<Kernels, kKernels>([](Kernels& table, auto id) {
    if constexpr (id().launch.form == Form::passes && id().is_compiled())
      table.add(id(), reinterpret_cast<Kernel>(passes<id().dtype, id().launch, id().scaling>));
  });
  return kTable;
}

}  // namespace fwht::wgmma
