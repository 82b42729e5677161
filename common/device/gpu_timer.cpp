#include "common/device/gpu_timer.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>

namespace fwht {

std::int64_t sequence_repeats(double launch_us, std::size_t length, const TimerOptions& options) {
  const auto launches_per_repeat = static_cast<double>(length);
  const double wanted =
      std::max(launch_us > 0.0 ? options.replay_us / launch_us : static_cast<double>(options.max_launches),
               static_cast<double>(options.min_launches));
  const double allowed = std::floor(static_cast<double>(options.max_launches) / launches_per_repeat);
  return static_cast<std::int64_t>(std::max(1.0, std::min(std::ceil(wanted / launches_per_repeat), allowed)));
}

Timing summarize(std::vector<double> replays_us, std::int64_t launches) {
  if (replays_us.empty() || launches < 1) throw std::logic_error("summarize: no replay or no launch");
  const auto each = [&](double total) { return total / static_cast<double>(launches); };
  std::vector<double> each_us;
  each_us.reserve(replays_us.size());
  for (const double total : replays_us)
    each_us.push_back(each(total));
  std::sort(replays_us.begin(), replays_us.end());
  const std::size_t middle = replays_us.size() / 2;
  const double median =
      replays_us.size() % 2 == 1 ? replays_us[middle] : 0.5 * (replays_us[middle - 1] + replays_us[middle]);
  return {each(median),
          each(replays_us.front()),
          each(replays_us.back()),
          launches,
          static_cast<int>(replays_us.size()),
          std::move(each_us)};
}

Timing time_on_host(const std::function<void()>& call, const TimerOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto replay = [&](std::int64_t launches) {
    if (options.before_replay) options.before_replay(nullptr);
    const Clock::time_point start = Clock::now();
    for (std::int64_t i = 0; i < launches; ++i)
      call();
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  };
  replay(1);  // warm-up
  const std::int64_t launches = sequence_repeats(replay(1), 1, options);
  std::vector<double> replays_us;
  replays_us.reserve(static_cast<std::size_t>(std::max(options.replays, 0)));
  for (int i = 0; i < options.replays; ++i)
    replays_us.push_back(replay(launches));
  return summarize(std::move(replays_us), launches);
}

}  // namespace fwht
