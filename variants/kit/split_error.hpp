// The error of numbers that tensor cores take as bf16 hi + lo.
#pragma once

#include <cmath>

#include "common/contract/numerics.hpp"

namespace fwht::rows {

/// Of a step whose sums are carried as hi + lo. hi is x truncated to 8 bits, lo = x - hi < 2^(e-7) is rounded
/// to 8 bits. There ulp(lo) is 2^(e-15-j) with probability 2^-(j+1), so the mean square error is 2^(2e-30) /
/// 12 * (1/2) / (1 - 1/8), against 2^2e * 1.5 / ln 2 of x itself.
inline void add_split_error(Step& step) {
  constexpr double kSplitRms = 76.0;  // 2^-15 sqrt((4/7) / 12 / (1.5 / ln 2)) in units of 2^-24
  step.sum_rms = std::hypot(step.sum_rms, kSplitRms);
}

}  // namespace fwht::rows
