// The SM clock and what held it down, by NVML, while something was timed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/device/gpu_timer.hpp"
#include "experiments/harness/csv.hpp"

namespace fwht::harness {

/// Over the samples of one measurement.
struct ClockState {
  int sm_mhz = 0;             ///< the lowest; 0: not known
  std::uint64_t reasons = 0;  ///< all together, as NVML counts them (nvmlClocksEventReason...)
  bool reasons_known = false;
};

/// "sw_power_cap+hw_thermal_slowdown"; empty for what is no throttling (an idle GPU, clocks that a user set).
std::string throttle_text(std::uint64_t reasons);

/// Asks NVML about one GPU. Without the library, or where it does not answer, everything stays unknown.
class ClockWatch {
 public:
  static constexpr const char* kLibrary = "libnvidia-ml.so.1";

  /// Watches nothing.
  ClockWatch();
  /// `pci_bus_id` as CUDA gives it: "0000:1B:00.0".
  explicit ClockWatch(const std::string& pci_bus_id, const char* library = kLibrary);
  ~ClockWatch();
  ClockWatch(ClockWatch&&) noexcept;
  ClockWatch& operator=(ClockWatch&&) noexcept;

  bool is_there() const { return functions_ != nullptr; }
  /// Forgets the samples.
  void begin() { state_ = {}; }
  /// Some microseconds; call it while the GPU works.
  void sample();
  const ClockState& state() const { return state_; }

 private:
  struct Functions;
  std::unique_ptr<const Functions> functions_;
  void* device_ = nullptr;
  ClockState state_;
};

/// A timing and what the clock did meanwhile.
struct ClockedTiming : Timing {
  ClockState clock = {};
  int measurements = 1;  ///< that were made; all but the last were throttled or slow

  /// The columns sm_clock_mhz, throttle and measurements; none where the clock is not known.
  void describe_clock(CsvRow& row) const;
};

/// Measures again what was throttled, or had less than kSlow of the highest clock so far, at most kMost
/// times in all. After kInVain measurements in a row that stayed so it is the load itself, or the machine.
/// Then each is measured once. Another load after one that was throttled first lets the clock recover, for
/// at most kMostPauses pauses.
class Unthrottled {
 public:
  static constexpr int kMost = 3, kInVain = 4, kMostPauses = 10;
  static constexpr double kSlow = 0.95;

  /// `pause` stands between two measurements of one; by default 200 ms.
  explicit Unthrottled(ClockWatch watch, std::function<void()> pause = {});

  ClockWatch& watch() { return watch_; }
  /// `load` names what is measured, as a variant; `time` samples watch().
  ClockedTiming measure(std::string_view load, const std::function<Timing()>& time);

 private:
  void recover();

  ClockWatch watch_;
  std::function<void()> pause_;
  std::string load_;
  bool was_throttled_ = false;  // this load, once at least
  int highest_mhz_ = 0;         // of measurements that were not throttled
  int in_vain_ = 0;
};

}  // namespace fwht::harness
