#include "variants/library/host_models.hpp"

#include "common/host/bits.hpp"
#include "variants/butterflies/butterflies.hpp"
#include "variants/factors/factors.hpp"
#include "variants/hadacore/hadacore.hpp"
#include "variants/naive/naive.hpp"
#include "variants/warp_shuffle/warp_shuffle.hpp"

namespace fwht {
namespace {

using Model = Numerics (*)(const Problem&, const DeviceInfo&);

template <hadacore::LaunchTable table>
Numerics hadacore_numerics(const Problem& problem, const DeviceInfo& device) {
  const hadacore::Config config = hadacore::config_for(table, log2_floor(problem.n()), problem.dtype(),
                                                       regime_of(2 * problem.elements()));
  return hadacore::numerics_of(problem, config, device.compute_capability());
}

struct KnownModel {
  const Variant* variant;
  Model numerics;
};

constexpr KnownModel kModels[] = {
    {&naive::variant, [](const Problem& p, const DeviceInfo&) { return naive::numerics_of(p); }},
    {&warp_shuffle::variant,
     [](const Problem& p, const DeviceInfo&) { return single_rounding(Sums::fp32, p); }},
    {&butterflies::variant, [](const Problem& p, const DeviceInfo&) { return butterflies::numerics_of(p); }},
    {&factors::variant, [](const Problem& p, const DeviceInfo&) { return factors::numerics_of(p); }},
    {&hadacore::variant, hadacore_numerics<hadacore::LaunchTable::tuned>},
    {&hadacore::published_variant, hadacore_numerics<hadacore::LaunchTable::published>},
};

}  // namespace

std::optional<Numerics> numerics_without_plan(const Variant& variant, const Problem& problem,
                                              const DeviceInfo& device) {
  for (const KnownModel& entry : kModels) {
    if (entry.variant == &variant) return entry.numerics(problem, device);
  }
  return std::nullopt;
}

}  // namespace fwht
