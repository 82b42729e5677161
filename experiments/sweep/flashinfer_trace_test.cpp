#include "experiments/sweep/flashinfer_trace.hpp"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/contract/hadamard_matrices.hpp"
#include "common/host/error.hpp"
#include "experiments/harness/transform.hpp"

namespace fwht::sweep {
namespace {

using harness::Case;
using harness::CsvRow;
using harness::Mode;
using nlohmann::json;

std::map<std::string, std::string> by_path(const std::vector<TraceFile>& files) {
  std::map<std::string, std::string> found;
  for (const TraceFile& file : files)
    found[file.path] = file.text;
  return found;
}

std::vector<json> lines(const std::string& text) {
  std::vector<json> all;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    all.push_back(json::parse(line));
  return all;
}

CsvRow result(const char* variant, const char* problem, const char* status) {
  CsvRow row = harness::describe(variant, Memory::host, parse_problem(problem)).columns;
  row["mode"] = "host";
  row["status"] = status;
  row["message"] = std::string(status) == "ok" ? "" : "why";
  row["time_us"] = "4";
  row["limit_us"] = "1";
  row["limit_kernel"] = "host_t1";
  row["fraction_of_limit"] = "0.25";
  row["rel_l2"] = "1e-4";
  row["max_error_over_rms"] = "1e-3";
  return row;
}

const std::vector<Case> kCases = {{parse_problem("f16/n4096/r16"), Mode::host},
                                  {parse_problem("f16/n4096/r16"), Mode::replay},
                                  {parse_problem("f16/n4096/r1"), Mode::host},
                                  {parse_problem("i32/12x2/r8"), Mode::host}};

TEST(FlashinferTrace, HasADefinitionForEachOperatorAndAWorkloadForEachProblemAndMode) {
  const auto files = by_path(flashinfer_trace(kCases, {}, {}));
  ASSERT_EQ(files.size(), 4U);
  const json definition = json::parse(files.at("definitions/hadamard/hadamard_4096_f16.json"));
  EXPECT_EQ(definition["axes"]["n"]["value"], 4096);
  EXPECT_EQ(definition["inputs"]["x"]["dtype"], "float16");
  EXPECT_EQ(definition["tags"], json({"status:verified", "model:llama-3.1-8b"}));
  EXPECT_NE(definition["reference"].get<std::string>().find("SCALE = 0.015625"), std::string::npos);
  const auto workloads = lines(files.at("workloads/hadamard/hadamard_4096_f16.jsonl"));
  ASSERT_EQ(workloads.size(), 3U);
  EXPECT_EQ(workloads[0]["workload"]["axes"]["rows"], 16);
  EXPECT_EQ(workloads[0]["workload"]["uuid"], "hadamard_4096_f16.r16.in.host.llama-3.1-8b:hidden");
  EXPECT_EQ(workloads[1]["workload"]["uuid"], "hadamard_4096_f16.r16.in.replay.llama-3.1-8b:hidden");
}

// Twelve rows of twelve signs, and Sylvester's matrix of order 2.
TEST(FlashinferTrace, ReferencesHoldTheMatrices) {
  const auto files = by_path(flashinfer_trace(kCases, {}, {}));
  const std::string reference =
      json::parse(files.at("definitions/hadamard/hadamard_12x2_i32.json"))["reference"];
  for (int row = 0; row < 12; ++row) {
    std::string signs;
    for (int column = 0; column < 12; ++column)
      signs += hadamard_entry(12, row, column) > 0 ? '+' : '-';
    EXPECT_NE(reference.find("\"" + signs + "\""), std::string::npos) << row;
  }
  EXPECT_NE(reference.find("    2,\n]"), std::string::npos) << reference;
  EXPECT_NE(reference.find("SCALE = 1\n"), std::string::npos);
}

TEST(FlashinferTrace, TracesAreTheRowsOfTheResults) {
  const std::vector<CsvRow> results = {
      result("cpu", "f16/n4096/r16", "ok"), result("peer:x", "f16/n4096/r1", "incorrect"),
      result("cpu", "i32/12x2/r8", "failed"), result("cpu", "f16/n64/r16", "ok")};
  const auto files = by_path(flashinfer_trace(kCases, results, {}));
  EXPECT_EQ(files.size(), 4U + 2U + 2U) << "two solutions, two files of traces; n = 64 is no case";
  const auto traces = lines(files.at("traces/hadamard/hadamard_4096_f16.jsonl"));
  ASSERT_EQ(traces.size(), 2U);
  EXPECT_EQ(traces[0]["solution"], "fwht_cpu_hadamard_4096_f16");
  EXPECT_EQ(traces[0]["evaluation"]["status"], "PASSED");
  EXPECT_EQ(traces[0]["evaluation"]["performance"]["latency_ms"], 0.004);
  EXPECT_EQ(traces[0]["evaluation"]["performance"]["speedup_factor"], 0.25);
  EXPECT_EQ(traces[0]["evaluation"]["correctness"]["max_absolute_error"], 1e-3);
  EXPECT_EQ(traces[1]["evaluation"]["status"], "INCORRECT_NUMERICAL");
  EXPECT_FALSE(traces[1]["evaluation"].contains("performance"));
  const auto failed = lines(files.at("traces/hadamard/hadamard_12x2_i32.jsonl"));
  EXPECT_EQ(failed[0]["evaluation"]["status"], "RUNTIME_ERROR");
  EXPECT_FALSE(failed[0]["evaluation"].contains("correctness"));
  const json solution =
      json::parse(files.at("solutions/hadamard/hadamard_12x2_i32/fwht_cpu_hadamard_12x2_i32.json"));
  EXPECT_NE(solution["sources"][0]["content"].get<std::string>().find("transform(x, \"12x2\", scale=1, "),
            std::string::npos);
}

TEST(FlashinferTrace, LeavesOutWhatTheSchemaCannotSay) {
  for (const char* text : {"f64/n64/r4", "f16/n64/r4/ld72", "f16/n64/r4/s1", "f32/n64/r4/out/sequency",
                           "f32/n64/r4/inner2", "bf16/n64/r4>e4m3:row", "f16/64+signs/r4>e4m3:row"})
    EXPECT_FALSE(can_be_traced(parse_problem(text))) << text;
  EXPECT_TRUE(can_be_traced(parse_problem("bf16/28x512/r4/out")));
}

TEST(FlashinferTrace, GoesIntoANewFolder) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "dataset";
  std::filesystem::remove_all(folder);
  require_no_dataset(folder);
  write_dataset(folder, {{"a/b.json", "{}"}});
  EXPECT_TRUE(std::filesystem::exists(folder / "a" / "b.json"));
  EXPECT_THROW(require_no_dataset(folder), BadRequest);
}

}  // namespace
}  // namespace fwht::sweep
