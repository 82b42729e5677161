// Every algorithm is the same MLP: exact proofs on simulated ranks, by the code that runs on GPUs.
#include "experiments/tensor_parallel/mlp.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>
#include <string>

#include "common/host/error.hpp"
#include "common/host/host_ranks.hpp"
#include "experiments/tensor_parallel/layer.hpp"
#include "reference/operators.hpp"
#include "variants/linear/registry.hpp"
#include "variants/registry.hpp"

namespace fwht::tensor_parallel {
namespace {

using namespace std::chrono_literals;

constexpr const char* kSmall = "256x1024x128";

DeviceInfo one_thread() {
  DeviceInfo here = this_device();
  here.host_threads = 1;
  return here;
}

struct Outputs {
  std::vector<std::vector<std::uint16_t>> before_reduce;  ///< by rank
  std::vector<std::uint16_t> y;                           ///< the same on all ranks
};

Outputs run_on_host(const MlpProblem& problem, const MlpWeights& weights,
                    const std::vector<std::uint16_t>& tokens, Activation activation = Activation::product) {
  HostRanks group(problem.ranks, 20s);
  Outputs outputs;
  outputs.before_reduce.resize(static_cast<std::size_t>(problem.ranks));
  std::vector<std::vector<std::uint16_t>> all(static_cast<std::size_t>(problem.ranks));
  run_ranks(problem.ranks, group.meeting(), [&](int rank) {
    const Share share = share_of(problem, weights, rank);
    RankLayer layer(problem, share, group.communicator(rank),
                    {&find_linear_variant("cpu"), &find_variant("cpu")}, one_thread(), activation, 20s);
    layer.use(layer.load(share, 1));
    layer.set_tokens(tokens);
    layer.poison();
    layer.enqueue(0, nullptr, false);
    outputs.before_reduce[static_cast<std::size_t>(rank)] = layer.output();
    layer.poison();
    layer.enqueue(0, nullptr);
    all[static_cast<std::size_t>(rank)] = layer.output();
  });
  outputs.y = all[0];
  for (const auto& y : all)
    EXPECT_EQ(y, all[0]);
  return outputs;
}

std::vector<std::int64_t> every_column(const MlpShape& shape) {
  std::vector<std::int64_t> columns;
  for (std::int64_t c = 0; c < shape.n2; ++c)
    columns.push_back(c);
  return columns;
}

void expect_exact(const MlpProblem& problem, const MlpWeights& weights,
                  const std::vector<std::uint16_t>& tokens, const std::vector<std::uint16_t>& y) {
  const MlpTruth truth = mlp_truth(problem, weights, tokens, every_column(problem.shape));
  std::int64_t wrong = 0, nonzero = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    wrong += !(static_cast<double>(f16_to_float(y[i])) == truth.y[i]);
    nonzero += truth.y[i] != 0.0;
  }
  EXPECT_EQ(wrong, 0) << to_string(problem);
  EXPECT_GT(nonzero, static_cast<std::int64_t>(y.size()) / 2) << "the data prove nothing";
}

class EveryAlgorithm : public testing::TestWithParam<int> {};

TEST_P(EveryAlgorithm, IsTheMlpExactlyOnIntegers) {
  for (const char* name : {kSmall, "256x1024x128-gated"}) {
    const MlpShape shape = parse_shape(name);
    const MlpWeights weights = integer_weights(shape, 128, true, 7);
    const auto tokens = integer_tokens(shape, 5, 7);
    Outputs naive;
    for (const auto& [algorithm, algorithm_name] : kAlgorithms) {
      const MlpProblem problem{shape, 5, GetParam(), algorithm};
      const Outputs outputs = run_on_host(problem, weights, tokens);
      expect_exact(problem, weights, tokens, outputs.y);
      if (algorithm == Algorithm::naive) naive = outputs;
      if (algorithm == Algorithm::naive_fused || algorithm == Algorithm::tp_aware) {
        EXPECT_EQ(outputs.before_reduce, naive.before_reduce) << to_string(problem);
      }
    }
  }
}

// Real numbers: h is rounded, activated by silu, and still no bit differs before the all-reduce.
TEST_P(EveryAlgorithm, GivesTheBitsOfNaiveOnRealNumbers) {
  const MlpShape shape = parse_shape("256x1024x128-gated");
  MlpWeights weights = integer_weights(shape, 128, true, 3);
  for (auto* scales : {&weights.up.scales, &weights.down.scales}) {
    for (std::size_t i = 0; i < scales->size(); ++i)
      (*scales)[i] = float_to_f16(0.01F + 0.0001F * static_cast<float>(i % 97));
  }
  std::vector<std::uint16_t> tokens;
  for (std::int64_t i = 0; i < 3 * shape.k1; ++i)
    tokens.push_back(float_to_f16(static_cast<float>(i * 7919 % 211) / 50.0F - 2.0F));
  const auto of = [&](Algorithm algorithm) {
    return run_on_host({shape, 3, GetParam(), algorithm}, weights, tokens, Activation::silu).before_reduce;
  };
  const auto naive = of(Algorithm::naive);
  EXPECT_EQ(of(Algorithm::tp_aware), naive);
  EXPECT_EQ(of(Algorithm::naive_fused), naive);
}

TEST_P(EveryAlgorithm, RotatesAsItsOperatorSays) {
  const MlpShape shape = parse_shape("256x8192x128");  // pieces of 8 ranks are one group
  const MlpWeights weights = integer_weights(shape, 128, false, 5);
  const auto tokens = integer_tokens(shape, 3, 5);
  for (const auto& [rotation, rotation_name] : kRotations) {
    if (rotation == Rotation::none) continue;
    const MlpProblem problem{shape, 3, GetParam(), Algorithm::tp_aware, rotation};
    const Outputs outputs = run_on_host(problem, weights, tokens);
    const MlpTruth truth = mlp_truth(problem, weights, tokens, every_column(shape));
    double error2 = 0.0, truth2 = 0.0;
    for (std::size_t i = 0; i < truth.y.size(); ++i) {
      const double d = static_cast<double>(f16_to_float(outputs.y[i])) - truth.y[i];
      error2 += d * d;
      truth2 += truth.y[i] * truth.y[i];
    }
    EXPECT_LE(std::sqrt(error2 / truth2), truth.rel_l2_bound) << to_string(problem);
    EXPECT_GT(std::sqrt(error2 / truth2), 0.2 * truth.rel_l2_bound)
        << to_string(problem) << ": exact, so it did not rotate";
  }
}

/// The relative error of y where h as W_down meets it, the part of each rank and their sum are rounded to
/// fp16, `more` times once more than a layer does it: h at another place of the grid.
double error_of_roundings(const MlpProblem& problem, const MlpWeights& weights, const MlpTruth& truth,
                          int more) {
  const sharded::ShardedProblem rotation = rotation_of(problem);
  const std::int64_t n = rotation.n, shard = rotation.shard(), ranks = rotation.ranks;
  const auto rounded = [](double x) { return round_to(Dtype::f16, x); };
  reference::Matrix h = Eigen::Map<const reference::Matrix>(truth.hidden.data(), problem.m * ranks, shard);
  reference::ExactOperator(rotation.local).apply(h, rotation.scale);
  for (std::int64_t i = 0; i < h.size(); ++i)
    h.data()[i] = rounded(h.data()[i]);
  reference::Matrix met(problem.m, n);
  for (std::int64_t row = 0; row < problem.m; ++row) {
    for (std::int64_t i = 0; i < n; ++i) {
      double sum = 0.0;
      for (std::int64_t r = 0; r < ranks; ++r) {
        const bool minus = std::popcount(static_cast<unsigned>(i / shard & r)) % 2 != 0;
        sum += (minus ? -1.0 : 1.0) * h(row * ranks + r, i % shard);
      }
      met(row, i) = rounded(rotation.mix_scale * sum);
      for (int k = 0; k < more; ++k) {
        const double factor = 1.0 / (1.1 + 0.1 * k);
        met(row, i) = rounded(factor * met(row, i)) / factor;
      }
    }
  }
  double error2 = 0.0, truth2 = 0.0;
  for (std::int64_t c = 0; c < problem.shape.n2; ++c) {
    reference::Matrix parts = reference::Matrix::Zero(problem.m, ranks);
    for (std::int64_t i = 0; i < n; ++i)
      parts.col(i % shard / rotation.piece()) += weights.down.weight(i, c) * met.col(i);
    for (std::int64_t row = 0; row < problem.m; ++row) {
      double y = 0.0;
      for (std::int64_t r = 0; r < ranks; ++r)
        y = rounded(y + rounded(parts(row, r)));
      const double exact = truth.y[static_cast<std::size_t>(row * problem.shape.n2 + c)];
      error2 += (y - exact) * (y - exact);
      truth2 += exact * exact;
    }
  }
  return std::sqrt(error2 / truth2);
}

TEST(Mlp, TheBoundOfRotatedLayersHoldsAndSeesMoreRoundings) {
  const MlpShape shape =
      parse_shape("256x6144x256");  // a scale that is no power of two: roundings do not heal
  for (const int ranks : {2, 4}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const MlpProblem problem{shape, 16, ranks, Algorithm::tp_aware, Rotation::all_to_all};
      const MlpWeights weights = integer_weights(shape, 128, false, seed);
      const MlpTruth truth =
          mlp_truth(problem, weights, integer_tokens(shape, 16, seed), every_column(shape));
      EXPECT_LE(error_of_roundings(problem, weights, truth, 0), truth.rel_l2_bound) << seed;
      // Four ranks: the worst order of the additions makes the bound wider.
      EXPECT_GT(error_of_roundings(problem, weights, truth, ranks == 2 ? 2 : 5), truth.rel_l2_bound) << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryAlgorithm, testing::Values(1, 2, 4, 8));

TEST(Mlp, RowsOfTheDownProjectionAreSharedOutOnce) {
  const MlpShape shape = parse_shape("256x2048x128");
  for (const int ranks : {1, 2, 4}) {
    for (const bool act_order : {true, false}) {
      const MlpWeights weights = integer_weights(shape, 128, act_order, 1);
      std::vector<MlpProblem> problems;
      for (const auto& [algorithm, algorithm_name] : kAlgorithms)
        problems.push_back({shape, 1, ranks, algorithm});
      problems.push_back({shape, 1, ranks, Algorithm::tp_aware, Rotation::all_to_all});
      for (const MlpProblem& problem : problems) {
        std::multiset<std::int64_t> seen;
        for (int rank = 0; rank < ranks; ++rank) {
          for (const std::int64_t row : down_rows(problem, weights, rank)) {
            if (row >= 0) seen.insert(row);
          }
        }
        EXPECT_EQ(seen.size(), 2048U) << to_string(problem);
        EXPECT_EQ(std::set<std::int64_t>(seen.begin(), seen.end()).size(), 2048U) << to_string(problem);
      }
    }
  }
}

TEST(Mlp, ColumnsAndRowsAreThoseAskedFor) {
  const MlpWeights weights = integer_weights(parse_shape("256x1024x128"), 128, true, 2);
  const std::vector<std::int64_t> columns = {1000, 3, 3, 511, 8, 9, 10, 0};
  const GptqWeights picked = with_columns(weights.up, columns);
  fwht::validate(picked);
  for (std::int64_t row = 0; row < 256; ++row) {
    for (std::size_t c = 0; c < columns.size(); ++c)
      EXPECT_EQ(picked.weight(row, static_cast<std::int64_t>(c)), weights.up.weight(row, columns[c]));
  }
  // 40 rows of one group, filled up with zeros to 64, in groups of 32.
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; rows.size() < 40; ++row) {
    if (weights.down.group_of(row) == 3) rows.push_back(row);
  }
  rows.resize(128, -1);  // the last two groups hold nothing
  const GptqWeights part = with_rows(weights.down, rows, 32);
  fwht::validate(part);
  for (std::int64_t i = 0; i < 128; ++i) {
    for (std::int64_t c = 0; c < part.n; ++c) {
      const std::int64_t row = rows[static_cast<std::size_t>(i)];
      EXPECT_EQ(part.weight(i, c), row < 0 ? 0.0 : weights.down.weight(row, c));
    }
  }
  rows[5] = 0;
  while (weights.down.group_of(rows[5]) == 3)
    ++rows[5];
  EXPECT_THROW(with_rows(weights.down, rows, 32), BadRequest);
}

std::string refusal(const MlpProblem& problem) {
  try {
    validate(problem);
  } catch (const BadRequest& error) {
    return error.what();
  }
  return "";
}

TEST(Mlp, RefusesWhatDoesNotDivide) {
  const MlpShape llama = parse_shape("llama-70b");
  EXPECT_EQ(refusal({llama, 16, 4, Algorithm::naive}), "");
  EXPECT_EQ(refusal({llama, 16, 3, Algorithm::naive}), "ranks=3 must be a power of two");
  EXPECT_EQ(refusal({llama, 0, 2, Algorithm::naive}), "m=0 must be at least 1");
  EXPECT_EQ(refusal({parse_shape("256x1000x128"), 1, 16, Algorithm::naive}),
            "n1=1000 is not divisible by ranks=16");
  EXPECT_EQ(refusal({parse_shape("256x1024x128"), 1, 16, Algorithm::naive}),
            "a shard of 64 rows is no multiple of the group of 128");
  EXPECT_EQ(refusal({llama, 1, 2, Algorithm::naive, Rotation::all_to_all}),
            "a rotated layer has no act-order, so naive is not offered with all_to_all");
  EXPECT_EQ(refusal({llama, 1, 8, Algorithm::tp_aware, Rotation::all_to_all}),
            "pieces of 448 rows are no multiple of the group of 128");
  EXPECT_EQ(refusal({llama, 1, 4, Algorithm::tp_aware, Rotation::all_to_all}), "");
}

TEST(Mlp, ShapesAndNamesAreRead) {
  const MlpShape llama = parse_shape("llama-70b-gated");
  EXPECT_TRUE(llama.gated);
  EXPECT_EQ(llama.up_columns(), 57344);
  EXPECT_EQ(parse_shape("granite-20b").n1, 24576);
  EXPECT_EQ(parse_shape("1x2x3").n2, 3);
  for (const char* wrong : {"", "llama", "1x2", "1x2x3x4", "1x2x", "0x2x3", "-gated"})
    EXPECT_THROW(parse_shape(wrong), BadRequest) << wrong;
  for (const auto& [algorithm, algorithm_name] : kAlgorithms)
    EXPECT_EQ(kAlgorithms.parse(name_of(algorithm)), algorithm);
  for (const auto& [rotation, rotation_name] : kRotations)
    EXPECT_EQ(kRotations.parse(name_of(rotation)), rotation);
  EXPECT_THROW(kAlgorithms.parse("ring"), BadRequest);
}

TEST(Mlp, RanksWithDifferentSharesRefuseTogether) {
  const MlpShape shape = parse_shape(kSmall);
  const MlpWeights weights = integer_weights(shape, 128, true, 1);
  HostRanks group(2, 5s);
  std::vector<std::string> said(2);
  run_ranks(2, group.meeting(), [&](int rank) {
    const MlpProblem problem{shape, 1 + rank, 2, Algorithm::tp_aware};
    const Share share = share_of(problem, weights, rank);
    try {
      RankLayer(problem, share, group.communicator(rank), {&find_linear_variant("cpu"), &find_variant("cpu")},
                one_thread(), Activation::product, 5s);
    } catch (const BadRequest& error) {
      said[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  EXPECT_EQ(said[0],
            "the ranks have different problems: rank 0 has 256x1024x128/m1/t2/tp_aware, rank 1 has "
            "256x1024x128/m2/t2/tp_aware");
  EXPECT_EQ(said[1], said[0]);
}

}  // namespace
}  // namespace fwht::tensor_parallel
