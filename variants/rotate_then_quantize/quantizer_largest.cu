// rotate_then_quantize: the largest |y| of a tensor.
#include "variants/rotate_then_quantize/quantizer.cuh"

namespace fwht::rotate_then_quantize {

template <Dtype dtype>
Kernel largest_kernel(Reader reader) {
  return reader == Reader::vectors ? find_largest_in_vectors<dtype, 4> : find_largest_of_any<dtype>;
}

template Kernel largest_kernel<Dtype::f16>(Reader);
template Kernel largest_kernel<Dtype::bf16>(Reader);
template Kernel largest_kernel<Dtype::f32>(Reader);

}  // namespace fwht::rotate_then_quantize
