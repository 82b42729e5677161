#include "experiments/harness/results_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "common/host/error.hpp"
#include "experiments/harness/schema.hpp"
#include "experiments/harness/sha256.hpp"

namespace fwht::harness {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

CsvRow limits_row(const char* kernel) {
  return {{"memory", "host"},   {"useful_bytes", "8"}, {"bytes_read", "4"}, {"bytes_written", "4"},
          {"placement", "in"},  {"mode", "host"},      {"kernel", kernel},  {"time_us", "1"},
          {"time_min_us", "1"}, {"time_max_us", "1"}};
}

class ResultsFolderTest : public testing::Test {
 protected:
  ResultsFolderTest() {
    path = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(path);
    const char* argv[] = {"fwht_sweep", "--grid", "quick"};
    provenance = gather_provenance(3, argv, h200_description());
    provenance.device.host_threads = 16;  // the descriptions say nothing of their hosts
    provenance.device.host_memory_bytes = std::int64_t{1} << 37;
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

TEST_F(ResultsFolderTest, NamesAGridWithoutItsFolder) {
  RunInfo of_a_file = sweep;
  of_a_file.grid = "/home/someone/held_out.grid";
  ResultsFolder::create(path, provenance, of_a_file);
  EXPECT_EQ(context()["grid"], "held_out.grid");
  EXPECT_EQ(context()["runs"][0]["grid"], "held_out.grid");
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

TEST_F(ResultsFolderTest, IsNotCompletedByAnotherGridOrByAPartOfItsOwn) {
  ResultsFolder::create(path, provenance, sweep);  // killed
  RunInfo other = sweep;
  other.grid = "smoke";
  ResultsFolder::resume(path, provenance, other).finish();
  EXPECT_EQ(context()["complete"], false) << "another grid";
  Provenance part = provenance;
  part.argv = {"fwht_sweep", "--grid", "quick", "--n", "64", "--resume", "r"};
  ResultsFolder::resume(path, part, sweep).finish();
  EXPECT_EQ(context()["complete"], false) << "a part of the grid";
  part.argv = {"fwht_sweep", "--n", "64", "--n=128", "--resume", "r"};
  ResultsFolder::resume(path, part, sweep);  // killed, too
  part.argv = {"fwht_sweep", "--n", "64", "--resume", "r"};
  ResultsFolder::resume(path, part, sweep).finish();
  EXPECT_EQ(context()["complete"], false) << "fewer values of an option";
  Provenance whole = provenance;
  whole.argv = {"elsewhere/fwht_sweep", "--resume=r"};
  ResultsFolder::resume(path, whole, sweep).finish();
  EXPECT_EQ(context()["complete"], true);
}

TEST_F(ResultsFolderTest, IsCompletedWhateverElseSaysTheSameNumbers) {
  Provenance part = provenance;
  part.argv = {"fwht_sweep", "--grid", "quick", "--export", "flashinfer-trace", "d", "--benchmark_out=b"};
  ResultsFolder::create(path, part, sweep);  // killed
  part.argv = {"fwht_sweep", "--resume", "r"};
  ResultsFolder::resume(path, part, sweep).finish();
  EXPECT_EQ(context()["complete"], true);
  part.argv = {"fwht_sweep", "--rows", "1", "--elements=64", "--placement", "in", "--mode", "cold"};
  ResultsFolder::resume(path, part, sweep);  // killed, too
  part.argv = {"fwht_sweep", "--resume", "r"};
  ResultsFolder::resume(path, part, sweep).finish();
  EXPECT_EQ(context()["complete"], true) << "the whole grid has these";
  part.argv = {"fwht_sweep", "--benchmark_repetitions", "25"};
  ResultsFolder::resume(path, part, sweep);  // killed, too
  part.argv = {"fwht_sweep", "--resume", "r"};
  ResultsFolder::resume(path, part, sweep).finish();
  EXPECT_EQ(context()["complete"], false) << "the same problems by fewer repetitions";
}

TEST_F(ResultsFolderTest, StartsATableAnew) {
  { ResultsFolder::create(path, provenance, sweep).table("limits.csv").append(limits_row("a")); }
  ResultsFolder folder = ResultsFolder::resume(path, provenance, sweep);
  folder.start_anew("limits.csv");
  folder.start_anew("launches.csv");
  folder.table("limits.csv").append(limits_row("b"));
  const std::vector<CsvRow> rows = folder.rows("limits.csv");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].at("kernel"), "b");
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
  other.build.cuda_flags = "-O3 architectures 80";
  EXPECT_NE(refusal(other).find("comes from another build (cuda_flags \"" + provenance.build.cuda_flags +
                                "\", this program \"-O3 architectures 80\")"),
            std::string::npos)
      << refusal(other);
  other = provenance;
  other.device.name = a100_description().name;
  EXPECT_NE(refusal(other).find("was measured on NVIDIA H200 (described), this is NVIDIA A100 (described)"),
            std::string::npos);
  for (const auto& [change, what] :
       {std::pair<void (*)(DeviceInfo&), const char*>{
            [](DeviceInfo& device) { device.host_name = "another"; }, "/host/name"},
        {[](DeviceInfo& device) { ++device.host_threads; }, "/host/threads is 16, here it is 17"},
        {[](DeviceInfo& device) { ++device.sm_count; }, "/device/sm_count is 132, here it is 133"},
        {[](DeviceInfo& device) { ++device.driver_version; }, "/device/driver_version"}}) {
    other = provenance;
    change(other.device);
    EXPECT_NE(refusal(other).find(std::string("was measured where ") + what), std::string::npos)
        << refusal(other);
  }
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
  ResultsFolder::create(path, provenance, sweep).table("limits.csv").append(limits_row("a"));
  ResultsFolder folder = ResultsFolder::resume(path, provenance, sweep);
  folder.table("limits.csv").append(limits_row("b"));
  const std::vector<CsvRow> rows = folder.rows("limits.csv");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("kernel"), "a");
  EXPECT_EQ(rows[1].at("kernel"), "b");
}

TEST_F(ResultsFolderTest, WhatCannotStandBesideItsRowsChangesNothing) {
  { ResultsFolder::create(path, provenance, accuracy).finish(); }
  const Json before = context();
  RunInfo other = accuracy;
  std::set<std::string> asked;
  other.accept = [&](const std::string& table, const std::vector<CsvRow>& rows) {
    asked.insert(table);
    EXPECT_TRUE(rows.empty());
    if (table == "accuracy.csv") throw BadRequest("other seeds");
  };
  EXPECT_THROW(ResultsFolder::resume(path, provenance, other), BadRequest);
  EXPECT_TRUE(asked.contains("accuracy.csv"));
  EXPECT_EQ(context(), before);
  other.accept = {};
  ResultsFolder::resume(path, provenance, other);
  EXPECT_NE(context(), before) << "this was a run";
}

TEST_F(ResultsFolderTest, DirtyOnceIsDirty) {
  ResultsFolder::create(path, provenance, sweep).finish();
  EXPECT_EQ(context()["dirty"], false);
  provenance.build.dirty = true;
  ResultsFolder::resume(path, provenance, accuracy).finish();
  EXPECT_EQ(context()["dirty"], true);
  provenance.build.dirty = false;
  ResultsFolder::resume(path, provenance, accuracy).finish();
  EXPECT_EQ(context()["dirty"], true) << "a clean run does not wash a dirty one";
}

TEST_F(ResultsFolderTest, HasOneWriterAtATime) {
  std::optional<ResultsFolder> first = ResultsFolder::create(path, provenance, sweep);
  const Json before = context();
  EXPECT_EQ(refusal(provenance), "another program is writing " + path.string());
  EXPECT_THROW(ResultsFolder::create(path, provenance, sweep), BadRequest);
  EXPECT_EQ(context(), before);
  first.reset();
  EXPECT_EQ(refusal(provenance), "accepted");
}

TEST_F(ResultsFolderTest, DefaultNamesNeverCollide) {
  fs::create_directories(path);
  const fs::path back = fs::current_path();
  fs::current_path(path);
  const ResultsFolder one = ResultsFolder::create_or_resume("", "", provenance, sweep);
  const ResultsFolder two = ResultsFolder::create_or_resume("", "", provenance, sweep);
  const ResultsFolder three = ResultsFolder::open("", "", provenance, accuracy);
  fs::current_path(back);
  EXPECT_EQ(two.path().string(), one.path().string() + "_2");
  EXPECT_EQ(three.path().string(), one.path().string() + "_3");
}

// Row counts and hashes: what a copy or a full disk has cut is told from what was measured.
TEST_F(ResultsFolderTest, KnowsItsTablesAgain) {
  {
    ResultsFolder folder = ResultsFolder::create(path, provenance, sweep);
    folder.table("limits.csv").append(limits_row("a"));
    folder.table("limits.csv").append(limits_row("b"));
    EXPECT_FALSE(context().contains("files")) << "only once it is finished";
    folder.finish();
  }
  EXPECT_EQ(context()["files"]["limits.csv"]["rows"], 2);
  EXPECT_EQ(context()["files"]["limits.csv"]["sha256"].get<std::string>().size(), 64U);

  const Json before = context();
  const std::uintmax_t size = fs::file_size(path / "limits.csv");
  std::ofstream(path / "limits.csv", std::ios::app) << "host,8,4,4,in,host,c,1,1,1\n";
  EXPECT_EQ(refusal(provenance),
            "limits.csv in " + path.string() + " differs from what its last run wrote (3 rows, not 2)");
  fs::resize_file(path / "limits.csv", size);
  EXPECT_EQ(refusal(provenance), "accepted");
  std::ofstream(path / "context.json") << before;
  std::fstream(path / "limits.csv", std::ios::in | std::ios::out).seekp(static_cast<std::streamoff>(size - 2))
      << '2';
  EXPECT_EQ(refusal(provenance),
            "limits.csv in " + path.string() +
                " differs from what its last run wrote (same row count, different hash)");
  fs::remove(path / "limits.csv");
  EXPECT_EQ(refusal(provenance), path.string() + " lacks limits.csv, which its last run wrote");
  EXPECT_EQ(context(), before) << "a refused folder stays as it was";
}

TEST_F(ResultsFolderTest, GoesOnAfterAKilledRun) {
  { ResultsFolder::create(path, provenance, sweep).table("limits.csv").append(limits_row("a")); }
  std::ofstream(path / "limits.csv", std::ios::app) << "host,8,4";
  ResultsFolder folder = ResultsFolder::resume(path, provenance, accuracy);  // another program mends it too
  folder.finish();
  EXPECT_EQ(context()["files"]["limits.csv"]["rows"], 1);
  EXPECT_EQ(folder.rows("limits.csv").size(), 1U);
  std::ifstream file(path / "limits.csv");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text.back(), '\n') << "half a line is cut off whichever program goes on";
}

// The rows of a run that was killed count, the hashes of the one before it do not.
TEST_F(ResultsFolderTest, GoesOnAfterAKilledRunInAFinishedFolder) {
  {
    ResultsFolder folder = ResultsFolder::create(path, provenance, sweep);
    folder.table("limits.csv").append(limits_row("a"));
    folder.finish();
  }
  {
    ResultsFolder folder = ResultsFolder::resume(path, provenance, sweep);
    folder.table("limits.csv").append(limits_row("b"));
  }
  EXPECT_FALSE(context().contains("files"));
  ResultsFolder folder = ResultsFolder::resume(path, provenance, sweep);
  EXPECT_EQ(folder.rows("limits.csv").size(), 2U);
}

// context.json of any shape: one sentence, and the folder stays as it was.
TEST_F(ResultsFolderTest, RefusesAContextOfAnotherShape) {
  ResultsFolder::create(path, provenance, sweep).finish();
  const Json good = context();
  const auto refused_with = [&](const char* place, const Json& value) {
    Json changed = good;
    changed[Json::json_pointer(place)] = value;
    std::ofstream(path / "context.json") << changed;
    const std::string why = refusal(provenance);
    EXPECT_EQ(context(), changed);
    return why.substr(std::min(why.size(), path.string().size() + 2));
  };
  EXPECT_EQ(refused_with("/sources_hash", 5), "/sources_hash in context.json is not a text");
  EXPECT_EQ(refused_with("/host", 5), "/host in context.json is not an object");
  EXPECT_EQ(refused_with("/variants", 5), "/variants in context.json is not a list of names");
  EXPECT_EQ(refused_with("/variants", {1, 2}), "/variants in context.json is not a list of names");
  EXPECT_EQ(refused_with("/seeds", {-1}), "/seeds in context.json is not a list of seeds");
  EXPECT_EQ(refused_with("/dirty", "no"), "/dirty in context.json is not true or false");
  EXPECT_EQ(refused_with("/device/present", nullptr), "/device/present in context.json is not true or false");
  for (const Json& run :
       {Json{{"program", 1}}, Json{{"program", "x"}, {"argv", {"x"}}},
        Json{{"program", "x"}, {"argv", {"x"}}, {"complete", 1}},
        Json{{"program", "x"}, {"argv", {"x"}}, {"complete", true}, {"load_average", "high"}}})
    EXPECT_EQ(refused_with("/runs", Json::array({run})),
              "/runs in context.json is not a list of runs with program, argv and complete");
  EXPECT_EQ(refused_with("/complete", 1), "/complete in context.json is not true or false");
  EXPECT_EQ(refused_with("/host/threads", 2.0), "/host/threads in context.json is not a positive integer");
  EXPECT_EQ(refused_with("/device/sm_count", 0),
            "/device/sm_count in context.json is not a positive integer");
  for (const Json& time :
       {Json(nullptr), Json(""), Json("2026-01-31 12:00:00"), Json("2026-01-31T12:00:0XZ")})
    EXPECT_EQ(refused_with("/utc_start", time),
              "/utc_start in context.json is not a time as 2026-01-31T12:00:00Z");
  for (const Json& version : {Json(1.0), Json(true), Json("1")})
    EXPECT_NE(refused_with("/format_version", version).find("this program writes 1"), std::string::npos);
  const Json listed = {{"rows", 0}, {"sha256", "0123"}};
  EXPECT_EQ(refused_with("/files", {{"limits.csv", listed}}),
            "/files in context.json is not an object of rows and sha256");
  EXPECT_EQ(refused_with("/files", {{"limits.csv", 3}}),
            "/files in context.json is not an object of rows and sha256");
  for (const auto& [key, value] : good.items()) {
    if (key == "files" || key == "format_version") continue;
    Json lacking = good;
    lacking.erase(key);
    std::ofstream(path / "context.json") << lacking;
    EXPECT_EQ(refusal(provenance), path.string() + ": context.json lacks /" + key);
  }
  std::ofstream(path / "context.json") << std::string(100000, '[');
  EXPECT_EQ(refusal(provenance), path.string() + ": context.json is nested deeper than 32 levels");
  std::ofstream(path / "context.json") << R"({"format_version": ")" << std::string(100, '\xff') << "\"}";
  EXPECT_NE(refusal(provenance), "accepted");
}

TEST_F(ResultsFolderTest, RefusesATableOfAnotherShape) {
  { ResultsFolder::create(path, provenance, sweep); }
  const Json before = context();
  std::ofstream(path / "results.csv") << "a,b\n1,2\n";
  EXPECT_EQ(refusal(provenance),
            (path / "results.csv").string() + " has other columns than this program writes");
  EXPECT_EQ(context(), before);
  std::ofstream(path / "tests.csv") << "name,label,status,seconds\na,host,passed,1\na,host,passed,1\n";
  fs::remove(path / "results.csv");
  EXPECT_EQ(refusal(provenance), (path / "tests.csv").string() + ", line 3 repeats an earlier measurement");
}

// Nothing that a resumed run leaves is what analysis/ refuses.
TEST_F(ResultsFolderTest, RefusesAResultThatContradictsItself) {
  const CsvRow good = {{"variant", "cpu"},
                       {"memory", "host"},
                       {"operator", "64"},
                       {"dtype", "f16"},
                       {"n", "64"},
                       {"rows", "2"},
                       {"elements", "128"},
                       {"placement", "in"},
                       {"row_stride", "64"},
                       {"mode", "host"},
                       {"status", "ok"},
                       {"time_us", "2"},
                       {"time_min_us", "2"},
                       {"time_max_us", "2.5"},
                       {"launches", "4"},
                       {"replays", "7"},
                       {"limit_us", "1"},
                       {"limit_kernel", "c"},
                       {"fraction_of_limit", "0.5"},
                       {"bytes_read", "256"},
                       {"bytes_written", "256"},
                       {"useful_bytes", "512"},
                       {"bytes_per_second", "1"},
                       {"rel_l2", "1e-4"},
                       {"predicted_rel_l2", "1e-4"}};
  const auto refused_with = [&](const CsvRow& changes) {
    fs::remove_all(path);
    CsvRow row = good;
    for (const auto& [column, value] : changes)
      row[column] = value;
    { ResultsFolder::create(path, provenance, sweep).table("results.csv").append(row); }
    const std::string why = refusal(provenance), front = (path / "results.csv").string() + ", line 2: ";
    return why.starts_with(front) ? why.substr(front.size()) : why;
  };
  EXPECT_EQ(refused_with({}), "accepted");
  EXPECT_EQ(refused_with({{"time_us", "2.5"}, {"fraction_of_limit", "0.4"}}), "accepted");
  EXPECT_EQ(refused_with({{"encoding", "e4m3:row"}, {"predicted_rel_l2", ""}}), "accepted");
  EXPECT_EQ(refused_with({{"operator", "64+signs"}, {"encoding", "rope64/page64x100>e4m3:row"}}), "accepted");
  EXPECT_NE(refused_with({{"encoding", "nosuch>e4m3:row"}}), "accepted");
  EXPECT_EQ(refused_with({{"elements", "129"}}), "elements is not n * rows");
  EXPECT_EQ(refused_with({{"operator", "28x512"}}), "operator 28x512 has rows of 14336 elements, not 64");
  EXPECT_NE(refused_with({{"operator", "nosuch"}}).find("nosuch"), std::string::npos);
  EXPECT_NE(refused_with({{"encoding", "nosuch"}}).find("encoding 'nosuch': the form is"), std::string::npos);
  EXPECT_EQ(refused_with({{"row_stride", "63"}}), "row_stride is below n, times the inner dimension");
  EXPECT_EQ(refused_with({{"arrangement", "inner2"}}), "row_stride is below n, times the inner dimension");
  EXPECT_EQ(refused_with({{"arrangement", "from-dyadic/sequency/inner2"}, {"row_stride", "128"}}),
            "accepted");
  EXPECT_NE(
      refused_with({{"arrangement", "inner3"}, {"row_stride", "192"}}).find("inner=3 must divide rows=2"),
      std::string::npos);
  EXPECT_NE(refused_with({{"arrangement", "walsh"}}).find("unknown part 'walsh'"), std::string::npos);
  EXPECT_EQ(refused_with({{"dtype", "f32"}}), "bytes_read is below elements * bytes");
  EXPECT_EQ(refused_with({{"useful_bytes", "511"}}), "useful_bytes is not bytes_read + bytes_written");
  EXPECT_EQ(refused_with({{"status", "incorrect"}}), "it has a time and status is not ok");
  EXPECT_EQ(refused_with({{"rel_l2", ""}}), "status is ok without rel_l2");
  EXPECT_EQ(refused_with({{"dtype", "i32"},
                          {"rel_l2", "0"},
                          {"predicted_rel_l2", "0"},
                          {"bytes_read", "512"},
                          {"useful_bytes", "768"}}),
            "accepted");
  EXPECT_EQ(refused_with({{"predicted_rel_l2", ""}}), "status is ok without a positive predicted_rel_l2");
  EXPECT_EQ(refused_with({{"time_min_us", "2.01"}}), "time_us is outside time_min_us to time_max_us");
  EXPECT_EQ(refused_with({{"time_max_us", "1.99"}}), "time_us is outside time_min_us to time_max_us");
  EXPECT_EQ(refused_with({{"fraction_of_limit", "0.51"}}), "fraction_of_limit is not limit_us / time_us");
  EXPECT_EQ(refused_with({{"rel_l2", "inf"}}), "column rel_l2 is infinite");
}

TEST_F(ResultsFolderTest, RefusesASchemaThatItDoesNotWrite) {
  ResultsFolder::create(path, provenance, sweep).finish();
  Json schema = Json::parse(std::ifstream(path / "schema.json"));
  EXPECT_EQ(refusal(provenance), "accepted");
  schema["tables"]["results.csv"]["columns"].erase(0);
  std::ofstream(path / "schema.json") << schema;
  EXPECT_EQ(refusal(provenance), (path / "schema.json").string() + " is not what this program writes");
  fs::remove(path / "schema.json");
  EXPECT_EQ(refusal(provenance), "accepted") << "a run that was killed before it wrote one";
}

TEST_F(ResultsFolderTest, RefusesPipesAndLinksThatLeadNowhere) {
  ResultsFolder::create(path, provenance, sweep).finish();
  for (const char* name : {"results.csv", "limits.csv", "unsupported.csv", "context.json", "schema.json"}) {
    const fs::path file = path / name, kept = path / "kept";
    const bool was_there = fs::exists(file);
    if (was_there) fs::rename(file, kept);
    ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
    EXPECT_EQ(refusal(provenance), file.string() + ": this is a named pipe, not a file");
    fs::remove(file);
    fs::create_symlink(file, file);
    EXPECT_NE(refusal(provenance).find(file.string() + ": the file cannot be read: "), std::string::npos);
    fs::remove(file);
    if (was_there) fs::rename(kept, file);
  }
  EXPECT_EQ(refusal(provenance), "accepted");
}

TEST(CommandToResume, PutsTheFolderInPlaceOfTheOld) {
  const char* argv[] = {"./fwht_sweep", "--output", "old", "--grid", "my grid's", "--resume=old"};
  EXPECT_EQ(command_to_resume(6, argv, "new folder"),
            "./fwht_sweep --grid 'my grid'\\''s' --resume 'new folder'");
}

TEST_F(ResultsFolderTest, SaysHowToGoOn) {
  ResultsFolder folder = ResultsFolder::create(path, provenance, sweep);
  const char* argv[] = {"fwht_sweep"};
  const std::string hint =
      "what was measured is in " + path.string() + "; this goes on: fwht_sweep --resume " + path.string();
  EXPECT_EQ(write_folder(folder, 1, argv, [] { return 1; }), 1);
  try {
    write_folder(folder, 1, argv, []() -> int { throw std::runtime_error("the disk is full"); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), "the disk is full; " + hint);
  }
  for (const int signal : {SIGTERM, SIGINT}) {
    const auto kept = std::signal(signal, SIG_DFL);  // a test run in the background may ignore it
    testing::internal::CaptureStderr();
    EXPECT_EQ(write_folder(folder, 1, argv,
                           [&] {
                             raise(signal);
                             return 0;
                           }),
              128 + signal);
    std::signal(signal, kept);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("interrupted; " + hint), std::string::npos);
  }
}

// FIPS 180-2, appendix B, and the empty message.
TEST(Sha256, GivesThePublishedValues) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace fwht::harness
