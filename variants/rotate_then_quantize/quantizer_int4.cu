#include "variants/rotate_then_quantize/quantizer.cuh"

namespace fwht::rotate_then_quantize {

template Kernel find_kernel<Dtype::f16, CodeFormat::int4>(const Launch&);
template Kernel find_kernel<Dtype::bf16, CodeFormat::int4>(const Launch&);

}  // namespace fwht::rotate_then_quantize
