// The kernels of moves.hpp in a build without CUDA.
#include <stdexcept>

#include "variants/library/sharded/device_moves.hpp"

namespace fwht::sharded::device {
namespace {

[[noreturn]] void missing() {
  throw std::runtime_error("sharded: built without CUDA");
}

}  // namespace

void swap_outer(const void*, void*, std::int64_t, std::int64_t, std::int64_t, bool, Stream) {
  missing();
}
void take_chunk(const void*, void*, std::int64_t, std::int64_t, std::int64_t, Stream) {
  missing();
}
void add_with_signs(Dtype, const void*, void*, const Parts&, float, bool, Stream) {
  missing();
}
void pick_columns(const void*, void*, const std::int32_t*, std::int64_t, std::int64_t, std::int64_t, Stream) {
  missing();
}

}  // namespace fwht::sharded::device
