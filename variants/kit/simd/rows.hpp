// The transform of whole rows by one CPU thread with SIMD packs in a cache-resident fp32 scratch row. It is
// what a thread of `cpu` runs, and a Kokkos team of one on Serial and OpenMP. rows.cpp is compiled once per
// instruction set, free of the standard library's templates, so that no function built for AVX-512 can take
// the place of another's baseline copy. Sums are those of butterflies with ascending strides, whatever the
// instruction set: same bits.
#pragma once

#include <cstdint>

#include "common/contract/dtype.hpp"

namespace fwht::simd {

struct RowJob {
  std::int64_t n = 0;
  std::int64_t in_stride = 0, out_stride = 0;  ///< distances of rows in elements
  int log2_n = 0;
  float scale = 1.0F;
};

/// Transforms `rows` rows from `in` to `out` (equal, then with equal strides, or disjoint); `scratch` holds
/// scratch_floats(n) floats.
using RowKernel = void (*)(const RowJob& job, const void* in, void* out, std::int64_t rows, float* scratch);

struct RowKernels {
  const char* instruction_set;
  int pack;  ///< floats in a SIMD pack
  RowKernel f16, bf16, f32;

  /// Any number of contiguous elements, not of f64: f16 and bf16 to fp32, exact; fp32 times scale, rounded
  /// once.
  void (*widen)(Dtype dtype, const void* from, float* to, std::int64_t count);
  void (*narrow)(Dtype dtype, const float* from, void* to, std::int64_t count, float scale);

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

/// Those of the widest instruction set of this processor.
const RowKernels& best_kernels();

}  // namespace fwht::simd
