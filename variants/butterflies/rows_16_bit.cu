#include "variants/butterflies/kernels.hpp"
#include "variants/butterflies/launches.hpp"
#include "variants/butterflies/rows_in_registers.cuh"
#include "variants/kit/kernel_table.hpp"

namespace fwht::butterflies {
namespace {

template <Dtype dtype>
rows::Kernel in_warps(const KernelId& id) {
  using Kernels = Table<KernelId, rows::Kernel>;
  static const auto kTable = table_of<Kernels, 1, kLargestLogN, kKernelsOfSize>([](Kernels& kernels,
                                                                                   auto log_n, auto i) {
    constexpr KernelId here = kernels_of_size(dtype, log_n())[i()];
    kernels.add(here, rows_in_warps<dtype, log_n(), rows::code_of(here.launch), here.access, here.trigger>);
  });
  return kTable.find(id);
}

}  // namespace

rows::Kernel rows_16_bit(const KernelId& id) {
  return id.dtype == Dtype::f16 ? in_warps<Dtype::f16>(id) : in_warps<Dtype::bf16>(id);
}

}  // namespace fwht::butterflies
