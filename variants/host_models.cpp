#include "variants/host_models.hpp"

#include "common/bits.hpp"
#include "variants/hadacore/hadacore.hpp"
#include "variants/naive/naive.hpp"
#include "variants/warp_shuffle/warp_shuffle.hpp"

namespace fwht {
namespace {

using Model = NumericModel (*)(const Problem&, const DeviceInfo&);

template <hadacore::Table table, hadacore::Accumulator asked>
NumericModel hadacore_model(const Problem& problem, const DeviceInfo& device) {
  const hadacore::Accumulator sums = hadacore::sums_of(problem.dtype(), asked);
  const hadacore::Config config =
      hadacore::config_for(table, log2_floor(problem.n()), sums, regime_of(2 * problem.elements()));
  return hadacore::numeric_model(problem, config, sums, device.compute_capability());
}

struct Entry {
  const Variant* variant;
  Model model;
};

constexpr Entry kModels[] = {
    {&naive::variant, [](const Problem& p, const DeviceInfo&) { return naive::numeric_model(p); }},
    {&warp_shuffle::variant,
     [](const Problem& p, const DeviceInfo&) { return single_rounding(Arithmetic::fp32_ascending, p.n()); }},
    {&hadacore::variant, hadacore_model<hadacore::Table::tuned, hadacore::Accumulator::narrow>},
    {&hadacore::published_variant, hadacore_model<hadacore::Table::published, hadacore::Accumulator::narrow>},
    {&hadacore::f32_variant, hadacore_model<hadacore::Table::tuned, hadacore::Accumulator::wide>},
};

}  // namespace

std::optional<NumericModel> model_without_plan(const Variant& variant, const Problem& problem,
                                               const DeviceInfo& device) {
  for (const Entry& entry : kModels) {
    if (entry.variant == &variant) return entry.model(problem, device);
  }
  return std::nullopt;
}

}  // namespace fwht
