// warp_shuffle: geometry and index maps, shared by the kernel and its host tests.
#pragma once

#include <cstdint>

#include "common/contract/variant.hpp"
#include "common/host/bits.hpp"

namespace fwht::warp_shuffle {

extern const Variant variant;

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device);

inline constexpr int kLargestLogN = 15;

/// Threads a row: the published table of fast-hadamard-transform for log2 n = 3..15; one thread below.
constexpr int threads_for(int log_n) {
  constexpr int kThreads[] = {1, 1, 1, 1, 2, 4, 8, 16, 32, 32, 128, 256, 256, 256, 256, 256};
  return kThreads[log_n];
}

/// Everything about one (n, element size) that is fixed at compile time.
struct Geometry {
  int log_n, log_elements, log_threads;  // row, elements a thread holds side by side (one vector), threads

  constexpr Geometry(int log_row, int bytes_per_element)
      : log_n(log_row),
        log_elements(log_row < (bytes_per_element == 2 ? 3 : 2) ? log_row : (bytes_per_element == 2 ? 3 : 2)),
        log_threads(log_n - log_elements < log2_floor(threads_for(log_row))
                        ? log_n - log_elements
                        : log2_floor(threads_for(log_row))) {}

  constexpr int elements() const { return 1 << log_elements; }
  constexpr int threads() const { return 1 << log_threads; }
  constexpr int log_lanes() const { return log_threads < 5 ? log_threads : 5; }
  constexpr int log_warps() const { return log_threads - log_lanes(); }
  constexpr int warps() const { return 1 << log_warps(); }
  constexpr int log_chunks() const { return log_n - log_elements - log_threads; }
  constexpr int chunks() const { return 1 << log_chunks(); }

  /// One chunk of fp32 values is threads * elements * 4 bytes; at most 32 KiB go through shared memory at a
  /// time, which keeps the block inside the 48 KiB that need no opt-in.
  constexpr int exchange_bytes_per_chunk() const { return threads() * elements() * 4; }
  constexpr int chunks_per_exchange() const {
    const int fit = 32768 / exchange_bytes_per_chunk();
    return fit < chunks() ? fit : chunks();
  }
  constexpr int shared_bytes() const {
    return log_warps() == 0 ? 0 : chunks_per_exchange() * exchange_bytes_per_chunk();
  }

  /// Element of the row that thread `thread` holds in register (chunk, e) at load and store.
  constexpr int element_of(int thread, int chunk, int e) const {
    return (((chunk << log_threads) | thread) << log_elements) | e;
  }
};

/// 16-byte slot of shared memory where lane `lane` of warp `warp` puts its values. The XOR spreads the
/// reading side, where lanes walk over warps, over all 8 slots of a 128-byte line; the writing side stays a
/// permutation within it.
constexpr int exchange_slot(int warp, int lane, int log_warps) {
  return (warp << 5) | (lane ^ (log_warps >= 3 ? (warp & 7) : warp << (3 - log_warps)));
}

/// After the exchange, thread t holds what (warp = t mod warps, lane = t / warps) held: the warp bits lie in
/// lanes.
constexpr int exchanged_warp(int thread, int log_warps) {
  return thread & ((1 << log_warps) - 1);
}
constexpr int exchanged_lane(int thread, int log_warps) {
  return thread >> log_warps;
}

}  // namespace fwht::warp_shuffle
