// Timing of device work (CUDA graphs of many launches) and of host work, with one result for both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/contract/variant.hpp"

namespace fwht {

/// Enqueues one launch. Must only enqueue: it is captured in a CUDA graph.
using Enqueue = std::function<void(Stream)>;

/// Microseconds per launch: the median over the replays, and the fastest and the slowest replay.
struct Timing {
  double time_us = 0.0, min_us = 0.0, max_us = 0.0;
  std::int64_t launches = 0;  ///< in one replay
  int replays = 0;
  std::vector<double> each_us = {};  ///< of every replay, in order
};

struct TimerOptions {
  double replay_us = 1500.0;  ///< one replay lasts at least this long, as far as max_launches allows
  std::int64_t min_launches = 4;
  std::int64_t max_launches = 2000;  ///< bounds the time that a graph takes to build
  int replays = 7;
  /// Enqueued before every replay, the warm-up included, and not timed (to put the data back, for example).
  Enqueue before_replay;
  /// Called while the replays run on a device, a millisecond apart, at least once; never on a host.
  std::function<void()> while_running = {};
};

/// Times a CUDA graph that repeats the whole sequence (at least one launch; several launches alternate or
/// rotate over buffers). All replays are enqueued at once, so that no gap between two submissions is timed.
/// The first launches run outside any graph: modules get loaded and errors in a launch show up as themselves.
/// The first call of a process uses up what makes launches of a young process shorter, so that all calls
/// measure alike. Throws CudaError when a launch fails or cannot be captured, std::runtime_error in a build
/// without CUDA.
Timing time_on_device(std::span<const Enqueue> sequence, const TimerOptions& options = {});

/// The same for host work, by the steady clock; `call` has finished when it returns.
Timing time_on_host(const std::function<void()>& call, const TimerOptions& options = {});

/// An empty kernel in a graph: what every device time contains at least. Throws as time_on_device.
Timing time_empty_kernel();

/// How often a sequence of `length` launches is repeated in one replay when a launch takes `launch_us`:
/// enough for replay_us and for min_launches, at most max_launches, but the sequence once in any case.
std::int64_t sequence_repeats(double launch_us, std::size_t length, const TimerOptions& options);

/// Median, minimum and maximum of replays, each given in microseconds for all of its launches.
Timing summarize(std::vector<double> replays_us, std::int64_t launches);

}  // namespace fwht
