#include "experiments/tensor_parallel/mlp.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <numeric>
#include <random>

#include "common/host/error.hpp"
#include "common/host/parallel_for.hpp"
#include "reference/hadamard.hpp"
#include "reference/operators.hpp"
#include "reference/rounding.hpp"

namespace fwht::tensor_parallel {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

std::vector<std::int64_t> range(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> all(at(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

constexpr std::int64_t kFilledRows = 128;  // what kernels take of k

/// Rows r n1/T .. of one rank by group, each group's filled up to a multiple of `fill`, all to one of
/// kFilledRows.
std::vector<std::int64_t> locally_sorted(const GptqWeights& down, std::int64_t first, std::int64_t count,
                                         std::int64_t fill) {
  std::vector<std::int64_t> rows = range(first, count);
  std::stable_sort(rows.begin(), rows.end(),
                   [&](std::int64_t a, std::int64_t b) { return down.group_of(a) < down.group_of(b); });
  std::vector<std::int64_t> filled;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    filled.push_back(rows[i]);
    const bool last = i + 1 == rows.size() || down.group_of(rows[i + 1]) != down.group_of(rows[i]);
    while (last && static_cast<std::int64_t>(filled.size()) % fill != 0)
      filled.push_back(-1);
  }
  while (static_cast<std::int64_t>(filled.size()) % kFilledRows != 0)
    filled.push_back(-1);
  return filled;
}

}  // namespace

MlpShape parse_shape(std::string_view text) {
  constexpr std::int64_t kLongest = 1 << 20;
  std::string_view sizes = text;
  MlpShape shape{std::string(text)};
  if (sizes.ends_with("-gated")) {
    shape.gated = true;
    sizes.remove_suffix(std::string_view("-gated").size());
  }
  if (sizes == "llama-70b") sizes = "8192x28672x8192";
  if (sizes == "granite-20b") sizes = "6144x24576x6144";
  const char *from = sizes.data(), *const end = sizes.data() + sizes.size();
  for (std::int64_t* size : {&shape.k1, &shape.n1, &shape.n2}) {
    const auto [stop, error] = std::from_chars(from, end, *size);
    const bool last = size == &shape.n2;
    if (error != std::errc{} || *size < 1 || (last ? stop != end : stop == end || *stop != 'x')) {
      throw BadRequest(fmt::format(
          "unknown shape '{}'; known: llama-70b, granite-20b, k1xn1xn2, each with or without -gated", text));
    }
    if (*size > kLongest)
      throw BadRequest(fmt::format("shape '{}': {} must be at most {}", text, *size, kLongest));
    from = stop + (last ? 0 : 1);
  }
  return shape;
}

std::string to_string(const MlpProblem& problem) {
  return fmt::format("{}/m{}/t{}/{}{}{}", problem.shape.name, problem.m, problem.ranks,
                     name_of(problem.algorithm), problem.rotation == Rotation::none ? "" : "/",
                     problem.rotation == Rotation::none ? "" : name_of(problem.rotation));
}

void validate(const MlpProblem& problem) {
  const auto& [shape, m, ranks, algorithm, rotation, group] = problem;
  if (m < 1) throw BadRequest(fmt::format("m={} must be at least 1", m));
  if (ranks < 1 || !std::has_single_bit(static_cast<unsigned>(ranks)))
    throw BadRequest(fmt::format("ranks={} must be a power of two", ranks));
  if (shape.n1 % ranks != 0)
    throw BadRequest(fmt::format("n1={} is not divisible by ranks={}", shape.n1, ranks));
  if (problem.shard() % group != 0) {
    throw BadRequest(
        fmt::format("a shard of {} rows is no multiple of the group of {}", problem.shard(), group));
  }
  if (shape.k1 % group != 0)
    throw BadRequest(fmt::format("k1={} is no multiple of the group of {}", shape.k1, group));
  if (shape.n2 % 8 != 0) throw BadRequest(fmt::format("n2={} is no multiple of 8", shape.n2));
  if (rotation == Rotation::none) return;
  if (algorithm != Algorithm::tp_aware) {
    throw BadRequest(fmt::format("a rotated layer has no act-order, so {} is not offered with {}",
                                 name_of(algorithm), name_of(rotation)));
  }
  const sharded::ShardedProblem rotated = rotation_of(problem);
  if (rotated.form == sharded::ShardedForm::all_to_all && rotated.piece() % group != 0) {
    throw BadRequest(
        fmt::format("pieces of {} rows are no multiple of the group of {}", rotated.piece(), group));
  }
}

sharded::ShardedProblem rotation_of(const MlpProblem& problem) {
  const auto of_form = [&](sharded::ShardedForm form) {
    return sharded::make_sharded_problem(form, Dtype::f16, problem.shape.n1, problem.m, problem.ranks);
  };
  switch (problem.rotation) {
    case Rotation::block_diagonal:
      return of_form(sharded::ShardedForm::block_diagonal);
    case Rotation::all_to_all:
      return of_form(sharded::ShardedForm::all_to_all);
    case Rotation::gather:
      return of_form(sharded::ShardedForm::gather);
    case Rotation::blocks: {
      // Blocks are rows of their own.
      if (problem.shard() % kBlock != 0)
        throw BadRequest(fmt::format("a shard of {} is no multiple of {}", problem.shard(), kBlock));
      return sharded::make_sharded_problem(sharded::ShardedForm::block_diagonal, Dtype::f16,
                                           kBlock * problem.ranks, problem.m * problem.shard() / kBlock,
                                           problem.ranks);
    }
    case Rotation::none:
      break;
  }
  throw BadRequest("this layer has no rotation");
}

std::vector<std::int64_t> down_rows(const MlpProblem& problem, const MlpWeights& weights, int rank) {
  const std::int64_t shard = problem.shard(), first = rank * shard;
  if (problem.rotation == Rotation::all_to_all) {
    const sharded::ShardedProblem rotated = rotation_of(problem);
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < shard; ++i)
      rows.push_back(sharded::result_column(rotated, rank, i));
    return rows;
  }
  if (problem.rotation != Rotation::none) return range(first, shard);
  if (problem.algorithm == Algorithm::local_sort)
    return locally_sorted(weights.down, first, shard, kSortedGroup);
  const std::vector<std::int32_t> order = row_order(weights.down);
  return {order.begin() + first, order.begin() + first + shard};
}

Share share_of(const MlpProblem& problem, const MlpWeights& weights, int rank) {
  validate(problem);
  const std::int64_t shard = problem.shard(), first = rank * shard;
  const std::vector<std::int64_t> rows = down_rows(problem, weights, rank);
  const bool sorted_here = problem.algorithm == Algorithm::local_sort && problem.rotation == Rotation::none;

  std::vector<std::int64_t> columns = range(first, shard);
  if (problem.algorithm == Algorithm::tp_aware && problem.rotation == Rotation::none) columns = rows;
  if (problem.shape.gated) {
    for (std::int64_t i = 0; i < shard; ++i)
      columns.push_back(problem.shape.n1 + columns[at(i)]);
  }
  Share share{with_columns(weights.up, columns),
              with_rows(weights.down, rows, sorted_here ? kSortedGroup : problem.group),
              {}};
  if (sorted_here) {
    for (const std::int64_t row : rows)
      share.picked.push_back(row < 0 ? 0 : static_cast<std::int32_t>(row - first));
  } else if (problem.algorithm == Algorithm::naive) {
    share.picked = row_order(weights.down);
  } else if (problem.algorithm == Algorithm::naive_fused) {
    for (const std::int64_t row : rows)
      share.picked.push_back(static_cast<std::int32_t>(row));
  }
  return share;
}

GptqWeights with_columns(const GptqWeights& weights, const std::vector<std::int64_t>& columns) {
  GptqWeights part = weights;
  part.n = static_cast<std::int64_t>(columns.size());
  const std::int64_t words = weights.k / 8, groups = weights.groups();
  part.qweight.assign(at(words * part.n), 0);
  part.scales.assign(at(groups * part.n), 0);
  part.qzeros.assign(weights.symmetric() ? 0 : at(groups * (part.n / 8)), 0);
  parallel_for(words, reference::default_threads(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t c = 0; c < part.n; ++c)
        part.qweight[at(r * part.n + c)] = weights.qweight[at(r * weights.n + columns[at(c)])];
    }
  });
  const int lowest = weights.zero_points == ZeroPoints::v1 ? 1 : 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t c = 0; c < part.n; ++c) {
      part.scales[at(g * part.n + c)] = weights.scales[at(g * weights.n + columns[at(c)])];
      if (weights.symmetric()) continue;
      const auto zero = static_cast<std::uint32_t>(weights.zero(g, columns[at(c)]) - lowest);
      part.qzeros[at(g * (part.n / 8) + c / 8)] |= zero << (4 * (c % 8));
    }
  }
  return part;
}

GptqWeights with_rows(const GptqWeights& weights, const std::vector<std::int64_t>& rows, std::int64_t group) {
  GptqWeights part = weights;
  part.g_idx.clear();
  part.k = static_cast<std::int64_t>(rows.size());
  part.group = group;
  const std::int64_t groups = part.groups(), n = weights.n;
  part.qweight.assign(at(part.k / 8 * n), 0);
  part.scales.assign(at(groups * n), 0);
  part.qzeros.assign(weights.symmetric() ? 0 : at(groups * (n / 8)), 0);
  // Of the first row in the new group that is one, or of the last one before it.
  const auto old_group = [&](std::int64_t g) {
    std::int64_t i = g * group;
    while (i > 0 && rows[at(i)] < 0)
      --i;
    return weights.group_of(rows[at(i)]);
  };
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t i = 0; i < group; ++i) {
      const std::int64_t row = rows[at(g * group + i)];
      if (row >= 0 && weights.group_of(row) != old_group(g)) {
        throw BadRequest(fmt::format("rows {} and {} share a new group and are of the old groups {} and {}",
                                     rows[at(g * group)], row, old_group(g), weights.group_of(row)));
      }
    }
  }
  parallel_for(groups, reference::default_threads(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t g = begin; g < end; ++g) {
      std::copy_n(weights.scales.begin() + old_group(g) * n, n, part.scales.begin() + g * n);
      if (!weights.symmetric())
        std::copy_n(weights.qzeros.begin() + old_group(g) * (n / 8), n / 8,
                    part.qzeros.begin() + g * (n / 8));
      for (std::int64_t i = g * group; i < (g + 1) * group; ++i) {
        const std::int64_t row = rows[at(i)];
        const int to = 4 * static_cast<int>(i % 8), from = 4 * static_cast<int>(row % 8);
        for (std::int64_t c = 0; c < n; ++c) {
          // A row of zeros is q = z. z = 16, which no q reaches, is refused where the weights are made.
          const std::uint32_t q = row < 0 ? static_cast<std::uint32_t>(weights.zero(old_group(g), c)) & 15U
                                          : weights.qweight[at(row / 8 * n + c)] >> from & 15U;
          part.qweight[at(i / 8 * n + c)] |= q << to;
        }
      }
    }
  });
  return part;
}

namespace {

/// W in -2 .. 2 with many zeros: q = z + {-1, 0, 1}, or one of three where `sparse`, scales 1 and 2.
GptqWeights integer_matrix(std::int64_t n, std::int64_t k, std::int64_t group, bool sparse,
                           std::vector<std::int32_t> g_idx, std::uint64_t seed) {
  const std::int64_t groups = k / group;
  GptqWeights weights;
  weights.n = n;
  weights.k = k;
  weights.group = group;
  weights.zero_points = ZeroPoints::v1;
  weights.g_idx = std::move(g_idx);
  weights.qweight.assign(at(k / 8 * n), 0);
  weights.scales.assign(at(groups * n), 0);
  weights.qzeros.assign(at(groups * (n / 8)), 0);
  std::vector<std::uint8_t> stored(at(groups * n));  // z - 1: 1 .. 13
  std::mt19937_64 random_groups(seed);
  for (std::int64_t i = 0; i < groups * n; ++i) {
    const std::uint64_t bits = random_groups();
    stored[at(i)] = static_cast<std::uint8_t>(1 + bits % 13);
    weights.qzeros[at(i / 8)] |= std::uint32_t{stored[at(i)]} << (4 * (i % 8));
    weights.scales[at(i)] = float_to_f16((bits >> 32) % 2 == 0 ? 1.0F : 2.0F);
  }
  parallel_for(k / 8, reference::default_threads(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      std::mt19937_64 random(seed + 1 + static_cast<std::uint64_t>(r));
      const std::uint8_t* zeros[8];
      for (std::int64_t i = 0; i < 8; ++i)
        zeros[i] = stored.data() + weights.group_of(8 * r + i) * n;
      for (std::int64_t c = 0; c < n; ++c) {
        std::uint64_t bits = random();
        std::uint32_t word = 0;
        for (int i = 0; i < 8; ++i, bits >>= 8) {
          const auto draw = static_cast<std::uint32_t>(bits & 255U);
          const std::uint32_t third = sparse ? (draw < 43 ? 0U : draw < 86 ? 2U : 1U) : draw % 3;
          word |= (zeros[i][c] + third) << (4 * i);  // z - 1, z or z + 1
        }
        weights.qweight[at(r * n + c)] = word;
      }
    }
  });
  return weights;
}

}  // namespace

MlpWeights integer_weights(const MlpShape& shape, std::int64_t group, bool act_order, std::uint64_t seed) {
  std::vector<std::int32_t> g_idx;
  if (act_order) {
    for (std::int64_t i = 0; i < shape.n1; ++i)
      g_idx.push_back(static_cast<std::int32_t>(i / group));
    std::mt19937_64 random(seed + 2'000'000);
    std::shuffle(g_idx.begin(), g_idx.end(), random);
  }
  return {integer_matrix(shape.up_columns(), shape.k1, group, false, {}, seed),
          integer_matrix(shape.n2, shape.n1, group, true, std::move(g_idx), seed + 1'000'000)};
}

std::vector<std::uint16_t> integer_tokens(const MlpShape& shape, std::int64_t m, std::uint64_t seed) {
  std::vector<std::uint16_t> tokens(at(m * shape.k1), 0);
  std::mt19937_64 random(seed);
  for (std::int64_t row = 0; row < m; ++row) {
    for (int i = 0; i < (shape.gated ? 1 : 2); ++i) {
      const auto column = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(shape.k1));
      tokens[at(row * shape.k1 + column)] = float_to_f16(random() % 2 == 0 ? 1.0F : -1.0F);
    }
  }
  return tokens;
}

namespace {

/// Of one rounding to fp16, which falls evenly on +-half the spacing of numbers.
double rounding_variance(double x) {
  const double ulp = reference::ulp_of(format_of(Dtype::f16), x);
  return ulp * ulp / 12.0;
}

/// What the roundings of the local transforms leave in the sum over the ranks, m x n1.
std::vector<double> variance_after_sum(const sharded::ShardedProblem& rotation,
                                       const reference::Matrix& hidden) {
  const std::int64_t shard = rotation.shard(), ranks = rotation.ranks;
  reference::Matrix local = Eigen::Map<const reference::Matrix>(hidden.data(), rotation.rows * ranks, shard);
  reference::ExactOperator(rotation.local).apply(local, rotation.scale);
  std::vector<double> variance(at(hidden.size()));
  for (std::int64_t row = 0; row < rotation.rows; ++row) {
    for (std::int64_t c = 0; c < shard; ++c) {
      double sum = 0.0;
      for (std::int64_t r = 0; r < ranks; ++r)
        sum += rounding_variance(local(row * ranks + r, c));
      for (std::int64_t s = 0; s < ranks; ++s)
        variance[at(row * rotation.n + s * shard + c)] = rotation.mix_scale * rotation.mix_scale * sum;
    }
  }
  return variance;
}

/// The rank whose part of W_down has row i (without act-order).
std::int64_t rank_of_row(const MlpProblem& problem, std::int64_t i) {
  const std::int64_t shard = problem.shard();
  return problem.rotation == Rotation::all_to_all ? i % shard / (shard / problem.ranks) : i / shard;
}

/// Of rounding a + b, both stored in fp16: what is left over is a multiple of the finer one's spacing g, so
/// nothing where the sum's spacing ulp is no coarser, else ulp^2 / 12 (1 + 2 (g / ulp)^2).
double addition_variance(double a, double b) {
  const Format format = format_of(Dtype::f16);
  const double grid = std::min(reference::ulp_of(format, a), reference::ulp_of(format, b));
  const double ulp = reference::ulp_of(format, a + b);
  return ulp <= grid ? 0.0 : (ulp * ulp + 2.0 * grid * grid) / 12.0;
}

/// Every rank rounds its part, every addition its sum. The order of additions is not known: the worst one,
/// set of parts by set of parts.
double variance_of_reduction(const std::vector<double>& parts) {
  const std::size_t sets = std::size_t{1} << parts.size();
  std::vector<double> sum(sets, 0.0), worst(sets, 0.0);
  for (std::size_t set = 1; set < sets; ++set) {
    const std::size_t lowest = set & (~set + 1);
    sum[set] = sum[set ^ lowest] + parts[static_cast<std::size_t>(std::countr_zero(lowest))];
    if (set == lowest) worst[set] = rounding_variance(sum[set]);
    for (std::size_t some = (set - 1) & set; some != 0; some = (some - 1) & set) {
      worst[set] = std::max(worst[set],
                            worst[some] + worst[set ^ some] + addition_variance(sum[some], sum[set ^ some]));
    }
  }
  return worst.back();
}

/// Relative, of a tensor core's sum of `terms` products: 3.8e-8 a pass of 16 (docs/numerics.md).
double truncation_of(std::int64_t terms) {
  return 3.8e-8 * static_cast<double>(terms) / 16.0;
}

double squares(const std::vector<double>& values) {
  return std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
}

/// What sum (e + b)^2 exceeds with a probability of 2 exp(-t) at most, for errors e with these variances and
/// known ones b. For e alone it is sum l + 2 sqrt(t sum l^2) + 2 t max l (Laurent and Massart 2000, lemma 1),
/// l the eigenvalues of the errors' covariance. To this come |b|^2, and 2 sqrt(2 t max l) |b| for both (a
/// Gaussian tail). The
/// columns of one row share the errors of h. Of C columns and K effective rows of random weights sum l^2
/// is (1 + C / K) sum v^2 and max l at most (1 + sqrt(C / K))^2 max v (Marchenko and Pastur).
double largest_squares(const MlpProblem& problem, const std::vector<double>& of_h,
                       const std::vector<double>& of_y, const std::vector<double>& known) {
  constexpr double kT = 20.7;  // exp(-20.7) = 1e-9
  const std::size_t columns = of_y.size() / at(problem.m);
  double sum = 0.0, sum2 = 0.0, most = 0.0;
  for (std::int64_t row = 0; row < problem.m; ++row) {
    double h = 0.0, h2 = 0.0;
    for (std::int64_t i = 0; i < problem.shape.n1; ++i) {
      const double v = of_h[at(row * problem.shape.n1 + i)];
      h += v;
      h2 += v * v;
    }
    const double shared = static_cast<double>(columns) * h2 / (h * h);  // C / K
    for (std::size_t c = 0; c < columns; ++c) {
      const double v = of_y[at(row) * columns + c];
      sum += v;
      sum2 += (1.0 + shared) * v * v;
      most = std::max(most, (1.0 + std::sqrt(shared)) * (1.0 + std::sqrt(shared)) * v);
    }
  }
  const double known2 = squares(known);
  return sum + 2.0 * std::sqrt(kT * sum2) + 2.0 * kT * most + known2 +
         2.0 * std::sqrt(2.0 * kT * most * known2);
}

}  // namespace

MlpTruth mlp_truth(const MlpProblem& problem, const MlpWeights& weights,
                   const std::vector<std::uint16_t>& tokens, const std::vector<std::int64_t>& columns) {
  const MlpShape& shape = problem.shape;
  const std::int64_t wide = shape.up_columns();
  reference::Matrix hidden = reference::Matrix::Zero(problem.m, shape.n1);
  for (std::int64_t row = 0; row < problem.m; ++row) {
    std::vector<double> sums(at(wide), 0.0);
    for (std::int64_t i = 0; i < shape.k1; ++i) {
      const double x = static_cast<double>(f16_to_float(tokens[at(row * shape.k1 + i)]));
      if (x == 0.0) continue;
      for (std::int64_t c = 0; c < wide; ++c)
        sums[at(c)] += x * weights.up.weight(i, c);
    }
    for (std::int64_t c = 0; c < shape.n1; ++c)
      hidden(row, c) = shape.gated ? sums[at(c)] * sums[at(shape.n1 + c)] : sums[at(c)];
  }
  MlpTruth truth;
  std::vector<double> variance;  // of the errors of h as W_down meets it; empty: none
  truth.hidden.assign(hidden.data(), hidden.data() + hidden.size());
  if (problem.rotation != Rotation::none) {
    // Blocks, or what whole_operator says, on whole rows.
    const bool blocks = problem.rotation == Rotation::blocks || problem.rotation == Rotation::block_diagonal;
    const sharded::ShardedProblem rotation = rotation_of(problem);
    const Operator op = blocks ? rotation.local : sharded::whole_operator(rotation);
    const bool spread = problem.rotation == Rotation::all_to_all && problem.ranks > 1;
    if (spread) variance = variance_after_sum(rotation, hidden);
    reference::Matrix parts = Eigen::Map<reference::Matrix>(hidden.data(), hidden.size() / op.n(), op.n());
    reference::ExactOperator(op).apply(parts, orthonormal_scale(op.n()));
    std::copy_n(parts.data(), parts.size(), hidden.data());
    variance.resize(at(hidden.size()), 0.0);
    for (std::int64_t i = 0; i < hidden.size(); ++i)
      variance[at(i)] += rounding_variance(hidden.data()[i]);
  }
  truth.y.assign(at(problem.m) * columns.size(), 0.0);
  std::vector<double> error(truth.y.size(), 0.0), bias(truth.y.size(), 0.0);
  parallel_for(static_cast<std::int64_t>(columns.size()), reference::default_threads(),
               [&](std::int64_t begin, std::int64_t end) {
                 std::vector<double> parts(at(problem.ranks * problem.m));
                 for (std::int64_t c = begin; c < end; ++c) {
                   std::fill(parts.begin(), parts.end(), 0.0);
                   for (std::int64_t i = 0; i < shape.n1; ++i) {
                     const double w = weights.down.weight(i, columns[at(c)]);
                     const std::int64_t first = rank_of_row(problem, i) * problem.m;
                     for (std::int64_t row = 0; row < problem.m; ++row) {
                       parts[at(first + row)] += hidden(row, i) * w;
                       if (!variance.empty())
                         error[at(row) * columns.size() + at(c)] += variance[at(row * shape.n1 + i)] * w * w;
                     }
                   }
                   for (std::int64_t row = 0; row < problem.m; ++row) {
                     std::vector<double> of_ranks;
                     for (int rank = 0; rank < problem.ranks; ++rank)
                       of_ranks.push_back(parts[at(rank * problem.m + row)]);
                     const std::size_t at_y = at(row) * columns.size() + at(c);
                     truth.y[at_y] = std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0);
                     if (variance.empty()) continue;
                     error[at_y] += variance_of_reduction(of_ranks);
                     for (const double part : of_ranks)
                       bias[at_y] += truncation_of(problem.shard()) * std::fabs(part);
                   }
                 }
               });
  if (!variance.empty()) {
    truth.rel_l2_bound = std::sqrt(largest_squares(problem, variance, error, bias) / squares(truth.y));
  }
  return truth;
}

}  // namespace fwht::tensor_parallel
