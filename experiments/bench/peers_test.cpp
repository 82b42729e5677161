#include "experiments/bench/peers.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "common/host/error.hpp"
#include "experiments/sweep/session.hpp"
#include "reference/hadamard.hpp"
#include "variants/library/transform.hpp"
#include "variants/registry.hpp"

namespace fwht::bench {
namespace {

using harness::Mode;
using sweep::Outcome;

int say(char* why, size_t size, const char* sentence) {
  std::snprintf(why, size, "%s", sentence);
  return 1;
}

std::int32_t supports_all(const fwht_bench_problem*, char*, size_t) {
  return 0;
}
std::int32_t supports_28(const fwht_bench_problem* problem, char* why, size_t size) {
  return std::strcmp(problem->problem.op_text, "28x16") == 0 ? 0 : say(why, size, problem->problem.op_text);
}
std::int32_t supports_small(const fwht_bench_problem* problem, char* why, size_t size) {
  return problem->problem.n <= 1024 ? 0 : say(why, size, "n above 1024");
}
double three_us(const fwht_bench_problem*) {
  return 3.0;
}

/// The naive variant behind the C functions, as a kernel of others.
std::int32_t launch_naive(const fwht_bench_problem* problem, const void* in, void* out, void* stream,
                          std::int32_t, char* why, size_t size) {
  try {
    Problem asked = parse_problem(problem->text);
    EXPECT_EQ(asked.n(), problem->problem.n);
    EXPECT_EQ(to_string(asked.op), problem->problem.op_text);
    EXPECT_EQ(asked.rows, problem->problem.rows);
    EXPECT_EQ(asked.placement == Placement::in_place, (problem->problem.placement == FWHT_IN_PLACE));
    transform(naive::variant, {in, out}, asked, static_cast<Stream>(stream), problem->device);
    return 0;
  } catch (const std::exception& error) {
    return say(why, size, error.what());
  }
}
/// Makes its own output, which nobody sees unless it is to be delivered.
std::int32_t launch_elsewhere(const fwht_bench_problem* problem, const void* in, void* out, void* stream,
                              std::int32_t deliver, char* why, size_t size) {
  return deliver == 1 ? launch_naive(problem, in, out, stream, deliver, why, size) : 0;
}
std::int32_t launch_nothing(const fwht_bench_problem*, const void*, void*, void*, std::int32_t, char*,
                            size_t) {
  return 0;
}
std::int32_t launch_refused(const fwht_bench_problem*, const void*, void*, void*, std::int32_t, char* why,
                            size_t size) {
  return say(why, size, "no such kernel");
}

fwht_bench_peer peer_with(decltype(fwht_bench_peer::launch) launch) {
  return {"peer:test", R"({"version":"1"})", supports_all, launch, three_us};
}

TEST(Peers, AreRefusedWithoutWhatTheyNeed) {
  const DeviceInfo device = h200_description();
  fwht_bench_peer peer = peer_with(launch_nothing);
  peer.name = "";
  EXPECT_THROW(contestant_of(peer, device), BadRequest);
  peer = peer_with(nullptr);
  EXPECT_THROW(contestant_of(peer, device), BadRequest);
  peer = peer_with(launch_nothing);
  peer.settings = "[1]";
  EXPECT_THROW(contestant_of(peer, device), BadRequest);
}

TEST(Peers, TakeContiguousRows) {
  const DeviceInfo device = h200_description();
  fwht_bench_peer peer = peer_with(launch_nothing);
  peer.supports = supports_small;
  const sweep::Contestant contestant = contestant_of(peer, device);
  const auto why_not = [&](const char* text) { return contestant.supports(parse_problem(text)).why_not; };
  EXPECT_EQ(why_not("f16/n1024/r3"), "");
  EXPECT_EQ(why_not("f16/n2048/r3"), "n above 1024");
  EXPECT_EQ(why_not("bf16/n64/r3/ld72"), "kernels of others are timed on contiguous rows");
  EXPECT_EQ(why_not("f16/64+signs/r3"), "kernels of others are timed without signs and dense factors");
  EXPECT_NE(why_not("f16/d12x16/r3"), "");
  EXPECT_NE(why_not("f16/n64/r3>e4m3:row"), "");
  EXPECT_NE(why_not("f16/n64/r3/pdl"), "");
  peer.supports = supports_28;
  EXPECT_EQ(why_not("f16/28x16/r3"), "");
  EXPECT_EQ(why_not("f16/12x16/r3"), "12x16");
  EXPECT_NE(contestant_of(peer, this_device()).supports(parse_problem("f16/n64/r3")).why_not,
            this_device().has_cuda() ? "?" : "");
}

/// Contents of a buffer after a plan without numerics, whose errors are those of FP64 times `factor` of one
/// rounding.
class Sloppy final : public Plan {
 public:
  Sloppy(const Problem& problem, double factor) : Plan(problem), factor_(factor) {}
  Numerics numerics() const override { return {}; }
  Settings settings() const override { return {}; }

 private:
  void enqueue(const Operands& operands, Stream) const override {
    const Problem& p = problem();
    reference::Matrix rows = reference::expected(p, operands.in);
    for (Eigen::Index r = 0; r < rows.rows(); ++r) {
      for (Eigen::Index i = 0; i < rows.cols(); ++i) {
        // An error of +-factor * kRoundingRms * u on every element.
        const double error = factor_ * kRoundingRms * format_of(p.dtype()).unit_roundoff();
        rows(r, i) *= 1.0 + ((r + i) % 2 == 0 ? error : -error);
      }
    }
    reference::store_rows(p, rows, operands.out);
  }
  double factor_;
};

TEST(Peers, AreJudgedByEightTimesTheErrorOfOneRounding) {
  const Problem problem = parse_problem("bf16/n256/r64/out");
  harness::Bench bench(this_device());
  const auto verdict = [&](double factor) {
    const harness::Subject subject =
        harness::transform_subject("peer:sloppy", Memory::host, std::make_shared<Sloppy>(problem, factor),
                                   std::make_shared<harness::TruthCache>());
    return subject.check(bench.slice(subject)).verdict;
  };
  EXPECT_TRUE(verdict(0.0)) << verdict(0.0).message;
  EXPECT_TRUE(verdict(6.0)) << verdict(6.0).message;
  EXPECT_FALSE(verdict(10.0));
  EXPECT_NE(verdict(10.0).message.find("8 times that of one rounding"), std::string::npos)
      << verdict(10.0).message;
}

class PeersGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!device.has_cuda()) GTEST_SKIP() << device.why_no_cuda;
  }
  Outcome run(const fwht_bench_peer& peer, const char* problem, Mode mode = Mode::replay) {
    sweep::Session session(device, [](const harness::CsvRow&) {});
    return session.run(
        sweep::make_jobs({contestant_of(peer, device)}, {{parse_problem(problem), mode}}).jobs.at(0));
  }
  DeviceInfo device = this_device();
};

TEST_F(PeersGpu, AreCheckedAndTimed) {
  for (const auto launch : {launch_naive, launch_elsewhere}) {
    const Outcome outcome = run(peer_with(launch), "f16/n256/r1024/out");
    ASSERT_EQ(outcome.status, Outcome::Status::ok) << outcome.message;
    EXPECT_EQ(outcome.row.at("variant"), "peer:test");
    EXPECT_EQ(outcome.row.at("settings"), R"({"version":"1"})");
    EXPECT_EQ(outcome.row.at("host_us"), "3");
    EXPECT_GT(std::stod(outcome.row.at("predicted_rel_l2")), 0.0);
  }
  EXPECT_EQ(run(peer_with(launch_naive), "f16/n256/r1024", Mode::alternating).status, Outcome::Status::ok);
}

TEST_F(PeersGpu, AreIncorrectOrFailedWithTheReason) {
  const Outcome wrong = run(peer_with(launch_nothing), "f16/n256/r64");
  EXPECT_EQ(wrong.status, Outcome::Status::incorrect);
  EXPECT_FALSE(wrong.row.contains("host_us"));
  const Outcome failed = run(peer_with(launch_refused), "f16/n256/r64");
  EXPECT_EQ(failed.status, Outcome::Status::failed);
  EXPECT_EQ(failed.row.at("message"), "peer:test: no such kernel");
}

}  // namespace
}  // namespace fwht::bench
