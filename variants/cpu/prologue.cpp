#include "variants/cpu/prologue.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "common/contract/dtype.hpp"
#include "common/host/error.hpp"
#include "common/host/text.hpp"

namespace fwht::cpu {
namespace {

float narrowed(Dtype dtype, float value) {
  if (dtype == Dtype::f32) return value;
  return dtype == Dtype::bf16 ? bf16_to_float(float_to_bf16(value)) : f16_to_float(float_to_f16(value));
}

float weight_at(Dtype dtype, const void* weights, std::int64_t i) {
  if (dtype == Dtype::f32) return static_cast<const float*>(weights)[i];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(weights)[i];
  return dtype == Dtype::bf16 ? bf16_to_float(bits) : f16_to_float(bits);
}

/// The tree of neighbours as it grows: a sum of so many eights waits in its place until its neighbour is
/// there.
float sum_of_squares(const float* row, std::int64_t n) {
  std::array<float, 64> waiting{};
  const std::int64_t count = std::min<std::int64_t>(n, 8);
  float sum = 0.0F;
  for (std::int64_t eight = 0; eight < n / count; ++eight) {
    sum = 0.0F;
    for (std::int64_t i = 0; i < count; ++i)
      sum = std::fma(row[eight * count + i], row[eight * count + i], sum);
    std::size_t level = 0;
    for (std::int64_t rest = eight; rest % 2 == 1; rest /= 2)
      sum = waiting[level++] + sum;
    waiting[level] = sum;
  }
  return sum;
}

void normalize(const Problem& problem, const Operands& operands, float* row) {
  const std::int64_t n = problem.n();
  const float mean = sum_of_squares(row, n) / static_cast<float>(n);
  const float factor = 1.0F / std::sqrt(mean + operands.prepared.epsilon);
  for (std::int64_t i = 0; i < n; ++i) {
    const float unit = narrowed(problem.dtype(), row[i] * factor);
    row[i] = narrowed(problem.dtype(), unit * weight_at(problem.dtype(), operands.prepared.weight, i));
  }
}

void turn(const Problem& problem, const Operands& operands, std::int64_t number, float* row) {
  const Prologue& prologue = *problem.prologue;
  const std::int64_t half = prologue.width / 2, step = prologue.interleaved ? 2 : 1;
  const std::int64_t apart = prologue.interleaved ? 1 : half;
  const float* const c =
      operands.prepared.cos_sin + operands.prepared.positions[number / prologue.heads] * prologue.width;
  const float* const s = c + half;
  for (std::int64_t i = 0; i < half; ++i) {
    float& a = row[i * step];
    float& b = row[i * step + apart];
    const float ac = a * c[i], bs = b * s[i], bc = b * c[i], as = a * s[i];
    a = narrowed(problem.dtype(), ac - bs);
    b = narrowed(problem.dtype(), bc + as);
  }
}

}  // namespace

void check_positions(const Problem& problem, const PreparedOperands& operands) {
  if (!problem.prologue || problem.prologue->kind != Prologue::Kind::rope) return;
  for (std::int64_t token = 0; token < problem.rows / problem.prologue->heads; ++token) {
    if (operands.positions[token] < 0)
      throw BadRequest(concat("positions[", token, "]=", operands.positions[token],
                              " must be at least 0, a row of cos_sin"));
  }
}

void apply_prologue(const Problem& problem, const Operands& operands, std::int64_t number, float* row) {
  if (problem.prologue->kind == Prologue::Kind::rms_norm) normalize(problem, operands, row);
  if (problem.prologue->kind == Prologue::Kind::rope) turn(problem, operands, number, row);
}

}  // namespace fwht::cpu
