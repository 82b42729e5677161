// The warp-level matrix multiplies of mma.cuh with an addend: d += a b. Fragments as there (fragments.hpp).
#pragma once

#include <cstdint>

namespace fwht::ptx {

/// mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 (PTX ISA, "Matrix multiply-accumulate operation using
/// mma instruction"): fp16 accumulator. sm_80.
__device__ inline void mma_sync_m16n8k16_f16_f16_accumulate(std::uint32_t (&d)[2],
                                                            const std::uint32_t (&a)[4],
                                                            const std::uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
      : "+r"(d[0]), "+r"(d[1])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 (same chapter): fp32 accumulator. sm_80.
__device__ inline void mma_sync_m16n8k16_f32_f16_accumulate(float (&d)[4], const std::uint32_t (&a)[4],
                                                            const std::uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace fwht::ptx
