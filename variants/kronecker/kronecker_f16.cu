// The kernels of kronecker for f16 data.
#include "variants/kronecker/kronecker_kernels.hpp"

namespace fwht::kronecker {

Kernel kernel_f16(const Launch& launch) {
  return kernel_of<Dtype::f16>(launch);
}

}  // namespace fwht::kronecker
