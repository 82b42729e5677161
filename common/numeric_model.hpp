// What a plan promises about its rounding. Tests and experiments compute their tolerances from it; nothing is
// tuned. Notation: u = unit roundoff of the storage type, u32 = 2^-24, L = log2 n.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "common/dtype.hpp"

namespace fwht {

/// How sums are formed between storage roundings. Where a host emulation exists (reference/emulation), the
/// conformance suite compares bit for bit with it on random data.
enum class Arithmetic {
  fp32_ascending,  ///< fp32 butterflies, index bits in ascending order, scale in fp32, one rounding.
                   ///< Emulated.
  fp32_any_order,  ///< fp32 butterflies in another order, or with exact tensor-core stages among them
  radix2_stored,   ///< one fp32 butterfly a stage, stored (rounded) after each stage.
                   ///< Emulated.
  mma_f16,     ///< <=16-point tensor-core stages, fp16 accumulator, rounded to storage after each. Emulated.
  mma_f32,     ///< <=16-point tensor-core stages, fp32 accumulator, rounded to storage after each. Emulated.
  split_bf16,  ///< tensor-core stages that carry fp32 as bf16 hi + lo pairs, one final rounding
  fp64         ///< double precision, one rounding
};

/// One tensor-core stage of mma_f16 or mma_f32: which four index bits the K index of the MMA runs over and
/// what it multiplies by. Index bits 0 .. L-1 are bits of the column, L + b is bit b of the row.
struct TensorStage {
  std::vector<int> k_bits;           ///< the transformed ones first
  int transformed = 0;               ///< how many are transformed; the others select blocks of the matrix
  double constant = 1.0;             ///< magnitude of the matrix entries, a number of the storage type
  bool other_blocks_zeroed = false;  ///< data of the other blocks are replaced by zeros: no NaN crosses over

  bool operator==(const TensorStage&) const = default;
};

struct NumericModel {
  Arithmetic arithmetic = Arithmetic::fp32_any_order;

  /// k: roundings to the storage type between input and output, the final one included. For f32 storage the
  /// arithmetic itself is the rounding and k is 1 (the final scale).
  int roundings = 1;
  /// Root mean square of one such rounding in units of u: 0.42466 = sqrt(1/(8 ln 2)) for smooth densities.
  double rounding_rms = 0.42466;
  /// Relative error of the product of the constants that the kernel multiplies by (181/256 for 1/sqrt2:
  /// -1.0682e-4).
  double gain_error = 0.0;
  /// Root mean square of the accumulated fp32 arithmetic error in units of u32 (0.46 sqrt(L) for
  /// butterflies).
  double fp32_rms = 0.0;
  /// Systematic relative error from truncating accumulators (-3.8e-8 per tensor-core pass); fp32 results see
  /// it.
  double truncation_bias = 0.0;

  /// A NaN or Inf in one row leaves every other row bit-identical. Where false, contamination stays inside
  /// aligned blocks of `isolation_span` consecutive elements.
  bool row_isolation = true;
  std::int64_t isolation_span = 0;
  /// A row with one infinity gives +-Inf everywhere with the signs of H; where false, NaN may stand instead.
  bool infinity_exact = true;

  /// Bitwise symmetries: x(j xor a) gives (-1)^<i,a> y(i); (-1)^<j,a> x(j) gives y(i xor a).
  bool xor_shift_exact = true;
  bool modulation_exact = true;
  /// Exact results on integer grids where every partial sum is representable (see numerics: exact-integer
  /// domain).
  bool integer_exact = true;
  /// A row gives the same bits whatever the number of rows. False where another kernel, with sums in another
  /// order, serves few rows.
  bool batch_invariant = true;
  /// A row gives the same bits in place and out of place, whatever row stride and pointers, by ordinary and
  /// by programmatic launch. False where another kernel serves some of them.
  bool layout_invariant = true;
  bool flushes_subnormals = false;

  /// Largest intermediate, as a multiple of max|x| over the row: an upper bound. Intermediates above the
  /// range of the type they live in overflow although the result may be finite.
  double intermediate_growth = 1.0;
  /// Largest finite value an intermediate may take.
  double intermediate_limit = format_of(Dtype::f32).max_finite;

  /// mma_f16 and mma_f32: the stages in order of execution, each rounded to storage.
  std::vector<TensorStage> stages;
};

/// fp32 butterflies in registers, one rounding at the end: the ideal that 16-bit storage allows.
inline NumericModel single_rounding(Arithmetic arithmetic, std::int64_t n) {
  NumericModel model;
  const double levels = std::log2(static_cast<double>(n));
  model.arithmetic = arithmetic;
  model.fp32_rms = 0.46 * std::sqrt(levels);
  model.intermediate_growth = static_cast<double>(n);
  return model;
}

}  // namespace fwht
