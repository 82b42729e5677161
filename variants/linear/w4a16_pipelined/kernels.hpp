// The kernels of w4a16_pipelined by what they are compiled for; CUDA sources only.
#pragma once

#include <iterator>

#include "variants/kit/kernel_table.hpp"
#include "variants/linear/w4a16_pipelined/pipelined_kernel.cuh"
#include "variants/linear/w4a16_pipelined/wgmma_layer.cuh"

namespace fwht::linear::pipelined {

template <Dtype dtype, int form, int scales>
struct LaunchAt {
  static constexpr Launch launch{kForms[form], dtype, scales};
};

/// A grid of one block, or cluster, for every form.tiles() tiles and form.tokens tokens.
/// @tparam Choice  has a Launch inside: nvcc loses the name of Form in a Launch that is itself the argument
template <class Choice>
__global__ void __launch_bounds__(Choice::launch.form.threads(), Choice::launch.blocks_per_sm())
    pipelined(const __grid_constant__ Arguments all) {
  constexpr Launch launch = Choice::launch;
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if constexpr (launch.form.needs_hopper())
    __trap();  // refused on the host: see form_for
  else
    multiply_layer<launch>(all);
#else
  if constexpr (launch.form.wgmma)
    multiply_layer_wgmma<launch>(all);
  else
    multiply_layer<launch>(all);
#endif
}

using Kernel = void (*)(const Arguments);
using Kernels = Table<Launch, Kernel>;
const Kernels& kernels_f16();
const Kernels& kernels_bf16();

/// Every form, for as many groups in a step as it is meant for.
template <Dtype dtype>
Kernels kernels_of() {
  return table_of<Kernels, 0, static_cast<int>(std::size(kForms)) - 1, 3>(
      [](Kernels& kernels, auto form, auto log_scales) {
        using Choice = LaunchAt<dtype, form, 1 << log_scales>;
        if constexpr (Choice::launch.scales <= Choice::launch.form.most_scales)
          kernels.add(Choice::launch, pipelined<Choice>);
      });
}

}  // namespace fwht::linear::pipelined
