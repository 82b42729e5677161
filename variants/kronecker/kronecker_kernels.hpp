// The kernels of kronecker by storage type, compiled in a file each. Included by CUDA sources only.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <utility>

#include "variants/kronecker/kronecker_kernel.cuh"

namespace fwht::kronecker {

/// The kernel of one of kLaunches.
Kernel kernel_f16(const Launch& launch);
Kernel kernel_bf16(const Launch& launch);

template <Dtype dtype>
Kernel kernel_of(const Launch& wanted) {
  Kernel found = nullptr;
  [&]<std::size_t... which>(std::index_sequence<which...>) {
    ((wanted == kLaunches[which]
          ? void(found = transform_rows<dtype, kLaunches[which].shape.order, kLaunches[which].shape.columns,
                                        kLaunches[which].teams, kLaunches[which].slots,
                                        kLaunches[which].blocks_per_sm>)
          : void()),
     ...);
  }
  (std::make_index_sequence<std::size(kLaunches)>{});
  if (found == nullptr) throw std::logic_error("kronecker: a launch that is not in the table");
  return found;
}

}  // namespace fwht::kronecker
