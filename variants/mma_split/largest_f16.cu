#include "variants/mma_split/largest_of_tensor.cuh"
#include "variants/mma_split/prepared_instances.cuh"

namespace fwht::mma_split {

template EncodedKernel find_largest<Dtype::f16>(const KernelId&);

template <>
PreparedKernel find_prepared_largest<Dtype::f16>(int log_n) {
  PreparedKernel found = nullptr;
  for_length(log_n, [&]<int length>() {
    constexpr bool joins = length > 8;
    found = prepared_instance<Dtype::f16, length, joins, LargestOfTensor<true>>();
  });
  return found;
}

}  // namespace fwht::mma_split
