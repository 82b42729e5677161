// What is asked of a variant: y_r = encode(scale * Op P(x_r)) for `rows` independent rows x_r.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/contract/dtype.hpp"
#include "common/contract/encoding.hpp"
#include "common/contract/operator.hpp"
#include "common/contract/ordering.hpp"
#include "common/contract/preparation.hpp"

namespace fwht {

enum class Placement { in_place, out_of_place };

/// The orthonormal factor 1/sqrt(n).
double orthonormal_scale(std::int64_t n);
/// The scale of a problem that names none: orthonormal, and 1 for integers.
double default_scale(Dtype dtype, std::int64_t n);

/// One side of a transform: its storage type, and the distance of row starts in elements (of blocks of rows,
/// where a problem has an inner dimension).
struct Array {
  Dtype dtype = Dtype::f16;
  std::int64_t row_stride = 0;
  constexpr bool operator==(const Array&) const = default;
};

struct Problem {
  Operator op;            ///< what rows are multiplied by; its order is the row length n
  std::int64_t rows = 0;  ///< number of rows; 0 is a valid problem that does nothing
  Array in, out;          ///< out.dtype is what rows are rounded to before they are encoded
  Encoding encoding;      ///< plain: the rows themselves are written
  double scale = 0.0;     ///< applied once, in fp32 (fp64 for f64 data); 1 for integers
  Placement placement = Placement::in_place;
  /// Programmatic dependent launch (CUDA Programming Guide): the kernel may be scheduled while the stream's
  /// previous kernel still runs; it waits for that one's results before it touches memory. Saves launch
  /// latency where kernels are short. The same bits; a variant that cannot do it refuses.
  bool programmatic_launch = false;
  std::optional<Prologue> prologue = {};  ///< what rows are put through first
  std::optional<Paging> paging = {};      ///< where rows of codes go, if not one behind the other
  /// Of H_n: the order in which the output's coefficients stand, and the input's, for an inverse.
  Ordering in_ordering = Ordering::natural, out_ordering = Ordering::natural;
  /// Rows that lie between each other: element j of row r is element (r / inner) row_stride + j inner +
  /// r % inner of the array. So H_n goes along any dimension of a tensor whose later ones have `inner`
  /// elements together; 2 is complex data.
  std::int64_t inner = 1;

  std::int64_t n() const { return op.n(); }
  Dtype dtype() const { return in.dtype; }
  /// Of the input; of the output too unless that has its own.
  std::int64_t row_stride() const { return in.row_stride; }
  void set_row_stride(std::int64_t stride) { in.row_stride = out.row_stride = stride; }
  /// The smallest row stride.
  std::int64_t block_elements() const { return n() * inner; }
  /// Of an array's first element from that of the whole.
  std::int64_t first_of(const Array& array, std::int64_t row) const {
    return row / inner * array.row_stride + row % inner;
  }
  void set_dtype(Dtype dtype) { in.dtype = out.dtype = dtype; }

  std::int64_t elements() const { return n() * rows; }
  /// Fewest bytes that must be read: every element once.
  std::int64_t bytes_read() const { return elements() * bytes_of(in.dtype); }
  /// Fewest bytes that must be written: every element, or its code, once, and the scales.
  std::int64_t bytes_written() const;
  std::int64_t useful_bytes() const { return bytes_read() + bytes_written(); }
  /// Elements from the first of row 0 to the last of the last row; 0 for no rows.
  std::int64_t span_elements() const { return span_of(in); }
  /// Bytes of the same, of the input and of the output's rows (codes, where it is encoded).
  std::int64_t span_bytes() const { return span_of(in) * bytes_of(in.dtype); }
  std::int64_t span_bytes_out() const;
  /// Bytes that Operands::scales must have room for, padding included; 0 for the plain encoding, and for
  /// pages, which hold the scales themselves.
  std::int64_t scale_bytes_out() const { return paging ? 0 : scale_buffer_bytes(encoding, rows, n()); }
  /// Of a problem with pages.
  PageLayout page_layout() const;
  bool contiguous() const { return in.row_stride == block_elements() && out.row_stride == block_elements(); }
  /// Rows side by side, in natural order on both sides.
  bool is_arranged_plainly() const {
    return inner == 1 && in_ordering == Ordering::natural && out_ordering == Ordering::natural;
  }

 private:
  std::int64_t span_of(const Array& array) const {
    return rows == 0 ? 0 : (rows / inner - 1) * array.row_stride + block_elements();
  }
};

bool operator==(const Problem& a, const Problem& b);
/// Of everything that operator== compares: equal problems have equal hashes.
std::size_t hash_of(const Problem& problem);

/// Short form: H_n in natural order, contiguous rows, default_scale, the result in the same storage type.
Problem make_problem(Dtype dtype, std::int64_t n, std::int64_t rows,
                     Placement placement = Placement::in_place);
/// The same for any operator.
Problem make_problem(Dtype dtype, const Operator& op, std::int64_t rows,
                     Placement placement = Placement::in_place);

/// Throws BadRequest, naming the value and the limit, for a problem without an operator, n < 1, rows < 0, a
/// row stride below n. Also for different strides or an encoding in place, an unknown dtype, placement or
/// operator. Or for an encoding or prologue that does not fit n or rows, pages for rows without scales of
/// their own, a scale that is not finite in fp32, or a span that does not fit 63-bit byte offsets. Integers
/// have the scale 1, on both sides, and neither encoding nor prologue. An ordering other than the natural
/// one is of H_n, n = 2^k, out of place. With it, or with an inner dimension, which divides rows, there is
/// neither encoding nor prologue. Says nothing about what a variant supports.
void validate(const Problem& problem);

/// "f16/n4096/r8192" plus, where they differ from the default, "/out", "/ld4104" (row stride), "/ldo4096" (of
/// the output), "/to-bf16" (dtype of the output), "/s1" (scale), "/pdl" (programmatic dependent launch),
/// "/sequency" (ordering of the output), "/from-dyadic" (of the input), "/inner2" (inner dimension). Another
/// operator than Sylvester's stands in place of n: "f16/28x512/r64". A prologue is a word of its own:
/// "bf16/n128/r64/rope64", and so are pages: "/page64x100" is 100 pages of 64 rows. An encoding follows at
/// the end: "bf16/n4096/r8192>e4m3:row".
std::string to_string(const Problem& problem);

/// The words of to_string that say where rows and elements lie: "from-dyadic/sequency/inner2". Empty where
/// they are arranged plainly.
std::string arrangement_text(const Problem& problem);
/// Inverse of it, with rows as close as they can be; "natural" is a word too. Does not validate more than the
/// words. Throws BadRequest.
void set_arrangement(Problem& problem, std::string_view text);

/// Inverse of to_string; also validates. Throws BadRequest.
Problem parse_problem(std::string_view text);

}  // namespace fwht

template <>
struct std::hash<fwht::Problem> {
  std::size_t operator()(const fwht::Problem& problem) const { return fwht::hash_of(problem); }
};
