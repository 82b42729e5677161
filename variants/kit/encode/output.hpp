// What the epilogue of a kernel is told of an encoding and of where its results go.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "common/contract/problem.hpp"
#include "common/contract/variant.hpp"
#include "variants/kit/encode/short_codes.hpp"

namespace fwht::encoder {

/// The argument of row_encoder.cuh. A launch finds no line of its arguments in the cache of constants, and
/// few rows wait for every line that they touch. So what most forms read lies first, then what rounded
/// numbers read, then what few layouts read. For `mma_split` on sm_90 the first part has two lines.
struct Output {
  Rule rule;
  float last;                         // y = last * x
  float folded_last, folded_inverse;  // `last` and its inverse, or 1: see `folds`
  float last_of_numbers;              // of rounded numbers: `last`, or 1 where the kernel's sums are y
  std::uint32_t row_bytes;            // of codes, from row to row
  std::uint8_t* codes;
  void* scales;
  std::uint32_t row_step, column_step;  // from scale to scale, in layouts without tiles
  /// Bits of the largest |y| of the tensor, where it is this that the scale follows from: a pass before has
  /// found it.
  std::uint32_t* largest = nullptr;
  /// Operands::tensor_scale_at. `rule` and `folds` are then those of an ordinary number, and kernels ask
  /// whether it is one.
  const float* tensor_scale = nullptr;
  /// Whether the factor of a group takes over `last`, a power of two: then elements need no multiplication.
  bool folds;
  bool direct;        // scales lie at row * row_step + column * column_step and are stored as they are
  bool pads;          // zeros are written behind the scales
  bool rounds_first;  // Intermediate::storage
  int log_group;      // of groups that lie in one vector of a warp
  int lanes;          // of such a group
  ScaleLayout layout;
  bool swizzled;  // ScaleLayout::swizzled_128x4 with one row per token
  ShortRule brief;
  std::uint32_t tile_columns;  // of swizzled layouts
  int rows_per_token;
  std::int64_t scale_rows, scale_columns;  // the matrix of scales
};
static_assert(offsetof(Output, brief) <= 2 * 64 - 8, "see fetch_arguments() of mma_split: 8 bytes in");

/// Whether the one scale of the tensor follows from its numbers, so that it takes a pass of its own.
inline bool finds_tensor_scale(const Encoding& encoding) {
  return encoding.scales.kind == ScaleGranularity::Kind::tensor && writes_scales(encoding);
}

/// Whether y = last * x may be left out because groups multiply by a factor anyway. Exact, because factors
/// are used only where they are far from the ends of the range: see is_ordinary(). Rounding to f16 first has
/// a grid that does not scale, below 2^-14.
inline bool folds(const Rule& rule, Dtype storage, float last) {
  int exponent = 0;
  const bool power_of_two = std::frexp(last, &exponent) == 0.5F && exponent > -32 && exponent < 32;
  const bool factor_fits = !rule.given || (rule.given_factor > 0x1p-64F && rule.given_factor < 0x1p64F);
  return power_of_two && factor_fits && (storage == Dtype::bf16 || last == 1.0F);
}

/// @param group  elements that share a scale within a row of the transform
/// @param last   what the sums of the transform are multiplied by
inline Output output_of(const Problem& problem, const Operands& operands, std::int64_t group,
                        float last = 1.0F) {
  const Encoding& encoding = problem.encoding;
  const ScaleShape shape = scale_shape(encoding, problem.rows, problem.n());
  Output out;
  constexpr float kOrdinary = 1.0F;  // stands in for a number that only the kernel sees
  out.rule = rule_of(encoding, operands.tensor_scale_at != nullptr ? kOrdinary : operands.tensor_scale);
  out.tensor_scale = operands.tensor_scale_at;
  out.brief = short_rule_of(out.rule);
  out.codes = static_cast<std::uint8_t*>(operands.out);
  out.scales = operands.scales;
  out.row_bytes = static_cast<std::uint32_t>(problem.out.row_stride * code_bits(encoding.format) / 8);
  out.rows_per_token = static_cast<int>(token_length(encoding, problem.n()) / problem.n());
  out.scale_rows = shape.rows;
  out.scale_columns = shape.columns;
  out.row_step = static_cast<std::uint32_t>(scale_position(encoding.layout, 1, 0, shape.rows, shape.columns));
  out.column_step =
      static_cast<std::uint32_t>(scale_position(encoding.layout, 0, 1, shape.rows, shape.columns));
  out.last = last;
  out.folds = folds(out.rule, problem.out.dtype, last);
  out.folded_last = out.folds ? last : 1.0F;
  out.folded_inverse = 1.0F / out.folded_last;
  out.last_of_numbers = last;
  out.log_group = log2_floor(group);
  out.lanes = static_cast<int>(group / 8);
  out.layout = encoding.layout;
  out.direct = out.rows_per_token == 1 && !out.rule.in_f16 &&
               (encoding.layout == ScaleLayout::row_major || encoding.layout == ScaleLayout::mn_major);
  out.swizzled = out.rows_per_token == 1 && encoding.layout == ScaleLayout::swizzled_128x4;
  out.tile_columns = static_cast<std::uint32_t>(ceil_div(shape.columns, 4));
  out.rounds_first = encoding.intermediate == Intermediate::storage;
  out.pads = padding_is_zero(encoding.layout) &&
             scale_positions(encoding.layout, shape.rows, shape.columns) != shape.rows * shape.columns;
  return out;
}

/// What row_encoder.cuh writes: one scale for 32 .. 256 consecutive elements of a row, a power of two, for a
/// whole row or for the tensor; rows on the 16-byte grid. Otherwise a sentence.
Support supports(const Problem& problem);

}  // namespace fwht::encoder
