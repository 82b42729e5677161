// Tolerances T1 .. T6, computed from the steps of a plan (Numerics), the storage type and the sizes.
// Nothing here is tuned; every constant carries its derivation.
//
// Notation: u = unit roundoff of the storage type, u32 = 2^-24, L = log2 n, k = roundings, gamma = gain
// error, N = number of elements, RMS = root mean square of the output.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/contract/numerics.hpp"
#include "common/contract/problem.hpp"
#include "reference/compare.hpp"
#include "reference/inputs.hpp"
#include "reference/operators.hpp"

namespace fwht::reference {

struct Window {
  double low = 0.0, high = 0.0;
  bool contains(double value) const { return value >= low && value <= high; }  // false for NaN
};

/// Relative error that every element of the result shares: the product of the steps' constants against
/// problem.scale, and the bias of truncating accumulators.
double predicted_gain(const Numerics& numerics, const Problem& problem);

/// The gain that a comparison with the exact result measures on smooth random data, <yhat - y, y> / <y, y>:
/// predicted_gain, less the mean square of every rounding. A rounded number is the mean of the numbers that
/// are rounded to it, as nearly as a smooth density is level over a grid step. So its error is uncorrelated
/// with the result and has the covariance -E[d^2] with the input: -0.18 u^2, -2.75e-6 in bf16. Where two bf16
/// numbers are added their lattice is too coarse for that: normal_data_gain (reference/lattice).
double measured_gain(const Numerics& numerics, const Problem& problem);

/// T1, centre: relative L2 error on smooth random data whose output has the given RMS,
///   E^2 = sum over the roundings of (rounding_rms u)^2 + gamma^2 + (sum_rms u32)^2,
/// kLatticeRms for a step that adds two stored numbers, times a power of two. With the spacing of subnormal
/// numbers in place of u |y| for the share of a Gaussian output that lies below the smallest normal number.
/// f32 storage: the fp32 arithmetic and one rounding by the scale, unless that is 2^j.
double predicted_rel_l2(const Numerics& numerics, const Problem& problem, double output_rms = 1.0);

/// T1: window around predicted_rel_l2 of +- (0.02 (0.03 for n <= 4) + 6 * 1.153 / sqrt(N)) of it, for
/// Gaussian data. Two-sided: a result that is too good was not computed the way the model says. `judge` uses
/// the sharper prediction for the very data instead, which holds for heavy tails too.
Window rms_window(const Numerics& numerics, const Problem& problem, double output_rms, std::int64_t elements);

/// What lies between two roundings to the storage type: butterflies over the index bits, then multiplication
/// by `factor`, then a rounding of root mean square `rms` units of u.
struct RoundedStage {
  std::vector<int> bits;
  double factor = 1.0;
  double rms = kRoundingRms;
  bool tensor_block = false;  ///< summed by a tensor core
};

/// The steps up to each rounding as one stage. The factors multiply to problem.scale: the stage whose
/// constant had to be rounded has the exact one instead (predicted_gain has the difference). Throws
/// BadRequest for steps that do not transform every index bit once or do not end in a rounding.
std::vector<RoundedStage> rounded_stages(const Numerics& numerics, const Problem& problem);

/// What running variance finds for a chunk of inputs (count x n, FP64).
struct RunningVariance {
  /// T2: bound of |err| for each element, count x n,
  ///   u (|y| + 6 s) + 6 s + |gamma| |y| + half the subnormal spacing,
  /// s^2 the variance before the last rounding. After each step but the last v <- (sum of v) factor^2 +
  /// ulp(z)^2 / 12 (where sums lie on a coarse grid, the mean square of the residues that the grid leaves),
  /// plus (sum_rms u32 RMS_row)^2. Sums::split_bf16 adds 2^-14 RMS_row (measured: at most 2^-15). Such errors
  /// are sub-Gaussian: P(violation) <= 2 exp(-18) an element, for data whose roundings are independent.
  /// Beyond 2^16 elements the 6 grows to sqrt(36 + 2 ln(N / 2^16)), so that P stays for the whole.
  Matrix bound;
  /// The same variances summed, but for sums of two where one term dominates (the other spans at most 2.5
  /// cells of the spacing that the sum is rounded to). Their residues are not spread evenly and are taken
  /// from the two terms.
  Prediction prediction;
};
RunningVariance running_variance(const Numerics& numerics, const Problem& problem, const Matrix& input,
                                 int threads = 0);

/// Bound of |err| for each element (count x n) that holds for any finite data without statistics: Wilkinson's
/// running bound b <- |A| b + eps (|z| + |A| b), never larger than the row's hard bound. The structured
/// inputs, whose roundings are not independent, are held to this one.
Matrix rigorous_bound(const Numerics& numerics, const Problem& problem, const Matrix& input, int threads = 0);

/// T3: |gain - measured_gain| allowed on Gaussian data of N elements: 6 * sqrt(3) E / sqrt(N) (the kurtosis
/// 3 because the error grows with the element), 2e-7, and 0.025 u for results of several roundings, which
/// share a lattice.
double gain_tolerance(const Numerics& numerics, const Problem& problem, std::int64_t elements);

/// T5: hard bound for any finite data, no statistics: ||err||_2 <= relative ||y||_2 + absolute sqrt(n) for
/// each row.
struct HardBound {
  double relative = 0.0, absolute = 0.0;
};
HardBound hard_bound(const Numerics& numerics, const Problem& problem);

/// Whether no intermediate can overflow, whatever the signs: max|x| intermediate_growth <= intermediate_limit
/// in every row, or, for tensor-core steps, the row's 2-norm times what the steps before the last grow it
/// by (1 at the orthonormal scale) below the limit. Where it does not hold, a finite truth may come out
/// infinite or NaN.
bool intermediates_fit(const Numerics& numerics, const Problem& problem, const Matrix& input);

/// The limits for one chunk: T5, and T2 with the prediction for smooth classes, else the rigorous bound.
ErrorLimits limits_for(const Numerics& numerics, const Problem& problem, InputClass input_class,
                       const Matrix& input, int threads = 0);

/// The verdict on one comparison: every element and row within its ErrorLimits, and on smooth data from
/// N = 2^10 on the statistics T1, T3 and T4 inside their windows. (T4, Parseval: to second order
/// ||yhat||/||y|| - 1 is the gain plus (E^2 - gamma^2) / 2, so its window follows from the other two). The
/// message names the test, the value and the window. (No statistics on subnormal data where the plan flushes
/// it.)
Verdict judge(const ErrorStats& stats, const Numerics& numerics, const Problem& problem,
              InputClass input_class);

/// The same for any operator: what the steps of a plan with one rounding allow. `expected` is the truth,
/// count x n. Two numbers stand in for what the walks above find level by level:
///  - any finite data: an fp32 sum of terms whose magnitudes add up to A is off by at most (its additions)
///  u32
///    A; A = |scale| sum |x_j| times the largest entry of each dense factor. Never more than the hard bound.
///  - smooth data: s^2 = 1.58 (sum_rms u32 max|y|)^2, for the largest result of the row bounds the mean
///  square
///    of what any output is made of; 1.58 = (4/12) / 0.46^2, an ulp of at most 2 u32 |z|, evenly spread.
/// The prediction is that of one rounding of a smooth density and sum_rms; none for f32, whose error is that
/// of the sums alone. Throws BadRequest for steps that round more than once.
ErrorLimits operator_limits(const Numerics& numerics, const Problem& problem, InputClass input_class,
                            const ExactOperator& exact, const Matrix& input, const Matrix& expected);

/// T6: what a plan with these steps must return bit for bit on integer rows (is_exact_integer): all sums are
/// exact, so only its constants and the last rounding are left. Fills operands.out (raw storage). False where
/// exact integers are not promised (then the rigorous bound is what remains).
bool exact_result(const Numerics& numerics, const Problem& problem, const Operands& operands,
                  int threads = 0);
bool exact_result(const Numerics& numerics, const Problem& problem, const void* input, void* out,
                  int threads = 0);

/// What a check found.
struct Checked {
  Verdict verdict;
  ErrorStats stats;
};

/// expected, limits_for or operator_limits, compare and judge over all rows, in chunks of bounded memory; for
/// integer rows T6 as well. `in` and `out` of the operands are raw storage as the plan saw them (for an
/// in-place plan: a copy of the input made before); `signs` and `dense` where the operator has them, on the
/// host. Throws BadRequest for rows that do not lie side by side in natural order, encodings and prologues.
Checked check(const Problem& problem, const Numerics& numerics, InputClass input_class,
              const Operands& operands, int threads = 0);
/// The same for operators without signs and dense factors.
Checked check(const Problem& problem, const Numerics& numerics, InputClass input_class, const void* input,
              const void* output, int threads = 0);

}  // namespace fwht::reference
