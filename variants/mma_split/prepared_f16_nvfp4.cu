#include "variants/mma_split/prepared_instances.cuh"

namespace fwht::mma_split {

template PreparedKernel find_prepared<Dtype::f16, CodeFormat::nvfp4>(int, bool);

}  // namespace fwht::mma_split
