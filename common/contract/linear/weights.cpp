#include "common/contract/linear/weights.hpp"

#include <algorithm>
#include <numeric>

#include "common/host/error.hpp"
#include "common/host/text.hpp"

namespace fwht {
namespace {

void require_size(const char* tensor, std::size_t got, std::int64_t want) {
  if (static_cast<std::int64_t>(got) != want)
    throw BadRequest(concat(tensor, " has ", got, " entries, ", want, " are needed"));
}

}  // namespace

LinearProblem problem_of(const GptqWeights& weights, std::int64_t m, Dtype dtype) {
  LinearProblem problem;
  problem.m = m;
  problem.n = weights.n;
  problem.k = weights.k;
  problem.dtype = dtype;
  problem.group = weights.group;
  problem.zero_points = weights.zero_points;
  problem.act_order = !weights.g_idx.empty();
  return problem;
}

void validate(const GptqWeights& weights) {
  const GptqWeights& w = weights;
  validate(problem_of(w, 1, Dtype::f16));
  require_size("qweight", w.qweight.size(), w.k / 8 * w.n);
  require_size("qzeros", w.qzeros.size(), w.symmetric() ? 0 : w.groups() * (w.n / 8));
  require_size("scales", w.scales.size(), w.groups() * w.n);
  if (!w.g_idx.empty()) require_size("g_idx", w.g_idx.size(), w.k);
  for (std::size_t i = 0; i < w.g_idx.size(); ++i) {
    if (w.g_idx[i] < 0 || w.g_idx[i] >= w.groups())
      throw BadRequest(concat("g_idx of row ", i, " is ", w.g_idx[i], ", groups are 0 to ", w.groups() - 1));
  }
  constexpr std::uint16_t kExponent = 0x7C00;
  for (std::size_t i = 0; i < w.scales.size(); ++i) {
    if ((w.scales[i] & kExponent) == kExponent)
      throw BadRequest(concat("the scale of group ", static_cast<std::int64_t>(i) / w.n, ", column ",
                              static_cast<std::int64_t>(i) % w.n, " is ", decode(Dtype::f16, w.scales[i]),
                              ", a finite number is needed"));
  }
}

GptqWeights pack_gptq(std::int64_t n, std::int64_t k, std::int64_t group, ZeroPoints zero_points,
                      const std::vector<std::uint8_t>& q, const std::vector<std::uint8_t>& z,
                      std::vector<std::uint16_t> scales, std::vector<std::int32_t> g_idx) {
  GptqWeights weights{n, k, group, zero_points, {}, {}, std::move(scales), std::move(g_idx)};
  LinearProblem shape = problem_of(weights, 1, Dtype::f16);
  validate(shape);
  require_size("q", q.size(), n * k);
  require_size("z", z.size(), weights.symmetric() ? 0 : weights.groups() * n);
  weights.qweight.assign(static_cast<std::size_t>(k / 8 * n), 0);
  for (std::int64_t row = 0; row < k; ++row) {
    for (std::int64_t c = 0; c < n; ++c) {
      const unsigned value = q[static_cast<std::size_t>(row * n + c)];
      if (value > 15)
        throw BadRequest(concat("q of row ", row, ", column ", c, " is ", value, ", 4 bits hold 0 to 15"));
      weights.qweight[static_cast<std::size_t>(row / 8 * n + c)] |= value << (4 * (row % 8));
    }
  }
  if (!z.empty()) weights.qzeros.assign(static_cast<std::size_t>(weights.groups() * (n / 8)), 0);
  const unsigned lowest = zero_points == ZeroPoints::v1 ? 1 : 0;
  for (std::size_t i = 0; i < z.size(); ++i) {
    if (z[i] < lowest || z[i] > lowest + 15)
      throw BadRequest(concat("zero point ", z[i], " of group ", static_cast<std::int64_t>(i) / n,
                              ", column ", static_cast<std::int64_t>(i) % n, ": ", lowest, " to ",
                              lowest + 15, " can be stored"));
    weights.qzeros[i / 8] |= (z[i] - lowest) << (4 * (i % 8));
  }
  validate(weights);
  return weights;
}

std::vector<std::int32_t> row_order(const GptqWeights& weights) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(weights.k));
  std::iota(order.begin(), order.end(), 0);
  if (!weights.g_idx.empty()) {
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return weights.g_idx[static_cast<std::size_t>(a)] < weights.g_idx[static_cast<std::size_t>(b)];
    });
  }
  return order;
}

GptqWeights sorted_rows(const GptqWeights& weights) {
  if (weights.g_idx.empty()) return weights;
  const std::vector<std::int32_t> order = row_order(weights);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(weights.groups()), 0);
  for (const std::int32_t at : weights.g_idx)
    ++rows[static_cast<std::size_t>(at)];
  for (std::size_t g = 0; g < rows.size(); ++g) {
    if (rows[g] != weights.group_rows())
      throw BadRequest(concat("group ", g, " has ", rows[g], " rows in g_idx, sorting needs ",
                              weights.group_rows(), " in every group"));
  }
  GptqWeights sorted = weights;
  sorted.g_idx.clear();
  const std::int64_t n = weights.n;
  std::fill(sorted.qweight.begin(), sorted.qweight.end(), 0U);
  for (std::int64_t row = 0; row < weights.k; ++row) {
    const std::int64_t from = order[static_cast<std::size_t>(row)];
    const std::uint32_t* words = weights.qweight.data() + from / 8 * n;
    std::uint32_t* out = sorted.qweight.data() + row / 8 * n;
    for (std::int64_t c = 0; c < n; ++c)
      out[c] |= (words[c] >> (4 * (from % 8)) & 15U) << (4 * (row % 8));
  }
  return sorted;
}

}  // namespace fwht
