// Loads and stores of global memory whose width the compiler keeps: it splits the 16-byte store of a struct
// whenever its parts are at hand one by one. One PTX instruction, one function.
#pragma once

#include <cstdint>

namespace fwht::ptx {

/// ld.global.v4.u32 (PTX ISA, "Data Movement and Conversion Instructions: ld"): 16 bytes, aligned.
__device__ inline void ld_global_v4(std::uint32_t (&words)[4], const void* from) {
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "l"(from)
               : "memory");
}

/// ld.global.nc.L1::no_allocate.L2::128B.v4.u32 (same chapter): 16 bytes that are read once, aligned. What
/// they hold must not change while the kernel runs.
__device__ inline uint4 ld_global_stream(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

/// ld.global.L1::evict_last.v4.u32 (same chapter): 16 bytes that other warps read too, aligned. Not .nc:
/// ptxas moves loads of data that never change to before griddepcontrol.wait, behind which the kernel ahead
/// may still write these.
__device__ inline uint4 ld_global_keep(const void* from) {
  uint4 v;
  asm volatile("ld.global.L1::evict_last.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

/// ld.global.nc.L2::128B (same chapter): a word or a byte of a line that is wanted soon. What it holds must
/// not change while the kernel runs.
__device__ inline std::uint32_t ld_global_line(const std::uint32_t* from) {
  std::uint32_t word;
  asm volatile("ld.global.nc.L2::128B.u32 %0, [%1];" : "=r"(word) : "l"(from));
  return word;
}
__device__ inline std::uint32_t ld_global_line(const std::uint8_t* from) {
  std::uint32_t byte;
  asm volatile("ld.global.nc.L2::128B.u8 %0, [%1];" : "=r"(byte) : "l"(from));
  return byte;
}

/// st.global.v4.u32, .v2.u32, .u32 (same chapter, "st"): 16, 8 or 4 bytes, aligned, where `wanted`: under a
/// predicate, not behind a branch.
__device__ inline void st_global_if(bool wanted, void* to, const std::uint32_t (&words)[4]) {
  asm volatile(
      "{ .reg .pred p; setp.ne.u32 p, %5, 0; @p st.global.v4.u32 [%0], {%1, %2, %3, %4}; }" ::"l"(to),
      "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(wanted ? 1U : 0U)
      : "memory");
}
__device__ inline void st_global_if(bool wanted, void* to, const std::uint32_t (&words)[2]) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %3, 0; @p st.global.v2.u32 [%0], {%1, %2}; }" ::"l"(to),
               "r"(words[0]), "r"(words[1]), "r"(wanted ? 1U : 0U)
               : "memory");
}
__device__ inline void st_global_if(bool wanted, void* to, const std::uint32_t (&words)[1]) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p st.global.u32 [%0], %1; }" ::"l"(to), "r"(words[0]),
               "r"(wanted ? 1U : 0U)
               : "memory");
}

}  // namespace fwht::ptx
