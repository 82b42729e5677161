#include "variants/naive/naive.hpp"

#include <algorithm>
#include <cmath>

#include "common/bits.hpp"

namespace fwht::naive {

std::vector<float> stage_factors(Dtype dtype, std::int64_t n, double scale) {
  const int stages = log2_floor(n);
  std::vector<float> factors(static_cast<std::size_t>(stages), 1.0F);
  int halvings = 0;
  if (dtype == Dtype::f16) {
    for (int s = 1; s < stages - 1; s += 2) {
      factors[static_cast<std::size_t>(s)] = 0.5F;
      ++halvings;
    }
  }
  factors.back() = static_cast<float>(std::ldexp(scale, halvings));
  return factors;
}

double intermediate_growth(Dtype dtype, std::int64_t n) {
  if (dtype != Dtype::f16) return static_cast<double>(n);
  double size = 1.0, largest = 1.0;
  const std::vector<float> factors = stage_factors(dtype, n, 1.0);
  for (std::size_t s = 0; s + 1 < factors.size(); ++s) {
    size *= 2.0 * factors[s];
    largest = std::max(largest, size);
  }
  return largest;
}

NumericModel numeric_model(const Problem& problem) {
  // Storing fp32 loses nothing: the plain fp32 transform.
  NumericModel model = single_rounding(Arithmetic::fp32_ascending, problem.n());
  if (problem.dtype() == Dtype::f32) return model;
  model.arithmetic = Arithmetic::radix2_stored;
  // A sum of two numbers on one grid leaves residues 0 or 1/2 of the coarser grid, not a uniform one: 0.46 u
  // a rounding instead of 0.42466 u. An irrational factor in the last stage breaks the lattice there.
  constexpr double kLattice = 0.46;
  const int stages = log2_floor(problem.n());
  int exponent = 0;
  const float last_factor = stage_factors(problem.dtype(), problem.n(), problem.scale).back();
  const double last = std::frexp(last_factor, &exponent) == 0.5F ? kLattice : model.rounding_rms;
  model.roundings = stages;
  model.rounding_rms = std::sqrt(((stages - 1) * kLattice * kLattice + last * last) / stages);
  model.fp32_rms = 0.0;
  model.intermediate_growth = intermediate_growth(problem.dtype(), problem.n());
  model.intermediate_limit = format_of(problem.dtype()).max_finite;
  return model;
}

namespace {

Support supports(const Problem& problem, const DeviceInfo& device) {
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  if (Support launch = require_ordinary_launch(problem); !launch) return launch;
  if (Support strides = require_one_row_stride(problem); !strides) return strides;
  return require_sylvester(problem, 2, kLargestN);
}

}  // namespace

const Variant variant{
    "naive", "radix 2, one launch a stage through global memory, rounded to storage after each stage",
    Memory::device, supports, make_plan};

}  // namespace fwht::naive
