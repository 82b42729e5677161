// Kokkos' life in a module: started by the first plan, stopped when the process ends, never by a plan.
#pragma once

#include <Kokkos_Core.hpp>

#include "common/device/device_info.hpp"
#include "variants/kokkos/module.hpp"

namespace fwht::kokkos {

/// Starts Kokkos on first use with the device of `device` and all threads that host variants may start: plans
/// that are given fewer take part of them. The local static ends after
/// everything that Kokkos made while starting has been made, so it is destroyed first and Kokkos finds all of
/// it alive.
inline void start_kokkos(const DeviceInfo& device, const Library& library) {
  struct Life {
    Life(const DeviceInfo& on, int threads) {
      auto settings = Kokkos::InitializationSettings().set_disable_warnings(true).set_num_threads(threads);
      if (on.has_cuda()) settings.set_device_id(on.ordinal);
      Kokkos::initialize(settings);
    }
    ~Life() { Kokkos::finalize(); }
    Life(const Life&) = delete;
  };
  static const Life life(device, library.host_threads());
}

inline constexpr const char* kKokkosVersion =
#define FWHT_TEXT_OF(value) #value
#define FWHT_TEXT(value) FWHT_TEXT_OF(value)
    FWHT_TEXT(KOKKOS_VERSION_MAJOR) "." FWHT_TEXT(KOKKOS_VERSION_MINOR) "." FWHT_TEXT(KOKKOS_VERSION_PATCH);
#undef FWHT_TEXT
#undef FWHT_TEXT_OF

}  // namespace fwht::kokkos
