#include "python/src/engine.hpp"

#include <algorithm>

#include "common/device/device_info.hpp"
#include "common/device/stream_query.hpp"
#include "common/host/error.hpp"
#include "fwht.h"
#include "variants/library/transform.hpp"
#include "variants/linear/registry.hpp"
#include "variants/registry.hpp"

namespace fwht::c_abi {
namespace {

const DeviceInfo& host_info() {
  static const DeviceInfo* const info = new DeviceInfo(this_device());
  return *info;
}

const DeviceInfo& info_of(std::int32_t device) {
  return device < 0 ? host_info() : known_device(device);
}

/// What a plan is made for: on the host, one with as many threads as the caller allows.
const DeviceInfo& info_for(std::int32_t device, std::int32_t threads) {
  if (device >= 0) return info_of(device);
  thread_local DeviceInfo host = host_info();
  const int usable = host_threads();  // of now: the process may have been given other processors
  host.host_threads = threads == 0 ? usable : std::min(usable, static_cast<int>(threads));
  return host;
}

/// validate, then a missing device, then what the variant says.
template <class Family>
void check(const typename Family::Problem& problem, const Placed<Family>& place) {
  validate(problem);
  const DeviceInfo& info = info_of(place.device);
  if (place.device >= 0 && !info.has_cuda()) throw NoCuda(info.why_no_cuda);
  if (const Support support = place.variant->supports(problem, info); !support)
    throw Unsupported(std::string(place.variant->name) + ": " + support.why_not);
}

}  // namespace

template <class Family>
Placed<Family> place_of(const char* name, std::int32_t device, std::int32_t threads) {
  const RegistryOf<Family> all = registry_of(Family{});
  static const VariantOf<Family>& on_host = find_in<Family>(all, "cpu");
  static const VariantOf<Family>& on_device = find_in<Family>(all, "auto");
  const VariantOf<Family>& variant = name != nullptr ? find_in<Family>(all, name)
                                     : device < 0    ? on_host
                                                     : on_device;
  if (device < FWHT_HOST || device >= kMostKnownDevices) {
    throw BadRequest("device=" + std::to_string(device) + " must be -1 (the host) or between 0 and " +
                     std::to_string(kMostKnownDevices - 1));
  }
  if (threads < 0) throw BadRequest("threads=" + std::to_string(threads) + " must not be negative");
  if ((variant.memory == Memory::device) != (device >= 0)) {
    throw Unsupported(std::string(variant.name) + " works on " +
                      (device < 0 ? "device memory, not on the host's" : "host memory, not on a device's"));
  }
  return {&variant, device, threads};
}

template <class Family>
Support supports(const typename Family::Problem& problem, const Placed<Family>& place) {
  validate(problem);
  return place.variant->supports(problem, info_of(place.device));
}

template <class Family>
std::unique_ptr<typename Family::Plan> make_plan(const typename Family::Problem& problem,
                                                 const Placed<Family>& place) {
  check(problem, place);
  const DeviceInfo& info = info_for(place.device, place.threads);
  if (place.device < 0) return plan_of_supported<Family>(*place.variant, problem, info);
  const DeviceScope scope(place.device);
  const CaptureAllowed allowed;
  return plan_of_supported<Family>(*place.variant, problem, info);
}

// A family that has a C ABI: one block.
template Place place_of<Transforms>(const char*, std::int32_t, std::int32_t);
template Support supports(const Problem&, const Place&);
template std::unique_ptr<Plan> make_plan(const Problem&, const Place&);

template Placed<LinearLayers> place_of<LinearLayers>(const char*, std::int32_t, std::int32_t);
template Support supports(const LinearProblem&, const Placed<LinearLayers>&);
template std::unique_ptr<LinearPlan> make_plan(const LinearProblem&, const Placed<LinearLayers>&);

std::shared_ptr<const Plan> kept_plan(const Problem& problem, const Place& place) {
  if (place.device < 0) return make_plan(problem, place);
  check(problem, place);  // else one that no variant has would look like one that is not made yet
  return fwht::kept_plan(*place.variant, problem, place.device);
}

void transform(const Problem& problem, const Place& place, const Operands& operands, Stream stream) {
  if (place.device < 0) {  // a host plan costs nothing to make
    make_plan(problem, place)->execute(operands);
    return;
  }
  if (!info_of(place.device).has_cuda()) check(problem, place);
  try {
    fwht::transform(*place.variant, operands, problem, stream, place.device);
  } catch (const BadRequest&) {
    check(problem, place);  // tells apart what the variant does not do
    throw;
  }
}

}  // namespace fwht::c_abi
