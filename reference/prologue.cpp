#include "reference/prologue.hpp"

#include <cmath>
#include <vector>

#include "common/contract/dtype.hpp"

namespace fwht::reference {
namespace {

using Kind = Prologue::Kind;

/// Of values[first, first + count), count a power of two: the tree of the contract, from the top.
float sum_of_squares(const std::vector<float>& values, std::size_t first, std::size_t count) {
  if (count > 8) {
    const float lower = sum_of_squares(values, first, count / 2);
    return lower + sum_of_squares(values, first + count / 2, count / 2);
  }
  float sum = 0.0F;
  for (std::size_t i = first; i < first + count; ++i)
    sum = std::fma(values[i], values[i], sum);
  return sum;
}

float stored(Dtype dtype, float value) {
  return static_cast<float>(round_to(dtype, static_cast<double>(value)));
}

void normalize(const Problem& problem, const Operands& operands, std::vector<float>& row) {
  const Dtype dtype = problem.dtype();
  const float mean = sum_of_squares(row, 0, row.size()) / static_cast<float>(row.size());
  const float factor = 1.0F / std::sqrt(mean + operands.epsilon);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const auto weight =
        static_cast<float>(load_element(dtype, operands.weight, static_cast<std::int64_t>(i)));
    row[i] = stored(dtype, stored(dtype, row[i] * factor) * weight);
  }
}

void turn(const Problem& problem, const Operands& operands, std::int64_t number, std::vector<float>& row) {
  const Prologue& prologue = problem.prologue;
  const std::int64_t half = prologue.width / 2;
  const float* const cosines =
      operands.cos_sin + operands.positions[number / prologue.heads] * prologue.width;
  for (std::int64_t pair = 0; pair < half; ++pair) {
    const auto first = static_cast<std::size_t>(prologue.interleaved ? 2 * pair : pair);
    const auto second = static_cast<std::size_t>(prologue.interleaved ? 2 * pair + 1 : pair + half);
    const float a = row[first], b = row[second], c = cosines[pair], s = cosines[half + pair];
    const float ac = a * c, bs = b * s, bc = b * c, as = a * s;
    row[first] = stored(problem.dtype(), ac - bs);
    row[second] = stored(problem.dtype(), bc + as);
  }
}

}  // namespace

void apply_prologue(const Problem& problem, const Operands& operands, void* rows) {
  if (problem.prologue.is_none()) return;
  const auto n = static_cast<std::size_t>(problem.n());
  std::vector<float> row(n);
  for (std::int64_t r = 0; r < problem.rows; ++r) {
    const std::int64_t first = r * problem.row_stride();
    for (std::size_t i = 0; i < n; ++i)
      row[i] = static_cast<float>(load_element(problem.dtype(), rows, first + static_cast<std::int64_t>(i)));
    if (problem.prologue.kind == Kind::rms_norm) normalize(problem, operands, row);
    if (problem.prologue.kind == Kind::rope) turn(problem, operands, r, row);
    for (std::size_t i = 0; i < n; ++i)
      store_element(problem.dtype(), rows, first + static_cast<std::int64_t>(i), static_cast<double>(row[i]));
  }
}

}  // namespace fwht::reference
