#include "variants/kronecker/kronecker_encoded.cuh"

namespace fwht::kronecker {

template Kernel encoded_kernel<Dtype::bf16, CodeFormat::int8>(const Launch&, bool);

}  // namespace fwht::kronecker
