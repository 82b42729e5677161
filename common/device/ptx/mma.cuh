// Warp-level matrix multiply and the shuffles beside it. One PTX instruction, one function, named after the
// instruction. Every function is a warp-collective: all 32 lanes call it together.
#pragma once

#include <cstdint>

namespace fwht::ptx {

// d = a b with c = 0, 16-bit operands packed in pairs; fragments.hpp says who holds what.

/// mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 (PTX ISA, "Matrix multiply-accumulate operation using
/// mma instruction"): fp16 accumulator. sm_80.
__device__ inline void mma_sync_m16n8k16_f16_f16(std::uint32_t (&d)[2], const std::uint32_t (&a)[4],
                                                 const std::uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%8,%8};"
      : "=r"(d[0]), "=r"(d[1])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(0U));
}

/// mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 (same chapter): fp32 accumulator. sm_80.
__device__ inline void mma_sync_m16n8k16_f32_f16(float (&d)[4], const std::uint32_t (&a)[4],
                                                 const std::uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%10,%10,%10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0F));
}

/// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 (same chapter); as above for bf16. sm_80.
__device__ inline void mma_sync_m16n8k16_f32_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                                  const std::uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%10,%10,%10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0F));
}

/// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 (same chapter): d += a b. sm_80.
__device__ inline void mma_sync_m16n8k16_f32_bf16_accumulate(float (&d)[4], const std::uint32_t (&a)[4],
                                                             const std::uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 (same chapter): d += a b with a 16x8 and b 8x8. sm_80.
__device__ inline void mma_sync_m16n8k8_f32_bf16_accumulate(float (&d)[4], std::uint32_t a0, std::uint32_t a1,
                                                            std::uint32_t b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(b));
}

/// cvt.rn.f16x2.f32 (PTX ISA, "Data Movement and Conversion Instructions: cvt"): both rounded to nearest
/// even, `low` into the lower half. sm_80.
__device__ inline std::uint32_t cvt_rn_f16x2_f32(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

/// cvt.rn.bf16x2.f32 (same chapter). sm_80.
__device__ inline std::uint32_t cvt_rn_bf16x2_f32(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

/// prmt.b32 (PTX ISA, "Data Movement and Conversion Instructions: prmt"): nibble i of `selector` picks byte i
/// of the result out of a (bytes 0-3) and b (4-7).
template <std::uint32_t selector>
__device__ inline std::uint32_t prmt(std::uint32_t a, std::uint32_t b) {
  return __byte_perm(a, b, selector);
}

/// shfl.sync.bfly.b32 over the whole warp (PTX ISA, "Data Movement and Conversion Instructions: shfl.sync").
__device__ inline std::uint32_t shfl_sync_bfly(std::uint32_t value, int lane_mask) {
  return __shfl_xor_sync(0xFFFFFFFFU, value, lane_mask);
}

/// shfl.sync.idx.b32 over the whole warp (same chapter).
__device__ inline std::uint32_t shfl_sync_idx(std::uint32_t value, int source_lane) {
  return __shfl_sync(0xFFFFFFFFU, value, source_lane);
}

}  // namespace fwht::ptx
