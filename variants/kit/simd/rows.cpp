// Bit card (AVX-512, pack = 16): pass 0 takes b0-b3 inside a pack (one shuffle and one fused multiply-add by
// +-1 a level) and b4-b7 across 16 packs. Every further pass takes up to four bits across 16 packs, the last
// one scales, rounds and stores. So n = 1024 touches scratch once there and once back, and n <= 256 not at
// all.
//
// Compiled with FWHT_ROWS_NAMESPACE naming the instruction set; the widest pack follows from the compiler's
// flags.
#include "variants/kit/simd/rows.hpp"

#include <cstring>

#include "variants/kit/simd/unroll.hpp"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace fwht::simd::FWHT_ROWS_NAMESPACE {
namespace {

#if defined(__AVX512F__) && defined(__AVX512BW__)
constexpr int kPack = 16;
#elif defined(__AVX2__)
constexpr int kPack = 8;
#else
constexpr int kPack = 4;
#endif
constexpr int kPackBits = kPack == 16 ? 4 : kPack == 8 ? 3 : 2;
constexpr int kRegBits = kPack == 16 ? 4 : 3;  // as many packs as half the registers hold
constexpr int kRegisters = 1 << kRegBits;
constexpr int kFirstBits = kPackBits + kRegBits;
constexpr int kFirstElements = 1 << kFirstBits;

using Pack = float __attribute__((vector_size(4 * kPack)));
using Bits32 = std::uint32_t __attribute__((vector_size(4 * kPack)));
using Bits16 = std::uint16_t __attribute__((vector_size(2 * kPack)));

#if defined(__AVX512F__)
constexpr __mmask16 kAllLanes =
    0xFFFF;  // g++ 12 warns of the undefined register behind the forms without a mask
#endif

template <class Vector>
Vector load_unaligned(const void* from) {
  Vector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <Dtype dtype>
Pack load(const void* from) {
  if constexpr (dtype == Dtype::f32) {
    return load_unaligned<Pack>(from);
  } else if constexpr (dtype == Dtype::bf16) {
    return reinterpret_cast<Pack>(__builtin_convertvector(load_unaligned<Bits16>(from), Bits32) << 16);
  } else {
#if defined(__AVX512F__)
    return _mm512_maskz_cvtph_ps(kAllLanes, load_unaligned<__m256i>(from));
#elif defined(__F16C__)
    return _mm256_cvtph_ps(load_unaligned<__m128i>(from));
#else
    Pack value;
    for (int i = 0; i < kPack; ++i)
      value[i] = f16_to_float(static_cast<const std::uint16_t*>(from)[i]);
    return value;
#endif
  }
}

/// Rounds to nearest even; a NaN stays a NaN.
template <Dtype dtype>
void store(void* to, Pack value) {
  if constexpr (dtype == Dtype::f32) {
    std::memcpy(to, &value, sizeof value);
  } else if constexpr (dtype == Dtype::bf16) {
    const Bits32 bits = reinterpret_cast<Bits32>(value);
    const Bits32 rounded = bits + (((bits >> 16) & 1U) + 0x7FFFU);
    const Bits32 kept = value != value ? bits | 0x400000U : rounded;  // a NaN stays one and becomes quiet
    const Bits16 narrow = __builtin_convertvector(kept >> 16, Bits16);
    std::memcpy(to, &narrow, sizeof narrow);
  } else {
#if defined(__AVX512F__)
    const __m256i narrow =
        _mm512_maskz_cvtps_ph(kAllLanes, value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    std::memcpy(to, &narrow, sizeof narrow);
#elif defined(__F16C__)
    const __m128i narrow = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
    std::memcpy(to, &narrow, sizeof narrow);
#else
    for (int i = 0; i < kPack; ++i)
      static_cast<std::uint16_t*>(to)[i] = float_to_f16(value[i]);
#endif
  }
}

/// Level `level` inside a pack: the partner arrives by a shuffle, and the lanes whose bit is set subtract.
template <int level>
void butterfly_in_pack(Pack& x) {
  constexpr int kStep = 1 << level;
  const Pack partner = [&]<int... i>(std::integer_sequence<int, i...>) {
    return __builtin_shufflevector(x, x, (i ^ kStep)...);
  }
  (std::make_integer_sequence<int, kPack>{});
  const Pack sign = []<int... i>(std::integer_sequence<int, i...>) {
    return Pack{((i & kStep) != 0 ? -1.0F : 1.0F)...};
  }
  (std::make_integer_sequence<int, kPack>{});
  x = x * sign + partner;  // exact product: one rounding, fused or not
}

/// The first kFirstBits levels (or all `levels` of shorter rows) of kFirstElements consecutive elements.
template <Dtype dtype>
void first_pass(const char* in, Pack (&x)[kRegisters], int levels) {
  unrolled<kRegisters>([&]<int r>() {
    x[r] = load<dtype>(in + r * kPack * bytes_of(dtype));
    unrolled<kPackBits>([&]<int level>() {
      if (level < levels) butterfly_in_pack<level>(x[r]);
    });
  });
  butterflies<kRegBits, 0, kRegBits>(x, kPackBits, levels);
}

/// kBits levels from `level` on, in place in scratch.
template <int kBits>
void middle_pass(float* scratch, std::int64_t n, int level) {
  const std::int64_t step = std::int64_t{1} << level;
  for (std::int64_t block = 0; block < n; block += step << kBits) {
    for (std::int64_t i = block; i < block + step; i += kPack) {
      Pack x[1 << kBits];
      unrolled<(1 << kBits)>(
          [&]<int r>() { x[r] = load_unaligned<Pack>(scratch + row_padded(i + r * step)); });
      butterflies<kBits, 0, kBits>(x, 0, kBits);
      unrolled<(1 << kBits)>(
          [&]<int r>() { std::memcpy(scratch + row_padded(i + r * step), &x[r], sizeof(Pack)); });
    }
  }
}

/// The highest kBits levels, the scale and the one rounding.
template <Dtype dtype, int kBits>
void last_pass(const float* scratch, char* out, std::int64_t n, float scale) {
  const std::int64_t step = n >> kBits;
  for (std::int64_t i = 0; i < step; i += kPack) {
    Pack x[1 << kBits];
    unrolled<(1 << kBits)>([&]<int r>() { x[r] = load_unaligned<Pack>(scratch + row_padded(i + r * step)); });
    butterflies<kBits, 0, kBits>(x, 0, kBits);
    unrolled<(1 << kBits)>(
        [&]<int r>() { store<dtype>(out + (i + r * step) * bytes_of(dtype), x[r] * scale); });
  }
}

template <Dtype dtype>
[[gnu::flatten]] void transform_long_row(const RowJob& job, const char* in, char* out, float* scratch) {
  Pack x[kRegisters];
  const bool elsewhere = in != out;
  for (std::int64_t i = 0; i < job.n; i += kFirstElements) {
    // The last pass writes several places of the row in turn, which no hardware prefetcher follows.
    for (std::int64_t byte = 0; elsewhere && byte < kFirstElements * bytes_of(dtype); byte += 64)
      __builtin_prefetch(out + i * bytes_of(dtype) + byte, 1);
    first_pass<dtype>(in + i * bytes_of(dtype), x, kFirstBits);
    if (job.log2_n == kFirstBits) {
      unrolled<kRegisters>(
          [&]<int r>() { store<dtype>(out + r * kPack * bytes_of(dtype), x[r] * job.scale); });
      return;
    }
    unrolled<kRegisters>(
        [&]<int r>() { std::memcpy(scratch + row_padded(i + r * kPack), &x[r], sizeof(Pack)); });
  }
  int level = kFirstBits;
  for (; job.log2_n - level > kRegBits; level += kRegBits)
    middle_pass<kRegBits>(scratch, job.n, level);
  switch (job.log2_n - level) {
    case 1:
      return last_pass<dtype, 1>(scratch, out, job.n, job.scale);
    case 2:
      return last_pass<dtype, 2>(scratch, out, job.n, job.scale);
    case 3:
      return last_pass<dtype, 3>(scratch, out, job.n, job.scale);
    case 4:
      return last_pass<dtype, kRegBits>(scratch, out, job.n, job.scale);
  }
}

/// Rows of fewer than kFirstElements, as many as fill that; they need not be contiguous nor fill it.
template <Dtype dtype>
[[gnu::flatten]] void transform_short_rows(const RowJob& job, const char* in, char* out, std::int64_t rows,
                                           float* staging) {
  constexpr std::int64_t kBytes = bytes_of(dtype);
  char* bytes = reinterpret_cast<char*>(staging);
  const std::int64_t row_bytes = job.n * kBytes;
  const bool direct = job.in_stride == job.n && job.out_stride == job.n && rows * job.n == kFirstElements;
  if (!direct) {
    std::memset(bytes, 0, kFirstElements * kBytes);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::memcpy(bytes + r * row_bytes, in + r * job.in_stride * kBytes, row_bytes);
    }
    in = bytes;
  }
  Pack x[kRegisters];
  first_pass<dtype>(in, x, job.log2_n);
  char* target = direct ? out : bytes;
  unrolled<kRegisters>([&]<int r>() { store<dtype>(target + r * kPack * kBytes, x[r] * job.scale); });
  if (direct) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::memcpy(out + r * job.out_stride * kBytes, bytes + r * row_bytes, row_bytes);
  }
}

template <Dtype dtype>
void transform(const RowJob& job, const void* in, void* out, std::int64_t rows, float* scratch) {
  const std::int64_t per_step = job.n < kFirstElements ? kFirstElements >> job.log2_n : 1;
  const std::int64_t step_bytes = per_step * bytes_of(dtype);
  const char* from = static_cast<const char*>(in);
  char* to = static_cast<char*>(out);
  for (std::int64_t row = 0; row < rows;
       row += per_step, from += step_bytes * job.in_stride, to += step_bytes * job.out_stride) {
    if (job.n >= kFirstElements) {
      transform_long_row<dtype>(job, from, to, scratch);
    } else {
      const std::int64_t left = rows - row;
      transform_short_rows<dtype>(job, from, to, left < per_step ? left : per_step, scratch);
    }
  }
}

template <Dtype dtype>
void widen_all(const char* from, float* to, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + kPack <= count; i += kPack) {
    const Pack value = load<dtype>(from + i * bytes_of(dtype));
    std::memcpy(to + i, &value, sizeof value);
  }
  if (i == count) return;
  char last[sizeof(Pack)] = {};
  std::memcpy(last, from + i * bytes_of(dtype), (count - i) * bytes_of(dtype));
  const Pack value = load<dtype>(last);
  std::memcpy(to + i, &value, (count - i) * sizeof(float));
}

template <Dtype dtype>
void narrow_all(const float* from, char* to, std::int64_t count, float scale) {
  std::int64_t i = 0;
  for (; i + kPack <= count; i += kPack)
    store<dtype>(to + i * bytes_of(dtype), load_unaligned<Pack>(from + i) * scale);
  if (i == count) return;
  Pack value = {};
  std::memcpy(&value, from + i, (count - i) * sizeof(float));
  char last[sizeof(Pack)];
  store<dtype>(last, value * scale);
  std::memcpy(to + i * bytes_of(dtype), last, (count - i) * bytes_of(dtype));
}

void widen(Dtype dtype, const void* from, float* to, std::int64_t count) {
  const char* bytes = static_cast<const char*>(from);
  if (dtype == Dtype::f16) return widen_all<Dtype::f16>(bytes, to, count);
  if (dtype == Dtype::bf16) return widen_all<Dtype::bf16>(bytes, to, count);
  widen_all<Dtype::f32>(bytes, to, count);
}

void narrow(Dtype dtype, const float* from, void* to, std::int64_t count, float scale) {
  char* bytes = static_cast<char*>(to);
  if (dtype == Dtype::f16) return narrow_all<Dtype::f16>(from, bytes, count, scale);
  if (dtype == Dtype::bf16) return narrow_all<Dtype::bf16>(from, bytes, count, scale);
  narrow_all<Dtype::f32>(from, bytes, count, scale);
}

constexpr const char* kInstructionSet = kPack == 16 ? "x86-64-v4" : kPack == 8 ? "x86-64-v3" : "baseline";

}  // namespace

const RowKernels kernels{
    kInstructionSet, kPack, transform<Dtype::f16>, transform<Dtype::bf16>, transform<Dtype::f32>,
    widen,           narrow};

}  // namespace fwht::simd::FWHT_ROWS_NAMESPACE
