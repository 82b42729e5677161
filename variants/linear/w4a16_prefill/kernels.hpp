// The kernels of w4a16_prefill by what they are compiled for; CUDA sources only.
#pragma once

#include <iterator>

#include "variants/kit/kernel_table.hpp"
#include "variants/linear/w4a16_prefill/prefill_kernel.cuh"

namespace fwht::linear::prefill {

template <Dtype dtype, int form, int scales>
struct LaunchAt {
  static constexpr Launch launch{kForms[form], dtype, scales};
};

/// @tparam Choice  has a Launch inside: nvcc loses the name of Form in a Launch that is itself the argument
template <class Choice>
__global__ void __launch_bounds__(kThreads, 1) prefill(const __grid_constant__ Arguments all) {
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __trap();  // refused on the host: see supports
#else
  multiply_layer<Choice::launch>(all);
#endif
}

using Kernel = void (*)(const Arguments);
using Kernels = Table<Launch, Kernel>;
const Kernels& kernels_f16();
const Kernels& kernels_bf16();

template <Dtype dtype>
Kernels kernels_of() {
  return table_of<Kernels, 0, static_cast<int>(std::size(kForms)) - 1, 3>(
      [](Kernels& kernels, auto form, auto log_scales) {
        using Choice = LaunchAt<dtype, form, 1 << log_scales>;
        kernels.add(Choice::launch, prefill<Choice>);
      });
}

}  // namespace fwht::linear::prefill
