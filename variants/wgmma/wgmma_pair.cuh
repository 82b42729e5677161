// The kernel of Form::pair, which is compiled by itself (wgmma_pair.cu).
#pragma once

#include "common/dtype.hpp"
#include "variants/wgmma/wgmma_kernel.cuh"

namespace fwht::wgmma {

using RowKernel = void (*)(RowBatch);

RowKernel pair_kernel(Dtype dtype, Scaling scaling);

}  // namespace fwht::wgmma
