// Which passes a dyadic convolution takes on a device. One kernel convolves a row that a block holds: both
// rows are loaded, transformed, multiplied, transformed back and stored. A longer vector is a matrix whose
// columns are transformed before and after: since H_n = H_above (x) H_row, its convolution is that of each
// row of the transformed columns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "common/contract/dtype.hpp"
#include "common/contract/family.hpp"
#include "variants/passes/schedule.hpp"

namespace fwht::walsh {

/// x y / n of two spectra, one of which is divided first: x y may leave the range where no sum of a
/// convolution does. One above 1 loses no bit by it; where x is not, y loses some only if the result is
/// subnormal.
///
/// @param scale  1 / n, a power of two; none for integers, whose sums are divided at the end
template <class Number>
constexpr Number product_of_spectra(Number x, Number y, Number scale) {
  if constexpr (!std::is_floating_point_v<Number>) {
    return x * y;
  } else {
    const bool first = x > 1 || x < -1;
    return (first ? x : y) * scale * (first ? y : x);
  }
}

/// The longest row that one block convolves: 64 KiB each of a and b.
constexpr int largest_convolved_log_n(passes::Word word, std::int64_t shared_per_block) {
  const int fits = word == passes::Word::eight_bytes ? 13 : 14;
  return shared_per_block >= std::int64_t{128} * 1024 ? fits : fits - 1;
}

struct ConvolutionPasses {
  int row_bits = 0;  // of the kernel of rows
  int above = 0;     // bits of the passes along a dimension, before and after it; 0: none
  constexpr bool operator==(const ConvolutionPasses&) const = default;
};

/// Rows of 2^12 leave room for several blocks on a multiprocessor, one of which computes while another loads;
/// of vectors that fill the L2 2^13 spare the columns a bit. The longest ones spare vectors of 2^24 (of 8
/// bytes 2^23) a second pass over columns. Measured on an H100 (docs/attempts.md).
constexpr ConvolutionPasses convolution_passes(passes::Word word, int log_n, std::int64_t shared_per_block) {
  const int largest = largest_convolved_log_n(word, shared_per_block);
  if (log_n <= largest) return {log_n, 0};
  const int usual = word == passes::Word::eight_bytes || log_n <= 20 ? 12 : 13;
  int row = std::min(usual, log_n - passes::kFewestAxisBits);
  if (log_n - row > passes::kMostAxisBits && log_n - largest <= passes::kMostAxisBits) row = largest;
  return {row, log_n - row};
}

/// Vectors that go through all passes together, so that what lies between stays in the L2: the result and the
/// workspace have 16 MiB each.
constexpr std::int64_t convolved_together(Dtype dtype, int log_n, std::int64_t vectors) {
  const std::int64_t fit = (std::int64_t{16} << 20) / (bytes_of(dtype) << log_n);
  return std::clamp<std::int64_t>(fit, 1, std::max<std::int64_t>(vectors, 1));
}

/// Rows of 2^log_n elements, one behind the other: out = a (*) b, or a (*) a where b is null. `out` may be a
/// or b. Integers exactly, where no sum of products of spectra wraps.
struct ConvolvedRows {
  Dtype dtype = Dtype::f32;
  int log_n = 0;
  std::int64_t rows = 0;
  int above =
      0;  // bits of the vectors that the rows are of: the products of floats are divided for them, too
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;
  bool programmatic = false;
};
void launch_convolved_rows(const ConvolvedRows& work, const DeviceInfo& device, Stream stream);

/// In place, `vectors` contiguous ones of 2^log_n integers: H over the bits from `shift` on, the sums divided
/// by 2^above without a remainder.
struct DividedPasses {
  Dtype dtype = Dtype::i32;
  int log_n = 0, shift = 0;
  std::int64_t vectors = 0;
  void* data = nullptr;
  bool programmatic = false;
};
void launch_divided_passes(const DividedPasses& work, const DeviceInfo& device, Stream stream);

/// The passes of a convolution, by a machine that has
///   columns(in, out, vectors): H over the bits above, unscaled;
///   rows(a, b, out, rows): their convolutions, those of floats divided by 2^above;
///   columns_back(data, vectors): H over the bits above, in place; those of integers divided by 2^above.
/// @param b          null: a
/// @param workspace  of convolved_together vectors, where b is not null and there are bits above
template <class Machine>
void convolve_in_passes(const ConvolutionPasses& passes, Dtype dtype, std::int64_t vectors,
                        const std::byte* a, const std::byte* b, std::byte* out, std::byte* workspace,
                        Machine& machine) {
  if (passes.above == 0) return machine.rows(a, b, out, vectors);
  const int log_n = passes.row_bits + passes.above;
  const std::int64_t together = convolved_together(dtype, log_n, vectors);
  const std::int64_t bytes = std::int64_t{bytes_of(dtype)} << log_n;
  for (std::int64_t first = 0; first < vectors; first += together) {
    const std::int64_t count = std::min(together, vectors - first), at = first * bytes;
    if (b != nullptr) machine.columns(b + at, workspace, count);  // first, since out may be b
    machine.columns(a + at, out + at, count);
    machine.rows(out + at, b == nullptr ? nullptr : workspace, out + at, count << passes.above);
    machine.columns_back(out + at, count);
  }
}

}  // namespace fwht::walsh
