// mma_split: the instantiations of kernels that write codes, with and without a prologue, and of those that
// find the largest of a tensor.
#pragma once

#include "variants/kit/kernel_table.hpp"
#include "variants/mma_split/encoded_kernels.hpp"
#include "variants/mma_split/encoded_rows.cuh"
#include "variants/mma_split/rows_across_warps.cuh"
#include "variants/mma_split/rows_in_warps.cuh"

namespace fwht::mma_split {

/// The kernel of a KernelId, whose fields these are.
template <class Writer, Dtype dtype, int log_n, rows::LaunchCode code, Access access, Trigger trigger,
          Scaling scaling>
auto kernel_of() {
  if constexpr (rows::launch_of(code).form == rows::Form::in_warps) {
    return rows_in_warps<dtype, log_n, code, access, trigger, scaling, NonFiniteRepair, Writer>;
  } else {
    return rows_across_warps<dtype, log_n, code, access, trigger, scaling, NonFiniteRepair, Writer>;
  }
}

template <Dtype dtype, CodeFormat format, int part, bool prepares>
CodesKernel<prepares> find_encoded(const CodesId& id) {
  static constexpr ObjectPart kPart = encoded_parts(format, prepares)[part];
  using Kernels = Table<CodesId, CodesKernel<prepares>>;
  static const auto kTable =
      table_of<Kernels, kPart.smallest, kPart.largest, kKinds>([](Kernels& kernels, auto log_n, auto i) {
        constexpr bool joins = i() % 2 == 1, rounded = i() < 4;
        constexpr int group = rounded && !joins ? fewest_of_group(log_n()) : 32;
        using Form = encoder::Form<element_of(format), encoder::family_of(format), joins, rounded, group>;
        if constexpr (kPart.has(log_n(), i()) && is_compiled(dtype, format, log_n(), i(), prepares)) {
          constexpr KernelId here = kernel_of_kind(dtype, log_n(), i(), prepares);
          kernels.add({here, joins, rounded},
                      kernel_of<EncodedRows<Form, prepares>, dtype, log_n(), rows::code_of(here.launch),
                                here.access, here.trigger, here.scaling>());
        }
      });
  return kTable.find(id);
}

}  // namespace fwht::mma_split
