// In a build without CUDA.
#include <stdexcept>

#include "variants/library/convolved_rows.hpp"

namespace fwht::walsh {

void launch_convolved_rows(const ConvolvedRows&, const DeviceInfo&, Stream) {
  throw std::runtime_error("dyadic convolutions on a device: built without CUDA");
}

void launch_divided_passes(const DividedPasses&, const DeviceInfo&, Stream) {
  throw std::runtime_error("dyadic convolutions on a device: built without CUDA");
}

}  // namespace fwht::walsh
