// The family of linear layers: the second ladder. What a variant and its plan are is written once for every
// family in common/contract/family.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/family.hpp"
#include "common/contract/linear/problem.hpp"
#include "common/contract/linear/weights.hpp"

namespace fwht {

/// The steps of a layer: the rotation of x where the problem has one, in fp32, then rounded or not; and the
/// product with the weights, whose fp32 sums are added in a fixed order and rounded once. A plan changes what
/// it does otherwise.
Numerics layer_numerics(const LinearProblem& problem, bool rounds_x = false);

/// x[m][k] and y[m][n], row-major, contiguous; `weights` is what the plan's pack() made, copied to the
/// variant's memory.
struct LinearOperands {
  const void* x = nullptr;
  const void* weights = nullptr;
  void* y = nullptr;
};

class LinearPlan;

/// The family of linear layers.
struct LinearLayers {
  using Problem = LinearProblem;
  using Operands = LinearOperands;
  using Plan = LinearPlan;
  static constexpr std::string_view kNoun = "linear layer";
  static bool does_nothing(const Problem& problem) { return problem.m == 0; }
  static void check(const Plan& plan, const Operands& operands);
};

using LinearVariant = VariantOf<LinearLayers>;

/// execute throws BadRequest for a null pointer, one that misses `kAlignment`, or y overlapping x or the
/// weights. y needs no zeroing and is written whole.
class LinearPlan : public PlanOf<LinearLayers> {
 public:
  /// The weights as this plan reads them, the same bytes whatever m and the launch are: plans of one variant
  /// other than auto share them. Never timed. Throws BadRequest where they are not valid or not those of the
  /// problem; nothing is half packed.
  std::vector<std::byte> pack(const GptqWeights& weights) const;
  virtual std::int64_t packed_bytes() const = 0;
  /// Names the layout of packed weights. Plans for the same weights whose names are equal read the same
  /// block: for other numbers of tokens, it need be packed and kept only once.
  virtual std::string packing() const = 0;

  static constexpr std::size_t kAlignment = 16;  ///< of every pointer, in bytes

 protected:
  using PlanOf::PlanOf;

 private:
  /// `packed` has packed_bytes(), zeroed; weights match the problem.
  virtual void pack_into(const GptqWeights& weights, std::byte* packed) const = 0;
};

/// Sentences for what a variant does not offer.
Support require_no_rotation(const LinearProblem& problem);
Support require_sorted_rows(const LinearProblem& problem);

}  // namespace fwht
