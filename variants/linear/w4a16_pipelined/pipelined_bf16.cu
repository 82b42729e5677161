// The kernels of w4a16_pipelined for bf16.
#include "variants/linear/w4a16_pipelined/kernels.hpp"

namespace fwht::linear::pipelined {

Kernel kernel_bf16(int form, int scales) {
  return kernel_of<Dtype::bf16>(form, scales);
}

}  // namespace fwht::linear::pipelined
