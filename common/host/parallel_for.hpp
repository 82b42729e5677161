// Contiguous shares of a range over the host's threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace fwht {

/// Calls body(begin, end) for disjoint pieces that cover [0, count), one piece a thread, the caller's thread
/// included. The first exception is thrown again in the caller. Where the system starts no more threads, or
/// has no memory for one, the caller does what is left.
template <class Body>
void parallel_for(std::int64_t count, int threads, const Body& body) {
  const std::int64_t pieces = std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(count, 1));
  if (pieces == 1) return body(std::int64_t{0}, count);
  std::exception_ptr failure;
  std::mutex mutex;
  const auto run = [&](std::int64_t piece) {
    try {
      body(count * piece / pieces, count * (piece + 1) / pieces);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  std::int64_t started = 1;
  try {
    others.reserve(static_cast<std::size_t>(pieces));
    for (; started < pieces; ++started)
      others.emplace_back(run, started);
  } catch (...) {  // too many threads, or no memory; those that run must be joined
  }
  run(0);
  for (; started < pieces; ++started)
    run(started);
  for (std::thread& thread : others)
    thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace fwht
