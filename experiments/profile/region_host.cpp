// The profiled region in a build without CUDA.
#include <stdexcept>

#include "experiments/profile/region.hpp"

namespace fwht::profile {

std::int64_t count_kernels(const Enqueue&) {
  throw std::runtime_error("kernels counted in a build without CUDA");
}

void run_profiled(const Enqueue&) {
  throw std::runtime_error("kernels profiled in a build without CUDA");
}

}  // namespace fwht::profile
