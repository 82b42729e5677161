#include <stdexcept>

#include "reference/conformance/device_tools.hpp"

namespace fwht::conformance {
namespace {

[[noreturn]] void no_cuda() {
  throw std::logic_error("a device check was run in a build without CUDA");
}

}  // namespace

void fill_shared_memory_with_nan() {
  no_cuda();
}
void execute_on_new_stream(const Plan&, const void*, void*) {
  no_cuda();
}
void execute_captured(const Plan&, const void*, void*, int, const std::function<void()>&) {
  no_cuda();
}
void execute_concurrently(const Plan&, const void*, void*, const Plan&, const void*, void*) {
  no_cuda();
}
void execute_between_eager_neighbours(const Plan&, const void*, void*, void*, void*, std::int64_t) {
  no_cuda();
}
std::int64_t count_departures_from_period(const void*, std::int64_t, std::int64_t) {
  no_cuda();
}

}  // namespace fwht::conformance
