// Tolerances T1 .. T6, computed from what a plan promises (NumericModel), the storage type and the sizes.
// Nothing here is tuned; every constant carries its derivation.
//
// Notation: u = unit roundoff of the storage type, u32 = 2^-24, L = log2 n, k = roundings, gamma = gain
// error, N = number of elements. RMS is that of the output.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/numeric_model.hpp"
#include "common/problem.hpp"
#include "reference/compare.hpp"
#include "reference/inputs.hpp"

namespace fwht::reference {

struct Window {
  double low = 0.0, high = 0.0;
  bool contains(double value) const { return value >= low && value <= high; }  // false for NaN
};

/// Relative error of the result that every element shares: the model's constants, the conversion of
/// problem.scale to fp32 (where the model applies it in fp32), and the truncation bias.
double predicted_gain(const NumericModel& model, const Problem& problem);

/// T1, centre: relative L2 error on smooth random data whose output has the given RMS (for the subnormal
/// term), E^2 = k (rounding_rms u)^2 + gamma^2 + (fp32_rms u32)^2 + k (quantum^2 / 12) / RMS^2, quantum the
/// subnormal spacing. For f32 storage: the fp32 arithmetic plus one rounding by the scale (none when the
/// scale is a power of two).
double predicted_rel_l2(const NumericModel& model, const Problem& problem, double output_rms);

/// T1: two-sided window around predicted_rel_l2, +-(0.02 (0.03 for n <= 4) + 6 * 1.153 / sqrt(N)) of it. A
/// result that is too good fails as well: it was not computed the way the model says. Wider for f32 storage;
/// see the source.
Window rms_window(const NumericModel& model, const Problem& problem, double output_rms,
                  std::int64_t elements);

/// One step between two roundings to the storage type: butterflies over index bits first_bit .. first_bit +
/// bits - 1, then multiplication by `factor`, then the rounding.
struct RoundedStage {
  int first_bit = 0, bits = 0;
  double factor = 1.0;
};

/// The steps of a model: for k = 1 all bits at once; radix2_stored one bit a step, with radix2_factors
/// (reference/emulation); mma_f16 and mma_f32 four bits a step, ascending, the rest in the last one. Throws
/// BadRequest when the model's k contradicts its arithmetic.
std::vector<RoundedStage> rounded_stages(const NumericModel& model, const Problem& problem);

/// T2: bound of |err| for each element (count x n) on any finite data, from the inputs (count x n, FP64) by a
/// running variance: after each step but the last v <- sum over the step's inputs of v + ulp(z)^2 / 12, and
/// at the end
///   u (|y| + 6 s) + 6 s + |gamma| |y| + half the subnormal spacing,   s^2 = v + (fp32_rms u32 RMS_row)^2.
/// split_bf16 adds 2^-14 RMS_row: pairs of bf16 carry 16 bits of each intermediate.
/// A step's error is strictly sub-Gaussian, so that P(violation) <= 2 exp(-18) per element.
Matrix elementwise_bound(const NumericModel& model, const Problem& problem, const Matrix& input,
                         int threads = 0);

/// T3: |gain - predicted_gain| allowed on smooth random data, for N elements.
double gain_tolerance(const NumericModel& model, const Problem& problem, std::int64_t elements);

/// T4: Parseval, |norm_gain - predicted| allowed. ||yhat||/||y|| - 1 = gain + rel_l2^2 / 2 to second order.
double parseval_tolerance(const NumericModel& model, const Problem& problem, std::int64_t elements);

/// T5: hard bound for any finite data, no statistics: ||err||_2 <= relative ||y||_2 + absolute sqrt(n) for
/// each row.
struct HardBound {
  double relative = 0.0, absolute = 0.0;
};
HardBound hard_bound(const NumericModel& model, const Problem& problem);

/// Largest |x| and row 2-norm for which no intermediate of the model can overflow; above them a finite result
/// may come out infinite or NaN (C8, C9).
bool intermediates_fit(const NumericModel& model, const Problem& problem, const Matrix& input);

/// T2 (for classes where it holds) and T5 as Limits for Comparison::add. `input` is the chunk's FP64 input.
Limits limits_for(const NumericModel& model, const Problem& problem, InputClass input_class,
                  const Matrix& input, int threads = 0);

/// The verdict on one comparison: every element and row within its Limits, and on smooth data the statistics
/// T1 (N >= 2^14), T3 and T4 (N >= 2^10) inside their windows. The message names the test, the value and the
/// window.
Verdict judge(const ErrorStats& stats, const NumericModel& model, const Problem& problem,
              InputClass input_class);

/// What a check found. Time is known only for a correct result: see with_time.
struct Checked {
  Verdict verdict;
  ErrorStats stats;
  std::optional<double> time_us;  ///< never set for an incorrect result

  /// Attaches a time, unless the result is incorrect.
  Checked with_time(double microseconds) const;
};

/// expected, limits_for, compare and judge over all rows, in chunks of bounded memory. `input` and `output`
/// are raw storage as the plan saw them (for an in-place plan: a copy of the input made before).
Checked check(const Problem& problem, const NumericModel& model, InputClass input_class, const void* input,
              const void* output, int threads = 0);

}  // namespace fwht::reference
