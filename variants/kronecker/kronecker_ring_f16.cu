// The kernels of kronecker with a ring, for f16 data.
#include "variants/kronecker/kronecker_ring_kernel.cuh"

namespace fwht::kronecker {

Kernel ring_kernel_f16(const Launch& launch) {
  return ring_kernel_of<Dtype::f16>(launch);
}

}  // namespace fwht::kronecker
