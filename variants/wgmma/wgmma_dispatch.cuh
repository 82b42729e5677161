// From a launch known when the program runs to the kernel that was compiled for it.
#pragma once

#include <utility>

#include "common/host/static_dispatch.hpp"
#include "variants/wgmma/wgmma_kernels.hpp"

namespace fwht::wgmma {

template <int log_n, int which>
struct Listed {
  static constexpr Launch launch = kLaunches<log_n>[which];
};

template <class Family, Dtype dtype, int log_n, class Choice>
Kernel kernel_if(const Launch& wanted, Scaling scaling) {
  if constexpr (Choice::launch.form == Family::form) {
    if (wanted != Choice::launch) return {};
    if constexpr (log_n % 2 == 0) {  // only there an orthonormal scale is a power of two
      if (scaling == Scaling::constants)
        return Family::template kernel<dtype, log_n, Choice, Scaling::constants>();
    }
    return Family::template kernel<dtype, log_n, Choice, Scaling::results>();
  }
  return {};
}

template <class Family, Dtype dtype>
Kernel listed_kernel_of(const Launch& wanted, int log_n, Scaling scaling) {
  return dispatch_int<kSmallestLogN, kLargestLogN>(log_n, [&](auto l) {
    return [&]<int... which>(std::integer_sequence<int, which...>) {
      Kernel found, one;
      ((one = kernel_if<Family, dtype, l(), Listed<l(), which>>(wanted, scaling), found = one ? one : found),
       ...);
      return found;
    }
    (std::make_integer_sequence<int, static_cast<int>(kLaunches<l()>.size())>{});
  });
}

/// The kernel of a launch of that family among kLaunches<log_n>.
template <class Family>
Kernel listed_kernel(const Launch& wanted, int log_n, Dtype dtype, Scaling scaling) {
  return dtype == Dtype::f16 ? listed_kernel_of<Family, Dtype::f16>(wanted, log_n, scaling)
                             : listed_kernel_of<Family, Dtype::bf16>(wanted, log_n, scaling);
}

}  // namespace fwht::wgmma
