// mma_split: the instantiations for one dtype and format.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "variants/mma_split/encoded_kernels.hpp"
#include "variants/mma_split/encoded_rows.cuh"
#include "variants/mma_split/rows_across_warps.cuh"
#include "variants/mma_split/rows_in_warps.cuh"

namespace fwht::mma_split {

template <Dtype dtype, int log_n, bool many_dense, class Form>
EncodedKernel encoded_instance() {
  constexpr KernelId id = encoded_kernel(dtype, log_n, many_dense, Form::whole_row, Form::rounded);
  constexpr rows::LaunchCode code = rows::code_of(id.launch);
  if constexpr (id.launch.form == rows::Form::in_warps) {
    return rows_in_warps<dtype, log_n, code, id.access, id.trigger, id.scaling, NonFiniteRepair,
                         EncodedRows<Form>>;
  } else {
    return rows_across_warps<dtype, log_n, code, id.access, id.trigger, id.scaling, NonFiniteRepair,
                             EncodedRows<Form>>;
  }
}

template <Dtype dtype, CodeFormat format>
EncodedKernel find_encoded(const KernelId& id, bool joins, bool rounded) {
  constexpr Element kElement = element_of(format);
  constexpr encoder::Family kFamily = encoder::family_of(format);
  EncodedKernel found = nullptr;
  const auto try_form = [&]<int log_n, bool many_dense, class Form>() {
    if (joins == Form::whole_row && rounded == Form::rounded &&
        id == encoded_kernel(dtype, log_n, many_dense, Form::whole_row, Form::rounded)) {
      found = encoded_instance<dtype, log_n, many_dense, Form>();
    }
  };
  const auto try_one = [&]<int log_n, bool many_dense, bool rounds>() {
    try_form.template
    operator()<log_n, many_dense,
               encoder::Form<kElement, kFamily, false, rounds, rounds ? fewest_of_group(log_n) : 32>>();
    if constexpr (kFamily == encoder::Family::f32 && log_n > 8)
      try_form.template operator()<log_n, many_dense, encoder::Form<kElement, kFamily, true, rounds>>();
  };
  [&]<int... offset>(std::integer_sequence<int, offset...>) {
    (try_one.template operator()<kSmallestLogN + offset, false, true>(), ...);
    (try_one.template operator()<kSmallestLogN + offset, true, true>(), ...);
    (try_one.template operator()<kSmallestLogN + offset, true, false>(), ...);
  }
  (std::make_integer_sequence<int, kLargestLogN - kSmallestLogN + 1>{});
  return found;
}

}  // namespace fwht::mma_split
