#include "common/variant.hpp"

#include <fmt/format.h>

#include "common/bits.hpp"
#include "common/error.hpp"

namespace fwht {

void Plan::execute(const void* in, void* out, Stream stream) const {
  if (problem_.rows == 0) return;
  const auto from = reinterpret_cast<std::uintptr_t>(in), to = reinterpret_cast<std::uintptr_t>(out);
  for (const auto& [name, address] : {std::pair{"in", from}, std::pair{"out", to}}) {
    if (address == 0) throw BadRequest(fmt::format("{} is a null pointer", name));
    if (address % alignment() != 0) {
      throw BadRequest(fmt::format("{}={:#x} must be aligned to {} bytes for {}", name, address, alignment(),
                                   to_string(problem_)));
    }
  }
  if (problem_.placement == Placement::in_place) {
    if (from != to) {
      throw BadRequest(fmt::format("in={:#x} and out={:#x} must be equal for the in-place problem {}", from,
                                   to, to_string(problem_)));
    }
  } else {
    const auto span = static_cast<std::uintptr_t>(problem_.span_bytes());
    if (from < to + span && to < from + span) {
      throw BadRequest(
          fmt::format("in={:#x} and out={:#x} overlap: the out-of-place problem {} spans {} bytes", from, to,
                      to_string(problem_), span));
    }
  }
  enqueue(in, out, stream);
}

std::unique_ptr<Plan> plan(const Variant& variant, const Problem& problem, const DeviceInfo& device) {
  validate(problem);
  if (const Support support = variant.supports(problem, device); !support) {
    throw BadRequest(fmt::format("{}: {}", variant.name, support.why_not));
  }
  return variant.make_plan(problem, device);
}

Support require_cuda(const DeviceInfo& device, int compute_capability) {
  if (!device.has_cuda()) return {device.why_no_cuda};
  if (device.compute_capability() < compute_capability) {
    return {fmt::format("{} has compute capability {}.{}, at least {}.{} is needed", device.name,
                        device.compute_major, device.compute_minor, compute_capability / 10,
                        compute_capability % 10)};
  }
  return {};
}

Support require_ordinary_launch(const Problem& problem) {
  if (!problem.programmatic_launch) return {};
  return {"programmatic dependent launch is not offered by this variant"};
}

Support require_programmatic_launch(const DeviceInfo& device) {
#ifdef FWHT_WITHOUT_SM90
  return {"built without sm_90 code, which programmatic dependent launch needs (CMAKE_CUDA_ARCHITECTURES)"};
#else
  if (device.has_cuda() && device.compute_capability() != 90) {
    return {fmt::format("{} has compute capability {}.{}; programmatic dependent launch is offered on 9.0",
                        device.name, device.compute_major, device.compute_minor)};
  }
  return {};
#endif
}

Support require_power_of_two(std::int64_t n, std::int64_t smallest, std::int64_t largest) {
  if (is_power_of_two(n) && n >= smallest && n <= largest) return {};
  return {fmt::format("n={} must be a power of two between {} and {}", n, smallest, largest)};
}

}  // namespace fwht
