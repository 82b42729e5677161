// Comparison of raw output with the FP64 truth. Every element counts; NaN never passes; an expected NaN or
// infinity is compared by class, never skipped.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "common/contract/problem.hpp"
#include "reference/hadamard.hpp"

namespace fwht::reference {

enum class Judged { ok, incorrect };

/// An outcome and, when incorrect, one sentence that says where and what. A default verdict is incorrect:
/// what was never judged has not passed.
struct Verdict {
  Judged outcome = Judged::incorrect;
  std::string message = "nothing was compared";
  explicit operator bool() const { return outcome == Judged::ok; }
};

Verdict passed();
Verdict incorrect(std::string message);

/// What the steps of a plan predict for this very data, the gain apart: sums over the elements of a chunk,
/// additive over chunks. Given the data, the errors of single roundings are independent and uniform in their
/// ulp; these are the moments of the sums that follow.
struct Prediction {
  double error2 = 0.0;           ///< expected sum of squared errors
  double error2_variance = 0.0;  ///< variance of that sum
  double gain_variance = 0.0;    ///< variance of <yhat - y, y>
};

/// Bounds that hold for every element and row of finite data; made from the steps of a plan by
/// reference/tolerance.
struct ErrorLimits {
  /// |err| allowed for each element, count x n as the expected values; none: not checked.
  std::optional<Matrix> elementwise;
  /// ||err||_2 <= row_relative ||y||_2 + row_absolute sqrt(n) for every row.
  double row_relative = std::numeric_limits<double>::infinity();
  double row_absolute = 0.0;
  /// Relative width of the zone around the overflow threshold of the storage type inside which both an
  /// infinity and a finite value are right (where `elementwise` is given, that width counts instead).
  double overflow_slack = 0.0;
  /// For the statistical tests; none: they fall back on Gaussian data.
  std::optional<Prediction> prediction;
};

struct Position {
  std::int64_t row = -1, column = -1;
};

/// Distance in units in the last place: the number of steps between the output and the correctly rounded
/// result along the numbers of the storage type. Bin 0: equal; bin b >= 1: 2^(b-1) .. 2^b - 1 steps; the last
/// bin is open.
inline constexpr int kUlpBins = 16;

/// "Finite elements" below are those whose expected value and output are both finite.
struct ErrorStats {
  std::int64_t elements = 0;  ///< all that were compared
  std::int64_t finite = 0;    ///< finite elements; the norms below run over them
  std::int64_t rows = 0;

  double rel_l2 = 0.0;  ///< sqrt(sum err^2 / sum y^2) over all rows; infinity when y = 0 and err is not
  double rel_l2_min_row = 0.0, rel_l2_mean_row = 0.0, rel_l2_max_row = 0.0;
  double max_error_over_rms = 0.0;  ///< max |err| / RMS of the expected row
  double gain = 0.0;                ///< <yhat - y, y> / <y, y>
  double norm_gain = 0.0;           ///< ||yhat|| / ||y|| - 1 (Parseval)
  double mean_signed_error = 0.0;   ///< mean err / RMS of all expected values
  double expected_rms = 0.0;        ///< RMS of all finite expected values
  double bit_match = 0.0;           ///< share of finite elements equal to the correctly rounded result
  std::array<std::int64_t, kUlpBins> ulp_histogram{};

  std::int64_t nonfinite = 0;            ///< outputs that are NaN or infinite, expected or not
  std::int64_t unexpected_nan = 0;       ///< NaN where no NaN is expected
  std::int64_t unexpected_infinity = 0;  ///< infinity where another value is expected (wrong sign included)
  std::int64_t missing_nonfinite = 0;    ///< finite where NaN or an infinity is expected
  std::int64_t overflow_either = 0;      ///< elements in the zone around overflow, where both are right
  std::int64_t elementwise_violations = 0;
  std::int64_t row_violations = 0;

  /// The prediction relative to the data; present when every chunk came with one.
  std::optional<double> predicted_rel_l2;  ///< expected rel_l2, the gain apart
  double predicted_spread = 0.0;           ///< standard deviation of rel_l2 / predicted_rel_l2
  double predicted_gain_spread = 0.0;      ///< standard deviation of the gain

  Position worst;  ///< finite element with the largest |err| / RMS of its row
  double worst_expected = 0.0, worst_got = 0.0;
  Position first_wrong;  ///< first element that is wrong by class or exceeds its elementwise bound
  double first_expected = 0.0, first_got = 0.0, first_allowed = 0.0;
  std::int64_t first_wrong_row = -1;  ///< first row that exceeds the row bound
  double first_row_error = 0.0, first_row_allowed = 0.0;
};

/// Gathers statistics over any number of row chunks, so that large problems need no large FP64 matrix.
class Comparison {
 public:
  explicit Comparison(const Problem& problem);
  ~Comparison();
  Comparison(const Comparison&) = delete;
  Comparison& operator=(const Comparison&) = delete;

  /// Compares rows [first_row, first_row + expected.rows()) of `output` (raw storage, row 0 first). The sums
  /// are formed row by row in row order, so the statistics do not depend on the number of threads.
  void add(std::int64_t first_row, const Matrix& expected, const void* output, const ErrorLimits& limits = {},
           int threads = 0);

  ErrorStats stats() const;

 private:
  Problem problem_;
  struct Sums;
  std::unique_ptr<Sums> sums_;
};

/// One chunk: all rows of the problem.
ErrorStats compare(const Problem& problem, const Matrix& expected, const void* output,
                   const ErrorLimits& limits = {}, int threads = 0);

/// Incorrect, with row, column, expected and got, when any element is wrong by class or any bound of the
/// ErrorLimits was exceeded, or when fewer elements were compared than the problem has.
Verdict judge_elements(const ErrorStats& stats, const Problem& problem);

/// Zero tolerance (T6): `got` must equal `want` (both raw storage with the problem's strides) in every
/// element by value, so that -0 equals +0; NaN must stand exactly where `want` has NaN.
Verdict compare_exact(const Problem& problem, const void* want, const void* got);

/// Zero tolerance against the correctly rounded truth: got == round_to_storage(expected).
Verdict compare_exact(const Problem& problem, const Matrix& expected, const void* got);

}  // namespace fwht::reference
