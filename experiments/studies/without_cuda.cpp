// The device halves of attention and probes in a build without CUDA.
#include <stdexcept>

#include "experiments/studies/attention/attention.hpp"
#include "experiments/studies/probes/probes.hpp"

namespace fwht::attention {

std::unique_ptr<Engine> make_device_engine(AttentionShape) {
  throw std::runtime_error("attention on the device in a build without CUDA");
}

}  // namespace fwht::attention

namespace fwht::probes {

Evaluate by_device() {
  throw std::runtime_error("tensor cores probed in a build without CUDA");
}

}  // namespace fwht::probes
