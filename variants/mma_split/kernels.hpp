// mma_split: the instantiations, each algorithm and dtype compiled by itself (rows_*.cu.in).
#pragma once

#include "variants/kit/rows_plan.hpp"

namespace fwht::mma_split {

rows::Kernel f16_in_warps(const rows::KernelId& id);
rows::Kernel bf16_in_warps(const rows::KernelId& id);
rows::Kernel f16_across_warps(const rows::KernelId& id);
rows::Kernel bf16_across_warps(const rows::KernelId& id);

}  // namespace fwht::mma_split
