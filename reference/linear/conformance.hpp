// The conformance checks of linear layers: they take any LinearVariant, so that broken ones can be fed to
// them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/linear/variant.hpp"
#include "common/device/memory.hpp"
#include "reference/linear/linear.hpp"

namespace fwht::conformance {

class LinearSession {
 public:
  LinearSession(const LinearVariant& variant, Dtype dtype, const DeviceInfo& device)
      : variant_(variant), dtype_(dtype), device_(device) {}

  const LinearVariant& variant() const { return variant_; }
  const DeviceInfo& device() const { return device_; }

  /// Problems of few bytes that the variant supports: every group size, zero-point format and order of rows,
  /// n and k that fill no tile. Of `all_tokens`, those numbers of tokens that it takes.
  std::vector<LinearProblem> problems() const;
  std::span<const std::int64_t> all_tokens() const;
  bool supports(const LinearProblem& problem) const {
    return static_cast<bool>(variant_.supports(problem, device_));
  }

  /// Packs, runs in guarded memory of exactly the size, and returns y. A changed guard, x or weight fails the
  /// session.
  std::vector<std::byte> run(const LinearProblem& problem, const GptqWeights& weights,
                             const std::vector<std::byte>& x, unsigned char poison = kPoisonByte,
                             LinearNumerics* numerics = nullptr);

  void fail(std::string message);
  void expect_same(const std::vector<std::byte>& want, const std::vector<std::byte>& got,
                   const LinearProblem& problem, const std::string& what);
  void expect(const reference::Verdict& verdict, const LinearProblem& problem, const std::string& what);

  std::vector<std::string> failures;  ///< the first few
  std::int64_t failure_count = 0, cases = 0;

 private:
  const LinearVariant& variant_;
  Dtype dtype_;
  DeviceInfo device_;
};

struct LinearCheck {
  std::string_view name;
  void (*run)(LinearSession&);
};
std::span<const LinearCheck> linear_checks();

/// Runs the check; an exception becomes a failure.
void run(const LinearCheck& check, LinearSession& session);

/// Host variants that are right but for one defect, and the checks that must see it. The first one has none.
struct BrokenLinear {
  LinearVariant variant;
  std::vector<std::string_view> caught_by;
};
std::span<const BrokenLinear> broken_linear_variants();

}  // namespace fwht::conformance
