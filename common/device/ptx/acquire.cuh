// Waiting for what other blocks of the same launch wrote. One PTX instruction, one function.
#pragma once

namespace fwht::ptx {

/// ld.acquire.gpu.u32 (PTX ISA, "Data Movement and Conversion Instructions: ld"): what a block wrote before
/// it released `from`, by a fence and an atomic, is visible behind it.
__device__ inline unsigned ld_acquire_gpu(const unsigned* from) {
  unsigned word;
  asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}

}  // namespace fwht::ptx
