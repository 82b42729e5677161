// In a build without CUDA.
#include <stdexcept>

#include "variants/library/function_rows.hpp"

namespace fwht::walsh {

namespace {

[[noreturn]] void no_cuda() {
  throw std::runtime_error("Walsh spectra on a device: built without CUDA");
}

}  // namespace

void launch_function_rows(FunctionForm, const void*, int, std::int64_t, std::int32_t*, Stream) {
  no_cuda();
}
void launch_short_functions(FunctionForm, const void*, int, std::int64_t, std::int32_t*, SpectrumSummary*,
                            const DeviceInfo&, Stream) {
  no_cuda();
}
void launch_summed_pass(const std::int32_t*, int, int, std::int64_t, SpectrumSummary*, const DeviceInfo&,
                        Stream) {
  no_cuda();
}
void launch_largest(const std::int32_t*, int, int, const LargestRoom&, int, std::int64_t*, std::int32_t*,
                    const DeviceInfo&, Stream) {
  no_cuda();
}
void clear_summaries(SpectrumSummary*, std::int64_t, Stream) {
  no_cuda();
}
void launch_finish_summaries(SpectrumSummary*, int, std::int64_t, Stream) {
  no_cuda();
}

}  // namespace fwht::walsh
