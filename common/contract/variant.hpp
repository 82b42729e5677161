// The family of transforms: what a plan is executed on, and what it promises. The rest of THE interface, a
// variant and its plan, is written once for every family in common/contract/family.hpp.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "common/contract/family.hpp"
#include "common/contract/problem.hpp"

namespace fwht {

/// What a plan is executed on. Which of them a plan needs follows from its problem.
struct Operands {
  const void* in = nullptr;
  void* out = nullptr;  ///< rows, or codes where the problem has an encoding, or pages
  /// Of the encoding, where writes_scales(), unless pages hold them; Problem::scale_bytes_out() bytes.
  void* scales = nullptr;
  /// Where the operator has signs: one bit an element of a row, set for -1 (pack_signs in
  /// operator_data.hpp).
  const void* signs = nullptr;
  /// Where it has dense factors: their entries in the input's dtype, row-major, one factor after another,
  /// none transposed (the operator says that). Variants of host memory ask check_dense (operator_data.hpp)
  /// at each execution; for those of device memory it is for the caller to ask.
  const void* dense = nullptr;
  /// Where needs_tensor_scale(): the one fp32 number of the tensor that the recipe asks for, on the host. The
  /// scale itself (vllm_static), or the factor g = 448 * 6 / largest of the tensor (nvfp4). 0: not given.
  float tensor_scale = 0.0F;
  /// The same number in the memory that the variant works on, for kernels to read, so that no one waits for
  /// it; its value is not checked. One of the two must be given, and not both.
  const float* tensor_scale_at = nullptr;
  /// Bytes behind `scales`, so that a buffer without room for padding is refused; -1: not said.
  std::int64_t scales_bytes = -1;
  PreparedOperands prepared = {};  ///< where the problem has a prologue or pages
  /// Plan::scratch_bytes() that this execution works in, of any content, at a multiple of 256 bytes; null: in
  /// what the plan owns, one stream at a time.
  void* scratch = nullptr;
};

class Plan;

/// The family of transforms.
struct Transforms {
  using Problem = fwht::Problem;
  using Operands = fwht::Operands;
  using Plan = fwht::Plan;
  static constexpr std::string_view kNoun = "variant";
  static bool does_nothing(const Problem& problem) { return problem.rows == 0; }
  /// Whether this project's programs can judge its results, and so time it; otherwise why not.
  static Support is_judged(const Problem& problem);
  /// For FWHT_TRACE: fwht_sweep --grid reads it.
  static std::string grid_block(const Problem& problem, Memory memory);
  /// No virtual function of Plan: modules that are loaded derive from Plan without this library.
  static void check(const Plan& plan, const Operands& operands);
};

using Variant = VariantOf<Transforms>;

/// execute throws BadRequest for a null pointer among the operands that the problem needs, and for an operand
/// that it does not need. Also for a pointer that misses `alignment()` (scales: kScaleAlignment), and for a
/// scale of the tensor that is needed and not given, given twice, or not positive and finite. For a negative
/// epsilon, and too few bytes for the scales. Or for in != out for an in-place plan, overlapping ones for an
/// out-of-place one, and out, scales or scratch on memory of another operand.
class Plan : public PlanOf<Transforms> {
 public:
  using PlanOf::execute;
  /// Short form for problems without scales, signs and dense factors.
  void execute(const void* in, void* out, Stream stream = nullptr) const { execute({in, out}, stream); }

  /// Required alignment of both pointers in bytes; at least the element size.
  virtual std::size_t alignment() const { return static_cast<std::size_t>(bytes_of(problem().in.dtype)); }

  /// Of a plan of one stream at a time: executions that are each given so much may run at once. 0: not
  /// offered, or not needed.
  virtual std::int64_t scratch_bytes() const { return 0; }

 protected:
  using PlanOf::PlanOf;
};

/// All index bits in one step, the scale at its end, one rounding: the ideal that 16-bit storage allows. n
/// must be a power of two.
inline Numerics single_rounding(Sums sums, const Problem& problem) {
  const int levels = static_cast<int>(std::lround(std::log2(static_cast<double>(problem.n()))));
  Step step;
  step.bits = index_bits(0, levels);
  step.sums = sums;
  step.constant = sums == Sums::fp64 ? problem.scale : static_cast<double>(static_cast<float>(problem.scale));
  step.sum_rms = sums == Sums::integer ? 0.0 : butterfly_rms(levels);
  Numerics numerics;
  numerics.steps.push_back(std::move(step));
  numerics.promises.intermediate_growth = static_cast<double>(problem.n());
  return numerics;
}

/// The same in the arithmetic that belongs to the storage type: fp32 for f16, bf16 and f32.
inline Numerics single_rounding_by_dtype(const Problem& problem) {
  if (is_integer(problem.dtype())) return single_rounding(Sums::integer, problem);
  if (problem.dtype() != Dtype::f64) return single_rounding(Sums::fp32, problem);
  Numerics numerics = single_rounding(Sums::fp64, problem);
  numerics.steps.back().sum_rms *= 0x1p-29;  // 2^-53 for 2^-24
  numerics.promises.intermediate_limit = format_of(Dtype::f64).max_finite;
  return numerics;
}

/// The same for any operator: its factors one by one, slowest first, Sylvester factors by butterflies over
/// ascending bits, others term by term; the scale and the one rounding at the end. Entries of dense factors
/// are taken to be at most 1 in size.
///
/// @param dense_sums  the sums of dense factors: of any order where products may be fused with them
inline Numerics single_rounding_by_factors(Sums sums, const Problem& problem, Sums dense_sums) {
  Numerics numerics;
  const std::span<const Factor> factors = problem.op.factors();
  const auto levels_of = [](const Factor& factor) {
    return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(factor.order))) - 1;
  };
  int bits = 0;
  for (const Factor& factor : factors)
    bits += factor.basis == Basis::sylvester ? levels_of(factor) : 0;
  double growth = 1.0;
  for (std::size_t f = 0; f < factors.size(); ++f) {
    Step step;
    step.sums = factors[f].basis == Basis::dense ? dense_sums : sums;
    step.rounds = false;
    growth *= static_cast<double>(factors[f].order);
    if (factors[f].basis == Basis::sylvester) {
      const int levels = levels_of(factors[f]);
      bits -= levels;
      step.bits = index_bits(bits, levels);
      step.sum_rms = butterfly_rms(levels);
    } else {
      step.factor = static_cast<int>(f);
      step.sum_rms = chain_rms(factors[f].order);
    }
    numerics.steps.push_back(std::move(step));
  }
  Step& last = numerics.steps.back();
  last.rounds = true;
  last.constant = sums == Sums::fp64 ? problem.scale : static_cast<double>(static_cast<float>(problem.scale));
  numerics.promises.intermediate_growth = growth;
  return numerics;
}
inline Numerics single_rounding_by_factors(Sums sums, const Problem& problem) {
  return single_rounding_by_factors(sums, problem, sums);
}

/// A sentence for problems with a prologue, or with pages: for variants that have none.
Support require_no_preparation(const Problem& problem);

/// No prologue, no pages, no encoding, rows side by side in natural order, and one of `dtypes` for input and
/// output. Otherwise a sentence that names what is not offered.
Support require_plain_rows(const Problem& problem, std::span<const Dtype> dtypes = kAllDtypes);

/// What the variants of the ladder take: H_n in natural order for a power of two between the limits, no
/// signs, no prologue, no encoding, one of `dtypes` for input and output. Otherwise a sentence that names the
/// first part that is not offered.
Support require_sylvester(const Problem& problem, std::int64_t smallest, std::int64_t largest,
                          std::span<const Dtype> dtypes = kAllDtypes);

/// A sentence for problems whose output rows lie at another distance than the input's.
Support require_one_row_stride(const Problem& problem);

/// A sentence for rows of 16-bit data, in or out, that do not start on the 16-byte grid where the first one
/// does.
Support require_rows_on_16_byte_grid(const Problem& problem);

/// A sentence for more rows than kernels count in 32 bits, with as many again for the tiles behind them.
Support require_rows_in_32_bits(const Problem& problem);

/// A sentence where a block needs more shared memory than the device allows.
Support require_shared_bytes(const Problem& problem, std::int64_t bytes, const DeviceInfo& device);

}  // namespace fwht
