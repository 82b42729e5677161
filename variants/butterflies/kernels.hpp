// butterflies: the instantiations, compiled by themselves (rows_16_bit.cu, rows_f32.cu, smem_passes.cu).
#pragma once

#include "variants/kit/rows_plan.hpp"

namespace fwht::butterflies {

rows::Kernel rows_16_bit(const rows::KernelId& id);
rows::Kernel rows_f32(const rows::KernelId& id);
rows::Kernel passes_f32(const rows::KernelId& id);

}  // namespace fwht::butterflies
