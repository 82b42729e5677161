// What the conformance checks of every family share: what they look at, what they report, and the broken
// variants that show that they can fail. A family adds how its plans are fed and judged (session.hpp,
// reference/linear/conformance.hpp), its checks and its defects; driver.hpp makes tests of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/contract/family.hpp"
#include "common/device/device_info.hpp"

namespace fwht::conformance {

/// Raw storage on the host.
using Bytes = std::vector<std::byte>;

struct Report {
  std::vector<std::string> failures;  ///< the first kMostFailures of them
  std::int64_t failure_count = 0;
  std::int64_t cases = 0;              ///< what was really tried: a check with none has shown nothing
  std::map<std::string, int> skipped;  ///< parts left out: the reason, and how often

  static constexpr std::size_t kMostFailures = 8;
};

/// How a check ends that stops at its first failure; run() takes it.
struct FirstFailure {};

/// One variant and one dtype on one machine, and what is wrong with them.
template <class FamilyOfVariant>
class FamilyRun {
 public:
  using Family = FamilyOfVariant;
  using Variant = VariantOf<Family>;
  using Problem = typename Family::Problem;

  const Variant& variant() const { return variant_; }
  Dtype dtype() const { return dtype_; }
  const DeviceInfo& device() const { return device_; }
  bool on_device() const { return variant_.memory == Memory::device; }

  Support support(const Problem& problem) const { return variant_.supports(problem, device_); }
  bool supports(const Problem& problem) const { return static_cast<bool>(support(problem)); }
  /// supports; the reason where not is one of a part left out.
  bool offers(const Problem& problem) {
    const Support answer = support(problem);
    if (!answer) skip(answer.why_not);
    return static_cast<bool>(answer);
  }
  std::unique_ptr<typename Family::Plan> plan(const Problem& problem) const {
    return fwht::plan(variant_, problem, device_);
  }

  /// Where it is not promised, a skip that says so.
  bool promised(const Numerics& numerics, bool Promises::*promise, std::string_view what) {
    if (!(numerics.promises.*promise)) skip(concat("the plan does not promise ", what));
    return numerics.promises.*promise;
  }

  void fail(std::string message) {
    ++report_.failure_count;
    if (report_.failures.size() < Report::kMostFailures) report_.failures.push_back(std::move(message));
    if (stops_) throw FirstFailure();
  }
  /// From now on a check ends with its first failure: enough to know that it fails.
  void stop_at_first_failure() { stops_ = true; }
  void skip(std::string reason) { ++report_.skipped[std::move(reason)]; }
  void count_case() { ++report_.cases; }
  const Report& report() const { return report_; }

 protected:
  FamilyRun(const Variant& variant, Dtype dtype, const DeviceInfo& device)
      : variant_(variant), dtype_(dtype), device_(device) {}

 private:
  const Variant& variant_;
  Dtype dtype_;
  DeviceInfo device_;
  Report report_;
  bool stops_ = false;
};

template <class Run>
struct CheckOf {
  std::string_view name;
  void (*body)(Run&);
  bool device_only = false;
  bool of_operators = false;  ///< transforms: looks at ConformanceRun::operators() alone
  bool of_encodings = false;  ///< transforms: looks at encoded problems alone
};

/// Runs the check; an exception becomes a failure.
template <class Run>
void run(const CheckOf<Run>& check, Run& session) {
  try {
    try {
      check.body(session);
    } catch (const std::exception& error) {
      session.fail(std::string("exception: ") + error.what());
    }
  } catch (const FirstFailure&) {  // the report has it
  }
}

/// A host variant that is right but for one defect. The first one of a family has none: it must pass every
/// check.
template <class Family>
struct BrokenOf {
  VariantOf<Family> variant;
  std::string_view caught_by;  ///< names of checks, separated by spaces: each of them must fail
};

}  // namespace fwht::conformance
