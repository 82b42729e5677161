#include "experiments/harness/results_folder.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/error.hpp"
#include "experiments/harness/schema.hpp"

namespace fwht::harness {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class ResultsFolderTest : public testing::Test {
 protected:
  ResultsFolderTest() {
    path = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(path);
    const char* argv[] = {"fwht_sweep", "--grid", "quick"};
    provenance = gather_provenance(3, argv, h200_description());
    provenance.build.sources_hash = "0123456789abcdef";
    provenance.build.dirty = false;
  }

  Json context() const { return Json::parse(std::ifstream(path / "context.json")); }

  std::string refusal(const Provenance& other) const {
    try {
      ResultsFolder::resume(path, other, sweep);
    } catch (const BadRequest& error) {
      return error.what();
    }
    return "accepted";
  }

  fs::path path;
  Provenance provenance;
  const RunInfo sweep{"fwht_sweep", "quick", "text", {1}, {"naive"}};
  const RunInfo accuracy{"fwht_accuracy", "", "", {1, 2, 3}, {"cpu", "warp_shuffle"}};
};

TEST_F(ResultsFolderTest, HoldsTheContextOfARun) {
  ResultsFolder folder = ResultsFolder::create(path, provenance, sweep);
  Json before = context();
  EXPECT_EQ(before["complete"], false);
  EXPECT_TRUE(before["utc_end"].is_null());
  folder.finish();
  const Json after = context();
  EXPECT_EQ(after["complete"], true);
  EXPECT_TRUE(after["utc_end"].is_string());
  // The keys that analysis/ asks for.
  for (const char* key :
       {"format_version", "command", "argv",       "utc_start", "utc_end",   "commit",  "dirty",
        "sources_hash",   "version", "build_type", "cxx",       "cxx_flags", "cuda",    "cuda_flags",
        "host",           "device",  "grid",       "seeds",     "variants",  "complete"}) {
    EXPECT_TRUE(after.contains(key)) << key;
  }
  for (const char* key : {"name", "threads", "memory_bytes"})
    EXPECT_TRUE(after["host"].contains(key)) << key;
  for (const char* key : {"present", "why_absent", "name", "compute_capability", "sm_count", "l2_bytes",
                          "memory_bytes", "clock_khz", "driver_version", "runtime_version"}) {
    EXPECT_TRUE(after["device"].contains(key)) << key;
  }
  EXPECT_EQ(after["format_version"], 1);
  EXPECT_EQ(after["commit"], this_build().commit);
  EXPECT_EQ(after["device"]["compute_capability"], "9.0");
  EXPECT_EQ(after["command"], "fwht_sweep --grid quick");
}

// By what analysis/ reads the tables.
TEST_F(ResultsFolderTest, HoldsTheSchemaOfItsTables) {
  ResultsFolder::create(path, provenance, sweep);
  EXPECT_EQ(Json::parse(std::ifstream(path / "schema.json")), Json::parse(schema_json()));
}

TEST_F(ResultsFolderTest, IsNeverMadeOverAnotherOne) {
  ResultsFolder::create(path, provenance, sweep).finish();
  const Json before = context();
  EXPECT_THROW(ResultsFolder::create(path, provenance, sweep), BadRequest);
  EXPECT_EQ(context(), before);
  EXPECT_THROW(ResultsFolder::create("/proc/none/here", provenance, sweep), BadRequest);
}

TEST_F(ResultsFolderTest, TakesASecondProgram) {
  ResultsFolder::create(path, provenance, sweep).finish();
  ResultsFolder folder = ResultsFolder::resume(path, provenance, accuracy);
  EXPECT_EQ(context()["complete"], false);
  folder.finish();
  EXPECT_EQ(context()["complete"], true);
  EXPECT_EQ(context()["seeds"], (Json{1, 2, 3}));
  EXPECT_EQ(context()["variants"], (Json{"cpu", "naive", "warp_shuffle"})) << "in ladder order";
  EXPECT_EQ(context()["grid"], "quick");
  EXPECT_EQ(context()["runs"].size(), 2U);
}

TEST_F(ResultsFolderTest, IsCompleteOnlyWhenEveryProgramFinishedItsLastRun) {
  ResultsFolder::create(path, provenance, sweep);  // killed
  ResultsFolder::resume(path, provenance, accuracy).finish();
  EXPECT_EQ(context()["complete"], false) << "the sweep is still unfinished";
  ResultsFolder::resume(path, provenance, sweep).finish();
  EXPECT_EQ(context()["complete"], true);
}

TEST_F(ResultsFolderTest, RefusesAnotherOrigin) {
  EXPECT_NE(refusal(provenance).find("is no results folder"), std::string::npos);
  ResultsFolder::create(path, provenance, sweep).finish();
  const Json before = context();

  Provenance other = provenance;
  other.build.sources_hash = "fedcba9876543210";
  EXPECT_NE(
      refusal(other).find("comes from other sources (sources_hash 0123456789ab, this program fedcba987654)"),
      std::string::npos);
  other = provenance;
  other.device = a100_description();
  EXPECT_NE(refusal(other).find("was measured on NVIDIA H200 (described), this is NVIDIA A100 (described)"),
            std::string::npos);
  EXPECT_EQ(context(), before) << "a refused folder stays as it was";

  Json changed = before;
  changed["format_version"] = 2;
  std::ofstream(path / "context.json") << changed;
  EXPECT_NE(refusal(provenance).find("has format_version 2, this program writes 1"), std::string::npos);
  EXPECT_EQ(context(), changed);
  std::ofstream(path / "context.json") << "{ broken";
  EXPECT_NE(refusal(provenance).find("is no JSON object"), std::string::npos);
}

TEST_F(ResultsFolderTest, KeepsTheRowsOfEarlierRuns) {
  const auto row = [](const char* kernel) {
    return CsvRow{{"memory", "host"},   {"useful_bytes", "8"}, {"bytes_read", "4"}, {"bytes_written", "4"},
                  {"placement", "in"},  {"mode", "host"},      {"kernel", kernel},  {"time_us", "1"},
                  {"time_min_us", "1"}, {"time_max_us", "1"}};
  };
  ResultsFolder::create(path, provenance, sweep).table("limits.csv").append(row("a"));
  ResultsFolder folder = ResultsFolder::resume(path, provenance, sweep);
  folder.table("limits.csv").append(row("b"));
  const std::vector<CsvRow> rows = folder.rows("limits.csv");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("kernel"), "a");
  EXPECT_EQ(rows[1].at("kernel"), "b");
}

TEST_F(ResultsFolderTest, DirtyOnceIsDirty) {
  ResultsFolder::create(path, provenance, sweep).finish();
  provenance.build.dirty = true;
  ResultsFolder::resume(path, provenance, accuracy).finish();
  EXPECT_EQ(context()["dirty"], true);
}

}  // namespace
}  // namespace fwht::harness
