// The timer's device half in a build without CUDA: nothing to time.
#include <stdexcept>

#include "common/device/gpu_timer.hpp"

namespace fwht {

Timing time_on_device(std::span<const Enqueue>, const TimerOptions&) {
  throw std::runtime_error("device work cannot be timed in a build without CUDA");
}

Timing time_empty_kernel() {
  return time_on_device({});
}

}  // namespace fwht
