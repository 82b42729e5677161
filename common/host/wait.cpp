#include "common/host/wait.hpp"

#include <stdexcept>
#include <thread>

#include "common/host/text.hpp"

namespace fwht {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Clock::time_point deadline(TimeLimit limit) {
  constexpr Clock::time_point kNever = Clock::time_point::max();
  const Clock::time_point now = Clock::now();
  return limit < std::chrono::duration_cast<TimeLimit>(kNever - now) ? now + limit : kNever;
}

void throw_reason(const Interruption& interrupted, TimeLimit grace) {
  if (!interrupted) return;
  const auto end = deadline(grace);
  do {
    if (const std::string reason = interrupted(); !reason.empty()) throw std::runtime_error(reason);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (Clock::now() < end);
}

void wait_until(const std::function<bool()>& ready, TimeLimit limit, const Interruption& interrupted,
                const std::string& what, TimeLimit grace) {
  const auto end = deadline(limit);
  const auto is_ready = [&] {
    try {
      return ready();
    } catch (const std::exception&) {
      throw_reason(interrupted, grace);
      throw;
    }
  };
  while (!is_ready()) {
    if (interrupted) {
      if (const std::string reason = interrupted(); !reason.empty()) throw std::runtime_error(reason);
    }
    if (Clock::now() > end) throw std::runtime_error(concat(what, " within ", limit.count(), " ms"));
    std::this_thread::yield();
  }
}

}  // namespace fwht
