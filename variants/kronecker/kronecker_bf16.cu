// The kernels of kronecker for bf16 data.
#include "variants/kronecker/kronecker_kernels.hpp"

namespace fwht::kronecker {

Kernel kernel_bf16(const Launch& launch) {
  return kernel_of<Dtype::bf16>(launch);
}

}  // namespace fwht::kronecker
