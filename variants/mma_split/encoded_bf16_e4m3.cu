#include "variants/mma_split/encoded_instances.cuh"

namespace fwht::mma_split {

template EncodedKernel find_encoded<Dtype::bf16, CodeFormat::e4m3>(const KernelId&, bool, bool);

}  // namespace fwht::mma_split
