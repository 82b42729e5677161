// Host emulations that reproduce a kernel bit for bit, on any finite data and by class for NaN and
// infinities.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/numeric_model.hpp"
#include "common/problem.hpp"

namespace fwht::reference {

// All functions take raw storage with the problem's row_stride; `in` may equal `out`; elements between n and
// row_stride are left untouched.

/// Arithmetic::fp32_ascending: fp32 butterflies over index bits 0, 1, ..., multiplication by float(scale),
/// one rounding.
void emulate_fp32(const Problem& problem, const void* in, void* out, int threads = 0);

/// Arithmetic::radix2_stored: in stage s a + b and a - b in fp32, times factors[s] in fp32, rounded to
/// storage. factors.size() must be log2 n; throws BadRequest otherwise.
void emulate_radix2_stored(const Problem& problem, std::span<const float> factors, const void* in, void* out,
                           int threads = 0);

/// The factors of variants/naive: for f16 0.5 after every second stage (1, 3, 5, ...) but the last, which
/// keeps intermediates near the size of the data without any rounding but the storage's own; 1 after the
/// others (and for the types with fp32's range after all), and float(scale * 2^h) after the last, h the
/// halvings before it.
std::vector<float> radix2_factors(Dtype dtype, std::int64_t n, double scale);

/// How a tensor core forms one block sum c + sum a_i b_i (numerics: arXiv 2512.07004, 2511.10909): every
/// addend is aligned to the largest exponent, truncated to `fraction_bits` fractional bits, and summed
/// exactly; blocks of `fused_terms` products chain through c. Output f32: truncated to 24 bits; f16: rounded
/// to nearest even.
struct TensorCore {
  int fraction_bits = 25;
  int fused_terms = 16;
};
inline constexpr TensorCore kHopperTensorCore{25,
                                              16};  // mma and wgmma of H100 and H200, f16 and bf16 operands
inline constexpr TensorCore kAmpereTensorCore{24, 8};  // A100, Ada: K = 16 is two chained blocks

enum class Accumulator { f16, f32 };

/// d = c + sum_i a[i] b[i] of one MMA (any K, chained in blocks of core.fused_terms in index order). a and b
/// hold numbers of `operand`; c one of the accumulator type. NaN, Inf * 0 and infinities of both signs give
/// NaN; overflow of either output type gives an infinity; subnormal operands and results are kept; an exact
/// zero sum is +0.
double mma_sum(std::span<const double> a, std::span<const double> b, double c, Dtype operand,
               Accumulator accumulator, TensorCore core);

/// Tensor-core stages of a transform, in order: data times block-diagonal +-constant matrices (TensorStage in
/// common/numeric_model). The K index of a stage's MMA runs over its four k_bits, low first. Bits 0 .. L-1
/// are bits of the column; bit L + b is bit b of the row: stages of short rows span neighbouring rows, and
/// rows past the end are zero. Products with the zeros outside a block matter for NaN and infinities only.
struct StagedTransform {
  std::vector<TensorStage> stages;
  Accumulator accumulator = Accumulator::f32;
  TensorCore core = kHopperTensorCore;
};

/// HadaCore's pattern (arXiv 2412.08832): four index bits a stage in ascending order, the L mod 4 bits left
/// over in the last one, each stage orthonormal, so that an odd L brings 1/sqrt2 stored in 16 bit (181/256);
/// f16 accumulator for f16 data, f32 for bf16. Short last stages are padded to 16 points by the bits that
/// follow within an aligned chunk of 16 (n <= 8) or 256 elements (n = 32 .. 128), and by the low bits of the
/// same row above. Orthonormal scale only.
StagedTransform hadacore_stages(Dtype dtype, std::int64_t n, TensorCore core = kHopperTensorCore);

/// Runs the stages; after each the result is rounded to the storage type. dtype f16 or bf16. Throws
/// BadRequest for a stage list that does not cover every column bit once, or constants that the storage type
/// cannot hold.
void emulate_staged(const Problem& problem, const StagedTransform& staged, const void* in, void* out,
                    int threads = 0);

/// Whether `emulate` can reproduce a plan with this model: fp32_ascending, radix2_stored, mma_f16, mma_f32.
bool has_emulation(const NumericModel& model);

/// The emulation that belongs to the model: emulate_fp32, emulate_radix2_stored with radix2_factors, or
/// emulate_staged with the model's stages (hadacore_stages where it names none) on `core`. Throws BadRequest
/// when there is none.
void emulate(const Problem& problem, const NumericModel& model, const void* in, void* out, int threads = 0,
             TensorCore core = kHopperTensorCore);

}  // namespace fwht::reference
