#include "reference/prologue.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <random>
#include <vector>

#include "common/contract/dtype.hpp"
#include "common/contract/operator_data.hpp"

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

void normalize(const Problem& problem, const PreparedOperands& operands, std::vector<float>& row) {
  const Dtype dtype = problem.dtype();
  const float mean = sum_of_squares(row, 0, row.size()) / static_cast<float>(row.size());
  const float factor = 1.0F / std::sqrt(mean + operands.epsilon);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const auto weight =
        static_cast<float>(load_element(dtype, operands.weight, static_cast<std::int64_t>(i)));
    row[i] = stored(dtype, stored(dtype, row[i] * factor) * weight);
  }
}

void turn(const Problem& problem, const PreparedOperands& operands, std::int64_t number,
          std::vector<float>& row) {
  const Prologue& prologue = *problem.prologue;
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

void apply_prologue(const Problem& problem, const PreparedOperands& operands, void* rows) {
  if (!problem.prologue) return;
  const auto n = static_cast<std::size_t>(problem.n());
  std::vector<float> row(n);
  for (std::int64_t r = 0; r < problem.rows; ++r) {
    const std::int64_t first = r * problem.row_stride();
    for (std::size_t i = 0; i < n; ++i)
      row[i] = static_cast<float>(load_element(problem.dtype(), rows, first + static_cast<std::int64_t>(i)));
    if (problem.prologue->kind == Kind::rms_norm) normalize(problem, operands, row);
    if (problem.prologue->kind == Kind::rope) turn(problem, operands, r, row);
    for (std::size_t i = 0; i < n; ++i)
      store_element(problem.dtype(), rows, first + static_cast<std::int64_t>(i), static_cast<double>(row[i]));
  }
}

void apply_signs(const Problem& problem, const void* signs, void* rows) {
  const std::int64_t bytes = bytes_of(problem.dtype());
  for (std::int64_t row = 0; row < problem.rows; ++row) {
    auto* const first = static_cast<std::byte*>(rows) + row * problem.row_stride() * bytes;
    for (std::int64_t column = 0; column < problem.n();
         ++column) {  // the sign is the top bit of the last byte
      if (sign_is_negative(signs, column)) first[(column + 1) * bytes - 1] ^= std::byte{0x80};
    }
  }
}

namespace {

std::vector<std::byte> weights(const Problem& problem, std::mt19937_64& random) {
  std::vector<std::byte> values(static_cast<std::size_t>(problem.n() * bytes_of(problem.dtype())));
  std::normal_distribution<double> normal(1.0, 0.25);
  for (std::int64_t i = 0; i < problem.n(); ++i)
    store_element(problem.dtype(), values.data(), i, normal(random));
  return values;
}

std::vector<float> angles(std::int64_t width, std::int64_t positions) {
  std::vector<float> table(static_cast<std::size_t>(positions * width));
  auto next = table.begin();
  for (std::int64_t position = 0; position < positions; ++position) {
    for (double (*const function)(double) :
         {+[](double x) { return std::cos(x); }, +[](double x) { return std::sin(x); }}) {
      for (std::int64_t i = 0; i < width / 2; ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(width);
        *next++ = static_cast<float>(function(static_cast<double>(position) * std::pow(10000.0, exponent)));
      }
    }
  }
  return table;
}

std::vector<std::int64_t> slots_of(const Problem& problem, PreparedData::Slots kind) {
  const Paging& paging = *problem.paging;
  const std::int64_t together = kind == PreparedData::Slots::by_page ? paging.tokens : 1;
  std::vector<std::int64_t> order(static_cast<std::size_t>(paging.places() / together));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937_64(97));
  std::vector<std::int64_t> slots(static_cast<std::size_t>(problem.rows), -1);
  const auto used = std::min<std::int64_t>(problem.rows, paging.places());
  for (std::int64_t row = 0; row < used; ++row) {
    const std::int64_t first = order[static_cast<std::size_t>(row / together)] * together;
    slots[static_cast<std::size_t>(row)] = first + row % together;
  }
  // From 5 on: the last of them is of another kind, in edge_rows(), than the row that has the first place.
  for (std::size_t row = 5; together == 1 && row < slots.size(); row += 11)
    slots[row] = row % 2 == 0 ? -1 : paging.places();
  return slots;
}

}  // namespace

PreparedData::PreparedData(const Problem& problem, Memory memory, Slots slots) {
  std::mt19937_64 random(98);
  if (problem.prologue && problem.prologue->kind == Kind::rms_norm) {
    weight_ = placed(memory, weights(problem, random));
    epsilon_ = 1e-6F;
  }
  if (problem.prologue && problem.prologue->kind == Kind::rope) {
    constexpr std::int64_t kPositions = 61;
    cos_sin_ = placed(memory, angles(problem.prologue->width, kPositions));
    std::vector<std::int64_t> positions(static_cast<std::size_t>(problem.rows / problem.prologue->heads));
    for (std::int64_t& position : positions)
      position = static_cast<std::int64_t>(random() % kPositions);
    positions_ = placed(memory, positions);
  }
  if (problem.paging) slots_ = placed(memory, slots_of(problem, slots));
}

PreparedOperands PreparedData::operands() const {
  return {weight_.data(), epsilon_, static_cast<const float*>(cos_sin_.data()),
          static_cast<const std::int64_t*>(positions_.data()),
          static_cast<const std::int64_t*>(slots_.data())};
}

}  // namespace fwht::reference
