// What the epilogue of a kernel is told of an encoding and of where its results go.
#pragma once

#include <cstdint>

#include "common/problem.hpp"
#include "common/variant.hpp"
#include "variants/encode/scales.hpp"

namespace fwht::encoder {

/// The argument of row_encoder.cuh.
struct Output {
  Rule rule;
  std::uint8_t* codes;
  void* scales;
  std::uint32_t row_bytes;  // of codes, from row to row
  int rows_per_token;
  std::int64_t scale_rows, scale_columns;  // the matrix of scales
  int log_group;                           // of groups that lie in one vector of a warp
  int lanes;                               // of such a group
  ScaleLayout layout;
  bool rounds_first;  // Intermediate::storage
  bool pads;          // zeros are written behind the scales
};

/// @param group  elements that share a scale within a row of the transform
inline Output output_of(const Problem& problem, const Operands& operands, std::int64_t group) {
  const Encoding& encoding = problem.encoding;
  const ScaleShape shape = scale_shape(encoding, problem.rows, problem.n());
  Output out;
  out.rule = rule_of(encoding, operands.tensor_scale);
  out.codes = static_cast<std::uint8_t*>(operands.out);
  out.scales = operands.scales;
  out.row_bytes = static_cast<std::uint32_t>(problem.out.row_stride * code_bits(encoding.format) / 8);
  out.rows_per_token = static_cast<int>(token_length(encoding, problem.n()) / problem.n());
  out.scale_rows = shape.rows;
  out.scale_columns = shape.columns;
  out.log_group = log2_floor(group);
  out.lanes = static_cast<int>(group / 8);
  out.layout = encoding.layout;
  out.rounds_first = encoding.intermediate == Intermediate::storage;
  out.pads = padding_is_zero(encoding.layout) &&
             scale_positions(encoding.layout, shape.rows, shape.columns) != shape.rows * shape.columns;
  return out;
}

/// What row_encoder.cuh writes: one scale for 8 .. 256 consecutive elements of a row, a power of two, or for a
/// whole row; rows on the 16-byte grid. Otherwise a sentence.
Support supports(const Problem& problem);

}  // namespace fwht::encoder
