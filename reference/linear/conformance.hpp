// The conformance checks of linear layers: they take any LinearVariant, so that broken ones can be fed to
// them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/contract/linear/variant.hpp"
#include "common/device/memory.hpp"
#include "reference/conformance/family_run.hpp"
#include "reference/linear/linear.hpp"

namespace fwht::conformance {

/// Problems of few bytes: every group size, zero-point format and order of rows, n and k that fill no tile;
/// wide ones, for which kernels of a device have forms of their own, where `wide`. One token each.
std::vector<LinearProblem> linear_problems(Dtype dtype, bool wide);

struct LinearResult {
  Bytes y;
  Numerics numerics;
};

class LinearRun : public FamilyRun<LinearLayers> {
 public:
  LinearRun(const LinearVariant& variant, Dtype dtype, const DeviceInfo& device);

  /// Those of linear_problems that the variant supports.
  const std::vector<LinearProblem>& problems() const { return problems_; }
  /// The problem for every number of tokens that the variant takes, in ascending order.
  std::vector<LinearProblem> of_all_tokens(LinearProblem problem) const;

  /// Packs and runs in guarded memory of exactly the size. A changed guard, x or weight fails the session.
  LinearResult execute(const LinearProblem& problem, const GptqWeights& weights, const Bytes& x,
                       unsigned char poison = kPoisonByte);

  void expect_same(const Bytes& want, const Bytes& got, const LinearProblem& problem,
                   const std::string& what);
  void expect_judged(const LinearResult& got, const LinearProblem& problem, const GptqWeights& weights,
                     const Bytes& x, reference::LinearData data);

 private:
  std::vector<LinearProblem> problems_;
};

std::span<const CheckOf<LinearRun>> linear_checks();
std::span<const BrokenOf<LinearLayers>> broken_linear_variants();

}  // namespace fwht::conformance
