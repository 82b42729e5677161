// The kernels of kronecker with a ring, for bf16 data.
#include "variants/kronecker/kronecker_ring_kernel.cuh"

namespace fwht::kronecker {

Kernel ring_kernel_bf16(const Launch& launch) {
  return ring_kernel_of<Dtype::bf16>(launch);
}

}  // namespace fwht::kronecker
