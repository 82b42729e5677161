// The kernels of kronecker by storage type, compiled in a file each. Included by CUDA sources only.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <utility>

#include "variants/kronecker/kronecker_kernel.cuh"

namespace fwht::kronecker {

/// The kernel of one of kLaunches, and of one of kFewRows.
Kernel kernel_f16(const Launch& launch);
Kernel kernel_bf16(const Launch& launch);
Kernel few_rows_kernel_f16(const Launch& launch);
Kernel few_rows_kernel_bf16(const Launch& launch);

/// Launches that differ in what lies behind the last whole k step have one kernel.
constexpr Launch whole_steps(Launch launch) {
  launch.shape.order = 16 * launch.shape.k_steps();
  return launch;
}

template <Dtype dtype>
Kernel kernel_of(const Launch& wanted) {
  Kernel found = nullptr;
  [&]<std::size_t... which>(std::index_sequence<which...>) {
    ((whole_steps(wanted) == whole_steps(kLaunches[which])
          ? void(found = reinterpret_cast<Kernel>(
                     transform_rows<dtype, kLaunches[which].shape.k_steps(), kLaunches[which].shape.columns,
                                    kLaunches[which].shape.rows, kLaunches[which].shape.second,
                                    kLaunches[which].teams, kLaunches[which].slots,
                                    kLaunches[which].blocks_per_sm, kLaunches[which].passes,
                                    kLaunches[which].held>))
          : void()),
     ...);
  }
  (std::make_index_sequence<std::size(kLaunches)>{});
  if (found == nullptr) throw std::logic_error("kronecker: a launch that is not in the table");
  return found;
}

}  // namespace fwht::kronecker
