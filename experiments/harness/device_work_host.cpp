// The device half in a build without CUDA.
#include <stdexcept>

#include "experiments/harness/device_work.hpp"

namespace fwht::harness::device {

std::int64_t period_break(const void*, std::int64_t, std::int64_t) {
  throw std::runtime_error("device memory compared in a build without CUDA");
}

void enqueue_copy(void*, const void*, std::int64_t, Stream) {
  throw std::runtime_error("device memory copied in a build without CUDA");
}

void make_current(int) {
  throw std::runtime_error("a device chosen in a build without CUDA");
}

}  // namespace fwht::harness::device
