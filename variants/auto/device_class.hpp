// What was measured on one device serves others: a device that nobody measured takes what was measured on
// the nearest compute capability at or below its own, its class.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "common/device/device_info.hpp"
#include "common/host/text.hpp"

namespace fwht::automatic {

/// Where something was measured.
struct MeasuredOn {
  std::string device;  ///< its name, as "NVIDIA H200"
  int compute_capability = 0, sm_count = 0;

  /// A device of the same kind: compute capability and number of SMs agree.
  bool is_for(const DeviceInfo& info) const {
    return info.has_cuda() && info.compute_capability() == compute_capability && info.sm_count == sm_count;
  }
  /// Of the same kind, and called so: chips are sold on boards with more and with less memory.
  bool is_own_of(const DeviceInfo& info) const { return is_for(info) && info.name.starts_with(device); }
};

/// How many words at the start of two names agree: 2 of "NVIDIA H100 NVL" and "NVIDIA H100 80GB HBM3".
inline int words_in_common(std::string_view a, std::string_view b) {
  int words = 0;
  while (!a.empty() && !b.empty() && a.substr(0, a.find(' ')) == b.substr(0, b.find(' '))) {
    ++words;
    a.remove_prefix(std::min(a.size(), a.substr(0, a.find(' ')).size() + 1));
    b.remove_prefix(std::min(b.size(), b.substr(0, b.find(' ')).size() + 1));
  }
  return words;
}

/// Of the nearest compute capability at or below the device's, and of what `has` takes: the one whose name
/// agrees with the device's in most words. Of equals it is the one of the nearest number of SMs, then the
/// first. nullptr where all are newer than the device, it has no CUDA, or `has` takes none.
/// @tparam Measured  derives from MeasuredOn
/// @param has  whether a table knows what is asked for
template <class Measured, class Has>
const Measured* of_class(std::span<const Measured> all, const DeviceInfo& device, const Has& has) {
  int capability = 0;
  for (const Measured& measured : all)
    if (device.has_cuda() && measured.compute_capability <= device.compute_capability())
      capability = std::max(capability, measured.compute_capability);
  const auto rank = [&](const Measured& m) {
    const double sms_apart = std::fabs(std::log2(static_cast<double>(m.sm_count)) -
                                       std::log2(static_cast<double>(device.sm_count)));
    return std::tuple{words_in_common(m.device, device.name), -sms_apart};
  };
  const Measured* best = nullptr;
  for (const Measured& measured : all) {
    if (measured.compute_capability != capability || !has(measured)) continue;
    if (best == nullptr || rank(measured) > rank(*best)) best = &measured;
  }
  return best;
}

/// The same of all tables.
template <class Measured>
const Measured* of_class(std::span<const Measured> all, const DeviceInfo& device) {
  return of_class(all, device, [](const Measured&) { return true; });
}

/// For Settings: "shipped" on the device that was measured, else "shipped for sm_90, measured on NVIDIA
/// H200".
inline std::string said_of(const MeasuredOn& measured, const DeviceInfo& device) {
  if (measured.is_own_of(device)) return "shipped";
  return concat("shipped for sm_", measured.compute_capability, ", measured on ", measured.device);
}

}  // namespace fwht::automatic
