#include "variants/wgmma/wgmma_ring_kernel.cuh"

namespace fwht::wgmma {

const Kernels& ring_kernels() {
  static const auto kTable = table_of_each<Kernels, kKernels>([](Kernels& table, auto id) {
    if constexpr (id().launch.form == Form::ring && id().is_compiled())
      table.add(id(), reinterpret_cast<Kernel>(ring<id().dtype, id().launch, id().scaling>));
  });
  return kTable;
}

}  // namespace fwht::wgmma
