#include "variants/mma_split/encoded_instances.cuh"

namespace fwht::mma_split {

template EncodedKernel find_encoded<Dtype::f16, CodeFormat::mxfp8>(const KernelId&, bool, bool);

}  // namespace fwht::mma_split
