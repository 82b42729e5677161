#include "experiments/bench/peers.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <variant>

#include "common/host/error.hpp"
#include "reference/linear/linear.hpp"

namespace fwht::bench {
namespace {

int say(char* why, size_t size, const char* sentence) {
  std::snprintf(why, size, "%s", sentence);
  return 1;
}

std::int32_t supports_bf16(const fwht_bench_linear_problem* problem, char* why, size_t size) {
  return problem->layer.dtype == FWHT_BF16 ? 0 : say(why, size, "bf16 alone");
}
std::int64_t bytes_of_scales(const fwht_bench_linear_problem* problem) {
  return problem->layer.k / problem->layer.group * problem->layer.n * 2;
}
std::int32_t pack_scales(const fwht_bench_linear_problem* problem, const uint32_t* qweight,
                         const uint32_t* qzeros, const uint16_t* scales, void* packed, char* why,
                         size_t size) {
  if (qweight == nullptr || (qzeros == nullptr) != (problem->layer.zero_points == FWHT_ZERO_POINTS_SYMMETRIC))
    return say(why, size, "tensors are missing");
  std::memcpy(packed, scales, static_cast<std::size_t>(bytes_of_scales(problem)));
  return 0;
}
std::int32_t launch_refused(const fwht_bench_linear_problem*, const void*, const void*, void*, void*,
                            char* why, size_t size) {
  return say(why, size, "no such kernel");
}

fwht_bench_linear_peer test_peer() {
  return {"peer:test",   R"({"version":"1","module":"a text longer than any string keeps inside itself"})",
          supports_bf16, bytes_of_scales,
          pack_scales,   launch_refused};
}

TEST(LinearPeers, AreRefusedWithoutWhatTheyNeed) {
  for (const auto& spoil : {+[](fwht_bench_linear_peer& peer) { peer.name = ""; },
                            +[](fwht_bench_linear_peer& peer) { peer.launch = nullptr; },
                            +[](fwht_bench_linear_peer& peer) { peer.settings = nullptr; },
                            +[](fwht_bench_linear_peer& peer) { peer.settings = R"({"version":1})"; }}) {
    fwht_bench_linear_peer peer = test_peer();
    spoil(peer);
    EXPECT_THROW(linear_variants_of({&peer, 1}), BadRequest);
  }
  const std::vector<fwht_bench_linear_peer> five(5, test_peer());
  EXPECT_THROW(linear_variants_of(five), BadRequest);
  EXPECT_TRUE(linear_variants_of({}).empty());
}

TEST(LinearPeers, TakePlainLayersAndPackThem) {
  const DeviceInfo device = h200_description();
  std::vector<fwht_bench_linear_peer> peers(2, test_peer());
  peers[1].name = "peer:other";
  const auto variants = linear_variants_of(peers);
  ASSERT_EQ(variants.size(), 2U);
  EXPECT_EQ(variants[1]->name, "peer:other");
  const auto why_not = [&](const char* text) {
    return variants[1]->supports(parse_linear_problem(text), device).why_not;
  };
  EXPECT_EQ(why_not("bf16/m1/n16/k256/w4g128"), "");
  EXPECT_EQ(why_not("f16/m1/n16/k256/w4g128"), "bf16 alone");
  for (const char* text :
       {"bf16/m1/n16/k256/w4g128/rot", "bf16/m1/n16/k256/w4g128/act", "bf16/m1/n16/k256/w4g128/pdl"})
    EXPECT_NE(why_not(text), "") << text;

  for (const char* text : {"bf16/m2/n16/k256/w4g64", "bf16/m2/n16/k256/w4g-1/sym"}) {
    const LinearProblem problem = parse_linear_problem(text);
    const auto plan = variants[0]->make_plan(problem, device);
    const GptqWeights weights = reference::random_weights(problem, reference::LinearData::normal, 1);
    const std::vector<std::byte> packed = plan->pack(weights);
    ASSERT_EQ(packed.size(), weights.scales.size() * 2);
    EXPECT_EQ(std::memcmp(packed.data(), weights.scales.data(), packed.size()), 0);
    EXPECT_TRUE(plan->numerics().steps.empty());
    const Settings settings = plan->settings();
    ASSERT_EQ(settings.size(), 2U);
    EXPECT_EQ(settings[0].first, "version");
    EXPECT_EQ(std::get<std::string>(settings[0].second), "1");
    EXPECT_EQ(std::get<std::string>(settings[1].second), "a text longer than any string keeps inside itself");
    EXPECT_EQ(plan->packing(), "peer:test/bf16");
    alignas(16) std::byte x[1024]{}, y[64]{};
    try {
      plan->execute({x, packed.data(), y});
      ADD_FAILURE() << "was to be refused";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "peer:test: no such kernel");
    }
  }
}

TEST(LinearPeers, AreJudgedByTheirErrorAlone) {
  const LinearProblem problem = parse_linear_problem("bf16/m8/n256/k256/w4g64");
  const GptqWeights weights = reference::random_weights(problem, reference::LinearData::normal, 1);
  const auto x = reference::random_tokens(problem, reference::LinearData::normal, 2);
  const Numerics numerics;
  const auto truth = reference::linear_truth(problem, weights, x.data(), reference::weights_of(numerics));
  std::vector<std::byte> y(static_cast<std::size_t>(problem.bytes_written()));
  const auto verdict = [&](double factor) {
    for (std::int64_t r = 0; r < problem.m; ++r)
      for (std::int64_t c = 0; c < problem.n; ++c)
        store_element(problem.dtype, y.data(), r * problem.n + c,
                      static_cast<float>(truth.exact(r, c) * (1.0 + ((r + c) % 2 == 0 ? factor : -factor))));
    return reference::judge_linear(numerics, problem, truth, y.data());
  };
  EXPECT_TRUE(verdict(0.0).verdict);
  const double predicted = verdict(0.0).errors.predicted;
  EXPECT_TRUE(verdict(7.0 * predicted).verdict) << verdict(7.0 * predicted).verdict.message;
  EXPECT_FALSE(verdict(9.0 * predicted).verdict);
  EXPECT_NE(verdict(9.0 * predicted).verdict.message.find("8 times the prediction"), std::string::npos);
}

}  // namespace
}  // namespace fwht::bench
