// Which of the machine code in a build a device runs.
#pragma once

#include <charconv>
#include <string_view>

#include "common/device/device_info.hpp"

namespace fwht {

/// The compute capability that the code was compiled for which the driver takes on `device`: machine code of
/// its own major capability, the newest that is not newer; else the newest PTX that is not newer, which it
/// compiles. 0 where there is none.
///
/// @param architectures  as CMAKE_CUDA_ARCHITECTURES, between commas: "80,90a,100-real". Code of 90a and the
///                       like runs on exactly that capability. Words such as "native" count as none.
inline int code_on(std::string_view architectures, const DeviceInfo& device) {
  const int own = device.compute_capability();
  int machine_code = 0, ptx = 0;
  while (!architectures.empty()) {
    std::string_view word = architectures.substr(0, architectures.find(','));
    architectures.remove_prefix(word.size() < architectures.size() ? word.size() + 1 : word.size());
    int capability = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), capability);
    if (error != std::errc{} || capability > own) continue;
    word.remove_prefix(static_cast<std::size_t>(end - word.data()));
    const bool exact = !word.empty() && word.front() != '-';
    if (exact && capability != own) continue;
    const bool same_major = capability / 10 == device.compute_major;
    if (!word.ends_with("-virtual") && same_major && capability > machine_code) machine_code = capability;
    if (!word.ends_with("-real") && capability > ptx) ptx = capability;
  }
  return machine_code > 0 ? machine_code : ptx;
}

}  // namespace fwht
