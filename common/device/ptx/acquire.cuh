// Waiting for what other blocks of the same launch wrote. One PTX instruction, one function.
#pragma once

#include <cstdint>

namespace fwht::ptx {

/// ld.acquire.gpu.u32 (PTX ISA, "Data Movement and Conversion Instructions: ld"): what a block wrote before
/// it released `from`, by a fence and an atomic, is visible behind it.
__device__ inline unsigned ld_acquire_gpu(const unsigned* from) {
  unsigned word;
  asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}

/// The same of 64 bits, and st.release.gpu.u64: a word by which blocks tell each other something.
__device__ inline std::uint64_t ld_acquire_gpu(const std::uint64_t* from) {
  std::uint64_t word;
  asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}
__device__ inline void st_release_gpu(std::uint64_t* to, std::uint64_t word) {
  asm volatile("st.release.gpu.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

}  // namespace fwht::ptx
