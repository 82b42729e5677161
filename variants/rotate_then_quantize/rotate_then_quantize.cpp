#include "variants/rotate_then_quantize/rotate_then_quantize.hpp"

#include "common/host/text.hpp"
#include "variants/auto/auto.hpp"
#include "variants/kronecker/kronecker.hpp"
#include "variants/rotate_then_quantize/quantizer.hpp"
#include "variants/warp_kronecker/warp_kronecker.hpp"

namespace fwht::rotate_then_quantize {
namespace {

constexpr Dtype kDtypes[] = {Dtype::f16, Dtype::bf16, Dtype::f32};

Support supports_encoding(const Problem& problem) {
  const Encoding& encoding = problem.encoding;
  if (encoding.intermediate != Intermediate::storage && problem.dtype() != Dtype::f32) {
    return {concat("the encoding ", to_string(encoding),
                   " quantizes fp32 results; rows between two launches are in ", name_of(problem.dtype()))};
  }
  if (code_bits(encoding.format) == 4 && encoding.scales.group % 2 != 0)
    return {concat("group=", encoding.scales.group, " must be a multiple of 2, as two codes share a byte")};
  constexpr std::int64_t kLongest = 1 << 16;  // what quantizers are tested with
  if (problem.n() > kLongest)
    return {concat("n=", problem.n(), " must be at most ", kLongest, " for codes in two launches")};
  if (problem.n() == 1 && !problem.contiguous())
    return {concat("row_stride=", problem.row_stride(), " must be 1 for rows of n=1")};
  if (problem.op.is_sylvester() && problem.n() == 1 && static_cast<float>(problem.scale) != 1.0F)
    return {concat("scale=", problem.scale, " must be 1 for rows of n=1, which no launch multiplies")};
  return {};
}

Support supports(const Problem& problem, const DeviceInfo& device) {
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  if (Support launch = require_ordinary_launch(problem); !launch) return launch;
  const Problem rotation = rotation_of(problem);
  if (Support rows = require_plain_rows(rotation, kDtypes); !rows) return rows;
  if (!problem.encoding.is_plain()) {
    if (Support encoding = supports_encoding(problem); !encoding) return encoding;
    if (problem.op.is_sylvester() && problem.n() == 1) return {};
  }
  return automatic::variant.supports(rotation, device);
}

}  // namespace

Problem rotation_of(const Problem& problem) {
  Problem rotation = problem;
  if (problem.encoding.is_plain()) return rotation;
  rotation.encoding = {};
  rotation.out.row_stride = rotation.in.row_stride;
  return rotation;
}

bool begins_early(const Problem& problem, const DeviceInfo& device) {
  // From there on blocks that wait take up room of those that rotate: up to 11 % slower.
  constexpr std::int64_t kOutOfMemory = std::int64_t{1} << 25;  // elements
  if (problem.n() == 1 || problem.elements() >= kOutOfMemory || !require_programmatic_launch(device))
    return false;
  const Problem rotation = rotation_of(problem);
  const std::vector<const Variant*> able = automatic::candidates(rotation, device);
  if (able.empty()) return false;
  if (able.front() == &kronecker::variant) return true;
  if (able.front() != &warp_kronecker::variant) return false;
  const auto choice = warp_kronecker::choice_for(rotation.op, rotation.rows, device.sm_count);
  return choice && choice->launch.teams > 1;
}

int sharers_of_token(std::int64_t token, std::int64_t tokens, const DeviceInfo& device) {
  // Of less, a block reads two vectors a lane sooner than blocks tell each other their largest |y|.
  constexpr std::int64_t kLong = 8192;
  int sharers = 1;
  // Code for programmatic launches, of sm_90 and later, is code for clusters.
  if (token < kLong || !require_programmatic_launch(device)) return sharers;
  while (sharers < kMostSharers && 2 * sharers * tokens <= device.sm_count)
    sharers *= 2;
  return sharers;
}

const Variant variant{
    "rotate_then_quantize",
    "two launches, the baseline of fused kernels: auto rotates, a quantizer reads the rows again",
    Memory::device, supports, make_plan};

}  // namespace fwht::rotate_then_quantize
