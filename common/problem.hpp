// What is asked of a variant: y[r,:] = scale * H_n x[r,:] for `rows` independent rows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/dtype.hpp"

namespace fwht {

enum class Placement { in_place, out_of_place };

/// The orthonormal factor 1/sqrt(n).
double orthonormal_scale(std::int64_t n);

struct Problem {
  std::int64_t n = 0;     ///< row length in elements
  std::int64_t rows = 0;  ///< number of rows; 0 is a valid problem that does nothing
  Dtype dtype = Dtype::f16;
  Placement placement = Placement::in_place;
  std::int64_t row_stride = 0;  ///< distance of row starts in elements, >= n, the same for input and output
  double scale = 0.0;           ///< applied once, in fp32
  /// Programmatic dependent launch (CUDA Programming Guide): the kernel may be scheduled while the stream's
  /// previous kernel still runs; it waits for that one's results before it touches memory. Saves launch
  /// latency where kernels are short. The same bits; a variant that cannot do it refuses.
  bool programmatic_launch = false;

  std::int64_t elements() const { return n * rows; }
  /// Fewest bytes that must move: every element read once and written once.
  std::int64_t useful_bytes() const { return 2 * elements() * bytes_of(dtype); }
  /// Additions of the fast algorithm: n log2 n per row (0 when n is no power of two).
  std::int64_t useful_flops() const;
  /// Elements from the first of row 0 to the last of the last row; 0 for no rows.
  std::int64_t span_elements() const { return rows == 0 ? 0 : (rows - 1) * row_stride + n; }
  std::int64_t span_bytes() const { return span_elements() * bytes_of(dtype); }
  bool contiguous() const { return row_stride == n; }
};

bool operator==(const Problem& a, const Problem& b);

/// Contiguous rows, orthonormal scale.
Problem make_problem(Dtype dtype, std::int64_t n, std::int64_t rows,
                     Placement placement = Placement::in_place);

/// Throws BadRequest, naming the value and the limit, for n < 1, rows < 0, row_stride < n, a scale that is
/// not finite, or a span that does not fit 63-bit byte offsets. Says nothing about what a variant supports.
void validate(const Problem& problem);

/// "f16/n4096/r8192" plus, where they differ from the default, "/out", "/ld4104" (row stride), "/s1" (scale),
/// "/pdl" (programmatic dependent launch).
std::string to_string(const Problem& problem);

/// Inverse of to_string; also validates. Throws BadRequest.
Problem parse_problem(std::string_view text);

}  // namespace fwht
