// Encoded results in the harness: codes and scales share one output block, and are judged by the reference.
#pragma once

#include <cstdint>

#include "common/contract/variant.hpp"
#include "experiments/harness/checked_run.hpp"
#include "experiments/harness/slices.hpp"
#include "reference/prologue.hpp"

namespace fwht::harness {

/// Bytes of the output block, and where in it the scales begin, behind the codes.
struct EncodedBlock {
  std::int64_t scales_at = 0, bytes = 0;
};
EncodedBlock encoded_block(const Problem& problem);

/// The operands for one launch on such a block. tensor_scale is that for normally distributed results.
Operands encoded_operands(const Problem& problem, const void* in, void* out);

/// What a problem reads beside rows, in the memory of its variant: operator_data, and for prologue and pages
/// weights, angles, and places as a cache fills.
class Preparation {
 public:
  Preparation(const Problem& problem, Memory memory);
  /// encoded_operands with these; also of rows without an encoding.
  Operands operands(const void* in, void* out) const;

 private:
  Problem problem_;
  reference::OperatorData operator_;
  reference::PreparedData prepared_;
};

struct EncodedChecked {
  reference::Verdict verdict;
  double rel_l2 = 0.0;  ///< of what codes and scales stand for, against FP64; over one period
};

/// Fills the slices with the truth's input and executes the plan on slice 0. Codes, scales and padding must
/// be those that reference/quantize makes of the same variant's plain result, bit for bit, in every row; that
/// result itself is judged against FP64 (check_plan). The reference puts the rows of the plain result through
/// the prologue, and multiplies them by signs that come first where the variant's plain results take none.
/// H_1 has its input, times the scale, for a plain result. Codes of the fp32 result (/f32) are judged so on
/// integer rows, whose fp32 result follows from the plan's steps; rel_l2 is that of the plan's own codes of
/// the truth's rows, and they are what the slices have then.
EncodedChecked check_encoded(const Variant& variant, const Plan& plan, const DeviceInfo& device,
                             TruthCache& truths, reference::InputClass input, std::uint64_t seed,
                             Slices& slices);

}  // namespace fwht::harness
