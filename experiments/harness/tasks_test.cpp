#include "experiments/harness/tasks.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>

#include "common/host/provenance.hpp"

namespace fwht::harness {
namespace {

namespace fs = std::filesystem;

// Whose a row of quantization.csv is.
CsvRow identity(const char* n, const char* source = "measured") {
  return {{"variant", "cpu"}, {"source", source}, {"dtype", "f16"}, {"n", n}, {"input", "normal"}};
}

CsvRow row(const char* n, const char* source, const char* status, const char* format = "") {
  CsvRow made = identity(n, source);
  made["status"] = status;
  made["format"] = format;
  return made;
}

class Tasks : public testing::Test {
 protected:
  Tasks() {
    path = fs::path(testing::TempDir()) / "tasks_test" /
           testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(path);
  }
  ResultsFolder folder() const {
    const char* argv[] = {"test"};
    return ResultsFolder::open(path.string(), "", gather_provenance(1, argv, this_device()),
                               {"test", "", "", {1}, {"cpu"}});
  }
  Task task(const char* n, int rows = 1) {
    return {identity(n), rows, [this, rows] {
              ++calls;
              std::vector<CsvRow> made;
              for (int i = 0; i < rows; ++i)
                made.push_back({{"format", std::to_string(i)}});
              return made;
            }};
  }
  fs::path path;
  int calls = 0;
};

TEST_F(Tasks, RunOnceAndAreNotRepeated) {
  for (int run = 0; run < 2; ++run) {
    ResultsFolder results = folder();
    EXPECT_TRUE(run_tasks({task("16"), task("32", 3)}, "quantization.csv", DeviceInfo{}, results));
    EXPECT_EQ(calls, 2) << "nothing is done twice";
    EXPECT_EQ(results.rows("quantization.csv").size(), 4U);
    EXPECT_TRUE(all_ok(results, "quantization.csv"));
  }
}

TEST_F(Tasks, WhatIsAskedForTwiceRunsOnce) {
  ResultsFolder results = folder();
  EXPECT_TRUE(run_tasks({task("16"), task("32"), task("16")}, "quantization.csv", DeviceInfo{}, results));
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(results.rows("quantization.csv").size(), 2U);
}

TEST_F(Tasks, AKilledTaskOfSeveralRowsIsCompleted) {
  ResultsFolder results = folder();
  results.table("quantization.csv").append(row("32", "measured", "ok", "0"));
  EXPECT_TRUE(run_tasks({task("32", 3)}, "quantization.csv", DeviceInfo{}, results));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(results.rows("quantization.csv").size(), 3U);
}

TEST_F(Tasks, AFailureIsARowAndTheRestGoesOn) {
  ResultsFolder results = folder();
  const Task broken{identity("8"), 1, []() -> std::vector<CsvRow> { throw std::runtime_error("no luck"); }};
  EXPECT_TRUE(run_tasks({broken, task("16")}, "quantization.csv", DeviceInfo{}, results));
  const auto rows = results.rows("quantization.csv");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("status"), "failed");
  EXPECT_EQ(rows[0].at("message"), "no luck");
  EXPECT_EQ(rows[1].at("status"), "ok");
  EXPECT_FALSE(all_ok(results, "quantization.csv"));
}

// linear.csv has no column `source`.
TEST_F(Tasks, AFailureIsOneInATableWithoutSources) {
  ResultsFolder results = folder();
  const Task broken{{{"variant", "cpu"},
                     {"memory", "host"},
                     {"dtype", "f16"},
                     {"m", "1"},
                     {"n", "8"},
                     {"k", "8"},
                     {"group", "8"},
                     {"zero_points", "v1"},
                     {"act_order", "false"},
                     {"rotation", "0"},
                     {"programmatic", "false"},
                     {"mode", "host"}},
                    1,
                    []() -> std::vector<CsvRow> { throw std::runtime_error("no luck"); }};
  EXPECT_TRUE(run_tasks({broken}, "linear.csv", DeviceInfo{}, results));
  EXPECT_FALSE(all_ok(results, "linear.csv"));
}

TEST_F(Tasks, AFullDiskIsNoRow) {
  ResultsFolder results = folder();
  Task full = task("16");
  full.run = []() -> std::vector<CsvRow> { throw DiskFull("limits.csv"); };
  EXPECT_THROW(run_tasks({full, task("32")}, "quantization.csv", DeviceInfo{}, results), DiskFull);
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(results.rows("quantization.csv").empty());
}

TEST_F(Tasks, APredictionOutsideItsModelIsNoWrongResult) {
  ResultsFolder results = folder();
  results.table("quantization.csv").append(row("16", "emulated_a100", "incorrect"));
  EXPECT_TRUE(all_ok(results, "quantization.csv"));
  results.table("quantization.csv").append(row("16", "emulated", "incorrect"));
  EXPECT_FALSE(all_ok(results, "quantization.csv"));
}

}  // namespace
}  // namespace fwht::harness
