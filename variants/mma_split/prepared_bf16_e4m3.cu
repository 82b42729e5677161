#include "variants/mma_split/prepared_instances.cuh"

namespace fwht::mma_split {

template PreparedKernel find_prepared<Dtype::bf16, CodeFormat::e4m3>(int, bool);

}  // namespace fwht::mma_split
