// Hopper's asynchronous warpgroup matrix multiply (PTX ISA 9.7.15, "Asynchronous Warpgroup Level Matrix
// Multiply-Accumulate"). One instruction, one function. Needs sm_90a. Called by all 128 threads of a
// warpgroup.
#pragma once

#include <cstdint>

#include "common/contract/dtype.hpp"

namespace fwht::ptx {

/// setmaxnreg.sync.aligned: the registers of each thread of this warpgroup from here on, a multiple of 8; the
/// block's warpgroups share what it was launched with.
template <int registers>
__device__ inline void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ inline void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

/// wgmma.fence.sync.aligned: before the first wgmma, and whenever registers (A or D) were touched by other
/// code.
__device__ inline void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/// wgmma.commit_group.sync.aligned
__device__ inline void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// wgmma.wait_group.sync.aligned: until at most `pending` groups are in flight.
template <int pending>
__device__ inline void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

/// Keeps the compiler from moving accumulator uses across the wait: it cannot see that wgmma writes them
/// later.
template <int count>
__device__ inline void pin_accumulators(float (&d)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i)
    asm volatile("" : "+f"(d[i])::"memory");
}

// The instruction takes its N / 2 accumulators one by one, and every other operand has its number behind
// theirs.
// clang-format off
#define FWHT_NAMES_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define FWHT_NAMES_16 FWHT_NAMES_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define FWHT_NAMES_28 FWHT_NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27"
#define FWHT_NAMES_32 FWHT_NAMES_16 "," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define FWHT_NAMES_36 FWHT_NAMES_32 ",%32,%33,%34,%35"
#define FWHT_NAMES_48 FWHT_NAMES_32 "," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define FWHT_NAMES_56 FWHT_NAMES_48 "," "%48,%49,%50,%51,%52,%53,%54,%55"
#define FWHT_NAMES_64 FWHT_NAMES_32 "," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define FWHT_NAMES_72 FWHT_NAMES_64 "," "%64,%65,%66,%67,%68,%69,%70,%71"
#define FWHT_NAMES_80 FWHT_NAMES_72 "," "%72,%73,%74,%75,%76,%77,%78,%79"
#define FWHT_NAMES_96 FWHT_NAMES_80 "," \
  "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define FWHT_NAMES_112 FWHT_NAMES_96 "," \
  "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define FWHT_NAMES_128 FWHT_NAMES_112 "," \
  "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define FWHT_SUMS_4(i) "+f"(d[(i)]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define FWHT_SUMS_16(i) FWHT_SUMS_4(i), FWHT_SUMS_4((i) + 4), FWHT_SUMS_4((i) + 8), FWHT_SUMS_4((i) + 12)
#define FWHT_SUMS_32(i) FWHT_SUMS_16(i), FWHT_SUMS_16((i) + 16)
#define FWHT_SUMS_64(i) FWHT_SUMS_32(i), FWHT_SUMS_32((i) + 32)

// form(N, type, names of the accumulators, names of six more operands, the accumulators)
#define FWHT_N16(form, type) \
  form(16, type, FWHT_NAMES_8, "%8", "%9", "%10", "%11", "%12", "%13", FWHT_SUMS_4(0), FWHT_SUMS_4(4))
#define FWHT_N32(form, type) \
  form(32, type, FWHT_NAMES_16, "%16", "%17", "%18", "%19", "%20", "%21", FWHT_SUMS_16(0))
#define FWHT_N64(form, type) \
  form(64, type, FWHT_NAMES_32, "%32", "%33", "%34", "%35", "%36", "%37", FWHT_SUMS_32(0))
#define FWHT_N112(form, type) \
  form(112, type, FWHT_NAMES_56, "%56", "%57", "%58", "%59", "%60", "%61", FWHT_SUMS_32(0), FWHT_SUMS_16(32), \
       FWHT_SUMS_4(48), FWHT_SUMS_4(52))
#define FWHT_N128(form, type) \
  form(128, type, FWHT_NAMES_64, "%64", "%65", "%66", "%67", "%68", "%69", FWHT_SUMS_64(0))
#define FWHT_N144(form, type)                                                                      \
  form(144, type, FWHT_NAMES_72, "%72", "%73", "%74", "%75", "%76", "%77", FWHT_SUMS_64(0), FWHT_SUMS_4(64), \
       FWHT_SUMS_4(68))
#define FWHT_N224(form, type)                                                                               \
  form(224, type, FWHT_NAMES_112, "%112", "%113", "%114", "%115", "%116", "%117", FWHT_SUMS_64(0), \
       FWHT_SUMS_32(64), FWHT_SUMS_16(96))
#define FWHT_N256(form, type) \
  form(256, type, FWHT_NAMES_128, "%128", "%129", "%130", "%131", "%132", "%133", FWHT_SUMS_64(0), FWHT_SUMS_64(64))

// a in four registers, then b and `accumulate`
#define FWHT_WGMMA_A_IN_REGISTERS(n, type, sums, a0, a1, a2, a3, b_, p_, ...)                   \
  asm volatile(                                                                                 \
      "{.reg .pred p; setp.ne.b32 p, " p_ ", 0;\n"                                              \
      "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" sums "}, "           \
      "{" a0 "," a1 "," a2 "," a3 "}, " b_ ", p, 1, 1, 1;}"                                     \
      : __VA_ARGS__                                                                             \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)))

// a and b by descriptor, then `accumulate`
#define FWHT_WGMMA_A_IN_SHARED_MEMORY(n, type, sums, a_, b_, p_, unused0, unused1, unused2, ...) \
  asm volatile(                                                                                 \
      "{.reg .pred p; setp.ne.b32 p, " p_ ", 0;\n"                                              \
      "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" sums "}, "           \
      a_ ", " b_ ", p, 1, 1, 0, 1;}"                                                            \
      : __VA_ARGS__                                                                             \
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)))

#define FWHT_WGMMA(form)                                                                        \
  static_assert(columns == 16 || columns == 32 || columns == 64 || columns == 112 || columns == 128 || \
                    columns == 144 || columns == 224 || columns == 256, \
                "no other widths are used"); \
  constexpr bool kF16 = dtype == Dtype::f16;                                                    \
  if constexpr (kF16 && columns == 16) FWHT_N16(form, "f16"); \
  if constexpr (kF16 && columns == 32) FWHT_N32(form, "f16"); \
  if constexpr (kF16 && columns == 64) FWHT_N64(form, "f16"); \
  if constexpr (kF16 && columns == 112) FWHT_N112(form, "f16"); \
  if constexpr (kF16 && columns == 128) FWHT_N128(form, "f16"); \
  if constexpr (kF16 && columns == 144) FWHT_N144(form, "f16"); \
  if constexpr (kF16 && columns == 224) FWHT_N224(form, "f16"); \
  if constexpr (kF16 && columns == 256) FWHT_N256(form, "f16"); \
  if constexpr (!kF16 && columns == 16) FWHT_N16(form, "bf16"); \
  if constexpr (!kF16 && columns == 32) FWHT_N32(form, "bf16"); \
  if constexpr (!kF16 && columns == 64) FWHT_N64(form, "bf16"); \
  if constexpr (!kF16 && columns == 112) FWHT_N112(form, "bf16"); \
  if constexpr (!kF16 && columns == 128) FWHT_N128(form, "bf16"); \
  if constexpr (!kF16 && columns == 144) FWHT_N144(form, "bf16"); \
  if constexpr (!kF16 && columns == 224) FWHT_N224(form, "bf16"); \
  if constexpr (!kF16 && columns == 256) FWHT_N256(form, "bf16")
// clang-format on

/// wgmma.mma_async.sync.aligned.m64nNk16.f32.{f16,bf16}.{f16,bf16} with N = `columns`: d = a b (+ d when
/// `accumulate`), a 64 x 16 from registers (16 rows a warp, see fragments.hpp), b 16 x N from the
/// shared-memory descriptor, MN-major (trans-b = 1).
template <Dtype dtype, int columns>
__device__ inline void wgmma_m64k16(float (&d)[columns / 2], const std::uint32_t (&a)[4], std::uint64_t b,
                                    bool accumulate) {
  FWHT_WGMMA(FWHT_WGMMA_A_IN_REGISTERS);
}

/// The same with a from a shared-memory descriptor too, K-major (trans-a = 0).
template <Dtype dtype, int columns>
__device__ inline void wgmma_m64k16(float (&d)[columns / 2], std::uint64_t a, std::uint64_t b,
                                    bool accumulate) {
  FWHT_WGMMA(FWHT_WGMMA_A_IN_SHARED_MEMORY);
}

// clang-format off
#define FWHT_N8(form, type) \
  form(8, type, "%0,%1,%2,%3", "%4", "%5", "%6", "%7", "%8", "%9", FWHT_SUMS_4(0))
#define FWHT_N56(form, type) \
  form(56, type, FWHT_NAMES_28, "%28", "%29", "%30", "%31", "%32", "%33", FWHT_SUMS_16(0), FWHT_SUMS_4(16), \
       FWHT_SUMS_4(20), FWHT_SUMS_4(24))
#define FWHT_N72(form, type) \
  form(72, type, FWHT_NAMES_36, "%36", "%37", "%38", "%39", "%40", "%41", FWHT_SUMS_32(0), FWHT_SUMS_4(32))
#define FWHT_N96(form, type) \
  form(96, type, FWHT_NAMES_48, "%48", "%49", "%50", "%51", "%52", "%53", FWHT_SUMS_32(0), FWHT_SUMS_16(32))
#define FWHT_N160(form, type) \
  form(160, type, FWHT_NAMES_80, "%80", "%81", "%82", "%83", "%84", "%85", FWHT_SUMS_64(0), FWHT_SUMS_16(64))
#define FWHT_N192(form, type) \
  form(192, type, FWHT_NAMES_96, "%96", "%97", "%98", "%99", "%100", "%101", FWHT_SUMS_64(0), FWHT_SUMS_32(64))
#define FWHT_WGMMA_B_K_MAJOR(n, type, sums, a0, a1, a2, a3, b_, p_, ...)                        \
  asm volatile(                                                                                 \
      "{.reg .pred p; setp.ne.b32 p, " p_ ", 0;\n"                                              \
      "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" sums "}, "           \
      "{" a0 "," a1 "," a2 "," a3 "}, " b_ ", p, 1, 1, 0;}"                                     \
      : __VA_ARGS__                                                                             \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)))
// clang-format on

/// The same with a from registers and b, 16 x N, K-major (trans-b = 0).
template <Dtype dtype, int columns>
__device__ inline void wgmma_m64k16_b_k_major(float (&d)[columns / 2], const std::uint32_t (&a)[4],
                                              std::uint64_t b, bool accumulate) {
  static_assert(columns == 8 || columns == 16 || columns == 32 || columns == 56 || columns == 64 ||
                    columns == 72 || columns == 96 || columns == 128 || columns == 160 || columns == 192 ||
                    columns == 224 || columns == 256,
                "no other widths are used");
  constexpr bool kF16 = dtype == Dtype::f16;
  if constexpr (kF16 && columns == 8) FWHT_N8(FWHT_WGMMA_B_K_MAJOR, "f16");
  if constexpr (kF16 && columns == 16) FWHT_N16(FWHT_WGMMA_B_K_MAJOR, "f16");
  if constexpr (kF16 && columns == 32) FWHT_N32(FWHT_WGMMA_B_K_MAJOR, "f16");
  if constexpr (kF16 && columns == 64) FWHT_N64(FWHT_WGMMA_B_K_MAJOR, "f16");
  if constexpr (kF16 && columns == 96) FWHT_N96(FWHT_WGMMA_B_K_MAJOR, "f16");
  if constexpr (kF16 && columns == 128) FWHT_N128(FWHT_WGMMA_B_K_MAJOR, "f16");
  if constexpr (kF16 && columns == 160) FWHT_N160(FWHT_WGMMA_B_K_MAJOR, "f16");
  if constexpr (kF16 && columns == 192) FWHT_N192(FWHT_WGMMA_B_K_MAJOR, "f16");
  if constexpr (kF16 && columns == 224) FWHT_N224(FWHT_WGMMA_B_K_MAJOR, "f16");
  if constexpr (kF16 && columns == 256) FWHT_N256(FWHT_WGMMA_B_K_MAJOR, "f16");
  if constexpr (!kF16 && columns == 8) FWHT_N8(FWHT_WGMMA_B_K_MAJOR, "bf16");
  if constexpr (!kF16 && columns == 16) FWHT_N16(FWHT_WGMMA_B_K_MAJOR, "bf16");
  if constexpr (!kF16 && columns == 32) FWHT_N32(FWHT_WGMMA_B_K_MAJOR, "bf16");
  if constexpr (!kF16 && columns == 56) FWHT_N56(FWHT_WGMMA_B_K_MAJOR, "bf16");
  if constexpr (!kF16 && columns == 64) FWHT_N64(FWHT_WGMMA_B_K_MAJOR, "bf16");
  if constexpr (!kF16 && columns == 96) FWHT_N96(FWHT_WGMMA_B_K_MAJOR, "bf16");
  if constexpr (!kF16 && columns == 128) FWHT_N128(FWHT_WGMMA_B_K_MAJOR, "bf16");
  if constexpr (!kF16 && columns == 160) FWHT_N160(FWHT_WGMMA_B_K_MAJOR, "bf16");
  if constexpr (!kF16 && columns == 192) FWHT_N192(FWHT_WGMMA_B_K_MAJOR, "bf16");
  if constexpr (!kF16 && columns == 224) FWHT_N224(FWHT_WGMMA_B_K_MAJOR, "bf16");
  if constexpr (!kF16 && columns == 256) FWHT_N256(FWHT_WGMMA_B_K_MAJOR, "bf16");
  if constexpr (!kF16 && columns == 72) FWHT_N72(FWHT_WGMMA_B_K_MAJOR, "bf16");
}

#undef FWHT_WGMMA_B_K_MAJOR
#undef FWHT_N192
#undef FWHT_N160
#undef FWHT_N96
#undef FWHT_N72
#undef FWHT_N56
#undef FWHT_N32
#undef FWHT_N16
#undef FWHT_N8
#undef FWHT_WGMMA
#undef FWHT_WGMMA_A_IN_SHARED_MEMORY
#undef FWHT_WGMMA_A_IN_REGISTERS
#undef FWHT_N256
#undef FWHT_N224
#undef FWHT_N144
#undef FWHT_N128
#undef FWHT_N64
#undef FWHT_N32
#undef FWHT_SUMS_64
#undef FWHT_SUMS_32
#undef FWHT_SUMS_16
#undef FWHT_SUMS_4
#undef FWHT_NAMES_128
#undef FWHT_NAMES_112
#undef FWHT_NAMES_96
#undef FWHT_NAMES_80
#undef FWHT_NAMES_72
#undef FWHT_NAMES_64
#undef FWHT_NAMES_48
#undef FWHT_NAMES_36
#undef FWHT_NAMES_32
#undef FWHT_NAMES_28
#undef FWHT_NAMES_16
#undef FWHT_NAMES_8

}  // namespace fwht::ptx
