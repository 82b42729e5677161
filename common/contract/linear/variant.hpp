// The family of linear layers: the second ladder. What a variant and its plan are is written once for every
// family in common/contract/family.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
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
/// variant's memory. Executions that may run at the same time have a workspace each.
struct LinearOperands {
  const void* x = nullptr;
  const void* weights = nullptr;
  void* y = nullptr;
  void* workspace = nullptr;         ///< in the variant's memory; of any content, before and after
  std::int64_t workspace_bytes = 0;  ///< at least the plan's
};

class LinearPlan;

/// The family of linear layers.
struct LinearLayers {
  using Problem = LinearProblem;
  using Operands = LinearOperands;
  using Plan = LinearPlan;
  static constexpr std::string_view kNoun = "linear layer";
  static bool does_nothing(const Problem& problem) { return problem.m == 0; }
  /// For FWHT_TRACE: a comment for a grid, with a problem for fwht_linear --problem.
  static std::string grid_block(const Problem& problem, Memory memory);
  static void check(const Plan& plan, const Operands& operands);
};

using LinearVariant = VariantOf<LinearLayers>;

/// execute throws BadRequest for a null pointer, one that misses `kAlignment`, y overlapping x or the
/// weights, a workspace that is too small or overlaps one of them. y needs no zeroing and is written whole.
/// A plan owns no memory that an execution changes: any streams and graphs may use it. On a device an
/// execution allocates none, host variants may.
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
  /// What the caller lends to every execution; 0 where none is needed.
  virtual std::int64_t workspace_bytes() const { return 0; }

  static constexpr std::size_t kAlignment = 16;  ///< of every pointer, in bytes

 protected:
  using PlanOf::PlanOf;

  /// A workspace is cut into parts that begin at multiples of 256 bytes: room for parts of these sizes.
  static std::int64_t room_for(std::initializer_list<std::int64_t> parts);
  /// The part of `bytes` at the front of the workspace, which then begins behind it.
  static void* take_part(LinearOperands& operands, std::int64_t bytes);

 private:
  /// `packed` has packed_bytes(), zeroed; weights match the problem.
  virtual void pack_into(const GptqWeights& weights, std::byte* packed) const = 0;
};

/// Sentences for what a variant does not offer.
Support require_no_rotation(const LinearProblem& problem);
Support require_sorted_rows(const LinearProblem& problem);

}  // namespace fwht
