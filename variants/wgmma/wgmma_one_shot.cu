#include "variants/wgmma/wgmma_one_shot_kernel.cuh"

namespace fwht::wgmma {

const Kernels& one_shot_kernels() {
  static const auto kTable = table_of_each<Kernels, kKernels>([](Kernels& table, auto id) {
    if constexpr (id().launch.form == Form::one_shot && id().is_compiled())
      table.add(id(), reinterpret_cast<Kernel>(one_shot<id().dtype, id().launch, id().scaling>));
  });
  return kTable;
}

}  // namespace fwht::wgmma
