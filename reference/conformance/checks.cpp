#include "reference/conformance/checks.hpp"

#include <algorithm>
#include <iterator>

namespace fwht::conformance {

std::span<const Check> all_checks() {
  static constexpr Check kChecks[] = {
      {"Impulses", impulses},
      {"WalshRows", walsh_rows},
      {"IntegerRows", integer_rows},
      {"ZeroRows", zero_rows},
      {"Emulation", emulation},
      {"XorShift", xor_shift},
      {"Modulation", modulation},
      {"Negation", negation},
      {"PowerOfTwoScaling", power_of_two_scaling},
      {"OperatorEntries", operator_entries, false, true},
      {"OperatorIntegers", operator_integers, false, true},
      {"OperatorAdjoint", operator_adjoint, false, true},
      {"OperatorInverse", operator_inverse, false, true},
      {"OperatorInputs", operator_inputs, false, true},
      {"OperatorNonfinite", operator_nonfinite, false, true},
      {"OperatorShapes", operator_shapes, false, true},
      {"EncodedCodes", encoded_codes, false, false, true},
      {"EncodedIntermediate", encoded_intermediate, false, false, true},
      {"EncodedShapes", encoded_shapes, false, false, true},
      {"EncodedInBulk", encoded_in_bulk, true, false, true},
      {"Prologues", prologues, false, false, true},
      {"HeadsOfTokens", heads_of_tokens, false, false, true},
      {"NegativeScales", negative_scales, false, false, true},
      {"Pages", pages, false, false, true},
      {"SmoothInputs", smooth_inputs},
      {"StructuredInputs", structured_inputs},
      {"ScaleSweep", scale_sweep},
      {"BitMatch", bit_match},
      {"NanInARow", nan_in_a_row},
      {"InfinitiesInARow", infinities_in_a_row},
      {"BehindTheLastRow", behind_the_last_row},
      {"Overflow", overflow},
      {"NearTheRangeLimit", near_the_range_limit},
      {"Subnormals", subnormals},
      {"Declarations", declarations},
      {"RowCounts", row_counts},
      {"TailRows", tail_rows},
      {"UnsupportedProblems", unsupported_problems},
      {"Strides", strides},
      {"MisalignedPointers", misaligned_pointers},
      {"Placements", placements},
      {"RefusedPointers", refused_pointers},
      {"RepeatedRuns", repeated_runs},
      {"BatchInvariance", batch_invariance},
      {"StreamsAndGraphs", streams_and_graphs, true},
      {"ProgrammaticLaunch", programmatic_launch, true},
      {"RaggedRuns", ragged_runs, true},
      {"LargeBatches", large_batches, true},
      {"IndexWidth", index_width, true},
      {"LongVectors", long_vectors, true},
  };
  return kChecks;
}

bool takes_every_dtype(const Check& check) {
  static constexpr decltype(Check::body) kChecks[] = {impulses,
                                                      walsh_rows,
                                                      integer_rows,
                                                      zero_rows,
                                                      emulation,
                                                      xor_shift,
                                                      modulation,
                                                      negation,
                                                      declarations,
                                                      row_counts,
                                                      strides,
                                                      unsupported_problems,
                                                      misaligned_pointers,
                                                      placements,
                                                      refused_pointers,
                                                      repeated_runs,
                                                      batch_invariance,
                                                      streams_and_graphs,
                                                      programmatic_launch,
                                                      ragged_runs,
                                                      large_batches,
                                                      long_vectors,
                                                      small_shapes,
                                                      crowded_shapes};
  return std::find(std::begin(kChecks), std::end(kChecks), check.body) != std::end(kChecks);
}

}  // namespace fwht::conformance
