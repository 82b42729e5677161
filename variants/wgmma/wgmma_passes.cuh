// The kernel of Form::passes, which is compiled by itself (wgmma_passes.cu).
#pragma once

#include "common/dtype.hpp"
#include "variants/wgmma/wgmma_kernel.cuh"

namespace fwht::wgmma {

using RingKernel = void (*)(RowBatch, unsigned*);

RingKernel passes_kernel(Dtype dtype, Scaling scaling, bool dynamic);

}  // namespace fwht::wgmma
