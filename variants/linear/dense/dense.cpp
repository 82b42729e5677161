#include "variants/linear/dense/dense.hpp"

#include "common/device/cublaslt.hpp"

namespace fwht::linear::dense {
namespace {

Support supports(const LinearProblem& problem, const DeviceInfo& device) {
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  if (const std::string why_not = cublaslt::why_not_on(device); !why_not.empty()) return {why_not};
  if (Support plain = require_no_rotation(problem); !plain) return plain;
  if (Support sorted = require_sorted_rows(problem); !sorted) return sorted;
  return require_ordinary_launch(problem);
}

}  // namespace

constinit const LinearVariant fp16 = {"dense_fp16", "16-bit weights, made when they are packed; cuBLASLt",
                                      Memory::device, supports, make_fp16};
constinit const LinearVariant dequantize_first = {"dequantize_then_dense",
                                                  "16-bit weights made in every launch, then cuBLASLt",
                                                  Memory::device, supports, make_dequantize_first};

}  // namespace fwht::linear::dense
