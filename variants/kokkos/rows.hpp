// The transform of whole rows by one CPU thread with SIMD packs in a cache-resident fp32 scratch row. It is
// what a Kokkos team of one runs on Serial and OpenMP. rows.cpp is compiled once per instruction set, free of
// Kokkos and of the standard library's templates, so that no function built for AVX-512 can take the place of
// another's baseline copy.
#pragma once

#include <cstdint>

#include "common/contract/dtype.hpp"

namespace fwht::kokkos {

struct RowJob {
  std::int64_t n = 0;
  std::int64_t row_stride = 0;  ///< in elements
  int log2_n = 0;
  float scale = 1.0F;
};

/// Transforms `rows` rows from `in` to `out` (equal or disjoint); `scratch` holds scratch_floats(n) floats.
using RowKernel = void (*)(const RowJob& job, const void* in, void* out, std::int64_t rows, float* scratch);

struct RowKernels {
  const char* instruction_set;
  int pack;  ///< floats in a SIMD pack
  RowKernel f16, bf16, f32;

  RowKernel of(Dtype dtype) const { return dtype == Dtype::f16 ? f16 : dtype == Dtype::bf16 ? bf16 : f32; }
};

/// Scratch address of element e: 64 bytes of padding per KiB and again per 16 KiB, so that the 16 rows of a
/// radix-16 pass at a power-of-two distance do not share one set of the cache.
constexpr std::int64_t row_padded(std::int64_t element) {
  return element + ((element >> 8) << 4) + ((element >> 12) << 4);
}
/// Short rows go through scratch in groups of 256 elements.
constexpr std::int64_t scratch_floats(std::int64_t n) {
  return row_padded(n < 256 ? 256 : n);
}

namespace baseline {
extern const RowKernels kernels;
}
namespace x86_64_v3 {
extern const RowKernels kernels;
}
namespace x86_64_v4 {
extern const RowKernels kernels;
}

}  // namespace fwht::kokkos
