// naive: arithmetic and geometry, shared by the kernel, its tests and the emulation.
#pragma once

#include <cstdint>
#include <vector>

#include "common/contract/variant.hpp"

namespace fwht::naive {

extern const Variant variant;

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device);

inline constexpr std::int64_t kLargestN = std::int64_t{1} << 30;
inline constexpr int kThreads = 256;
/// Factors of an operator in fp32: a thread holds a column of the data, so their orders are small.
inline constexpr int kLargestOrder = 32;

/// One launch of an operator of several factors: a factor, or one bit of a Sylvester factor. The index of an
/// element of a row is (outer, digit, inner) with `order` digits, `stride` apart.
struct FactorStage {
  int factor = 0;  ///< position in Operator::factors
  int order = 2;
  std::int64_t stride = 1;

  /// Index of digit 0 of a column of the row.
  constexpr std::int64_t first_of(std::int64_t column) const {
    return column / stride * (order * stride) + column % stride;
  }
};

/// Factors slowest first, bits of a Sylvester factor in ascending order.
std::vector<FactorStage> factor_stages(const Operator& op);

/// The fp32 factor that stage s = 0 .. log2(n)-1 multiplies its sums and differences by before rounding them
/// to storage. Stages grow a row by sqrt(2) each. In f16 an exact 1/2 after every second stage keeps the
/// stored values within sqrt(2) of the input's size, so that they do not overflow while the 2-norm of a row
/// fits. The other types have range to spare and keep their last bits instead. What is left of the problem's
/// scale is applied by the last stage.
std::vector<float> stage_factors(Dtype dtype, std::int64_t n, double scale);

/// Index of the lower partner of butterfly `pair` at a stage whose partners differ in bit `bit`: a zero is
/// put in between the bits of `pair`.
constexpr std::int64_t lower_partner(std::int64_t pair, int bit) {
  const std::int64_t low = pair & ((std::int64_t{1} << bit) - 1);
  return ((pair >> bit) << (bit + 1)) | low;
}

/// Largest intermediate over max|x| of the row: stored ones for f16 (fp32 holds their sums), sums before the
/// last factor for the types with fp32's range.
double intermediate_growth(Dtype dtype, std::int64_t n);

/// One step a stage, each stored; for f32, which storing does not round, the plain fp32 transform, factor by
/// factor.
Numerics numerics_of(const Problem& problem);

}  // namespace fwht::naive
