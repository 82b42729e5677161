#include "variants/kronecker/kronecker_encoded.cuh"

namespace fwht::kronecker {

template Kernel encoded_kernel<Dtype::f16, CodeFormat::mxfp4>(const Launch&, bool);

}  // namespace fwht::kronecker
