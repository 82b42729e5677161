// The kernel of w4a16_pipelined: one entry for every form.
#pragma once

#include "variants/linear/w4a16_pipelined/pipelined_kernel.cuh"
#include "variants/linear/w4a16_pipelined/wgmma_layer.cuh"

namespace fwht::linear::pipelined {

/// kScales: groups in 128 k; FormOfKernel: has its `form`. A grid of one block, or cluster, for every
/// form.tiles() tiles and form.tokens tokens.
template <Dtype dtype, int kScales, class FormOfKernel>
__global__ void __launch_bounds__(FormOfKernel::form.threads(), blocks_per_sm(FormOfKernel::form, kScales))
    pipelined(const __grid_constant__ Arguments all) {
  constexpr Form form = FormOfKernel::form;
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if constexpr (form.needs_hopper())
    __trap();  // refused on the host: see form_for
  else
    multiply_layer<dtype, kScales, form>(all);
#else
  if constexpr (form.wgmma)
    multiply_layer_wgmma<dtype, kScales, form>(all);
  else
    multiply_layer<dtype, kScales, form>(all);
#endif
}

}  // namespace fwht::linear::pipelined
