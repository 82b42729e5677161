// In a build without CUDA.
#include <stdexcept>

#include "variants/library/function_rows.hpp"

namespace fwht::walsh {

void launch_function_rows(FunctionForm, const void*, int, std::int64_t, std::int32_t*, Stream) {
  throw std::runtime_error("Walsh spectra on a device: built without CUDA");
}

}  // namespace fwht::walsh
