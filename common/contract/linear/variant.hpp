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

/// How the result is computed and rounded; tolerances follow from it.
struct LinearNumerics {
  enum class Weights {
    exact,        ///< s and q - z meet in fp32: no weight is rounded
    rounded,      ///< fp16(fma(q, s, -fp16(z s))), as the published kernels do
    rounded_once  ///< s (q - z) rounded to the dtype of x
  };
  enum class Sums {
    fixed_order,  ///< fp32, in an order that the plan fixes, rounded once
    fp16_atomic   ///< `splits` partial sums, each rounded, added in fp16 in any order
  };
  Weights weights = Weights::exact;
  Sums sums = Sums::fixed_order;
  int splits = 1;
  /// Tensor-core multiplies of 16 k that add into one accumulator; each cuts off below fp32's last place.
  int chained = 8;
  bool x_rounded_after_rotation = false;  ///< else it stays in fp32
  bool deterministic = true;
  bool batch_invariant = true;  ///< a token's bits do not depend on m or on other tokens
  bool row_isolation = true;    ///< NaN in one token reaches no other
  bool known = true;            ///< false: a kernel of others, of which `weights` alone is assumed
};

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
  using Numerics = LinearNumerics;
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
