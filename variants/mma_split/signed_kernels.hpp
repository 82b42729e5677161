// mma_split: kernels of plain rows with signs, and which serves which problem. All give the bits of rows
// without signs.
#pragma once

#include <array>

#include "variants/kit/row_signs.hpp"
#include "variants/mma_split/launches.hpp"

namespace fwht::mma_split {

/// Of rows side by side: two launches a length, one for few rows, which the stream's next launch may overlap.
constexpr KernelId signed_kernel(Dtype dtype, int log_n, Regime regime) {
  return regime <= Regime::light ? overlapping_kernel(dtype, log_n, false)
                                 : dense_kernel(dtype, log_n, Regime::dram, Scaling::results);
}

/// Whatever a plan of this size may ask for.
constexpr std::array<KernelId, 4> signed_kernels_of_size(Dtype dtype, int log_n) {
  const KernelId strided = strided_kernel(dtype, log_n);
  return {signed_kernel(dtype, log_n, Regime::small), signed_kernel(dtype, log_n, Regime::dram), strided,
          rows::for_elements(strided)};
}

/// Each dtype is compiled by itself (signed_rows.cu.in).
rows::SignedKernel f16_signed(const rows::KernelId& id);
rows::SignedKernel bf16_signed(const rows::KernelId& id);

}  // namespace fwht::mma_split
