#include "reference/lattice.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <mutex>
#include <numbers>
#include <utility>

#include "reference/rounding.hpp"
#include "reference/tolerance.hpp"

namespace fwht::reference {
namespace {

constexpr Format kFormat = format_of(Dtype::bf16);

/// Cells in the order of their numbers: bf16 numbers of one sign are consecutive bit patterns.
constexpr std::uint32_t pattern(double x) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(x)) >> 16;
}
constexpr double kLowest = 0x1p-12, kHighest = 0x1p4;
constexpr std::uint32_t kFirst = pattern(kLowest);
constexpr std::size_t kCells = pattern(kHighest) - kFirst;

double number(std::size_t cell) {
  return std::bit_cast<float>((kFirst + static_cast<std::uint32_t>(cell)) << 16);
}

/// What is smaller or larger than all cells counts as the first or last one: at 2^-12 and 8 RMS, neither
/// matters.
std::size_t cell_of(double magnitude) {
  if (!(magnitude > kLowest)) return 0;
  return std::min<std::size_t>(kCells - 1, pattern(magnitude) - kFirst);
}

double below(double x) {  // probability that |N(0, 1)| < x
  return std::erf(x / std::numbers::sqrt2);
}

/// x less its power of two, which no bf16 stage notices: in [1/2, 1).
double significand(double x) {
  int exponent = 0;
  return std::frexp(std::fabs(x), &exponent);
}

}  // namespace

RoundedLaw RoundedLaw::normal() {
  RoundedLaw law;
  law.cells_.resize(kCells);
  for (std::size_t c = 0; c < kCells; ++c) {
    const double x = number(c), low = c == 0 ? 0.0 : 0.5 * (number(c - 1) + x);
    const double high = c + 1 == kCells ? INFINITY : 0.5 * (x + number(c + 1));
    law.cells_[c] = {below(high) - below(low), x, x * x};
  }
  return law;
}

RoundedLaw RoundedLaw::next(double factor) const {
  factor = significand(factor);
  RoundedLaw law;
  law.cells_.resize(kCells);
  const auto add = [&](double weight, double rounded_sum, double exact, double exact2) {
    const double value = round_fast(kFormat, rounded_sum * factor);
    Cell& cell = law.cells_[cell_of(std::fabs(value))];
    cell.probability += weight;
    cell.exact += weight * (std::signbit(value) ? -exact : exact) * factor;
    cell.exact2 += weight * exact2 * factor * factor;
  };
  for (std::size_t i = 0; i < kCells; ++i) {
    const Cell& a = cells_[i];
    if (a.probability < 1e-18) continue;
    for (std::size_t j = 0; j <= i; ++j) {
      const Cell& b = cells_[j];
      // Both orders of two different magnitudes, and a sum as often as a difference.
      const double weight = a.probability * b.probability * (i == j ? 0.5 : 1.0);
      const double squares = a.exact2 + b.exact2, product = 2.0 * a.exact * b.exact;
      add(weight, number(i) + number(j), a.exact + b.exact, squares + product);
      add(weight, number(i) - number(j), a.exact - b.exact, squares - product);
    }
  }
  for (Cell& cell : law.cells_) {
    if (cell.probability == 0.0) continue;
    cell.exact /= cell.probability;
    cell.exact2 /= cell.probability;
  }
  law.normalise();
  return law;
}

/// bf16 knows no size: shifts whole binades until the RMS lies in [1, 2).
void RoundedLaw::normalise() {
  double square = 0.0;
  for (const Cell& cell : cells_)
    square += cell.probability * cell.exact2;
  const int shift = exponent_at_least(std::sqrt(square), -100);
  if (shift == 0) return;
  const double scale = power_of_two(-shift);
  std::vector<Cell> shifted(kCells);
  for (std::size_t c = 0; c < kCells; ++c) {
    const Cell& from = cells_[c];
    if (from.probability == 0.0) continue;
    Cell& to = shifted[cell_of(number(c) * scale)];
    const double both = to.probability + from.probability;
    to.exact = (to.exact * to.probability + from.exact * scale * from.probability) / both;
    to.exact2 = (to.exact2 * to.probability + from.exact2 * scale * scale * from.probability) / both;
    to.probability = both;
  }
  cells_ = std::move(shifted);
}

double RoundedLaw::gain() const {
  double product = 0.0, square = 0.0;
  for (std::size_t c = 0; c < kCells; ++c) {
    product += cells_[c].probability * number(c) * cells_[c].exact;
    square += cells_[c].probability * cells_[c].exact2;
  }
  return product / square - 1.0;
}

double RoundedLaw::rel_l2() const {
  double error = 0.0, square = 0.0;
  for (std::size_t c = 0; c < kCells; ++c) {
    const double x = number(c);
    error += cells_[c].probability * (x * x - 2.0 * x * cells_[c].exact + cells_[c].exact2);
    square += cells_[c].probability * cells_[c].exact2;
  }
  return std::sqrt(error / square);
}

namespace {

/// The law after stages with these factors, each a significand in [1/2, 1): kept, since plans of all lengths
/// share the first ones.
const RoundedLaw& law_after(const std::vector<double>& factors) {
  static std::mutex mutex;
  static std::map<std::vector<double>, RoundedLaw> known;
  const std::lock_guard lock(mutex);
  std::vector<double> prefix;
  const RoundedLaw* law = &known.try_emplace(prefix, RoundedLaw::normal()).first->second;
  for (const double factor : factors) {
    prefix.push_back(factor);
    auto found = known.find(prefix);
    if (found == known.end()) found = known.emplace(prefix, law->next(factor)).first;
    law = &found->second;
  }
  return *law;
}

/// What each rounded stage multiplies by, as the kernel holds it.
std::vector<double> stored_constants(const Numerics& numerics) {
  std::vector<double> constants;
  double product = 1.0;
  for (const Step& step : numerics.steps) {
    product *= step.constant;
    if (step.rounds) constants.push_back(std::exchange(product, 1.0));
  }
  return constants;
}

}  // namespace

double normal_data_gain(const Numerics& numerics, const Problem& problem) {
  if (problem.dtype() != Dtype::bf16) return measured_gain(numerics, problem);
  const std::vector<RoundedStage> stages = rounded_stages(numerics, problem);
  const std::vector<double> stored = stored_constants(numerics);
  double gain = predicted_gain(numerics, problem);
  std::vector<double> chain;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (stages[s].bits.size() == 1) {
      const double before = law_after(chain).gain();
      // A constant of the storage type keeps sums on a lattice; one of fp32 does not, as the exact one.
      chain.push_back(significand(stages[s].tensor_block ? stored[s] : stages[s].factor));
      gain += law_after(chain).gain() - before;
    } else {
      chain.clear();
      const double rounding = stages[s].rms * kFormat.unit_roundoff();
      gain -= rounding * rounding;
    }
  }
  return gain;
}

}  // namespace fwht::reference
