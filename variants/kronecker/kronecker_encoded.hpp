// The kernels of kronecker that write codes, by storage type and format, compiled in a file each. Included by
// CUDA sources only.
#pragma once

#include "variants/kit/encode/output.hpp"
#include "variants/kronecker/kronecker_kernels.hpp"

namespace fwht::kronecker {

struct EncodedWork : Work {
  encoder::Output out;
  int row_count;  ///< of the problem
};

/// The kernels of launches that write codes, see Launch::writes_codes. One scale belongs to a whole row, or
/// to what lies in a vector of a warp, 256 elements.
template <Dtype dtype, CodeFormat format>
const Kernels& encoded_kernels(bool whole_row);

}  // namespace fwht::kronecker
