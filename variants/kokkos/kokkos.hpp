// kokkos: one portable source on every execution space that Kokkos was built with.
#pragma once

#include "common/contract/variant.hpp"

namespace fwht::kokkos {

extern const Variant serial_variant, openmp_variant, cuda_variant;

// How long a row may be, known without Kokkos.

/// Host: a row in fp32 with its padding stays below the 20 MiB that Kokkos allows a team of a host space.
inline constexpr std::int64_t kLargestHostN = std::int64_t{1} << 22;

/// Operators of several factors: a team's row lies in plain memory. On the host as far as `cpu`; on a device
/// as far as a few teams have room.
inline constexpr std::int64_t kLargestHostFactorsN = std::int64_t{1} << 30;
inline constexpr std::int64_t kLargestDeviceFactorsN = std::int64_t{1} << 22;

/// Devices: Kokkos gives a CUDA team 48 KiB of scratch, so a row goes through it in pieces of 2^13 that wait
/// in registers; four pieces fill the register file of an SM.
inline constexpr std::int64_t kLargestTiledN = std::int64_t{1} << 15;

}  // namespace fwht::kokkos
