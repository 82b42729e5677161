// mma_split: the kernels that put rows through a prologue first, for one dtype and format. One launch per
// length: the prologue's own loads and shuffles matter more than the last percent of a launch.
#pragma once

#include <utility>

#include "variants/mma_split/encoded_kernels.hpp"
#include "variants/mma_split/encoded_rows.cuh"
#include "variants/mma_split/largest_of_tensor.cuh"
#include "variants/mma_split/rows_across_warps.cuh"
#include "variants/mma_split/rows_in_warps.cuh"

namespace fwht::mma_split {

template <Dtype dtype, int log_n, bool joins, class Writer>
PreparedKernel prepared_instance() {
  constexpr KernelId id = prepared_kernel(dtype, log_n, joins);
  constexpr rows::LaunchCode code = rows::code_of(id.launch);
  if constexpr (id.launch.form == rows::Form::in_warps) {
    return rows_in_warps<dtype, log_n, code, id.access, id.trigger, id.scaling, NonFiniteRepair, Writer>;
  } else {
    return rows_across_warps<dtype, log_n, code, id.access, id.trigger, id.scaling, NonFiniteRepair, Writer>;
  }
}

/// Calls body.operator()<log_n>() for the length of the kernel.
template <class Body>
void for_length(int log_n, const Body& body) {
  [&]<int... offset>(std::integer_sequence<int, offset...>) {
    ((log_n == kSmallestLogN + offset ? body.template operator()<kSmallestLogN + offset>() : void()), ...);
  }
  (std::make_integer_sequence<int, kLargestLogN - kSmallestLogN + 1>{});
}

template <Dtype dtype, CodeFormat format>
PreparedKernel find_prepared(int log_n, bool joins) {
  constexpr Element kElement = element_of(format);
  constexpr encoder::Family kFamily = encoder::family_of(format);
  PreparedKernel found = nullptr;
  for_length(log_n, [&]<int length>() {
    if (!joins)
      found = prepared_instance<dtype, length, false,
                                EncodedRows<encoder::Form<kElement, kFamily, false>, true>>();
    if constexpr (kFamily == encoder::Family::f32 && length > 8) {
      if (joins)
        found = prepared_instance<dtype, length, true,
                                  EncodedRows<encoder::Form<kElement, kFamily, true>, true>>();
    }
  });
  return found;
}

}  // namespace fwht::mma_split
