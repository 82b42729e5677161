// What every ladder shares, said once. A family is a kind of problem, with what it is executed on: transforms
// of rows (common/contract/variant.hpp), linear layers (common/contract/linear/variant.hpp). A variant is
// plain data; a plan is what it decided for one problem on one device; a registry lists the variants of a
// family.
//
// A family is a struct that names Problem, Operands and Plan, kNoun ("linear layer") for sentences,
// has does_nothing(const Problem&), check(const Plan&, const Operands&) and grid_block(const Problem&,
// Memory). Its Problem has validate(), to_string() and programmatic_launch.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/contract/numerics.hpp"
#include "common/device/device_info.hpp"
#include "common/host/error.hpp"
#include "common/host/text.hpp"

struct CUstream_st;  // what cudaStream_t points to; declared here so that no CUDA header is needed

namespace fwht {

using Stream = CUstream_st*;  // nullptr is the default stream; host variants ignore it

enum class Memory { host, device };

/// Empty when supported, else one sentence with the value and the limit.
struct Support {
  std::string why_not;
  explicit operator bool() const { return why_not.empty(); }
};

/// What a plan decided (grid, threads, registers, shared bytes, tile ...), in display order: result columns.
using Setting = std::pair<std::string, std::variant<std::int64_t, double, std::string>>;
using Settings = std::vector<Setting>;

/// Decisions taken and workspace owned; data pointers not bound. As with cuFFT and FFTW, set-up is never
/// timed. The base of a family's Plan, which adds what its problems need.
template <class Family>
class PlanOf {
 public:
  using Problem = typename Family::Problem;
  using Operands = typename Family::Operands;

  virtual ~PlanOf() = default;
  PlanOf(const PlanOf&) = delete;
  PlanOf& operator=(const PlanOf&) = delete;

  const Problem& problem() const { return problem_; }

  /// Checks the operands, then only enqueues on a device: no allocation, no wait for the device, no attribute
  /// call, so it can be captured in a CUDA graph. Host variants may allocate, and have finished when it
  /// returns. A problem without work does nothing. Throws BadRequest before anything is launched for operands
  /// that the family rules out.
  void execute(const Operands& operands, Stream stream = nullptr) const {
    if (Family::does_nothing(problem_)) return;
    Family::check(static_cast<const typename Family::Plan&>(*this), operands);
    std::unique_lock<std::mutex> alone;
    if (one_stream_at_a_time()) alone = std::unique_lock(enqueuing_);
    enqueue(operands, stream);
  }

  virtual Numerics numerics() const = 0;
  /// The plan owns state that an execution changes: the next one must be ordered behind it, as by one stream.
  /// Threads may share the stream: the launches of one execution follow each other.
  virtual bool one_stream_at_a_time() const { return false; }
  virtual Settings settings() const = 0;

 protected:
  explicit PlanOf(const Problem& problem) : problem_(problem) {}

 private:
  virtual void enqueue(const Operands& operands, Stream stream) const = 0;  // work to do, operands checked
  Problem problem_;
  mutable std::mutex enqueuing_;
};

template <class Family>
struct VariantOf {
  using Problem = typename Family::Problem;
  using Plan = typename Family::Plan;

  std::string_view name, summary;
  Memory memory;                                                          // where operands live
  Support (*supports)(const Problem&, const DeviceInfo&);                 // pure: no CUDA call
  std::unique_ptr<Plan> (*make_plan)(const Problem&, const DeviceInfo&);  // reached only when supported
};

/// The variants of a family, in the order of its ladder.
template <class Family>
using RegistryOf = std::span<const VariantOf<Family>* const>;

/// With FWHT_TRACE=FILE in the environment every problem that a plan is made for is appended to FILE, once a
/// process, as a block of a grid (experiments/harness/grid.hpp). Throws BadRequest where FILE cannot be
/// written.
void trace_problem(const std::string& grid_block);
bool problems_are_traced();

/// The plan that a caller asked for, while it is made: the plans inside it are not traced.
class OutermostPlan {
 public:
  OutermostPlan() { ++depth_; }
  ~OutermostPlan() { --depth_; }
  OutermostPlan(const OutermostPlan&) = delete;
  OutermostPlan& operator=(const OutermostPlan&) = delete;
  bool is_traced() const { return depth_ == 1 && problems_are_traced(); }

 private:
  static thread_local int depth_;
};

/// The plan of a problem that `variant` was found to support.
template <class Family>
std::unique_ptr<typename Family::Plan> plan_of_supported(const VariantOf<Family>& variant,
                                                         const typename Family::Problem& problem,
                                                         const DeviceInfo& device) {
  const OutermostPlan outermost;
  if (outermost.is_traced()) trace_problem(Family::grid_block(problem, variant.memory));
  return variant.make_plan(problem, device);
}

/// validate, supports, make_plan: the way to a plan. Throws BadRequest with the reason when unsupported.
template <class Family>
std::unique_ptr<typename Family::Plan> plan(const VariantOf<Family>& variant,
                                            const typename Family::Problem& problem,
                                            const DeviceInfo& device) {
  validate(problem);
  if (const Support support = variant.supports(problem, device); !support)
    throw BadRequest(concat(variant.name, ": ", support.why_not));
  return plan_of_supported(variant, problem, device);
}

/// Throws BadRequest that lists the known names.
template <class Family>
const VariantOf<Family>& find_in(RegistryOf<Family> registry, std::string_view name) {
  std::string known;
  for (const VariantOf<Family>* variant : registry) {
    if (variant->name == name) return *variant;
    known += concat(known.empty() ? "" : ", ", variant->name);
  }
  throw BadRequest(concat("unknown ", Family::kNoun, " '", name, "'; known: ", known));
}

/// Those of `choices` that support the problem, in their order: what an `auto` picks from.
template <class Family>
std::vector<const VariantOf<Family>*> supporting(RegistryOf<Family> choices,
                                                 const typename Family::Problem& problem,
                                                 const DeviceInfo& device) {
  std::vector<const VariantOf<Family>*> found;
  for (const VariantOf<Family>* variant : choices)
    if (variant->supports(problem, device)) found.push_back(variant);
  return found;
}

/// "no CUDA device ..." when there is none or it is older than `compute_capability` (80 for sm_80). The first
/// check of every CUDA variant.
Support require_cuda(const DeviceInfo& device, int compute_capability = 80);

/// Programmatic dependent launch is offered where code compiled for 9.0 runs: PTX of an older architecture,
/// which a newer device would compile for itself, does not wait.
Support require_programmatic_launch(const DeviceInfo& device);

/// A sentence for problems that ask for programmatic dependent launch: for variants that have none.
template <class Problem>
Support require_ordinary_launch(const Problem& problem) {
  if (!problem.programmatic_launch) return {};
  return {"programmatic dependent launch is not offered by this variant"};
}

}  // namespace fwht
