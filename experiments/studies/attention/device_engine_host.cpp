// The device half in a build without CUDA.
#include <stdexcept>

#include "experiments/studies/attention/attention.hpp"

namespace fwht::attention {

std::unique_ptr<Engine> make_device_engine(AttentionShape) {
  throw std::runtime_error("attention on the device in a build without CUDA");
}

}  // namespace fwht::attention
