// Loads and stores of shared memory, 16 or 4 aligned bytes at a shared address. One PTX instruction, one
// function.
#pragma once

#include <cstdint>

namespace fwht::ptx {

/// ld.shared.v4.u32 (PTX ISA, "Data Movement and Conversion Instructions: ld").
__device__ inline void ld_shared_v4(std::uint32_t (&words)[4], std::uint32_t from) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(from)
               : "memory");
}

/// st.shared.v4.u32 (same chapter, "st").
__device__ inline void st_shared_v4(std::uint32_t to, const std::uint32_t (&words)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]),
               "r"(words[2]), "r"(words[3])
               : "memory");
}

/// st.shared.u32 (same chapter): 4 aligned bytes.
__device__ inline void st_shared(std::uint32_t to, std::uint32_t word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}

}  // namespace fwht::ptx
