// Check first, then time: one execute on fresh data, compared with the FP64 truth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "common/contract/variant.hpp"
#include "experiments/harness/slices.hpp"
#include "reference/inputs.hpp"
#include "reference/operator_data.hpp"
#include "reference/tolerance.hpp"

namespace fwht::harness {

/// What rows of a storage type are judged on: the class that is asked for; for integer types, whose sums
/// would wrap, the class `integers`.
reference::InputClass judged_input(Dtype dtype, reference::InputClass asked);

/// Random rows and their transform in FP64. Large problems repeat them: the data stays random for the memory
/// system, and the FP64 work stays small.
struct Truth {
  Problem period;  ///< the rows of one period, side by side in natural order; otherwise the problem asked for
  reference::InputClass input_class = reference::InputClass::normal;
  std::uint64_t seed = 1;
  std::vector<std::byte> raw;  ///< period.rows x row_stride elements; what lies between the rows is poisoned
  bool transformed = false;    ///< input and expected are there
  reference::Matrix input, expected;
};

/// Signs and dense factors of everything that is measured.
reference::OperatorData operator_data(const Problem& problem, Memory memory);

/// Truths are made once and kept while the same rows are asked for.
class TruthCache {
 public:
  static constexpr std::int64_t kPeriodElements = std::int64_t{1} << 20;

  explicit TruthCache(std::int64_t period_elements = kPeriodElements) : period_elements_(period_elements) {}

  /// The period of `problem` without arrangement, prologue and pages, by operator_data: whole rows (blocks of
  /// rows that lie between each other), the fewest that reach the period's elements, at most all. Valid until
  /// the next call.
  const Truth& of(const Problem& problem, reference::InputClass input_class, std::uint64_t seed);
  /// The same rows without their transform: Truth::raw.
  const std::vector<std::byte>& input_of(const Problem& problem, reference::InputClass input_class,
                                         std::uint64_t seed);

 private:
  Truth& find_or_add(const Problem& problem, reference::InputClass input_class, std::uint64_t seed);

  std::int64_t period_elements_;
  std::list<Truth> kept_;  // newest first
};

/// Rows side by side in natural order, as raw storage, in the places that the arrangement of `problem` gives
/// them; gaps between blocks are poisoned. `rows` holds whole blocks.
std::vector<std::byte> arranged(const Problem& problem, const std::vector<std::byte>& rows);

/// The numerics of a plan; one rounding of fp32 sums where it has none (no steps).
Numerics judged_by(const Plan& plan);

/// A plan without numerics may be so many times as far from FP64 as one rounding, in every row.
inline constexpr double kPeerErrors = 8.0;

/// Fills the slices with the truth's input, executes the plan on slice 0 and judges every element of the
/// result, which is brought into natural order first. The first period is judged against the FP64 truth by
/// the tolerances of the plan's steps (where it has none, by kPeerErrors; integers must be exact), every
/// further whole period by equality with the first. Rows behind the last whole period meet the truth again.
/// Also incorrect: a write outside the rows, or into the input of an out-of-place plan. Throws what the plan
/// throws. Signs and dense factors are those of operator_data.
reference::Checked check_plan(const Plan& plan, const Truth& truth, Slices& slices);

}  // namespace fwht::harness
