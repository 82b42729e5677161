#include "experiments/harness/clock_watch.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace fwht::harness {
namespace {

struct Reason {
  std::uint64_t bit;
  const char* name;  // nullptr: no throttling
};

constexpr Reason kReasons[] = {{0x1, nullptr},  // idle
                               {0x2, nullptr},  // clocks that a user set
                               {0x4, "sw_power_cap"},
                               {0x8, "hw_slowdown"},
                               {0x10, "sync_boost"},
                               {0x20, "sw_thermal_slowdown"},
                               {0x40, "hw_thermal_slowdown"},
                               {0x80, "hw_power_brake"},
                               {0x100, "display_clock"}};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool is_throttled(const ClockState& state) {
  return !throttle_text(state.reasons).empty();
}

}  // namespace

std::string throttle_text(std::uint64_t reasons) {
  std::string text;
  for (const Reason& reason : kReasons) {
    if ((reasons & reason.bit) != 0 && reason.name != nullptr) text += fmt::format("+{}", reason.name);
    reasons &= ~reason.bit;
  }
  if (reasons != 0) text += fmt::format("+{:#x}", reasons);  // of a later driver
  return text.empty() ? text : text.substr(1);
}

// By the C interface of NVML, in which 0 is success and an SM's clock is kind 1. The header is not needed.
struct ClockWatch::Functions {
  static constexpr int kSmClock = 1;

  int (*init)() = nullptr;
  int (*device_by_pci)(const char* bus_id, void** device) = nullptr;
  int (*clock)(void* device, int kind, unsigned* mhz) = nullptr;
  int (*reasons)(void* device, unsigned long long* reasons) = nullptr;

  bool load(void* library) {
    return find(library, "nvmlInit_v2", init) &&
           find(library, "nvmlDeviceGetHandleByPciBusId_v2", device_by_pci) &&
           find(library, "nvmlDeviceGetClockInfo", clock) &&
           (find(library, "nvmlDeviceGetCurrentClocksEventReasons", reasons) ||
            find(library, "nvmlDeviceGetCurrentClocksThrottleReasons", reasons));  // before driver 535
  }
};

ClockWatch::ClockWatch() = default;
ClockWatch::~ClockWatch() = default;
ClockWatch::ClockWatch(ClockWatch&&) noexcept = default;
ClockWatch& ClockWatch::operator=(ClockWatch&&) noexcept = default;

ClockWatch::ClockWatch(const std::string& pci_bus_id, const char* library) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);  // stays loaded
  if (handle == nullptr) return;
  auto functions = std::make_unique<Functions>();
  if (!functions->load(handle) || functions->init() != 0) return;
  if (functions->device_by_pci(pci_bus_id.c_str(), &device_) != 0) return;
  functions_ = std::move(functions);
}

void ClockWatch::sample() {
  if (!is_there()) return;
  if (unsigned mhz = 0; functions_->clock(device_, Functions::kSmClock, &mhz) == 0 && mhz > 0) {
    const int now = static_cast<int>(mhz);
    state_.sm_mhz = state_.sm_mhz == 0 ? now : std::min(state_.sm_mhz, now);
  }
  if (unsigned long long reasons = 0; functions_->reasons(device_, &reasons) == 0) {
    state_.reasons |= reasons;
    state_.reasons_known = true;
  }
}

void ClockedTiming::describe_clock(CsvRow& row) const {
  if (clock.sm_mhz > 0) row["sm_clock_mhz"] = std::to_string(clock.sm_mhz);
  if (!clock.reasons_known) return;
  row["throttle"] = throttle_text(clock.reasons);
  row["measurements"] = std::to_string(measurements);
}

Unthrottled::Unthrottled(ClockWatch watch, std::function<void()> pause)
    : watch_(std::move(watch)), pause_(std::move(pause)) {
  if (!pause_) pause_ = [] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); };
}

// NVML's answer is some milliseconds old and an average, so a clock that looks well may still be held down.
void Unthrottled::recover() {
  for (int pauses = 0; pauses < kMostPauses; ++pauses) {
    pause_();
    watch_.begin();
    watch_.sample();
    if (!is_throttled(watch_.state())) break;
  }
}

ClockedTiming Unthrottled::measure(std::string_view load, const std::function<Timing()>& time) {
  if (load != load_) {
    if (was_throttled_) recover();
    load_ = load;
    was_throttled_ = false;
    in_vain_ = 0;
  }
  for (int measurements = 1;; ++measurements) {
    watch_.begin();
    ClockedTiming measured{time(), watch_.state(), measurements};
    const bool throttled = is_throttled(measured.clock);
    was_throttled_ |= throttled;
    // A clock that comes back step by step has no reason any more.
    const bool slow = measured.clock.sm_mhz < kSlow * highest_mhz_;
    if (!throttled) highest_mhz_ = std::max(highest_mhz_, measured.clock.sm_mhz);
    if (!throttled && !slow) in_vain_ = 0;
    if (!(throttled || slow) || in_vain_ >= kInVain) return measured;
    if (measurements == kMost) {
      ++in_vain_;
      return measured;
    }
    pause_();
  }
}

}  // namespace fwht::harness
