#include "variants/butterflies/butterflies.hpp"

#include <cmath>

#include "variants/butterflies/launches.hpp"

namespace fwht::butterflies {
namespace {

Support supports(const Problem& problem, const DeviceInfo& device) {
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  if (problem.programmatic_launch) {
    if (Support launch = require_programmatic_launch(device); !launch) return launch;
  }
  const int largest = largest_log_n(problem.dtype());
  if (Support strides = require_one_row_stride(problem); !strides) return strides;
  if (Support n = require_sylvester(problem, 2, std::int64_t{1} << largest); !n) return n;
  const int log_n = log2_floor(problem.n());
  const int bytes = 4 * strided_kernel(problem.dtype(), log_n).tile().exchange_words();
  return require_shared_bytes(problem, bytes, device);
}

}  // namespace

int shrink_exponent(const Problem& problem) {
  if (problem.dtype() != Dtype::bf16) return 0;
  const int log_n = log2_floor(problem.n());
  return std::isfinite(std::ldexp(static_cast<float>(problem.scale), log_n)) ? log_n : 0;
}

rows::Factors factors(const Problem& problem) {
  return rows::factors_of(problem, shrink_exponent(problem));
}

Numerics numerics_of(const Problem& problem) {
  Numerics numerics = single_rounding(Sums::fp32, problem);
  // Sums of data times 1/n stay below max|x|.
  numerics.promises.intermediate_growth = rows::growth_of_shrunken(problem, shrink_exponent(problem));
  return numerics;
}

const Variant variant{"butterflies",
                      "fp32 additions alone: short rows in registers and lanes, fp32 rows also through "
                      "shared memory; one rounding",
                      Memory::device, supports, make_plan};

}  // namespace fwht::butterflies
