#include "reference/tolerance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "common/host/parallel_for.hpp"
#include "reference/emulation.hpp"
#include "reference/rounding.hpp"

namespace fwht::reference {
namespace {

constexpr double kU32 = 0x1p-24;
constexpr double kSigmas = 6.0;  // P <= 2 exp(-18) for sub-Gaussian errors
/// The same for the largest of many elements: beyond 2^16, as much more as keeps the chance that one of them
/// is outside, N 2 exp(-s^2 / 2), where it is for 2^16.
double sigmas_for(std::int64_t elements) {
  constexpr double kFew = 65536.0;
  const double times = std::max(1.0, static_cast<double>(elements) / kFew);
  return std::sqrt(kSigmas * kSigmas + 2.0 * std::log(times));
}
// A tensor-core block of 16 products and c: 17 truncations at 2^-25 of the largest, then 24 bits towards
// zero.
constexpr double kBlockTruncation = 17 * 0x1p-25;
constexpr double kTowardsZero = 0x1p-23;
// fp32 sums in open order may be chains of truncating tensor-core blocks: 2^b products in 2^(b-4) blocks lose
// up to 2 u32 sum_j sqrt(j / 2^(b-4)), against b u32 of butterflies: 2.8 times as much at b = 8, less below.
constexpr double kChained = 3.0;
// An intermediate as a pair of bf16 numbers: the high half truncated to 8 bits, the low rounded to 8 more.
constexpr double kSplit = 0x1p-16;
constexpr double kSplitElement = 0x1p-14;  // of RMS, per element; largest seen on an H200: 2^-15

int bit_count(const RoundedStage& stage) {
  return static_cast<int>(stage.bits.size());
}

bool is_power_of_two_value(double x) {
  int exponent = 0;
  return std::frexp(std::fabs(x), &exponent) == 0.5;
}

bool any_step(const Numerics& numerics, bool (*holds)(const Step&)) {
  return std::any_of(numerics.steps.begin(), numerics.steps.end(), holds);
}

bool is_split(const Step& step) {
  return step.sums == Sums::split_bf16;
}

/// The order of the fp32 operations is not part of the promise.
bool is_in_open_order(const Step& step) {
  return step.sums == Sums::fp32_any_order || step.sums == Sums::split_bf16;
}

bool is_fp64(const Step& step) {
  return step.sums == Sums::fp64;
}

bool uses_tensor_core(const Step& step) {
  return step.is_tensor_block() || is_split(step);
}

/// Adds two numbers as they were stored, in fp32, and stores the sum: it lies on the terms' grid.
bool adds_two_stored_numbers(const Numerics& numerics, std::size_t s) {
  const Step& step = numerics.steps[s];
  const bool stored = s == 0 || numerics.steps[s - 1].rounds;
  return stored && step.sums == Sums::fp32 && step.levels() == 1 && step.rounds;
}

/// Mean square of all roundings to storage in u^2, on smooth data.
double mean_square_roundings(const Numerics& numerics) {
  double sum = 0.0;
  for (std::size_t s = 0; s < numerics.steps.size(); ++s) {
    const Step& step = numerics.steps[s];
    if (!step.rounds) continue;
    const bool lattice = adds_two_stored_numbers(numerics, s) && is_power_of_two_value(step.constant);
    const double rms = lattice ? step.rounding_rms * (kLatticeRms / kRoundingRms) : step.rounding_rms;
    sum += rms * rms;
  }
  return sum;
}

bool is_all_fp64(const Numerics& numerics) {
  return std::all_of(numerics.steps.begin(), numerics.steps.end(), is_fp64);
}

/// Tensor-core passes: blocks of up to four bits.
int passes_of(const Numerics& numerics) {
  int passes = 0;
  for (const Step& step : numerics.steps)
    passes += uses_tensor_core(step) ? static_cast<int>(ceil_div(step.levels(), 4)) : 0;
  return passes;
}

/// How often a step splits fp32 into hi + lo, at most.
int split_passes(const Step& step) {
  return is_split(step) ? step.levels() / 4 + 1 : 0;
}

int levels_of(const Problem& problem) {
  if (!is_power_of_two(problem.n()))
    throw BadRequest(fmt::format("tolerances need n = 2^L, not n={}", problem.n()));
  return log2_floor(problem.n());
}

/// Relative error in norm of one butterfly of the sums.
double largest_rounding(const Numerics& numerics) {
  if (is_all_fp64(numerics)) return 0x1p-53;
  return any_step(numerics, is_in_open_order) ? kChained * kU32 : kU32;
}

/// Every flushed input or sum loses at most 2^-126; one may be lost at every butterfly.
double flushed(const Numerics& numerics, const Problem& problem) {
  if (!numerics.promises.flushes_subnormals || problem.dtype() == Dtype::f16) return 0.0;
  const double terms = static_cast<double>(problem.n()) * (levels_of(problem) + 1);
  return 0x1p-126 * (1.0 + terms * std::fabs(problem.scale));
}

/// f32 storage: how many constants round when they are multiplied. fp64 always rounds on the way out.
int rounding_constants(const Numerics& numerics) {
  return static_cast<int>(std::count_if(numerics.steps.begin(), numerics.steps.end(), [](const Step& step) {
    return is_fp64(step) || !is_power_of_two_value(step.constant);
  }));
}

/// All roundings that the running variance follows. 16-bit storage: those to storage; the fp32 arithmetic
/// between them is a small term of its own. f32 storage: every fp32 butterfly, then the constant; sum_rms
/// says how much better or worse than plain butterflies the arithmetic is.
std::vector<RoundedStage> roundings_of(const Numerics& numerics, const Problem& problem) {
  std::vector<RoundedStage> stages = rounded_stages(numerics, problem);
  if (problem.dtype() != Dtype::f32 || any_step(numerics, is_fp64)) return stages;
  const double each = kRoundingRms * numerics.sum_rms() / butterfly_rms(std::max(1, levels_of(problem)));
  std::vector<RoundedStage> fine;
  for (const RoundedStage& stage : stages) {
    for (int bit : stage.bits)
      fine.push_back({{bit}, 1.0, each});
    fine.push_back({{}, stage.factor, kRoundingRms});
  }
  return fine;
}

/// Mean square of one rounding in units of ulp^2. 1/12 for an even spread. A sum of numbers on a grid, times
/// a power of two, lies on a grid as well. When that is ulp / 2^j, no error is left for j <= 0, else 1/12 +
/// 1/(6 4^j) (j = 1: residues 0 and 1/2, mean square 1/8). `grid` is that of the terms, finer than or equal
/// to their own ulps. Made once a stage: what depends on the stage alone costs more than the rest.
class MeanSquare {
 public:
  explicit MeanSquare(const RoundedStage& stage)
      : factor_(std::fabs(stage.factor)),
        smooth_(stage.rms / kRoundingRms),
        on_a_grid_(is_power_of_two_value(stage.factor)) {}

  double operator()(double grid, double ulp) const {
    double square = 1.0 / 12.0;
    if (on_a_grid_) {
      const double ratio = grid * factor_ / ulp;
      square = ratio >= 1.0 ? 0.0 : square + ratio * ratio / 6.0;
    }
    return smooth_ * smooth_ * square;
  }

 private:
  double factor_, smooth_;
  bool on_a_grid_;
};

/// The two terms of every sum of a one-bit stage, before it and rounded to storage.
struct Terms {
  std::vector<double> values;  // none for stages of several bits
  std::size_t distance = 0;    // of the two terms

  Terms(const RoundedStage& stage, const Format& format, const std::vector<double>& z) {
    if (bit_count(stage) != 1) return;
    values.reserve(z.size());
    for (double x : z)
      values.push_back(round_fast(format, x));
    distance = std::size_t{1} << stage.bits.front();
  }
};

/// Square of the error of rounding the i-th sum to `ulp` where one term dominates it. The other spans a few
/// cells of that spacing only, so residues are not spread over a cell; they are those of the two terms. None
/// where no term dominates.
std::optional<double> dominated_square(const Terms& terms, const RoundedStage& stage, std::size_t i,
                                       double ulp) {
  constexpr double kCells = 2.5;  // whole cells to either side of the dominating term
  if (terms.values.empty()) return std::nullopt;
  const bool upper = (i & terms.distance) != 0;
  const double a = terms.values[upper ? i - terms.distance : i];
  const double b = terms.values[upper ? i : i + terms.distance];
  if (std::min(std::fabs(a), std::fabs(b)) * std::fabs(stage.factor) > kCells * ulp) return std::nullopt;
  const double cells = (upper ? a - b : a + b) * stage.factor / ulp, smooth = stage.rms / kRoundingRms;
  const double residue = smooth * (cells - std::nearbyint(cells)) * ulp;
  return residue * residue;
}

/// The finest grid among the terms of each sum.
void finest(std::vector<double>& grid, std::int64_t half) {
  for_each_pair(grid.data(), std::ssize(grid), half, [](double& a, double& b) { a = b = std::min(a, b); });
}

/// What is not negative, variances and bounds: a + b in both places.
void spread(std::vector<double>& row, std::int64_t half) {
  for_each_pair(row.data(), std::ssize(row), half, [](double& a, double& b) { a = b = a + b; });
}

double sum_of_squares(const std::vector<double>& row) {
  return std::inner_product(row.begin(), row.end(), row.begin(), 0.0);
}

double largest_of(const std::vector<double>& row) {
  return std::accumulate(row.begin(), row.end(), 0.0,
                         [](double largest, double x) { return std::max(largest, std::fabs(x)); });
}

bool all_finite(const double* row, std::int64_t n) {
  return std::all_of(row, row + n, [](double x) { return std::isfinite(x); });
}

/// Moments of the errors that the steps make, summed over elements.
struct Moments {
  std::vector<double> variance, variance2, gain;  // for each step: sums of v, v^2, z^2 v
  double fp32 = 0.0;  // sum of the variance of the fp32 arithmetic between the steps
  explicit Moments(std::size_t steps) : variance(steps), variance2(steps), gain(steps) {}
  void add(const Moments& other) {
    for (std::size_t s = 0; s < variance.size(); ++s) {
      variance[s] += other.variance[s];
      variance2[s] += other.variance2[s];
      gain[s] += other.gain[s];
    }
    fp32 += other.fp32;
  }
};

/// How large the systematic error may be.
double largest_gain(const Numerics& numerics, const Problem& problem) {
  return std::fabs(predicted_gain(numerics, problem)) + numerics.sum_bias_margin();
}

/// Variance of the fp32 butterflies' error in one element, whatever their order. The error of a level reaches
/// output i from a coset of m = 1, 2, 4 .. n/2 indices with their mean square there, which is the mean square
/// of y over the same coset (the levels left over are orthonormal). That coset holds i; of the others only
/// their largest value and the row's norm are known when the order is not.
class Fp32Envelope {
 public:
  /// `y` the row of the truth; `rms` as Numerics::sum_rms.
  Fp32Envelope(const std::vector<double>& y, double rms, int levels) {
    // A rounding is uniform in an ulp of at most 2 u32 |z|: mean square (2 u32)^2 / 12 = 1.58 (0.46 u32)^2 at
    // most.
    level_ = levels == 0
                 ? 0.0
                 : rms * rms * kU32 * kU32 / levels * (4.0 / 12.0) / (butterfly_rms(1) * butterfly_rms(1));
    const double norm2 = sum_of_squares(y), largest2 = std::pow(largest_of(y), 2);
    for (int level = 0; level < levels; ++level) {
      const double m = std::ldexp(1.0, level);
      own_ += 1.0 / m;
      others_ += std::min((m - 1.0) * largest2, norm2) / m;
    }
  }
  double operator()(double y) const { return level_ * (own_ * y * y + others_); }

 private:
  double level_, own_ = 0.0, others_ = 0.0;
};

class VarianceWalk {
 public:
  VarianceWalk(const Numerics& numerics, const Problem& problem)
      : n_(problem.n()),
        format_(format_of(problem.dtype())),
        steps_(roundings_of(numerics, problem)),
        levels_(levels_of(problem)),
        fp32_rms_(numerics.sum_rms()),
        sigmas_(sigmas_for(problem.elements())),
        fp32_in_steps_(problem.dtype() == Dtype::f32),
        order_is_open_(any_step(numerics, is_in_open_order)),
        gamma_(largest_gain(numerics, problem)),
        unit_(format_of(problem.dtype()).unit_roundoff()),
        floor_(0.5 * quantum_of(format_of(problem.dtype())) + flushed(numerics, problem)),
        overflow_(overflow_threshold(format_)),
        split_(any_step(numerics, is_split) ? kSplitElement : 0.0) {}

  std::size_t steps() const { return steps_.size(); }

  void row(const double* input, double* bound, Moments& moments) const {
    // A row with NaN or infinities is compared by class; it has no error to predict.
    if (!all_finite(input, n_)) return void(std::fill_n(bound, n_, 0.0));
    std::vector<double> z(input, input + n_), v(static_cast<std::size_t>(n_), 0.0), grid(z.size());
    for (std::size_t i = 0; i < z.size(); ++i)
      grid[i] = grid_of(z[i]);
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      const RoundedStage& stage = steps_[s];
      const Terms terms(stage, format_, z);
      for (int bit : stage.bits) {
        const std::int64_t half = std::int64_t{1} << bit;
        butterfly(z.data(), n_, half);
        finest(grid, half);
        if (s > 0) spread(v, half);
      }
      round(s, terms, z, v, grid, moments);
    }
    const double norm2 = sum_of_squares(z), rms = std::sqrt(norm2 / static_cast<double>(n_));
    if (!fp32_in_steps_) moments.fp32 += fp32_rms_ * fp32_rms_ * kU32 * kU32 * norm2;
    const Fp32Envelope fp32(z, fp32_rms_, levels_);
    for (std::size_t i = 0; i < z.size(); ++i) {
      const double y = std::fabs(z[i]);
      // In f32 storage the steps are the fp32 operations in ascending order: right only if that is the order.
      const double variance = !fp32_in_steps_ ? v[i] + fp32(y) : order_is_open_ ? fp32(y) : v[i];
      const double s = sigmas_ * std::sqrt(variance);
      bound[i] = unit_ * (y + s) + s + gamma_ * y + floor_ + split_ * rms;
    }
  }

  Prediction prediction(const Moments& moments) const {
    Prediction result;
    double growth = 1.0, norms = 0.0;  // growth: what the later steps multiply squared norms by
    for (std::size_t s = steps_.size(); s-- > 0;) {
      result.error2 += growth * moments.variance[s];
      norms += growth * std::sqrt(moments.variance2[s]);
      result.gain_variance += growth * growth * moments.gain[s];
      const RoundedStage& stage = steps_[s];
      growth *= std::ldexp(stage.factor * stage.factor, bit_count(stage));
    }
    result.error2 += moments.fp32;
    // Var(sum of squares) is at most that of Gaussian errors, 2 sum v^2, for one step; steps combine by
    // Cauchy-Schwarz.
    result.error2_variance = 2.0 * norms * norms;
    return result;
  }

 private:
  /// Zero lies on every grid.
  double grid_of(double x) const {
    return x == 0.0 ? std::numeric_limits<double>::max() : ulp_of(format_, x);
  }

  /// The bounds grow by the variance of residues that are spread evenly, the moments by that of the residues
  /// that dominated sums have.
  void round(std::size_t s, const Terms& terms, std::vector<double>& z, std::vector<double>& v,
             std::vector<double>& grid, Moments& moments) const {
    const RoundedStage& stage = steps_[s];
    const MeanSquare mean_square(stage);
    const double factor = stage.factor;
    const bool last = s + 1 == steps_.size();
    double variance = moments.variance[s], variance2 = moments.variance2[s], gain = moments.gain[s];
    for (std::size_t i = 0; i < z.size(); ++i) {
      z[i] *= factor;
      v[i] *= factor * factor;
      const double ulp = ulp_of(format_, z[i]);
      double e = ulp * ulp * mean_square(grid[i], ulp);
      grid[i] = ulp;
      if (!last) v[i] += e;                                // the last rounding is bounded, not estimated
      if (last && std::fabs(z[i]) >= overflow_) continue;  // infinite results have no error
      e = dominated_square(terms, stage, i, ulp).value_or(e);
      variance += e;
      variance2 += e * e;
      gain += z[i] * z[i] * e;
    }
    moments.variance[s] = variance;
    moments.variance2[s] = variance2;
    moments.gain[s] = gain;
  }

  std::int64_t n_;
  Format format_;
  std::vector<RoundedStage> steps_;
  int levels_;
  double fp32_rms_, sigmas_;
  bool fp32_in_steps_, order_is_open_;
  double gamma_, unit_, floor_, overflow_, split_;
};

/// Wilkinson's bound for one row, level by level.
class RigorousWalk {
 public:
  RigorousWalk(const Numerics& numerics, const Problem& problem)
      : n_(problem.n()),
        fp_(is_all_fp64(numerics) ? 0x1p-53 : kU32),
        gamma_(largest_gain(numerics, problem)),
        flush_(flushed(numerics, problem)),
        format_(format_of(problem.dtype())),
        hard_(hard_bound(numerics, problem)),
        stages_(rounded_stages(numerics, problem)) {
    if (any_step(numerics, is_in_open_order)) {
      const double roundings = std::pow(1.0 + format_.unit_roundoff(), numerics.roundings());
      open_ = (1.0 + hard_.relative) / roundings - 1.0;
      several_ = numerics.roundings() > 1;
    }
    for (const Step& step : numerics.steps)
      split_ += kSplit * split_passes(step);
  }

  void row(const double* input, double* bound) const {
    if (!all_finite(input, n_)) return void(std::fill_n(bound, n_, 0.0));
    std::vector<double> z(input, input + n_), b(static_cast<std::size_t>(n_), 0.0);
    for (const RoundedStage& stage : stages_) {
      const double largest = largest_of(z);
      for (int bit : stage.bits) {
        const std::int64_t half = std::int64_t{1} << bit;
        butterfly(z.data(), n_, half);
        spread(b, half);
        if (stage.tensor_block) continue;
        for (std::size_t i = 0; i < z.size(); ++i)
          b[i] += fp_ * (std::fabs(z[i]) + b[i]);
      }
      const double block = stage.tensor_block ? kBlockTruncation * largest * std::fabs(stage.factor) : 0.0;
      const double scaling = stage.tensor_block ? kTowardsZero : fp_;
      for (std::size_t i = 0; i < z.size(); ++i) {
        z[i] *= stage.factor;
        b[i] = b[i] * std::fabs(stage.factor) + block;
        b[i] += scaling * (std::fabs(z[i]) + b[i]);
        b[i] += format_.unit_roundoff() * (std::fabs(z[i]) + b[i]) + 0.5 * quantum_of(format_);
      }
    }
    const double norm = std::sqrt(sum_of_squares(z));
    const double hard = hard_.relative * norm + hard_.absolute * std::sqrt(static_cast<double>(n_));
    for (std::size_t i = 0; i < z.size(); ++i) {
      const double own = b[i] + gamma_ * (std::fabs(z[i]) + b[i]) + split_ * norm + flush_;
      bound[i] = std::min(open_ > 0.0 ? in_any_order(std::fabs(z[i]), norm, hard) : own, hard);
    }
  }

 private:
  /// An element's share of the arithmetic's error is at most all of it; the last rounding is the element's
  /// own.
  double in_any_order(double y, double norm, double hard) const {
    if (several_) return hard;
    const double arithmetic = open_ * norm;
    return arithmetic + format_.unit_roundoff() * (y + arithmetic) + 0.5 * quantum_of(format_) + flush_;
  }

  std::int64_t n_;
  double fp_, gamma_, flush_, split_ = 0.0;
  double open_ = 0.0;     // relative error in norm of the arithmetic without the roundings; 0: order known
  bool several_ = false;  // roundings whose place is not known
  Format format_;
  HardBound hard_;
  std::vector<RoundedStage> stages_;
};

/// E[ulp(y)^2] for y ~ N(0, rms^2), with the format's floor (or without: smallest = -1000).
double mean_square_ulp(const Format& format, double rms, int smallest) {
  double sum = 0.0;
  const int middle = std::ilogb(rms);
  const auto below = [&](double x) { return std::erf(x / rms / std::numbers::sqrt2); };
  const int lowest = std::max(smallest, middle - 40);
  for (int e = lowest; e <= middle + 5; ++e) {
    const double share = below(std::ldexp(1.0, e + 1)) - (e == lowest ? 0.0 : below(std::ldexp(1.0, e)));
    sum += share * std::ldexp(1.0, 2 * (e - format.precision + 1));
  }
  if (lowest > middle + 5) sum = std::ldexp(1.0, 2 * (lowest - format.precision + 1));
  return sum;
}

std::string window_message(std::string_view test, std::string_view what, double value, const Window& window,
                           const Problem& problem, InputClass input_class) {
  return fmt::format("{} on {} input: {}: {} is {:.6g}, outside [{:.6g}, {:.6g}]", to_string(problem),
                     name_of(input_class), test, what, value, window.low, window.high);
}

}  // namespace

double predicted_gain(const Numerics& numerics, const Problem& problem) {
  const double bias = 1.0 + numerics.sum_bias();
  return problem.scale == 0.0 ? bias - 1.0 : bias * (numerics.constant() / problem.scale) - 1.0;
}

double measured_gain(const Numerics& numerics, const Problem& problem) {
  const double gamma = predicted_gain(numerics, problem);
  if (problem.dtype() == Dtype::f32) return gamma;
  const double u = format_of(problem.dtype()).unit_roundoff();
  return gamma - mean_square_roundings(numerics) * u * u;
}

double predicted_rel_l2(const Numerics& numerics, const Problem& problem, double output_rms) {
  const Format format = format_of(problem.dtype());
  const double gamma = predicted_gain(numerics, problem), sums = numerics.sum_rms() * kU32;
  double rounding = std::sqrt(mean_square_roundings(numerics)) * format.unit_roundoff();
  if (problem.dtype() == Dtype::f32) {
    rounding = std::sqrt(static_cast<double>(rounding_constants(numerics))) * kRoundingRms * kU32;
  } else if (output_rms > 0.0) {
    rounding *= std::sqrt(mean_square_ulp(format, output_rms, format.min_exponent) /
                          mean_square_ulp(format, output_rms, -1000));
  }
  return std::sqrt(rounding * rounding + gamma * gamma + sums * sums);
}

namespace {

/// The steps' own inaccuracy. Formula: dependence on sigma within a binade and the grid effect, 2.1 % at n
/// = 4. Prediction: where sums of two stored numbers are stored and added again, ties go to even, which makes
/// later ties rarer than the even odds assumed, at most 2.5 % when every number lies on one grid (subnormal
/// data).
double formula_margin(const Problem& problem) {
  return problem.n() <= 4 ? 0.03 : 0.02;
}
double prediction_margin(const Numerics& numerics) {
  int chained = 0;
  for (std::size_t s = 0; s < numerics.steps.size(); ++s)
    chained += adds_two_stored_numbers(numerics, s);
  return chained > 1 ? 0.04 : 0.02;
}

Window around(double centre, double relative) {
  return {centre * (1.0 - relative), centre * (1.0 + relative)};
}

double lattice_gain(const Numerics& numerics, const Problem& problem) {
  const bool several = numerics.roundings() > 1 || problem.dtype() == Dtype::f32;
  const double u = format_of(problem.dtype()).unit_roundoff();
  return several ? 0.025 * u + (problem.dtype() == Dtype::f32 ? 0.0 : 2e-7) : 2e-7;
}

}  // namespace

Window rms_window(const Numerics& numerics, const Problem& problem, double output_rms,
                  std::int64_t elements) {
  return around(predicted_rel_l2(numerics, problem, output_rms),
                formula_margin(problem) + kSigmas * 1.153 / std::sqrt(static_cast<double>(elements)));
}

std::vector<RoundedStage> rounded_stages(const Numerics& numerics, const Problem& problem) {
  const int levels = levels_of(problem);
  std::vector<int> times(static_cast<std::size_t>(levels), 0);
  std::vector<RoundedStage> stages;
  RoundedStage stage;
  std::size_t last_inexact = 0;
  for (const Step& step : numerics.steps) {
    for (int bit : step.bits) {
      if (bit < 0 || bit >= levels || times[static_cast<std::size_t>(bit)]++ != 0) {
        throw BadRequest(fmt::format("a step for n={} transforms index bit {}, which is {}", problem.n(), bit,
                                     bit < 0 || bit >= levels ? "none of the row" : "transformed already"));
      }
      stage.bits.push_back(bit);
    }
    stage.factor *= step.constant;
    stage.rms = step.rounding_rms;
    stage.tensor_block = stage.tensor_block || step.is_tensor_block();
    if (!is_power_of_two_value(step.constant)) last_inexact = stages.size();
    if (step.rounds) stages.push_back(std::exchange(stage, {}));
  }
  if (stages.empty() || !stage.bits.empty() ||
      std::any_of(times.begin(), times.end(), [](int count) { return count != 1; })) {
    throw BadRequest(fmt::format("{} steps for n={} that leave an index bit out or do not end in a rounding",
                                 numerics.steps.size(), problem.n()));
  }
  // Constants are numbers of fp32 or of 16 bits; what they miss of the scale is the gain. The stages
  // themselves multiply to the scale: the one whose constant was rounded is given the exact one.
  const bool any_inexact = std::any_of(numerics.steps.begin(), numerics.steps.end(), [](const Step& step) {
    return !is_power_of_two_value(step.constant);
  });
  const std::size_t carrier = any_inexact ? last_inexact : stages.size() - 1;
  double left = problem.scale;
  for (std::size_t s = 0; s < stages.size(); ++s)
    if (s != carrier) left /= stages[s].factor;
  stages[carrier].factor = left;
  return stages;
}

RunningVariance running_variance(const Numerics& numerics, const Problem& problem, const Matrix& input,
                                 int threads) {
  const VarianceWalk walk(numerics, problem);
  RunningVariance result{Matrix(input.rows(), input.cols()), {}};
  const std::int64_t rows_per_block = std::max<std::int64_t>(1, 16384 / problem.n());
  const std::int64_t blocks = ceil_div(input.rows(), rows_per_block);
  std::vector<Moments> moments(static_cast<std::size_t>(blocks), Moments(walk.steps()));
  parallel_for(blocks, threads_or_default(threads), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      for (std::int64_t r = b * rows_per_block;
           r < std::min<std::int64_t>(input.rows(), (b + 1) * rows_per_block); ++r) {
        walk.row(input.row(r).data(), result.bound.row(r).data(), moments[static_cast<std::size_t>(b)]);
      }
    }
  });
  Moments all(walk.steps());
  for (const Moments& block : moments)
    all.add(block);
  result.prediction = walk.prediction(all);
  return result;
}

Matrix rigorous_bound(const Numerics& numerics, const Problem& problem, const Matrix& input, int threads) {
  const RigorousWalk walk(numerics, problem);
  Matrix bound(input.rows(), input.cols());
  parallel_for(input.rows(), threads_or_default(threads), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      walk.row(input.row(r).data(), bound.row(r).data());
  });
  return bound;
}

double gain_tolerance(const Numerics& numerics, const Problem& problem, std::int64_t elements) {
  const double gamma = predicted_gain(numerics, problem), e = predicted_rel_l2(numerics, problem);
  const double random = std::sqrt(std::max(0.0, e * e - gamma * gamma));
  return kSigmas * std::numbers::sqrt3 * random / std::sqrt(static_cast<double>(elements)) +
         lattice_gain(numerics, problem);
}

HardBound hard_bound(const Numerics& numerics, const Problem& problem) {
  const int levels = levels_of(problem);
  const Format format = format_of(problem.dtype());
  const double u = format.unit_roundoff();
  const double eps = largest_rounding(numerics);
  // The logarithm of the growth, because 1 + 2^-53 is 1.
  double growth = std::log1p(largest_gain(numerics, problem)) + numerics.roundings() * std::log1p(u);
  const int passes = passes_of(numerics);
  growth += passes * (std::log1p(kBlockTruncation) + std::log1p(kTowardsZero));
  if (any_step(numerics, is_split)) growth += passes * std::log1p(kSplit);
  // Each butterfly is orthogonal up to sqrt2, so its relative error in norm is eps; one more for the scale.
  growth += (levels + 1) * std::log1p(eps);
  if (is_all_fp64(numerics)) growth *= 2.0;  // the truth is in fp64 itself
  HardBound bound{std::expm1(growth), 0.0};
  double later = 1.0;  // what the later steps multiply norms by
  const std::vector<RoundedStage> stages = rounded_stages(numerics, problem);
  for (std::size_t s = stages.size(); s-- > 0;) {
    bound.absolute += 0.5 * quantum_of(format) * later;
    later *= std::fabs(stages[s].factor) * std::sqrt(std::ldexp(1.0, bit_count(stages[s])));
  }
  bound.absolute += flushed(numerics, problem);
  return bound;
}

namespace {

/// Largest factor by which tensor-core steps before the last grow a row's 2-norm: sqrt(2^b) times its
/// constant for a step of b bits, 1 where all are orthonormal. Infinite for other steps, whose sums are not
/// bounded by the norm of what is stored.
double norm_growth(const Numerics& numerics) {
  double growth = 1.0, largest = 1.0;
  for (std::size_t s = 0; s < numerics.steps.size(); ++s) {
    const Step& step = numerics.steps[s];
    if (!step.is_tensor_block()) return std::numeric_limits<double>::infinity();
    if (s + 1 == numerics.steps.size()) break;
    growth *= std::sqrt(std::ldexp(1.0, step.levels())) * std::fabs(step.constant);
    largest = std::max(largest, growth);
  }
  return largest;
}

}  // namespace

bool intermediates_fit(const Numerics& numerics, const Problem& problem, const Matrix& input) {
  if (input.cols() != problem.n())
    throw BadRequest(fmt::format("{} columns for n={}", input.cols(), problem.n()));
  const double growth = norm_growth(numerics);
  for (Eigen::Index r = 0; r < input.rows(); ++r) {
    const double largest = input.row(r).cwiseAbs().maxCoeff();
    const bool by_size =
        largest * numerics.promises.intermediate_growth <= numerics.promises.intermediate_limit;
    const bool by_norm =
        std::isfinite(growth) && input.row(r).norm() * growth < numerics.promises.intermediate_limit;
    if (!by_size && !by_norm) return false;
  }
  return true;
}

ErrorLimits limits_for(const Numerics& numerics, const Problem& problem, InputClass input_class,
                       const Matrix& input, int threads) {
  ErrorLimits limits;
  const HardBound hard = hard_bound(numerics, problem);
  limits.row_relative = hard.relative;
  limits.row_absolute = hard.absolute;
  limits.overflow_slack = hard.relative;
  if (is_smooth(input_class)) {
    RunningVariance variance = running_variance(numerics, problem, input, threads);
    limits.elementwise = std::move(variance.bound);
    limits.prediction = variance.prediction;
  } else {
    limits.elementwise = rigorous_bound(numerics, problem, input, threads);
  }
  return limits;
}

namespace {

/// Additions on the longest way through the steps; dense factors round their products as well.
double additions_of(const Numerics& numerics, const Problem& problem) {
  double count = 0.0;
  for (const Step& step : numerics.steps) {
    count += step.levels();
    if (step.factor < 0) continue;
    const Factor& factor = problem.op.factors()[static_cast<std::size_t>(step.factor)];
    count += static_cast<double>(factor.order - (factor.basis == Basis::dense ? 0 : 1));
  }
  return count;
}

/// hard_bound for any operator: a sum over the m columns of an orthogonal factor is off by at most m u32
/// times the sum of magnitudes, which in norm is at most sqrt(m) times as large as the result.
HardBound operator_hard_bound(const Numerics& numerics, const Problem& problem, double eps) {
  const Format format = format_of(problem.dtype());
  double growth =
      (1.0 + largest_gain(numerics, problem)) * (1.0 + format.unit_roundoff()) * (1.0 + eps);  // the scale
  for (const Step& step : numerics.steps) {
    growth *= std::pow(1.0 + eps, step.levels());
    growth *= std::pow(1.0 + kSplit, split_passes(step));
    if (step.factor < 0) continue;
    const auto m = static_cast<double>(problem.op.factors()[static_cast<std::size_t>(step.factor)].order);
    growth *= 1.0 + (std::pow(1.0 + eps, m) - 1.0) * std::sqrt(m);
  }
  return {growth - 1.0, 0.5 * quantum_of(format)};
}

double largest_entries(const ExactOperator& exact) {
  double product = 1.0;
  for (const FactorStage& stage : exact.stages()) {
    if (!stage.entries.empty()) product *= largest_of(stage.entries);
  }
  return product;
}

}  // namespace

ErrorLimits operator_limits(const Numerics& numerics, const Problem& problem, InputClass input_class,
                            const ExactOperator& exact, const Matrix& input, const Matrix& expected) {
  if (numerics.roundings() != 1 || !numerics.steps.back().rounds) {
    throw BadRequest(
        fmt::format("tolerances for {} are known for one rounding, at the end; the steps round {} times",
                    to_string(problem.op), numerics.roundings()));
  }
  const Format format = format_of(problem.dtype());
  const double u = format.unit_roundoff(), floor = 0.5 * quantum_of(format),
               overflow = overflow_threshold(format);
  const double eps = largest_rounding(numerics);
  const double gamma = largest_gain(numerics, problem), sums = numerics.sum_rms() * kU32;
  const double rounding = numerics.steps.back().rounding_rms / kRoundingRms;
  const double additions = std::pow(1.0 + eps, additions_of(numerics, problem) + 1.0) - 1.0;
  const double size = std::fabs(problem.scale) * largest_entries(exact);
  const bool smooth = is_smooth(input_class), split = any_step(numerics, is_split);
  int passes = 0;
  for (const Step& step : numerics.steps)
    passes += split_passes(step);
  const HardBound hard = operator_hard_bound(numerics, problem, eps);
  ErrorLimits limits;
  limits.row_relative = limits.overflow_slack = hard.relative;
  limits.row_absolute = hard.absolute;
  limits.elementwise = Matrix::Zero(expected.rows(), expected.cols());
  Prediction prediction;
  double variance2 = 0.0;
  for (Eigen::Index r = 0; r < expected.rows(); ++r) {
    if (!input.row(r).allFinite()) continue;
    const double norm = expected.row(r).norm(), largest = expected.row(r).cwiseAbs().maxCoeff();
    const double rms = norm / std::sqrt(static_cast<double>(problem.n()));
    const double arithmetic =
        std::min(additions * size * input.row(r).lpNorm<1>(), hard.relative * norm) + kSplit * passes * norm;
    const double s =
        sigmas_for(problem.elements()) * std::sqrt(4.0 / 12.0) / butterfly_rms(1) * sums * largest;
    for (Eigen::Index i = 0; i < expected.cols(); ++i) {
      const double y = std::fabs(expected(r, i)),
                   off = smooth ? s + (split ? kSplitElement * rms : 0.0) : arithmetic;
      (*limits.elementwise)(r, i) = u * (y + off) + off + gamma * y + floor;
      if (y >= overflow) continue;
      const double ulp = rounding * ulp_of(format, y), square = ulp * ulp / 12.0;
      prediction.error2 += square + sums * sums * rms * rms;
      variance2 += square * square;
      prediction.gain_variance += y * y * square;
    }
  }
  prediction.error2_variance = 2.0 * variance2;
  if (smooth && problem.dtype() != Dtype::f32) limits.prediction = prediction;
  return limits;
}

namespace {

bool statistics_apply(const Numerics& numerics, const Problem& problem, InputClass input_class) {
  if (!is_smooth(input_class)) return false;
  // The truth is in fp64 itself, and may have the very same roundings.
  if (problem.dtype() == Dtype::f64) return false;
  // The sums of factors that are not Sylvester's are predicted by their root mean square only, which is not
  // sharp enough for a window.
  if (problem.dtype() == Dtype::f32 && !problem.op.is_sylvester()) return false;
  return input_class != InputClass::subnormal || problem.dtype() == Dtype::f16 ||
         !numerics.promises.flushes_subnormals;
}

Verdict judge_statistics(const ErrorStats& stats, const Numerics& numerics, const Problem& problem,
                         InputClass input_class) {
  const double gamma = predicted_gain(numerics, problem), margin = numerics.sum_bias_margin();
  Window rms = rms_window(numerics, problem, stats.expected_rms, stats.finite);
  double gain_allowed = gain_tolerance(numerics, problem, stats.finite);
  if (stats.predicted_rel_l2) {
    const double relative = prediction_margin(numerics) + kSigmas * stats.predicted_spread;
    const double least = std::max(std::fabs(gamma) - margin, 0.0), most = std::fabs(gamma) + margin;
    rms = {around(std::hypot(*stats.predicted_rel_l2, least), relative).low,
           around(std::hypot(*stats.predicted_rel_l2, most), relative).high};
    gain_allowed = kSigmas * stats.predicted_gain_spread + lattice_gain(numerics, problem);
  }
  if (!rms.contains(stats.rel_l2)) {
    return incorrect(window_message("T1", "the relative L2 error", stats.rel_l2, rms, problem, input_class));
  }
  const double shared = measured_gain(numerics, problem);
  const Window gain{shared - margin - gain_allowed, shared + margin + gain_allowed};
  if (!gain.contains(stats.gain)) {
    return incorrect(window_message("T3", "the gain error", stats.gain, gain, problem, input_class));
  }
  // ||yhat||^2 = ||y||^2 (1 + 2 gain + rel_l2^2), so to second order the norm gains gain + (rel_l2^2 -
  // gamma^2) / 2.
  const Window norm{gain.low + 0.5 * (rms.low * rms.low - gamma * gamma),
                    gain.high + 0.5 * (rms.high * rms.high - gamma * gamma)};
  if (!norm.contains(stats.norm_gain)) {
    return incorrect(window_message("T4", "||yhat||/||y|| - 1", stats.norm_gain, norm, problem, input_class));
  }
  return passed();
}

}  // namespace

Verdict judge(const ErrorStats& stats, const Numerics& numerics, const Problem& problem,
              InputClass input_class) {
  if (Verdict verdict = judge_elements(stats, problem); !verdict) return verdict;
  constexpr std::int64_t kFewest = 1024;  // below, a sum of squares is too far from Gaussian for six sigmas
  if (stats.finite < kFewest || !statistics_apply(numerics, problem, input_class)) return passed();
  return judge_statistics(stats, numerics, problem, input_class);
}

bool exact_result(const Numerics& numerics, const Problem& problem, const Operands& operands, int threads) {
  if (!numerics.promises.integer_exact) return false;
  if (any_step(numerics, is_fp64)) {
    Problem results = problem;  // whose rows lie as those of the output
    results.in = problem.out;
    store_rows(results, expected(problem, operands, 0, -1, threads), operands.out, 0, threads);
    return true;
  }
  Numerics in_order = numerics;  // sums are exact, whatever their order
  for (Step& step : in_order.steps)
    if (is_in_open_order(step)) step.sums = Sums::fp32;
  emulate(problem, in_order, operands, threads);
  return true;
}

bool exact_result(const Numerics& numerics, const Problem& problem, const void* input, void* out,
                  int threads) {
  return exact_result(numerics, problem, Operands{input, out}, threads);
}

Checked check(const Problem& problem, const Numerics& numerics, InputClass input_class,
              const Operands& operands, int threads) {
  validate(problem);
  if (!problem.is_arranged_plainly() || !problem.encoding.is_plain() || problem.prologue) {
    throw BadRequest(
        fmt::format("{}: rows side by side in natural order are checked, without encoding and "
                    "prologue",
                    to_string(problem)));
  }
  std::optional<ExactOperator> exact;
  if (!problem.op.is_sylvester()) exact.emplace(problem.op, problem.dtype(), operands.signs, operands.dense);
  Comparison comparison(problem);
  const std::int64_t rows_per_chunk = std::max<std::int64_t>(1, (std::int64_t{1} << 20) / problem.n());
  for (std::int64_t row = 0; row < problem.rows; row += rows_per_chunk) {
    Matrix values =
        load_rows(problem, operands.in, row, std::min(rows_per_chunk, problem.rows - row), threads);
    ErrorLimits limits;
    if (exact) {
      const Matrix input = values;
      exact->apply(values, problem.scale, threads);
      limits = operator_limits(numerics, problem, input_class, *exact, input, values);
    } else {
      limits = limits_for(numerics, problem, input_class, values, threads);
      transform(values, problem.scale, StageOrder::ascending, threads);
    }
    comparison.add(row, values, operands.out, limits, threads);
  }
  Checked result;
  result.stats = comparison.stats();
  result.verdict = judge(result.stats, numerics, problem, input_class);
  if (!result.verdict || !is_exact_integer(input_class) || problem.rows == 0) return result;
  std::vector<unsigned char> bytes(static_cast<std::size_t>(problem.span_bytes_out()));
  Operands exactly = operands;
  exactly.out = bytes.data();
  if (exact_result(numerics, problem, exactly, threads)) {
    result.verdict = compare_exact(problem, bytes.data(), operands.out);
  }
  return result;
}

Checked check(const Problem& problem, const Numerics& numerics, InputClass input_class, const void* input,
              const void* output, int threads) {
  Operands operands;
  operands.in = input;
  operands.out = const_cast<void*>(output);  // only read
  return check(problem, numerics, input_class, operands, threads);
}

}  // namespace fwht::reference
