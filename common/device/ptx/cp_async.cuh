// Copies from global to shared memory that pass no register. One PTX instruction, one function, named after
// the instruction. Each thread waits for its own copies; what it copied for others needs a barrier after
// that.
#pragma once

#include <cstdint>

namespace fwht::ptx {

/// cp.async.cg.shared.global, 16 bytes (PTX ISA, "Data Movement and Conversion Instructions: cp.async"): both
/// addresses multiples of 16; `shared` is a shared address, or points there. sm_80.
__device__ inline void cp_async_cg_shared_global_16(std::uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}
__device__ inline void cp_async_cg_shared_global_16(void* shared, const void* global) {
  cp_async_cg_shared_global_16(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)), global);
}

/// cp.async.ca.shared.global of 4 or 8 bytes (the same chapter): both addresses multiples of as many. sm_80.
template <int bytes>
__device__ inline void cp_async_ca_shared_global(std::uint32_t shared, const void* global) {
  static_assert(bytes == 4 || bytes == 8);
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(global), "n"(bytes) : "memory");
}

/// cp.async.ca.shared.global of 8 bytes; zeros where not `wanted`, and nothing is read.
__device__ inline void cp_async_ca_shared_global_8(std::uint32_t shared, const void* global, bool wanted) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared), "l"(global), "r"(wanted ? 8 : 0)
               : "memory");
}

/// cp.async.mbarrier.arrive.noinc: the calling thread's arrival, once its copies before this are complete.
__device__ inline void cp_async_mbarrier_arrive_noinc(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/// cp.async.wait_all (same chapter): every copy of this thread so far has landed. sm_80.
__device__ inline void cp_async_wait_all() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

}  // namespace fwht::ptx
