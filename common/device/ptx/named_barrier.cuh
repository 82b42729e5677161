// Barriers for part of a block (PTX ISA, "Parallel Synchronization and Communication Instructions: bar").
#pragma once

#include <cstdint>

namespace fwht::ptx {

/// bar.sync: until `threads` threads (a multiple of 32, whole warps) have come to barrier `id` (0-15; 0 is
/// __syncthreads).
__device__ inline void bar_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// bar.arrive: comes to barrier `id`, of `threads` threads together with those that wait, without waiting.
__device__ inline void bar_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace fwht::ptx
