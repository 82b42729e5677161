// Measuring: the only place where memory, data, the neighbour of alternating mode and the clock meet.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/device/device_info.hpp"
#include "common/device/gpu_timer.hpp"
#include "experiments/harness/clock_watch.hpp"
#include "experiments/harness/copy_kernels.hpp"
#include "experiments/harness/mode.hpp"
#include "experiments/harness/procedure.hpp"
#include "experiments/harness/slices.hpp"
#include "experiments/harness/subject.hpp"

namespace fwht::harness {

/// What the measurements of one run share: memory, copy kernels, what was measured once.
class Bench {
 public:
  explicit Bench(const DeviceInfo& device);
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  const DeviceInfo& device() const { return device_; }

  /// One slice of memory for the subject, as it happens to be. Valid until the next call; throws OutOfMemory.
  Slices& slice(const Description& subject) { return workspace_.get(subject.buffers); }
  /// The slices that the subject is launched on in the mode, filled.
  Slices& filled(const Subject& subject, Mode mode);

  /// Throws BadRequest for Memory::device without a device.
  const std::vector<CopyKernel>& copies(Memory memory);

  /// The copy that precedes every launch in alternating mode, over as many bytes as the subject moves.
  Alternation alternation(const Description& subject);

  /// Microseconds of an empty kernel; measured once.
  double empty_us();

  /// What device work is measured again by where the GPU throttles.
  Unthrottled& unthrottled() { return unthrottled_; }

 private:
  const DeviceInfo& device_;
  Workspace workspace_;
  std::int64_t cold_bytes_;  // how much memory a rotation may take, see cold_count
  std::map<Memory, std::vector<CopyKernel>> copies_;
  std::map<std::pair<Traffic, Placement>, double> shares_us_;
  std::optional<double> empty_us_;
  Unthrottled unthrottled_;
};

/// A copy kernel on random data.
Subject copy_subject(const CopyKernel& kernel, Memory memory, Traffic traffic, Placement placement,
                     std::uint32_t mask);

/// Microseconds per launch, from `replays` replays. Data in place that would overflow or vanish is put back
/// before every replay, and device work that was throttled is measured again. Throws what the launch throws,
/// OutOfMemory, and std::runtime_error when alternating leaves no time for the launch.
ClockedTiming measure(const Subject& subject, Mode mode, Bench& bench, int replays = TimerOptions{}.replays);

/// Subjects of equal buffers and traffic, one after the other on the same data; `done` is called behind each.
void measure_each(std::span<const Subject> subjects, Mode mode, Bench& bench,
                  const std::function<void(std::size_t index, const ClockedTiming&)>& done,
                  int replays = TimerOptions{}.replays);

}  // namespace fwht::harness
