// Host emulations that reproduce the steps of a plan bit for bit, on any finite data and by class for NaN and
// infinities.
#pragma once

#include <cstdint>
#include <span>

#include "common/contract/numerics.hpp"
#include "common/contract/problem.hpp"
#include "common/contract/variant.hpp"

namespace fwht::reference {

/// How a tensor core forms one block sum c + sum a_i b_i (docs/numerics.md; arXiv 2512.07004, 2511.10909):
/// every addend is aligned to the largest exponent, truncated to `fraction_bits` fractional bits, and summed
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

/// Whether `emulate` can reproduce these steps on data of that type: fp32 butterflies in the order listed,
/// tensor-core blocks that are rounded to storage; Sylvester steps in fp64 on f64 data, and of integers.
bool has_emulation(const Numerics& numerics, Dtype stored = Dtype::f32);

/// Runs the steps on raw storage with the problem's row_stride; `in` may equal `out`; elements between n and
/// row_stride are left untouched. A step of fp32 butterflies adds and subtracts in fp32 over its bits in
/// order, multiplies by its constant in fp32, and rounds to storage if it rounds. Steps of f64 data do so in
/// fp64; those of integers wrap and have no constant. A tensor-core block multiplies 16 points by the
/// block-diagonal +-constant matrix on `core`; blocks of short rows span neighbouring rows, and rows past the
/// end are zero. Products with the zeros outside a block matter for NaN and infinities only.
///
/// For any operator: `signs` and `dense` of the operands where it has them.
///
/// Throws BadRequest for steps without emulation, steps that do not transform every index bit and multiply by
/// every other factor once. Also for blocks that have not four K bits, blocks for f32 or for an operator of
/// several factors, and constants that their type cannot hold.
void emulate(const Problem& problem, const Numerics& numerics, const Operands& operands, int threads = 0,
             TensorCore core = kHopperTensorCore);
/// The same for operators without signs and dense factors.
void emulate(const Problem& problem, const Numerics& numerics, const void* in, void* out, int threads = 0,
             TensorCore core = kHopperTensorCore);

}  // namespace fwht::reference
