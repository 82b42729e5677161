// The kernels of kronecker by storage type, compiled in a file each. Included by CUDA sources only.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "variants/kronecker/kronecker_kernel.cuh"

namespace fwht::kronecker {

/// The kernel of one of kLaunches, without and with a ring, and of one of kFewRows.
Kernel kernel_f16(const Launch& launch);
Kernel kernel_bf16(const Launch& launch);
Kernel ring_kernel_f16(const Launch& launch);
Kernel ring_kernel_bf16(const Launch& launch);
Kernel few_rows_kernel_f16(const Launch& launch);
Kernel few_rows_kernel_bf16(const Launch& launch);

/// Launches that differ in what lies behind the last whole k step have one kernel.
constexpr Launch whole_steps(Launch launch) {
  launch.shape.order = 16 * launch.shape.k_steps();
  return launch;
}

/// A launch of kLaunches, or what codes_launch makes of it, as an argument of a kernel.
template <int which, bool codes>
struct Listed {
  static constexpr Launch launch = whole_steps(codes ? codes_launch(kLaunches[which]) : kLaunches[which]);
};
/// Launches that have one kernel have one name, that of the first of them.
template <int which, bool codes>
constexpr int first_alike() {
  int first = 0;
  while (whole_steps(codes ? codes_launch(kLaunches[first]) : kLaunches[first]) !=
         Listed<which, codes>::launch)
    ++first;
  return first;
}
template <int which, bool codes = false>
using FirstListed = Listed<first_alike<which, codes>(), codes>;

/// `kernel_at(which)`, which is a constant, of the entry of kLaunches that is the wanted one, null where it
/// has no kernel.
template <class KernelAt>
Kernel kernel_in_table(const Launch& wanted, KernelAt kernel_at) {
  Kernel found = nullptr;
  [&]<std::size_t... which>(std::index_sequence<which...>) {
    ((whole_steps(wanted) == whole_steps(kLaunches[which])
          ? void(found = kernel_at(std::integral_constant<std::size_t, which>{}))
          : void()),
     ...);
  }
  (std::make_index_sequence<std::size(kLaunches)>{});
  if (found == nullptr) throw std::logic_error("kronecker: a launch that is not in the table");
  return found;
}

template <Dtype dtype>
Kernel kernel_of(const Launch& wanted) {
  return kernel_in_table(wanted, [](auto which) -> Kernel {
    constexpr Launch launch = kLaunches[decltype(which)::value];
    if constexpr (launch.places > 0) {
      return nullptr;
    } else {
      return reinterpret_cast<Kernel>(transform_rows<dtype, FirstListed<decltype(which)::value>>);
    }
  });
}

}  // namespace fwht::kronecker
