// The conformance checks: each a function that looks at one variant and dtype through a Session. What they
// show and why is said beside each; the matrix A to E is in docs/numerics.md.
#pragma once

#include <span>
#include <string_view>

#include "reference/conformance/session.hpp"

namespace fwht::conformance {

// Exact: zero tolerance.
void impulses(Session& session);
void walsh_rows(Session& session);
void integer_rows(Session& session);
void zero_rows(Session& session);
void emulation(Session& session);
void xor_shift(Session& session);
void modulation(Session& session);
void negation(Session& session);
void power_of_two_scaling(Session& session);

// Operators of several factors, or with signs.
void operator_entries(Session& session);
void operator_integers(Session& session);
void operator_adjoint(Session& session);
void operator_inverse(Session& session);
void operator_inputs(Session& session);
void operator_nonfinite(Session& session);
void operator_shapes(Session& session);

// Encoded results: zero tolerance against the variant's own plain result, quantized by reference/quantize.
void encoded_codes(Session& session);
void encoded_intermediate(Session& session);
void encoded_shapes(Session& session);
void encoded_in_bulk(Session& session);
void prologues(Session& session);
void pages(Session& session);

// Statistical: tolerances derived from the steps.
void smooth_inputs(Session& session);
void structured_inputs(Session& session);
void scale_sweep(Session& session);
void bit_match(Session& session);

// Exceptional values.
void nan_in_a_row(Session& session);
void infinities_in_a_row(Session& session);
void behind_the_last_row(Session& session);
void overflow(Session& session);
void near_the_range_limit(Session& session);
void subnormals(Session& session);

// Shapes and memory.
void declarations(Session& session);
void row_counts(Session& session);
void tail_rows(Session& session);
void unsupported_problems(Session& session);
void strides(Session& session);
void misaligned_pointers(Session& session);
void placements(Session& session);
void refused_pointers(Session& session);

// Reproducibility.
void repeated_runs(Session& session);
void batch_invariance(Session& session);

// Only for variants in device memory.
void streams_and_graphs(Session& session);
void programmatic_launch(Session& session);
void ragged_runs(Session& session);
void large_batches(Session& session);
void index_width(Session& session);

/// Few rows, ragged, in place and out of place, with strides and offsets: every access pattern with few
/// launches, for compute-sanitizer.
void small_shapes(Session& session);

/// The same of encoded problems.
void small_encodings(Session& session);

/// A few rows more, for a session whose device claims to have one multiprocessor: the launches that a plan
/// keeps for many rows, for compute-sanitizer.
void crowded_shapes(Session& session);

struct Check {
  std::string_view name;
  void (*run)(Session&);
  bool device_only = false;
  bool of_operators = false;  ///< looks at Session::operators() alone
  bool of_encodings = false;  ///< looks at encoded problems alone
};

/// Every check but small_shapes, small_encodings and crowded_shapes.
std::span<const Check> all_checks();

/// Runs the check; an exception becomes a failure of the session.
void run(const Check& check, Session& session);

}  // namespace fwht::conformance
