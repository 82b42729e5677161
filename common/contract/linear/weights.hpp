// 4-bit weights as GPTQ stores them, on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/contract/linear/problem.hpp"

namespace fwht {

/// W[i][c] = scales[g][c] (q - z), g = g_idx[i], or i / group where there is no g_idx.
struct GptqWeights {
  std::int64_t n = 0, k = 0;
  std::int64_t group = 128;  ///< or LinearProblem::kWhole
  ZeroPoints zero_points = ZeroPoints::v1;
  std::vector<std::uint32_t> qweight;  ///< [k / 8][n]: nibble i of word (r, c) is q of row 8 r + i, column c
  std::vector<std::uint32_t>
      qzeros;  ///< [groups][n / 8]: nibble j of word (g, c) is of column 8 c + j; none if symmetric
  std::vector<std::uint16_t> scales;  ///< [groups][n]: fp16 patterns
  std::vector<std::int32_t> g_idx;    ///< [k]; empty: row i is in group i / group
  /// Of the problem's rotation: what pack_signs makes, and the entries of dense factors in the dtype of x.
  std::vector<std::uint32_t> signs = {};
  std::vector<std::byte> dense = {};

  std::int64_t group_rows() const { return group == LinearProblem::kWhole ? k : group; }
  std::int64_t groups() const { return k / group_rows(); }
  bool symmetric() const { return zero_points == ZeroPoints::symmetric; }
  std::int64_t group_of(std::int64_t row) const {
    return g_idx.empty() ? row / group_rows() : g_idx[static_cast<std::size_t>(row)];
  }
  int q(std::int64_t row, std::int64_t column) const {
    return static_cast<int>(qweight[static_cast<std::size_t>(row / 8 * n + column)] >> (4 * (row % 8)) & 15U);
  }
  int zero(std::int64_t at_group, std::int64_t column) const {
    if (symmetric()) return 8;
    const std::uint32_t word = qzeros[static_cast<std::size_t>(at_group * (n / 8) + column / 8)];
    return static_cast<int>(word >> (4 * (column % 8)) & 15U) + (zero_points == ZeroPoints::v1 ? 1 : 0);
  }
  double scale(std::int64_t at_group, std::int64_t column) const {
    return decode(Dtype::f16, scales[static_cast<std::size_t>(at_group * n + column)]);
  }
  double weight(std::int64_t row, std::int64_t column) const {
    const std::int64_t at = group_of(row);
    return scale(at, column) * (q(row, column) - zero(at, column));
  }
};

/// Throws BadRequest, naming tensor, place, value and limit, for tensors of another size than n, k and group
/// ask for, g_idx outside 0 .. groups - 1, scales that are NaN or infinite, and shapes that LinearProblem
/// does not take.
void validate(const GptqWeights& weights);

/// From plain numbers: q[k][n] in 0 .. 15, z[groups][n] in 0 .. 15 (v2) or 1 .. 16 (v1), none for symmetric
/// weights. Throws BadRequest for numbers beyond, and what validate throws.
GptqWeights pack_gptq(std::int64_t n, std::int64_t k, std::int64_t group, ZeroPoints zero_points,
                      const std::vector<std::uint8_t>& q, const std::vector<std::uint8_t>& z,
                      std::vector<std::uint16_t> scales, std::vector<std::int32_t> g_idx = {});

/// Rows in the order of their groups; the order of equal ones is kept. x[:, order] meets sorted rows.
std::vector<std::int32_t> row_order(const GptqWeights& weights);

/// The weights with rows in that order and no g_idx. Throws BadRequest where a group has another number of
/// rows than `group`: kernels for contiguous groups cannot serve it.
GptqWeights sorted_rows(const GptqWeights& weights);

/// What the weights ask of a problem: n, k, group, zero points, act_order.
LinearProblem problem_of(const GptqWeights& weights, std::int64_t m, Dtype dtype);

}  // namespace fwht
