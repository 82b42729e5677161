#include "experiments/tensor_parallel/cost_model.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "common/host/error.hpp"

namespace fwht::tensor_parallel {
namespace {

constexpr double kKib = 1024.0;

TEST(CostModel, GivesTheMeasuredTimesBackAndLinesBetween) {
  EXPECT_DOUBLE_EQ(collective_us(Collective::all_reduce, 2, 128 * kKib), 7.54);
  EXPECT_DOUBLE_EQ(collective_us(Collective::all_gather, 4, 512 * kKib), 19.09);
  EXPECT_DOUBLE_EQ(collective_us(Collective::all_to_all, 4, 65536 * kKib), 181.23);
  EXPECT_DOUBLE_EQ(collective_us(Collective::all_gather, 2, 96 * kKib), (6.76 + 7.13) / 2);
  EXPECT_DOUBLE_EQ(collective_us(Collective::all_to_all, 2, 16.0), 6.33) << "below the smallest: its latency";
  EXPECT_DOUBLE_EQ(collective_us(Collective::all_reduce, 1, 1e6), 0.0);
  EXPECT_THROW(collective_us(Collective::all_reduce, 3, 1.0), BadRequest);
}

TEST(CostModel, ExtrapolatesBeyondFourByLatencyAndBytes) {
  // 2 KiB and less is latency: it grows by as much again from 4 to 8 as from 2 to 4.
  EXPECT_NEAR(collective_us(Collective::all_reduce, 8, 0), 9.73 + (9.73 - 6.32), 1e-9);
  // The rest of an all-gather grows with the bytes received, 7 shards instead of 3.
  EXPECT_NEAR(collective_us(Collective::all_gather, 8, 512 * kKib), 8.04 + 2.23 + (19.09 - 8.04) * 7 / 3,
              1e-9);
  // Two hosts: one latency more, and the bytes that cross.
  const Machine machine;
  Machine one_host;
  one_host.ranks_per_host = 16;
  EXPECT_NEAR(collective_us(Collective::all_gather, 16, 50e3) -
                  collective_us(Collective::all_gather, 16, 50e3, one_host),
              machine.host_latency_us + 50e3 * 15 * 0.5 / machine.host_bytes_per_us, 1e-9);
}

double speedup(const char* shape, std::int64_t m, int ranks) {
  const MlpShape s = parse_shape(shape);
  return predict({s, m, ranks, Algorithm::naive}).total() /
         predict({s, m, ranks, Algorithm::tp_aware}).total();
}

TEST(CostModel, PredictsLlamaFromItsPieces) {
  // Weights: 2 * 8192 * 28672 * (1/2 + 2.5/128) bytes at 4.46 TB/s, halved.
  const MlpShape llama = parse_shape("llama-70b");
  const CostPrediction two = predict({llama, 16, 2, Algorithm::naive});
  EXPECT_NEAR(two.gemms, 2.0 * 8192 * 28672 * (0.5 + 2.5 / 128) / 2 / 4.46e6, 1e-9);
  EXPECT_NEAR(two.reduce, 8.6, 1e-9) << "16 x 8192 fp16 are 256 KiB";
  // 16 x 14336 fp16 are 448 KiB, on the line from 256 to 512; then permute and chunk.
  EXPECT_NEAR(two.between, 8.16 + (448.0 - 256) / 256 * (11.25 - 8.16) + 3.0, 1e-9);
  EXPECT_TRUE(two.measured);
  EXPECT_EQ(predict({llama, 16, 2, Algorithm::tp_aware}).between, 0.0);
  // At least what is asked of the measurement: 1.15 on two GPUs, 1.3 on four, for every m.
  for (const std::int64_t m : {1, 2, 4, 8, 16}) {
    EXPECT_GT(speedup("llama-70b", m, 2), 1.15) << m;
    EXPECT_GT(speedup("llama-70b", m, 4), 1.3) << m;
  }
  EXPECT_NEAR(speedup("llama-70b", 16, 2), 1.37, 0.01);
  EXPECT_NEAR(speedup("llama-70b", 16, 4), 1.63, 0.01);
  EXPECT_FALSE(predict({llama, 16, 8, Algorithm::naive}).measured);
  EXPECT_GT(speedup("llama-70b", 16, 8), speedup("llama-70b", 16, 4));
}

TEST(CostModel, RotationCostsWhatItExchanges) {
  const MlpShape llama = parse_shape("llama-70b");
  const auto between = [&](Rotation rotation, std::int64_t m) {
    return predict({llama, m, 4, Algorithm::tp_aware, rotation}).between;
  };
  const Machine machine;
  EXPECT_DOUBLE_EQ(between(Rotation::blocks, 16), machine.transform_us);
  EXPECT_DOUBLE_EQ(between(Rotation::all_to_all, 1), machine.transform_us + machine.move_us +
                                                         collective_us(Collective::all_to_all, 4, 7168 * 2));
  EXPECT_LT(between(Rotation::all_to_all, 16), between(Rotation::gather, 16));
}

TEST(CostModel, LocalSortPaysForItsScalesAndFilling) {
  const MlpShape llama = parse_shape("llama-70b");
  const MlpProblem problem{llama, 1, 4, Algorithm::local_sort};
  EXPECT_GT(predict(problem, {}, 7168 * 3 / 2).gemms, predict(problem).gemms);
  EXPECT_GT(predict(problem).gemms, predict({llama, 1, 4, Algorithm::tp_aware}).gemms);
}

TEST(CostModel, ExpectsTheRowsThatLocalSortFillsUp) {
  const MlpShape shape = parse_shape("128x28672x8");
  const MlpWeights weights = integer_weights(shape, 128, true, 1);
  for (const int ranks : {1, 2, 4, 8, 16}) {
    const MlpProblem problem{shape, 1, ranks, Algorithm::local_sort};
    double rows = 0.0;
    for (int rank = 0; rank < ranks; ++rank)
      rows += static_cast<double>(down_rows(problem, weights, rank).size()) / ranks;
    // Of 224 groups and all ranks, each within 16 rows of its mean; what fills a rank's up is less than 128.
    const double four_sigma = 4 * 16 * std::sqrt(224.0 / ranks);
    EXPECT_NEAR(static_cast<double>(expected_down_rows(problem)), rows, four_sigma + 128) << ranks;
    EXPECT_EQ(expected_down_rows({shape, 1, ranks, Algorithm::tp_aware}), 28672 / ranks);
  }
  EXPECT_EQ(expected_down_rows({shape, 1, 1, Algorithm::local_sort}), 28672) << "whole groups";
  EXPECT_NEAR(static_cast<double>(expected_down_rows({shape, 1, 4, Algorithm::local_sort})), 1.4527 * 7168,
              2);
}

std::map<std::string, double> pieces_of(const MlpProblem& problem, const Machine& machine) {
  const auto collective = [&](Collective which, std::int64_t elements) {
    return collective_us(which, problem.ranks, 2.0 * static_cast<double>(elements), machine);
  };
  const double bytes =
      static_cast<double>(problem.shape.k1 * problem.shape.n1 / problem.ranks) * (0.5 + 2.5 / 128);
  const double gemm = machine.projection.fixed_us + bytes / machine.projection.bytes_per_us;
  std::map<std::string, double> pieces = {
      {"gemm_up", gemm},
      {"gemm_down", gemm},
      {"all_reduce", collective(Collective::all_reduce, problem.m * problem.shape.n2)}};
  if (problem.algorithm == Algorithm::naive) {
    pieces["all_gather"] = collective(Collective::all_gather, problem.m * problem.shard());
    pieces["permute"] = pieces["chunk"] = machine.move_us;
  }
  return pieces;
}

TEST(CostModel, FindsTheMachineThatThePiecesWereMeasuredOn) {
  Machine machine;
  machine.projection = {4.5, 3.7e6};
  machine.move_us = 2.25;
  machine.collective_factor[static_cast<int>(Collective::all_gather)] = 1.25;
  machine.layer_factor = 1.04;
  std::vector<MeasuredLayer> layers;
  for (const char* shape : {"llama-70b", "granite-20b"}) {
    for (const Algorithm algorithm : {Algorithm::naive, Algorithm::tp_aware}) {
      for (const std::int64_t m : {1, 4}) {
        const MlpProblem problem{parse_shape(shape), m, 2, algorithm};
        layers.push_back({problem, 0, predict(problem, machine).total(), pieces_of(problem, machine)});
      }
    }
  }
  const Machine found = fitted(layers, 4);
  EXPECT_NEAR(found.projection.fixed_us, 4.5, 1e-6);
  EXPECT_NEAR(found.projection.bytes_per_us, 3.7e6, 1.0);
  EXPECT_NEAR(found.move_us, 2.25, 1e-9);
  EXPECT_NEAR(found.collective_factor[static_cast<int>(Collective::all_gather)], 1.25, 1e-9);
  EXPECT_NEAR(found.layer_factor, 1.04, 1e-9);
  EXPECT_EQ(found.transform_us, machine.transform_us) << "no layer shows one";
  // So another layer is predicted as that machine would take it.
  const MlpProblem eight{parse_shape("llama-70b"), 4, 8, Algorithm::naive};
  EXPECT_NEAR(predict(eight, found).total(), predict(eight, machine).total(), 1e-6);
  const Machine none = fitted({}, 4);
  EXPECT_EQ(predict(eight, none).total(), predict(eight).total());
}

TEST(CostModel, PublishedSpeedUpsAreTheAbstracts) {
  EXPECT_EQ(published_speedup("llama-70b"), 1.81);
  EXPECT_EQ(published_speedup("granite-20b"), 1.78);
  EXPECT_EQ(published_speedup("256x1024x128"), 0.0);
}

}  // namespace
}  // namespace fwht::tensor_parallel
