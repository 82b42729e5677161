#include "variants/auto/auto.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/host/error.hpp"
#include "common/host/text.hpp"
#include "common/host/text_file.hpp"
#include "variants/auto/tuning_table.hpp"
#include "variants/registry.hpp"

namespace fwht::automatic {
namespace {

constexpr const char* kTableVariable = "FWHT_TUNING";

TuningTable table_from_file(const std::string& path) {
  constexpr std::size_t kLongest = std::size_t{1} << 20;
  return parse_tuning_table(read_text_file(path, concat(kTableVariable, "=", path), kLongest), path);
}

/// What a plan is made by: a table, or the rule where none of the class of this device has such problems.
struct Guide {
  std::shared_ptr<const TuningTable> table;  // null: the rule
  std::string name;                          // for Settings
};

Guide guide_for(const Problem& problem, const DeviceInfo& device) {
  if (const char* path = std::getenv(kTableVariable); path != nullptr && *path != '\0') {
    auto table = std::make_shared<const TuningTable>(table_from_file(path));
    if (!table->is_for(device)) {
      throw BadRequest(concat(kTableVariable, "=", path, " was measured on a device of compute capability ",
                              table->compute_capability, " with ", table->sm_count, " SMs; ", device.name,
                              " has ", device.compute_capability(), " and ", device.sm_count));
    }
    const bool has = table->nearest(problem) != nullptr;
    return {std::move(table), has ? path : concat("rule: ", path, " has no such problems")};
  }
  if (of_class(shipped_tables(), device) == nullptr)
    return {nullptr, concat("rule: no table for sm_", device.compute_capability(), " or below")};
  const auto has = [&](const TuningTable& table) { return table.nearest(problem) != nullptr; };
  const TuningTable* shipped = of_class(shipped_tables(), device, has);
  if (shipped == nullptr) return {nullptr, "rule: no table of its class has such problems"};
  return {std::shared_ptr<const TuningTable>(shipped, [](const TuningTable*) {}),
          concat(said_of(*shipped, device), ": ", shipped->source)};
}

/// The names to try, best first: the measured choice, where there is one, then the rule's.
std::vector<std::string_view> names_to_try(std::string_view measured, const Problem& problem,
                                           const DeviceInfo& device) {
  std::vector<std::string_view> names = preferred_variants(problem, device);
  if (measured.empty()) return names;
  std::erase(names, measured);
  names.insert(names.begin(), measured);
  return names;
}

std::string_view measured_choice(const Guide& guide, const Problem& problem) {
  const FastestVariant* choice = guide.table == nullptr ? nullptr : guide.table->nearest(problem);
  return choice == nullptr ? std::string_view{} : choice->variant;
}

/// A table may name variants that another device of its class lacks: these fall out here.
std::vector<const Variant*> candidates(std::string_view measured, const Problem& problem,
                                       const DeviceInfo& device) {
  std::vector<const Variant*> named;
  for (const std::string_view name : names_to_try(measured, problem, device))
    named.push_back(&find_variant(name));
  return supporting<Transforms>(named, problem, device);
}

std::vector<const Variant*> candidates(const Guide& guide, const Problem& problem, const DeviceInfo& device) {
  return candidates(measured_choice(guide, problem), problem, device);
}

struct Picked {
  const Variant* variant = nullptr;
  std::unique_ptr<Plan> plan;
};

/// The first candidate that is as exact as can be and takes pointers of `alignment`.
Picked pick(const std::vector<const Variant*>& candidates, const Problem& problem, const DeviceInfo& device,
            std::size_t alignment) {
  for (const Variant* candidate : candidates) {
    std::unique_ptr<Plan> made = candidate->make_plan(problem, device);
    if (is_as_exact_as_can_be(made->numerics(), problem.scale) && made->alignment() <= alignment)
      return {candidate, std::move(made)};
  }
  return {};
}

/// Whether the steps of both are the same and fix every bit: sums in one order, rounded as IEEE 754 says or
/// not at all.
bool have_same_bits(const Numerics& a, const Numerics& b) {
  const bool fixed = std::all_of(a.steps.begin(), a.steps.end(), [](const Step& step) {
    return step.sums == Sums::fp32 || step.sums == Sums::fp64 || step.sums == Sums::integer;
  });
  return fixed && !a.steps.empty() && a.steps == b.steps &&
         a.promises.intermediate_growth == b.promises.intermediate_growth &&
         a.promises.flushes_subnormals == b.promises.flushes_subnormals;
}

/// Every row count, placement, stride, pointer and launch of this dtype and n meets the variant of `picked`,
/// or one of the same bits. Where the rule looks at the number of rows, its variants take aligned pointers
/// alone, so that the answer is no.
bool serves_all_alike(const Guide& guide, const Problem& problem, const DeviceInfo& device,
                      const Picked& picked) {
  const auto element = static_cast<std::size_t>(bytes_of(problem.dtype()));
  if (picked.plan->alignment() > element) return false;
  std::set<std::string_view> measured{measured_choice(guide, problem)};
  if (guide.table != nullptr) measured.merge(guide.table->variants_for(problem.dtype(), problem.n()));
  std::set<const Variant*> alike{picked.variant};
  const auto is_alike = [&](const Variant& serving, const Problem& other) {
    if (alike.count(&serving) == 1) return true;
    // Sums of 16-bit rows differ from variant to variant: no plan, which may load a kernel, is made for them.
    if (bytes_of(problem.dtype()) == 2) return false;
    const std::unique_ptr<Plan> plan = serving.make_plan(other, device);
    const Numerics numerics = plan->numerics();
    const Promises& promises = numerics.promises;
    const bool same = promises.batch_invariant && promises.layout_invariant && plan->alignment() <= element &&
                      have_same_bits(numerics, picked.plan->numerics());
    if (same) alike.insert(&serving);
    return same;
  };
  for (const std::int64_t stride : {problem.n(), problem.n() + 1}) {
    for (const bool programmatic : {false, true}) {
      Problem other = problem;
      other.set_row_stride(stride);
      other.programmatic_launch = programmatic;
      for (const std::string_view name : measured) {
        const std::vector<const Variant*> able = candidates(name, other, device);
        if (!able.empty() && !is_alike(*able.front(), other)) return false;
      }
    }
  }
  return true;
}

class AutoPlan final : public Plan {
 public:
  AutoPlan(const Problem& problem, Picked picked, Picked for_odd_pointers, std::string guide, bool all_alike)
      : Plan(problem),
        picked_(std::move(picked)),
        for_odd_pointers_(std::move(for_odd_pointers)),
        guide_(std::move(guide)),
        all_alike_(all_alike) {}

  Numerics numerics() const override {
    Numerics numerics = picked_.plan->numerics();
    // Other row counts, placements or pointers may be another variant's.
    Promises& promises = numerics.promises;
    promises.batch_invariant = promises.batch_invariant && all_alike_;
    promises.layout_invariant = promises.layout_invariant && all_alike_;
    return numerics;
  }

  Settings settings() const override {
    Settings all{{"picked", std::string(picked_.variant->name)}, {"picked_by", guide_}};
    if (for_odd_pointers_.plan)
      all.emplace_back("for_odd_pointers", std::string(for_odd_pointers_.variant->name));
    const Settings inner = picked_.plan->settings();
    all.insert(all.end(), inner.begin(), inner.end());
    return all;
  }

  std::size_t alignment() const override {
    return for_odd_pointers_.plan ? for_odd_pointers_.plan->alignment() : picked_.plan->alignment();
  }

  bool one_stream_at_a_time() const override {
    return picked_.plan->one_stream_at_a_time() ||
           (for_odd_pointers_.plan && for_odd_pointers_.plan->one_stream_at_a_time());
  }

  /// Enough for either plan.
  std::int64_t scratch_bytes() const override {
    const std::int64_t other = for_odd_pointers_.plan ? for_odd_pointers_.plan->scratch_bytes() : 0;
    return std::max(picked_.plan->scratch_bytes(), other);
  }

 private:
  void enqueue(const Operands& operands, Stream stream) const override {
    const auto addresses =
        reinterpret_cast<std::uintptr_t>(operands.in) | reinterpret_cast<std::uintptr_t>(operands.out);
    const bool fits = addresses % picked_.plan->alignment() == 0;
    const Plan& plan = *(fits ? picked_ : for_odd_pointers_).plan;
    Operands forwarded = operands;
    if (plan.scratch_bytes() == 0) forwarded.scratch = nullptr;
    plan.execute(forwarded, stream);
  }

  Picked picked_, for_odd_pointers_;
  std::string guide_;
  bool all_alike_;
};

Support supports(const Problem& problem, const DeviceInfo& device) {
  Problem contiguous = problem;
  contiguous.set_row_stride(problem.n());
  std::string why_not, about_the_stride;
  for (const std::string_view name : preferred_variants(problem, device)) {  // the last takes most
    const Variant& candidate = find_variant(name);
    const Support support = candidate.supports(problem, device);
    if (support) return {};
    why_not = support.why_not;
    if (about_the_stride.empty() && candidate.supports(contiguous, device)) about_the_stride = why_not;
  }
  return {about_the_stride.empty() ? why_not : about_the_stride};
}

}  // namespace

bool is_as_exact_as_can_be(const Numerics& numerics, double scale) {
  return numerics.roundings() == 1 && static_cast<float>(numerics.constant()) == static_cast<float>(scale) &&
         numerics.promises.row_isolation;
}

std::vector<const Variant*> candidates(const Problem& problem, const DeviceInfo& device) {
  return candidates(guide_for(problem, device), problem, device);
}

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  const Guide guide = guide_for(problem, device);
  const std::vector<const Variant*> able = candidates(guide, problem, device);
  constexpr std::size_t kAny = 256;  // what cudaMalloc gives
  Picked picked = pick(able, problem, device, kAny);
  if (!picked.plan) {
    const std::string tried = joined(names_to_try(measured_choice(guide, problem), problem, device), ", ");
    throw BadRequest(concat("auto: none of ", tried, " takes ", to_string(problem), " with one rounding"));
  }
  const auto element = static_cast<std::size_t>(bytes_of(problem.dtype()));
  Picked for_odd_pointers;
  if (picked.plan->alignment() > element) {
    // Not by a plan that owns a workspace for pointers that hardly anyone has.
    std::vector<const Variant*> light = able;
    if (bytes_of(problem.dtype()) == 2) std::erase(light, &passes::variant);
    for_odd_pointers = pick(light, problem, device, element);
  }
  const bool all_alike = serves_all_alike(guide, problem, device, picked);
  return std::make_unique<AutoPlan>(problem, std::move(picked), std::move(for_odd_pointers), guide.name,
                                    all_alike);
}

const Variant variant{"auto",
                      "the fastest of the variants that round once, by a table measured on the device",
                      Memory::device, supports, make_plan};

}  // namespace fwht::automatic
