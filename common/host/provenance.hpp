// Where a result comes from: what was built, on which machine it ran, how it was called, when.
#pragma once

#include <string>
#include <vector>

#include "common/device/device_info.hpp"

namespace fwht {

/// Version of the results folders that this source writes and reads.
inline constexpr int kResultsFormat = 1;

/// What the build recorded about itself (compiled in: no flag or environment variable of a run can change
/// it).
struct BuildRecord {
  std::string version, commit, sources_hash, build_type;
  bool dirty = true;  ///< the sources differed from the commit when they were built
  std::string cxx, cxx_flags, cuda, cuda_flags;
};

BuildRecord this_build();

struct Provenance {
  BuildRecord build;
  DeviceInfo device;
  std::vector<std::string> argv;  ///< absolute paths reduced to their last component
  std::string utc_start;          ///< see utc_now
};

/// An argument with an absolute path in it reduced to the path's last component. Where a machine keeps its
/// files says nothing about a result and does not belong into a published one.
std::string without_folders(const std::string& argument);

Provenance gather_provenance(int argc, const char* const* argv, const DeviceInfo& device);

/// "2026-09-01T12:34:56Z".
std::string utc_now();

/// "20260901T123456Z_07f5629_nvidia-h200": where the results of a run go. The device is the CPU when there is
/// no CUDA device.
std::string results_folder_name(const Provenance& provenance);

/// Lower-case letters and digits, everything else as single dashes: "NVIDIA H200" becomes "nvidia-h200".
std::string slug(std::string_view text);

}  // namespace fwht
