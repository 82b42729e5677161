// In a build without CUDA.
#include <stdexcept>

#include "variants/library/sketched_rows.hpp"

namespace fwht::walsh {
namespace {

[[noreturn]] void no_cuda() {
  throw std::runtime_error("sketches on a device: built without CUDA");
}

}  // namespace

void launch_sketched_rows(const SketchedVectors&, const DeviceInfo&, Stream) {
  no_cuda();
}
void launch_sketch_source(const SketchedVectors&, int, void*, const DeviceInfo&, Stream) {
  no_cuda();
}
void launch_sketch_sink(const SketchedVectors&, int, const void*, const DeviceInfo&, Stream) {
  no_cuda();
}

}  // namespace fwht::walsh
