// The CUDA half of the study in a build without CUDA.
#include <stdexcept>

#include "experiments/tensor_parallel/layer.hpp"

namespace fwht::tensor_parallel {
namespace {

[[noreturn]] void missing() {
  throw std::runtime_error("tensor_parallel on the device in a build without CUDA");
}

}  // namespace

void activate_on_device(Activation, const void*, void*, std::int64_t, std::int64_t, Stream) {
  missing();
}
void run_once(Communicator&, const std::function<void(Stream)>&, TimeLimit) {
  missing();
}
std::vector<double> time_together(Communicator&, const std::function<void(Stream)>&, int, TimeLimit) {
  missing();
}

}  // namespace fwht::tensor_parallel
