// What Walsh spectra are asked for, on the host, by the variant `cpu`: spectra of Boolean functions, dyadic
// convolutions, rounds of signs and transforms, and sketches of chosen rows; and all of them on a device.
// docs/long_vectors.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/contract/family.hpp"
#include "common/contract/problem.hpp"

namespace fwht::walsh {

/// How the 2^k values of a Boolean function of k variables lie in memory, f(0) first.
enum class FunctionForm {
  packed,  ///< f(x) is bit x % 8 of byte x / 8; at least three variables
  bits,    ///< one byte each, 0 or 1
  signs    ///< one signed byte each: (-1)^f(x), so +1 or -1
};

inline constexpr int kMostVariables = 30;  ///< |W| <= 2^30 fits int32

/// W(a) = sum over x of (-1)^(f(x) + <a, x>) of `functions` functions, one behind the other, exactly.
/// @param spectra  functions x 2^variables, apart from the values
/// @param threads  at most host_threads() (device_info.hpp) are started; 0: as many
/// Throws BadRequest for null pointers, spectra that overlap the values, and an unknown form. Also for
/// variables that are not from 1 (packed: 3) to kMostVariables, and a value that is not of the form, with its
/// place.
void spectrum(FunctionForm form, const void* values, int variables, std::int64_t functions,
              std::int32_t* spectra, int threads = 0);

/// The same in memory of CUDA device `device`, enqueued on `stream`; may be captured. The first pass of the
/// transform reads the values themselves, so nothing else is written; up to 14 variables it is the only one.
/// Packed values at a multiple of 4 bytes. Values are not looked at: another than the form has gives sums of
/// 1 - 2 f(x), or of f(x) for signs. The first call for a number of variables and functions makes a plan, as
/// fwht::transform does.
/// Throws BadRequest for null and misaligned pointers, memory of another device, an unknown form, and
/// variables as above.
void spectrum_on_device(FunctionForm form, const void* values, int variables, std::int64_t functions,
                        std::int32_t* spectra, Stream stream, int device);

struct SpectrumSummary {
  std::int64_t largest = 0;  ///< max |W|, W(0) among them
  std::int64_t place = 0;    ///< the first a that has it
  /// 2^(k-1) - largest / 2: the distance to the nearest affine function
  std::int64_t nonlinearity = 0;
  std::uint64_t sum_of_squares = 0;  ///< modulo 2^64; 4^k for a Boolean function (Parseval)
};

/// Of one spectrum of 2^variables coefficients. Throws BadRequest as spectrum does.
SpectrumSummary summarize(const std::int32_t* spectrum, int variables);

/// Of `functions` functions, one behind the other, whose spectra nobody keeps. Throws BadRequest as spectrum
/// does.
void summarize(FunctionForm form, const void* values, int variables, std::int64_t functions,
               SpectrumSummary* summaries, int threads = 0);

/// The same in memory of CUDA device `device`, the summaries too, at a multiple of 8 bytes; as
/// spectrum_on_device. The last pass reduces its sums in place of storing them.
/// @param workspace  summary_workspace_bytes() that this call works in, at a multiple of 16 bytes; of any
/// content
/// Throws BadRequest as spectrum_on_device, and for too small a workspace.
void summarize_on_device(FunctionForm form, const void* values, int variables, std::int64_t functions,
                         SpectrumSummary* summaries, void* workspace, std::int64_t workspace_bytes,
                         Stream stream, int device);
/// 0 up to 14 variables; else 4 2^variables, or as many functions' as 16 MiB hold.
std::int64_t summary_workspace_bytes(int variables, std::int64_t functions);

struct Coefficient {
  std::int64_t place = 0;
  std::int32_t value = 0;
  bool operator==(const Coefficient&) const = default;
};

/// The `count` largest in size, the largest first, of equal ones the first one first. Throws BadRequest as
/// spectrum does, and for a count that is not from 1 to 2^variables.
std::vector<Coefficient> largest(const std::int32_t* spectrum, int variables, std::int64_t count);

/// Of one function, whose spectrum nobody keeps. Throws BadRequest as spectrum does, and for such a count.
std::vector<Coefficient> largest(FunctionForm form, const void* values, int variables, std::int64_t count,
                                 int threads = 0);

inline constexpr int kMostLargest = 256;  ///< on a device

/// The same in memory of CUDA device `device`, `places` and `sums` too; as spectrum_on_device. The last pass
/// leaves the largest of every tile, and is done again for the tiles that may have some of the `count`
/// largest of all.
/// @param workspace  largest_workspace_bytes() that this call works in, at a multiple of 256 bytes; of any
/// content
/// Throws BadRequest as spectrum_on_device, for too small a workspace and more than kMostLargest.
void largest_on_device(FunctionForm form, const void* values, int variables, std::int64_t count,
                       std::int64_t* places, std::int32_t* sums, void* workspace,
                       std::int64_t workspace_bytes, Stream stream, int device);
/// 4 2^variables and a little.
std::int64_t largest_workspace_bytes(int variables, std::int64_t count);

/// How many elements of the transform of integer rows do not fit their dtype, exactly. Throws BadRequest for
/// a problem that is not of contiguous integer rows, or of another operator than H_n.
std::int64_t overflows(const Problem& problem, const void* in, int threads = 0);

/// c[i] = sum over j of a[j] b[i xor j] for each of `rows` rows of n = 2^k elements, by three transforms;
/// with b = a the autocorrelation. f32 and f64 rounded; i32 and i64 exactly, and refused where n |a|_2 |b|_2
/// is not below 2^31 or 2^63 for every row. `out` is a, or b, or overlaps neither. Throws BadRequest, before
/// anything is written.
void dyadic_convolution(Dtype dtype, std::int64_t n, std::int64_t rows, const void* a, const void* b,
                        void* out, int threads = 0);

/// The same in memory of CUDA device `device`, enqueued on `stream`; may be captured. The product is taken
/// inside the passes (convolved_rows.hpp): one pass over memory where a block holds both rows, else three,
/// and five from 2^25 on (of 8 bytes 2^24). b = a is the autocorrelation, by half the loads. Values are not
/// looked at: integers with sums that do not fit wrap before they are divided by n.
/// @param workspace  convolution_workspace_bytes() that this call works in, at a multiple of 16 bytes; of
///                   any content
/// Throws BadRequest as above, for too small a workspace, and where `out` and a or b overlap but are not the
/// same.
void dyadic_convolution_on_device(Dtype dtype, std::int64_t n, std::int64_t rows, const void* a,
                                  const void* b, void* out, void* workspace, std::int64_t workspace_bytes,
                                  Stream stream, int device);
/// 0 for autocorrelations, and where a block of the device holds both rows; else as many vectors as 16 MiB
/// hold, at least one. Throws BadRequest, also for a device that this machine does not have.
std::int64_t convolution_workspace_bytes(Dtype dtype, std::int64_t n, std::int64_t rows, bool autocorrelation,
                                         int device);

/// n signs that depend on n and seed alone, in words as Operands::signs wants them. Bit i mod 32 is of word
/// (i / 32) mod 4 of Philox4x32-10 with the counter (i / 128, 0, 0, 0) and the key seed. Source: Salmon et
/// al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
std::vector<std::uint32_t> random_signs(std::int64_t n, std::uint64_t seed);

/// `count` of n rows, each as likely, ascending, that depend on n, count and seed alone. Draw i of Fisher
/// and Yates' shuffle is row i + floor(w (n - i) / 2^64), w words 0 and 1 (low, high) of Philox with the
/// counter (i mod 2^32, i / 2^32, 1, 0).
std::vector<std::int64_t> random_rows(std::int64_t n, std::int64_t count, std::uint64_t seed);

/// y = H D_k ... H D_1 x with H orthonormal, that of operator_for(n), for rows of n elements side by side;
/// D_i the signs of `signs[i - 1]`, apart from `out`. f32, f64, f16 or bf16, the last two rounded after each
/// round. `out` may be `in`. Throws BadRequest, before anything is written.
void rounds(Dtype dtype, std::int64_t n, std::int64_t rows, std::span<const void* const> signs,
            const void* in, void* out, int threads = 0);

/// The same in memory of CUDA device `device`, enqueued on `stream`, by one kernel (rounded_rows.hpp); may
/// be captured. f32, f16 or bf16; n from 64 to 4096, 2^j or m 2^j with m 12, 20, 28 or 36 and j at least 3.
/// fp32 inside, rounded once at the end: before that an element is wrong by at most count (m + j + 2) 2^-24
/// |x|, m 0 for n = 2^j, to first order.
/// @param transposed  D_1 H ... D_k H x
/// @param count       k, from 1 to 8
/// @param signs       of all rounds, n / 32 words each, one round behind the other
/// Pointers to rows at a multiple of 16 bytes; `out` is `in`, or overlaps neither it nor the signs. Throws
/// BadRequest for what is not so, and for memory of another device.
void rounds_on_device(Dtype dtype, std::int64_t n, std::int64_t rows, bool transposed, int count,
                      const void* signs, const void* in, void* out, Stream stream, int device);

/// Codes of the rounds of fp32 rows, as vector search keeps them, and one fp32 scale s a row.
/// @param bits  8: int8, s = a / 127, a the largest |y|, codes of y (127 / a). 4: two a byte, the even
///              element in the low half, s = a / 7: what the encodings int8:row and int4:row write.
///              1: eight a byte, the first in the lowest bit, set where y < 0; s is the mean of |y|, with
///              which s and -s are nearest to y.
/// `scales` at a multiple of 16 bytes, `codes` of 4 or 8 bits at one of 4. Throws BadRequest as `rounds`, and
/// where n codes do not fill bytes.
void rounds_to_codes(std::int64_t n, std::int64_t rows, std::span<const void* const> signs, const float* in,
                     int bits, void* codes, float* scales, int threads = 0);
/// The same on a device, as rounds_on_device: one kernel, its codes those of that function's results.
void rounds_to_codes_on_device(std::int64_t n, std::int64_t rows, int count, const void* signs,
                               const void* in, int bits, void* codes, float* scales, Stream stream,
                               int device);

/// Subsampled randomized Hadamard transform: y = sqrt(N / m) R H D (x, 0 ... 0), N the power of two from
/// `length` up, H orthonormal, D random_signs(N, seed), R the m random_rows(N, m, seed). The mean of |y|^2
/// is |x|^2.
struct Sketch {
  std::int64_t length = 0;  ///< elements of x
  std::int64_t rows = 0;    ///< m, elements of y
  std::uint64_t seed = 0;
  std::int64_t padded() const;  ///< N
};

/// Of `vectors` vectors side by side, f32 or f64; `in` and `out` apart. Throws BadRequest for rows that are
/// not from 1 to N.
void sketch(const Sketch& sketch, Dtype dtype, std::int64_t vectors, const void* in, void* out,
            int threads = 0);

/// What a device reads of a sketch, 3 ceil(N / 32) words that its caller makes once and copies there: of 32
/// coefficients each a mask of the chosen ones and how many are chosen before them, then random_signs(N,
/// seed). Throws BadRequest as sketch does.
std::vector<std::uint32_t> sketch_table(const Sketch& sketch);

/// The same sketch in memory of CUDA device `device`, enqueued on `stream`; may be captured. The first loads
/// multiply by the signs and read zeros behind `length`, the last stores keep the chosen rows
/// (sketched_rows.hpp): one pass over memory where a block holds N elements, two to 2^22, three above.
/// Results are wrong by at most (log2 N + 2) u sqrt(N / m) |x|, u the type's rounding.
/// @param transposed  x = sqrt(N / m) D H R^T y, its first `length` elements: `in` has vectors of m, `out`
///                    of `length` elements
/// @param table       sketch_table(sketch), at a multiple of 8 bytes; its content is not looked at
/// @param workspace   sketch_workspace_bytes() that this call works in, at a multiple of 16 bytes; of any
///                    content
/// Throws BadRequest as sketch does, for null and misaligned pointers, memory of another device, too small a
/// workspace, and where `out` or the workspace overlap anything.
void sketch_on_device(const Sketch& sketch, bool transposed, Dtype dtype, std::int64_t vectors,
                      const void* table, const void* in, void* out, void* workspace,
                      std::int64_t workspace_bytes, Stream stream, int device);
/// 0 where a block of the device holds N elements; else as many padded vectors as 16 MiB hold, at least one.
/// Throws BadRequest, also for a device that this machine does not have.
std::int64_t sketch_workspace_bytes(const Sketch& sketch, Dtype dtype, std::int64_t vectors, int device);

}  // namespace fwht::walsh
