// In a build without CUDA.
#include <stdexcept>

#include "variants/library/rounded_rows.hpp"

namespace fwht::walsh {

void launch_rounded_rows(Dtype, const RoundedRows&, int, Stream) {
  throw std::runtime_error("rounds on a device: built without CUDA");
}

}  // namespace fwht::walsh
