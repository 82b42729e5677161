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

/// Whether kernels exist whose warps find the maximum of a row together, see joins_vectors().
template <CodeFormat format>
constexpr bool may_join(int log_n) {
  return encoder::family_of(format) == encoder::Family::f32 && log_n > 8;
}

/// Those of few rows, of many, and of numbers that are not rounded first; each for scales of groups and of
/// rows.
template <Dtype dtype, CodeFormat format, Lengths lengths>
EncodedKernel find_encoded(const CodesId& id) {
  using Kernels = Table<CodesId, EncodedKernel>;
  static const auto kTable = table_of<Kernels, smallest_log_n(lengths), largest_log_n(lengths), 6>(
      [](Kernels& kernels, auto log_n, auto i) {
        constexpr bool joins = i() % 2 == 1, rounded = i() < 4;
        constexpr int group = rounded && !joins ? fewest_of_group(log_n()) : 32;
        using Form = encoder::Form<element_of(format), encoder::family_of(format), joins, rounded, group>;
        if constexpr (!joins || may_join<format>(log_n())) {
          constexpr KernelId here = encoded_kernel(dtype, log_n(), i() >= 2, joins, rounded);
          kernels.add({here, joins, rounded},
                      kernel_of<EncodedRows<Form>, dtype, log_n(), rows::code_of(here.launch), here.access,
                                here.trigger, here.scaling>());
        }
      });
  return kTable.find(id);
}

/// One launch per length: a prologue's own loads and shuffles matter more than the last percent of a launch.
template <Dtype dtype, CodeFormat format>
PreparedKernel find_prepared(const CodesId& id) {
  using Kernels = Table<CodesId, PreparedKernel>;
  static const auto kTable =
      table_of<Kernels, kSmallestLogN, kLargestLogN, 2>([](Kernels& kernels, auto log_n, auto joined) {
        constexpr bool joins = joined() == 1;
        using Form = encoder::Form<element_of(format), encoder::family_of(format), joins>;
        if constexpr (!joins || may_join<format>(log_n())) {
          constexpr KernelId here = prepared_kernel(dtype, log_n(), joins);
          kernels.add({here, joins, false},
                      kernel_of<EncodedRows<Form, true>, dtype, log_n(), rows::code_of(here.launch),
                                here.access, here.trigger, here.scaling>());
        }
      });
  return kTable.find(id);
}

}  // namespace fwht::mma_split
