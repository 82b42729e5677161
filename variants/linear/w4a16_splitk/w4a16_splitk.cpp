#include "common/device/launcher.hpp"
#include "common/host/text.hpp"
#include "variants/linear/w4a16_splitk/splitk.hpp"

namespace fwht::linear::splitk {
namespace {

Support supports_shape(const LinearProblem& problem, const DeviceInfo& device) {
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  if (problem.dtype != Dtype::f16)
    return {concat("only f16 is published, ", name_of(problem.dtype), " asked for")};
  if (Support plain = require_no_rotation(problem); !plain) return plain;
  if (Support sorted = require_sorted_rows(problem); !sorted) return sorted;
  if (Support ordinary = require_ordinary_launch(problem); !ordinary) return ordinary;
  if (problem.symmetric()) return {"symmetric weights: only stored zero points are published"};
  if (problem.n % kOutputs != 0)
    return {concat("n = ", problem.n, ": a multiple of ", kOutputs, " is needed")};
  if (problem.k % kRows != 0) return {concat("k = ", problem.k, ": a multiple of ", kRows, " is needed")};
  if (problem.group_rows() % kRows != 0)
    return {concat("group ", problem.group_rows(), ": a block of ", kRows, " rows may not span two groups")};
  constexpr std::int64_t kMostTokens = kMostGridLayers * kTokens;
  if (problem.m > kMostTokens) return {concat("m = ", problem.m, ": ", kMostTokens, " is the most")};
  return {};
}

}  // namespace

constinit const LinearVariant data_parallel = {"w4a16_data_parallel",
                                               "one block a tile, all of k (arXiv 2402.00025)",
                                               Memory::device, supports_shape, make_data_parallel};
constinit const LinearVariant split_4 = {"w4a16_splitk",
                                         "k dealt to 4 blocks a tile, fp16 atomics (arXiv 2402.00025)",
                                         Memory::device, supports_shape, make_split_4};
constinit const LinearVariant split_8 = {"w4a16_splitk_8", "w4a16_splitk with 8 blocks a tile",
                                         Memory::device, supports_shape, make_split_8};
constinit const LinearVariant split_16 = {"w4a16_splitk_16", "w4a16_splitk with 16 blocks a tile",
                                          Memory::device, supports_shape, make_split_16};
constinit const LinearVariant f32 = {"w4a16_splitk_f32", "w4a16_splitk with fp32 sums in a fixed order",
                                     Memory::device, supports_shape, make_f32};

}  // namespace fwht::linear::splitk
