// fwht_tensor_parallel as a user meets it, on simulated ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "common/device/device_info.hpp"
#include "common/device/nccl.hpp"
#include "experiments/harness/csv.hpp"
#include "experiments/program_fixture.hpp"
#include "experiments/tensor_parallel/study.hpp"

namespace fwht::tensor_parallel {
namespace {

namespace fs = std::filesystem;

class Program : public ProgramFixture {
 protected:
  Ended run(const std::string& arguments, const std::string& environment = "") {
    return ProgramFixture::run(FWHT_TENSOR_PARALLEL_PROGRAM, arguments, environment);
  }

  void expect_refused(const std::string& arguments, const std::string& part,
                      const std::string& environment = "") {
    ProgramFixture::expect_refused(FWHT_TENSOR_PARALLEL_PROGRAM, arguments, part, environment);
  }

  std::vector<harness::CsvRow> rows_of(const char* table) const {
    return harness::read_csv(folder / "results" / table, harness::table_schema(table).columns);
  }
};

TEST_F(Program, ChecksEveryAlgorithmOnSimulatedRanks) {
  const Ended ended =
      run("--host --ranks 2,4 --shape 256x1024x128 --tokens 1,3 --rotation blocks,all_to_all --repeats 3 "
          "--output results");
  EXPECT_EQ(ended.code, 0) << ended.err;
  const auto rows = rows_of("tensor_parallel.csv");
  EXPECT_EQ(rows.size(), 2U * 2U * (4U + 2U));
  int unsupported = 0;
  for (const auto& row : rows) {
    // Pieces of 1024 / 16 = 64 rows are smaller than a group; everything else is served, and right.
    const bool small = row.at("ranks") == "4" && row.at("rotation") == "all_to_all";
    EXPECT_EQ(row.at("status"), small ? "unsupported" : "ok") << row.at("reason");
    unsupported += small;
    EXPECT_EQ(row.at("time_us"), "");
  }
  EXPECT_EQ(unsupported, 2);
  EXPECT_FALSE(rows_of("tensor_parallel_model.csv").empty());
  EXPECT_NE(text_of(folder / "results" / "context.json").find("fwht_tensor_parallel"), std::string::npos);
}

TEST_F(Program, WhatIsNamedTwiceIsRunOnce) {
  const Ended ended =
      run("--host --ranks 2,2 --shape 256x512x128,256x512x128 --tokens 1,1 --algorithm naive,naive --output "
          "results");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(rows_of("tensor_parallel.csv").size(), 1U);
}

TEST_F(Program, RefusesBadInputInOneSentence) {
  expect_refused("--host --shape llama-71b --output results", "unknown shape 'llama-71b'");
  expect_refused("--host --algorithm ring --output results", "unknown algorithm 'ring'; known: naive");
  expect_refused("--host --rotation spin --output results", "unknown rotation 'spin'");
  expect_refused("--host --ranks 0 --output results", "--ranks=0 must be a power of two between 1 and 256");
  expect_refused("--host --ranks 3 --output results", "--ranks=3 must be a power of two");
  expect_refused("--host --ranks 1000000 --output results", "--ranks=1000000 must be a power of two");
  for (const char* tokens : {"0", "-1", "9223372036854775807"})
    expect_refused(std::string("--model --tokens ") + tokens, "must be between 1 and 1048576");
  expect_refused("--model --shape 9999999999999x8x8", "9999999999999 must be at most 1048576");
  expect_refused("--model --shape 64x128x64", "k1=64 is no multiple of the group of 128");
  expect_refused("--host --limit 0 --output results", "--limit=0 must be at least 1");
  for (const char* of_a_run : {"--output results", "--ranks 2", "--resume results"})
    expect_refused(std::string("--model ") + of_a_run, "excludes --");
  expect_refused("--host --device 7 --output results", "--device");
  expect_refused("--host --variant nope --output results", "unknown linear layer 'nope'");
}

TEST_F(Program, RefusesWrongPlacesAmongProcesses) {
  expect_refused("--output results", "RANK=5 must be between 0 and 1", "RANK=5 WORLD_SIZE=2 MASTER_PORT=1");
  expect_refused("--output results", "the environment variable MASTER_PORT is missing",
                 "env -u MASTER_PORT RANK=0 WORLD_SIZE=2");
}

// Processes on one host, as a launcher starts them: one for each GPU, 2 or 4.
class ProcessesGpu : public Program {
 protected:
  static constexpr int kMost = 4;

  void SetUp() override {
    if (const std::string why = nccl::why_not(); !why.empty()) GTEST_SKIP() << why;
    const DeviceInfo last = this_device(1);
    if (!last.has_cuda()) GTEST_SKIP() << last.why_no_cuda;
    while (ranks < kMost && this_device(2 * ranks - 1).has_cuda())
      ranks *= 2;
  }

  int ranks = 2;

  /// What rank `rank` has said; rank 0's is what run_all returns.
  fs::path log_of(int rank) const { return folder / ("rank" + std::to_string(rank) + ".log"); }

  /// Of rank 0; the others run beside it and have ended when this returns. `port` apart for every test.
  /// @param behind  a command of the shell that follows the start of the others, processes $p1, $p2 ..
  Ended run_all(int port, const std::string& arguments, const std::string& behind = "true") {
    const std::string program = std::string("'") + FWHT_TENSOR_PARALLEL_PROGRAM + "' ";
    const auto place = [&](int rank) {
      return "RANK=" + std::to_string(rank) + " WORLD_SIZE=" + std::to_string(ranks) +
             " MASTER_PORT=" + std::to_string(port) + " ";
    };
    std::string others = "(";  // by +=, because g++ 12 warns of + without cause
    for (int rank = 1; rank < ranks; ++rank) {
      for (const std::string& part : {place(rank), program, arguments, std::string(" >'"),
                                      log_of(rank).string(), "' 2>&1 & p" + std::to_string(rank) + "=$!; "})
        others += part;
    }
    const fs::path over = folder / "others_over";
    for (const std::string& part :
         {behind, std::string("; wait; touch '"), over.string(), std::string("') &")})
      others += part;
    EXPECT_EQ(std::system(others.c_str()), 0);
    Ended ended = run(arguments + " --output results", place(0));
    for (int i = 0; i < 600 && !fs::exists(over); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_TRUE(fs::exists(over)) << "a rank still runs a minute after rank 0";
    return ended;
  }

  /// Kills one rank after the first point: all others say which one, so does the row, and earlier rows stay.
  /// Returns what the row says besides.
  std::string expect_named_when_killed(int port, const std::string& arguments) {
    const auto begin = std::chrono::steady_clock::now();
    const std::string table = (folder / "results" / "tensor_parallel.csv").string();
    const int victim = ranks / 2;
    std::string kill = "i=0; until grep -qs ,ok, '";
    for (const std::string& part :
         {table, std::string("' || [ $i = 400 ]; do sleep 0.1; i=$((i + 1)); done; "),
          "sleep 0.15; kill -KILL $p" + std::to_string(victim)})
      kill += part;
    const Ended ended =
        run_all(port, "--shape 1024x7168x1024 --tokens 1,2,3,4,5,6,7,8 --limit 20 " + arguments, kill);
    const std::string reason = "rank " + std::to_string(victim) + " has ended";
    EXPECT_EQ(ended.code, 1) << ended.err;
    EXPECT_NE(ended.err.find(reason), std::string::npos) << ended.err;
    for (int rank = 1; rank < ranks; ++rank) {
      const std::string said = text_of(log_of(rank));
      EXPECT_EQ(said.find(reason) != std::string::npos, rank != victim) << "rank " << rank << ": " << said;
    }
    const auto rows = rows_of("tensor_parallel.csv");
    EXPECT_GE(rows.size(), 2U);
    if (rows.empty()) return "";
    for (std::size_t i = 0; i + 1 < rows.size(); ++i)
      EXPECT_EQ(rows[i].at("status"), "ok") << rows[i].at("reason");
    EXPECT_EQ(rows.back().at("status"), "failed");
    const std::string said = rows.back().at("reason");
    EXPECT_TRUE(said.starts_with(reason)) << said;
    std::cout << said << "\n";
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
    return said.substr(std::min(reason.size(), said.size()));
  }
};

TEST_F(ProcessesGpu, GiveTheResultsOfThreads) {
  const Ended ended =
      run_all(29561, "--check --shape 1024x8192x1024 --tokens 1,16 --rotation all_to_all --limit 60");
  EXPECT_EQ(ended.code, 0) << ended.err << text_of(log_of(1));
  const auto rows = rows_of("tensor_parallel.csv");
  EXPECT_EQ(rows.size(), 10U);
  for (const auto& row : rows) {
    EXPECT_EQ(row.at("status"), "ok") << row.at("reason");
    EXPECT_EQ(row.at("ranks"), std::to_string(ranks));
  }
}

TEST_F(ProcessesGpu, ARankThatDoesNotComeEndsTheRunWithinTheLimit) {
  const auto begin = std::chrono::steady_clock::now();
  const Ended ended = run("--check --shape 1024x7168x1024 --limit 3 --output results",
                          "RANK=0 WORLD_SIZE=2 MASTER_PORT=29562");
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.err.find("rank 1 did not come to port 29562 within 3000 ms"), std::string::npos)
      << ended.err;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST_F(ProcessesGpu, ARankThatDiesEndsTheRunAndKeepsWhatIsDone) {
  expect_named_when_killed(29563, "--check --repeats 5000");
}

// Captured graphs hold NCCL's communicator. Most of a point of many layers is spent on graphs; a kill that
// meets a check all the same proves nothing here.
TEST_F(ProcessesGpu, ARankThatDiesWhileGraphsAreTimedEndsTheRunAlike) {
  std::string doing;
  for (int attempt = 0; attempt < 4 && !doing.starts_with(" (timing"); ++attempt) {
    fs::remove_all(folder);
    fs::create_directories(folder);
    doing = expect_named_when_killed(29564 + attempt, "--algorithm tp_aware,naive --layers 100 --replays 10");
  }
  EXPECT_TRUE(doing.starts_with(" (timing")) << doing;
}

TEST_F(Program, SaysWhatTheModelSaysAndRunsNothing) {
  const Ended ended = run("--model --shape llama-70b --tokens 16");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("T=8"), std::string::npos);
  EXPECT_NE(ended.out.find("extrapolated"), std::string::npos);
  EXPECT_NE(ended.out.find("assumed"), std::string::npos);
}

TEST(Study, PointsAreShapeThenHowThenTokens) {
  StudyOptions options;
  options.shapes = {parse_shape("llama-70b")};
  options.tokens = {1, 16};
  options.algorithms = {Algorithm::naive, Algorithm::tp_aware};
  options.rotations = {Rotation::all_to_all};
  std::string text;
  for (const MlpProblem& point : points_of(options, 2))
    text += to_string(point) + " ";
  EXPECT_EQ(text,
            "llama-70b/m1/t2/naive llama-70b/m16/t2/naive llama-70b/m1/t2/tp_aware llama-70b/m16/t2/tp_aware "
            "llama-70b/m1/t2/tp_aware/all_to_all llama-70b/m16/t2/tp_aware/all_to_all ");
}

}  // namespace
}  // namespace fwht::tensor_parallel
