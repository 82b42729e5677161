#include "variants/wgmma/wgmma_pair_kernel.cuh"

namespace fwht::wgmma {

const Kernels& pair_kernels() {
  static const auto kTable = table_of_each<Kernels, kKernels>([](Kernels& table, auto id) {
    if constexpr (id().launch.form == Form::pair && id().is_compiled())
      table.add(id(), reinterpret_cast<Kernel>(pair<id().dtype, id().launch, id().scaling>));
  });
  return kTable;
}

}  // namespace fwht::wgmma
