// Host variants that are broken in one way each: the conformance checks must catch every one of them. They
// are the proof that the checks can fail.
#pragma once

#include <span>
#include <string_view>

#include "common/contract/variant.hpp"

namespace fwht::conformance {

enum class Defect {
  none,  ///< the control: sound, and must pass every check
  wrong_sign,
  missing_scale,
  gain,             ///< results 1.0001 times too large
  constant_16bit,   ///< 1/sqrt2 stored in 16 bit, not declared
  truncation,       ///< the last rounding goes towards zero
  rounds_down,      ///< the last rounding goes towards minus infinity
  fixed_point,      ///< results are multiples of 2^-6
  extra_rounding,   ///< rounded to storage half way, not declared
  too_good,         ///< declares a rounding a stage, makes one
  stale_output,     ///< never writes the last row
  dropped_input,    ///< takes the last input of a row for zero
  sequency_order,   ///< rows of H in another order
  swapped_rows,     ///< rows 4 and 5 change places
  writes_past_end,  ///< one element behind the last row
  ignores_stride,
  writes_gaps,              ///< zeros between rows
  writes_last_gap,          ///< between the last two rows alone
  accumulates,              ///< adds to what the output held
  changes_input,            ///< works in the caller's input
  ignores_offset,           ///< rounds pointers down to 16 bytes
  not_repeatable,           ///< every third run differs in one bit
  depends_on_batch,         ///< single rows are computed in another order
  swallows_nan,             ///< takes NaN for zero
  leaks_nan,                ///< a NaN reaches the next row, not declared
  declares_leak,            ///< declares contamination that does not happen
  narrow_range,             ///< intermediates beyond the range of f16 overflow, not declared
  saturates,                ///< overflow gives the largest finite number
  flushes_subnormals,       ///< subnormal results become zero, not declared
  missing_transpose,        ///< executes transposed factors as they are
  signs_on_the_wrong_side,  ///< multiplies by the signs last where they come first, and the other way round
  wrong_matrix,             ///< another Hadamard matrix of the same order
  factors_reversed,         ///< the first factor on the fastest index
  another_recipe,           ///< multiplies by the reciprocal of the scale where it must divide
  skips_intermediate,       ///< quantizes the fp32 result where it must be rounded to storage first
  rounds_intermediate,      ///< rounds to storage where the fp32 result must be quantized
  swaps_half_bytes,         ///< the even element in the high half
  ignores_layout,           ///< scales row-major whatever the layout
  leaves_padding,           ///< padding between scales keeps what the buffer held
  scales_rows,              ///< scales of a row where tokens or groups have several
  writes_code_gaps,         ///< zeros between rows of codes
  nan_codes_are_zero,       ///< NaN gives the code of zero
  stale_scale,              ///< never writes the last scale
  skips_prologue,           ///< transforms rows as they are
  swaps_pairs,              ///< turns neighbours where halves are asked for, and the other way round
  drops_epsilon,            ///< normalizes without the number that is added
  writes_left_out_rows,     ///< rows without a place go to the first one
  no_settings,              ///< reports nothing about itself
  supports_anything         ///< also orders for which no Hadamard matrix exists
};

struct Broken {
  Defect defect;
  std::string_view caught_by;  ///< names of checks, separated by spaces: each of them must fail
  Variant variant;
};

std::span<const Broken> broken_variants();

}  // namespace fwht::conformance
