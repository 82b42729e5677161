// The kernels of kronecker by storage type, compiled in a file each. Included by CUDA sources only.
#pragma once

#include "variants/kit/kernel_table.hpp"
#include "variants/kronecker/kronecker_kernel.cuh"

namespace fwht::kronecker {

/// Launches that differ in what lies behind the last whole k step have one kernel.
constexpr Launch whole_steps(Launch launch) {
  launch.shape.order = 16 * launch.shape.k_steps();
  return launch;
}

/// By whole_steps of the launch.
using Kernels = Table<Launch, Kernel>;

/// The kernels of kLaunches without a ring, of those with one, and of kFewRows.
template <Dtype dtype>
const Kernels& kernels();
template <Dtype dtype>
const Kernels& ring_kernels();
template <Dtype dtype>
const Kernels& few_rows_kernels();

}  // namespace fwht::kronecker
