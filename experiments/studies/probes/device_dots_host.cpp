// The device half in a build without CUDA.
#include <stdexcept>

#include "experiments/studies/probes/probes.hpp"

namespace fwht::probes {

Evaluate by_device() {
  throw std::runtime_error("tensor cores probed in a build without CUDA");
}

}  // namespace fwht::probes
