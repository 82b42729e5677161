#include "common/variant.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/bits.hpp"
#include "common/error.hpp"

namespace fwht {

namespace {

std::uintptr_t address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

/// An operand beside `in` and `out` is there when, and only when, the problem needs it.
void check_extra(const char* name, const void* pointer, bool needed, const Problem& problem) {
  if ((pointer != nullptr) == needed) return;
  throw BadRequest(needed ? fmt::format("{} is a null pointer, which {} needs", name, to_string(problem))
                          : fmt::format("{} is given, but {} has none", name, to_string(problem)));
}

void check_placement(const Problem& problem, std::uintptr_t in, std::uintptr_t out) {
  if (problem.placement == Placement::in_place) {
    if (in == out) return;
    throw BadRequest(fmt::format("in={:#x} and out={:#x} must be equal for the in-place problem {}", in, out,
                                 to_string(problem)));
  }
  const auto read = static_cast<std::uintptr_t>(problem.span_bytes());
  const auto written = static_cast<std::uintptr_t>(problem.span_bytes_out());
  if (in >= out + written || out >= in + read) return;
  throw BadRequest(fmt::format("in={:#x} and out={:#x} overlap: the out-of-place problem {} spans {} bytes",
                               in, out, to_string(problem), std::max(read, written)));
}

}  // namespace

void Plan::execute(const Operands& operands, Stream stream) const {
  if (problem_.rows == 0) return;
  const std::uintptr_t in = address_of(operands.in), out = address_of(operands.out);
  for (const auto& [name, address] : {std::pair{"in", in}, std::pair{"out", out}}) {
    if (address == 0) throw BadRequest(fmt::format("{} is a null pointer", name));
    if (address % alignment() != 0) {
      throw BadRequest(fmt::format("{}={:#x} must be aligned to {} bytes for {}", name, address, alignment(),
                                   to_string(problem_)));
    }
  }
  check_extra("scales", operands.scales, !problem_.encoding.is_plain(), problem_);
  check_extra("signs", operands.signs, problem_.op.has_signs(), problem_);
  check_extra("dense", operands.dense, problem_.op.has_dense(), problem_);
  check_placement(problem_, in, out);
  enqueue(operands, stream);
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

Support require_plain_rows(const Problem& problem, std::span<const Dtype> dtypes) {
  if (!problem.encoding.is_plain()) {
    return {fmt::format("the encoding {} is not offered by this variant", to_string(problem.encoding))};
  }
  if (problem.in.dtype != problem.out.dtype) {
    return {fmt::format("input in {} and output in {} are not offered by this variant",
                        name_of(problem.in.dtype), name_of(problem.out.dtype))};
  }
  if (std::find(dtypes.begin(), dtypes.end(), problem.in.dtype) == dtypes.end()) {
    return {fmt::format("{} data are not offered by this variant", name_of(problem.in.dtype))};
  }
  return {};
}

Support require_sylvester(const Problem& problem, std::int64_t smallest, std::int64_t largest,
                          std::span<const Dtype> dtypes) {
  if (!problem.op.is_sylvester()) {
    return {fmt::format("the operator {} is not offered by this variant, which takes n = 2^k from {} to {}",
                        to_string(problem.op), smallest, largest)};
  }
  if (Support rows = require_plain_rows(problem, dtypes); !rows) return rows;
  const std::int64_t n = problem.n();
  if (is_power_of_two(n) && n >= smallest && n <= largest) return {};
  return {fmt::format("n={} must be a power of two between {} and {}", n, smallest, largest)};
}

Support require_one_row_stride(const Problem& problem) {
  if (problem.in.row_stride == problem.out.row_stride) return {};
  return {fmt::format("row_stride={} of the input and {} of the output must be equal for this variant",
                      problem.in.row_stride, problem.out.row_stride)};
}

}  // namespace fwht
