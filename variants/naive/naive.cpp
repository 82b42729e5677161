#include "variants/naive/naive.hpp"

#include <algorithm>
#include <cmath>

#include "common/host/bits.hpp"
#include "common/host/text.hpp"

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

std::vector<FactorStage> factor_stages(const Operator& op) {
  std::vector<FactorStage> stages;
  std::int64_t stride = op.n();
  for (const Factor& factor : op.factors()) {
    const int index = static_cast<int>(&factor - op.factors().data());
    stride /= factor.order;
    if (factor.basis != Basis::sylvester) {
      stages.push_back({index, static_cast<int>(factor.order), stride});
      continue;
    }
    for (std::int64_t half = 1; half < factor.order; half *= 2)
      stages.push_back({index, 2, half * stride});
  }
  return stages;
}

Numerics numerics_of(const Problem& problem) {
  if (!problem.op.is_sylvester())
    return single_rounding_by_factors(Sums::fp32, problem, Sums::fp32_any_order);
  Numerics numerics = single_rounding(Sums::fp32, problem);
  if (problem.dtype() == Dtype::f32) return numerics;
  numerics.steps.clear();
  for (const float factor : stage_factors(problem.dtype(), problem.n(), problem.scale)) {
    Step step;
    step.bits = {static_cast<int>(numerics.steps.size())};
    step.constant = factor;
    numerics.steps.push_back(std::move(step));
  }
  numerics.promises.intermediate_growth = intermediate_growth(problem.dtype(), problem.n());
  numerics.promises.intermediate_limit = format_of(problem.dtype()).max_finite;
  return numerics;
}

namespace {

Support supports(const Problem& problem, const DeviceInfo& device) {
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  if (Support launch = require_ordinary_launch(problem); !launch) return launch;
  if (Support strides = require_one_row_stride(problem); !strides) return strides;
  if (problem.dtype() != Dtype::f32 || problem.op.is_sylvester() || problem.op.has_signs())
    return require_sylvester(problem, 2, kLargestN);
  if (Support rows = require_plain_rows(problem); !rows) return rows;
  if (problem.n() < 2 || problem.n() > kLargestN)
    return {concat("n=", problem.n(), " must be between 2 and ", kLargestN)};
  for (const Factor& factor : problem.op.factors()) {
    const bool is_sylvester = factor.basis == Basis::sylvester;
    if (is_sylvester ? is_power_of_two(factor.order) : factor.order <= kLargestOrder) continue;
    return {concat("the operator ", to_string(problem.op),
                   " is not offered by this variant: factors are powers of two, or ", "have an order up to ",
                   kLargestOrder)};
  }
  return {};
}

}  // namespace

const Variant variant{
    "naive", "radix 2, one launch a stage through global memory, rounded to storage after each stage",
    Memory::device, supports, make_plan};

}  // namespace fwht::naive
