// Bulk asynchronous copies without a tensor map (PTX ISA, "Data Movement and Conversion Instructions:
// cp.async.bulk"). One instruction, one function. Needs sm_90. Addresses and sizes are multiples of 16 bytes.
#pragma once

#include <cstdint>

namespace fwht::ptx {

/// cp.async.bulk, global to shared: completes `bytes` on the mbarrier.
__device__ inline void bulk_copy_global_to_shared(std::uint32_t to, const void* from, std::uint32_t bytes,
                                                  std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

/// cp.async.bulk with .multicast::cluster: to the same place of every block whose bit is set in `blocks`, and
/// completes `bytes` on the same barrier of each.
__device__ inline void bulk_copy_global_to_shared_multicast(std::uint32_t to, const void* from,
                                                            std::uint32_t bytes, std::uint32_t barrier,
                                                            std::uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "h"(blocks)
      : "memory");
}

/// cp.async.bulk, shared to global, tracked by the calling thread's bulk groups.
__device__ inline void bulk_copy_shared_to_global(void* to, std::uint32_t from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}

/// cp.async.bulk.commit_group
__device__ inline void bulk_copy_commit_group() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// cp.async.bulk.wait_group.read: until the shared memory that all but the newest `pending` groups of this
/// thread read from may be written again.
template <int pending>
__device__ inline void bulk_copy_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

/// cp.async.bulk.wait_group: until the writes of all but the newest `pending` groups of this thread are done.
template <int pending>
__device__ inline void bulk_copy_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

/// fence.proxy.async: orders this thread's ordinary accesses to shared memory before later asynchronous ones.
__device__ inline void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace fwht::ptx
