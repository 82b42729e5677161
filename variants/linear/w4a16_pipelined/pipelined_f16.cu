// The kernels of w4a16_pipelined for f16.
#include "variants/linear/w4a16_pipelined/kernels.hpp"

namespace fwht::linear::pipelined {

Kernel kernel_f16(int form, int scales) {
  return kernel_of<Dtype::f16>(form, scales);
}

}  // namespace fwht::linear::pipelined
