// The conformance checks: each a function that looks at one variant and dtype through a ConformanceRun. What
// they show and why is said beside each; the matrix A to E is in docs/numerics.md.
#pragma once

#include <span>

#include "reference/conformance/session.hpp"

namespace fwht::conformance {

// Exact: zero tolerance.
void impulses(ConformanceRun& session);
void walsh_rows(ConformanceRun& session);
void integer_rows(ConformanceRun& session);
void zero_rows(ConformanceRun& session);
void emulation(ConformanceRun& session);
void xor_shift(ConformanceRun& session);
void modulation(ConformanceRun& session);
void negation(ConformanceRun& session);
void power_of_two_scaling(ConformanceRun& session);

// Operators of several factors, or with signs.
void operator_entries(ConformanceRun& session);
void operator_integers(ConformanceRun& session);
void operator_adjoint(ConformanceRun& session);
void operator_inverse(ConformanceRun& session);
void operator_inputs(ConformanceRun& session);
void operator_nonfinite(ConformanceRun& session);
void operator_shapes(ConformanceRun& session);

// Encoded results: zero tolerance against the variant's own plain result, quantized by reference/quantize.
void encoded_codes(ConformanceRun& session);
void encoded_intermediate(ConformanceRun& session);
void encoded_shapes(ConformanceRun& session);
void encoded_in_bulk(ConformanceRun& session);
void prologues(ConformanceRun& session);
void heads_of_tokens(ConformanceRun& session);
void negative_scales(ConformanceRun& session);
void pages(ConformanceRun& session);

// Statistical: tolerances derived from the steps.
void smooth_inputs(ConformanceRun& session);
void structured_inputs(ConformanceRun& session);
void scale_sweep(ConformanceRun& session);
void bit_match(ConformanceRun& session);

// Exceptional values.
void nan_in_a_row(ConformanceRun& session);
void infinities_in_a_row(ConformanceRun& session);
void behind_the_last_row(ConformanceRun& session);
void overflow(ConformanceRun& session);
void near_the_range_limit(ConformanceRun& session);
void subnormals(ConformanceRun& session);

// Shapes and memory.
void declarations(ConformanceRun& session);
void row_counts(ConformanceRun& session);
void tail_rows(ConformanceRun& session);
void unsupported_problems(ConformanceRun& session);
void strides(ConformanceRun& session);
void misaligned_pointers(ConformanceRun& session);
void placements(ConformanceRun& session);
void refused_pointers(ConformanceRun& session);

// Reproducibility.
void repeated_runs(ConformanceRun& session);
void batch_invariance(ConformanceRun& session);

// Only for variants in device memory.
void streams_and_graphs(ConformanceRun& session);
void programmatic_launch(ConformanceRun& session);
void ragged_runs(ConformanceRun& session);
void large_batches(ConformanceRun& session);
void index_width(ConformanceRun& session);
void long_vectors(ConformanceRun& session);

/// Few rows, ragged, in place and out of place, with strides and offsets: every access pattern with few
/// launches, for compute-sanitizer.
void small_shapes(ConformanceRun& session);

/// The same of encoded problems.
void small_encodings(ConformanceRun& session);

/// A few rows more, for a session whose device claims to have one multiprocessor: the launches that a plan
/// keeps for many rows, for compute-sanitizer.
void crowded_shapes(ConformanceRun& session);

using Check = CheckOf<ConformanceRun>;

/// Every check but small_shapes, small_encodings and crowded_shapes.
std::span<const Check> all_checks();
/// Whether the check can judge f64 and integers, of which FP64 is no truth.
bool takes_every_dtype(const Check& check);

/// Host variants that are broken in one way each: the proof that the checks can fail.
std::span<const BrokenOf<Transforms>> broken_variants();

}  // namespace fwht::conformance
