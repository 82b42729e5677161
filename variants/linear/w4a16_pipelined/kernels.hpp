// The kernels of w4a16_pipelined by what they are compiled for; CUDA sources only.
#pragma once

#include <iterator>

#include "variants/linear/w4a16_pipelined/kernel.cuh"
#include "variants/linear/w4a16_pipelined/pipelined.hpp"

namespace fwht::linear::pipelined {

using Kernel = void (*)(const Arguments);

/// For groups of 128 / scales rows or more, by the index of the form.
Kernel kernel_f16(int form, int scales);
Kernel kernel_bf16(int form, int scales);

template <int index>
struct FormAt {
  static constexpr Form form = kForms[index];
};

template <Dtype dtype, int kForm>
Kernel kernel_of_form(int scales) {
  constexpr int kMost = kForms[kForm].most_scales;
  if constexpr (kMost >= 4)
    if (scales == 4) return pipelined<dtype, 4, FormAt<kForm>>;
  if constexpr (kMost >= 2)
    if (scales == 2) return pipelined<dtype, 2, FormAt<kForm>>;
  return pipelined<dtype, 1, FormAt<kForm>>;
}

template <Dtype dtype, int kForm = 0>
Kernel kernel_of(int form, int scales) {
  if constexpr (kForm + 1 < static_cast<int>(std::size(kForms)))
    if (form != kForm) return kernel_of<dtype, kForm + 1>(form, scales);
  return kernel_of_form<dtype, kForm>(scales);
}

}  // namespace fwht::linear::pipelined
