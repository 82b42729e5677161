// The kernels of kronecker for few rows of f16 data.
#include "variants/kronecker/kronecker_few_rows_kernel.cuh"

namespace fwht::kronecker {

Kernel few_rows_kernel_f16(const Launch& launch) {
  return few_rows_kernel_of<Dtype::f16>(launch);
}

}  // namespace fwht::kronecker
