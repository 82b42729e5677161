// Barriers in shared memory that count arrivals and bytes (PTX ISA, "Parallel Synchronization and
// Communication Instructions: mbarrier"). One instruction, one function. Needs sm_90 for the transaction
// count.
#pragma once

#include <cstdint>

namespace fwht::ptx {

/// Address of shared memory as the 32-bit form that .shared instructions take.
__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// mbarrier.init: one phase completes after `arrivals` arrivals and all announced bytes.
__device__ inline void mbarrier_init(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// fence.mbarrier_init: makes initialised barriers visible to the asynchronous copies that will complete
/// them.
__device__ inline void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// mbarrier.arrive
__device__ inline void mbarrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// mbarrier.arrive at a barrier of another block of the cluster, see mapa.
__device__ inline void mbarrier_arrive_cluster(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// mbarrier.arrive.expect_tx: arrives and announces `bytes` (< 2^20) that asynchronous copies will deliver.
__device__ inline void mbarrier_arrive_expect_tx(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

/// mbarrier.try_wait.parity in a loop: until the phase of the given parity has completed; acquires in the
/// block's scope.
__device__ inline void mbarrier_wait_parity(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "WAIT_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra WAIT_%=;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// The same behind writes of other blocks of the cluster (st.async): acquires in the cluster's scope.
__device__ inline void mbarrier_wait_parity_cluster(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "WAIT_%=:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra WAIT_%=;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

}  // namespace fwht::ptx
