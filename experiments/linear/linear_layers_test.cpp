#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/host/error.hpp"
#include "experiments/linear/linear.hpp"
#include "experiments/linear/safetensors.hpp"
#include "variants/linear/registry.hpp"

namespace fwht::linear_layers {
namespace {

struct Saved {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("fwht_" + std::to_string(reinterpret_cast<std::uintptr_t>(this)) + ".safetensors");
  ~Saved() { std::filesystem::remove(path); }

  void write(const GptqWeights& w, const std::function<void(nlohmann::json&)>& change = {}) const {
    nlohmann::json header;
    std::string data;
    const auto add = [&](const char* name, const char* type, std::vector<std::int64_t> shape,
                         const auto& tensor) {
      const std::size_t begin = data.size();
      data.append(reinterpret_cast<const char*>(tensor.data()), tensor.size() * sizeof(tensor[0]));
      header[std::string("layer.") + name] = {
          {"dtype", type}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
    };
    add("qweight", "I32", {w.k / 8, w.n}, w.qweight);
    add("qzeros", "I32", {w.groups(), w.n / 8}, w.qzeros);
    add("scales", "F16", {w.groups(), w.n}, w.scales);
    if (!w.g_idx.empty()) add("g_idx", "I32", {w.k}, w.g_idx);
    header["__metadata__"] = {{"format", "pt"}};
    if (change) change(header);
    write_raw(header.dump(), data);
  }
  void write_raw(const std::string& header, const std::string& data) const {
    const std::uint64_t length = header.size();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file << header << data;
  }
};

LinearProblem small(bool act_order = false) {
  LinearProblem problem;
  problem.m = 1;
  problem.n = 16;
  problem.k = 256;
  problem.act_order = act_order;
  return problem;
}

TEST(Safetensors, ComesBackAsItWasSaved) {
  for (const bool act_order : {false, true}) {
    const GptqWeights saved = reference::random_weights(small(act_order), reference::LinearData::normal, 4);
    const Saved file;
    file.write(saved);
    const GptqWeights read = read_gptq(file.path, "layer");
    EXPECT_EQ(read.n, 16);
    EXPECT_EQ(read.k, 256);
    EXPECT_EQ(read.group, 128);
    EXPECT_EQ(read.qweight, saved.qweight);
    EXPECT_EQ(read.qzeros, saved.qzeros);
    EXPECT_EQ(read.scales, saved.scales);
    EXPECT_EQ(read.g_idx, saved.g_idx);
  }
}

TEST(Safetensors, AGroupIndexThatOnlyCountsIsDropped) {
  GptqWeights saved = reference::random_weights(small(), reference::LinearData::normal, 4);
  saved.g_idx.resize(256);
  for (std::size_t i = 0; i < 256; ++i)
    saved.g_idx[i] = static_cast<std::int32_t>(i / 128);
  const Saved file;
  file.write(saved);
  EXPECT_TRUE(read_gptq(file.path, "layer").g_idx.empty());
}

TEST(Safetensors, ForeignAndTruncatedFilesAreRefused) {
  const GptqWeights saved = reference::random_weights(small(), reference::LinearData::normal, 4);
  const Saved file;
  const auto refused = [&](const char* part) {
    try {
      (void)read_gptq(file.path, "layer");
      ADD_FAILURE() << part << ": accepted";
    } catch (const BadRequest& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refused("cannot be read");
  std::ofstream(file.path) << "abc";
  refused("has 3 bytes");
  std::ofstream(file.path) << "\x89PNG\r\n\x1a\n and more of another format";
  refused("truncated or no safetensors file");
  file.write_raw("[1, 2]", "");
  refused("no JSON object");
  file.write(saved, [](nlohmann::json& h) { h.erase("layer.scales"); });
  refused("has no tensor layer.scales");
  file.write(saved, [](nlohmann::json& h) { h["layer.scales"]["dtype"] = "BF16"; });
  refused("BF16, F16 is needed");
  file.write(saved, [](nlohmann::json& h) { h["layer.qweight"]["shape"] = {32, 32}; });
  refused("bytes are needed");
  file.write(saved, [](nlohmann::json& h) { h["layer.qzeros"] = 7; });
  refused("not understood");
  file.write(saved, [](nlohmann::json& h) { h["layer.qweight"]["data_offsets"] = {-4096, 0}; });
  refused("layer.qweight at");
  file.write(saved);
  std::filesystem::resize_file(file.path, std::filesystem::file_size(file.path) - 4);
  refused("follow the header");
  GptqWeights bad = saved;
  bad.scales[5] = 0x7C00;
  file.write(bad);
  refused("scale of group 0, column 5");
}

TEST(LinearSubject, IsJudgedAndListsItsBytes) {
  const DeviceInfo device = this_device();
  LinearProblem problem = small();
  problem.m = 3;
  const LinearVariant& cpu = find_linear_variant("cpu");
  Data data(1);
  const std::shared_ptr<const LinearPlan> plan = fwht::plan(cpu, problem, device);
  const harness::Subject subject = linear_subject(cpu, plan, data);
  EXPECT_EQ(subject.traffic.read, problem.bytes_read());
  EXPECT_EQ(subject.traffic.written, 3 * 16 * 2);
  EXPECT_EQ(subject.columns.at("m"), "3");
  harness::Slices slices(subject.buffers, 2);
  const harness::Judgement judged = subject.check(slices);
  EXPECT_TRUE(judged.verdict) << judged.verdict.message;
  // Every slice holds weights and x, so that cold mode rotates over both.
  subject.fill(slices);
  EXPECT_EQ(std::memcmp(slices.in(0), slices.in(1), static_cast<std::size_t>(subject.buffers.in_bytes)), 0);
}

TEST(LinearSubject, TasksMakeRowsOfTheTable) {
  const DeviceInfo device = this_device();
  harness::Bench bench(device);
  harness::Limits limits(bench, [](const harness::CsvRow&) {});
  Data data(1);
  LinearProblem problem = small();
  const auto tasks = linear_layers::tasks({{&find_linear_variant("cpu"), problem, harness::Mode::host}},
                                          bench, limits, data);
  ASSERT_EQ(tasks.size(), 1U);
  const auto rows = tasks[0].run();
  ASSERT_EQ(rows.size(), 1U);
  const auto columns = harness::table_schema("linear.csv").column_names();
  for (const auto& [name, value] : rows[0])
    EXPECT_NE(std::find(columns.begin(), columns.end(), name), columns.end()) << name;
  EXPECT_GT(std::stod(rows[0].at("time_us")), 0.0);
  EXPECT_LT(std::stod(rows[0].at("rel_l2")), 1e-3);
}

TEST(RotationStudy, SpreadsOutliersOfWeights) {
  // Outlier channels of weights and normal tokens: rotation must make the 4-bit weights better; tokens of one
  // size gain nothing from it in int8.
  double plain = 0.0, whole = 0.0;
  for (const harness::Task& task : rotation_tasks()) {
    if (task.identity.at("weights") != "outlier_channels" || task.identity.at("input") != "normal") continue;
    const std::string& rotation = task.identity.at("rotation");
    if (rotation != "0" && rotation != "4096") continue;
    (rotation == "0" ? plain : whole) = std::stod(task.run()[0].at("rel_l2_w4a16"));
  }
  EXPECT_GT(plain, 0.0);
  EXPECT_LT(whole, plain);
}

TEST(LinearLists, AreThoseOfThePaper) {
  EXPECT_EQ(problem_list("paper").size(), 5U * 6U);
  EXPECT_EQ(problem_list("rotated").size(), 3U * 2U * 3U);
  EXPECT_EQ(to_string(problem_list("rotated")[3]), "f16/m1/n4096/k4096/w4g128/rot");
  EXPECT_THROW(problem_list("papers"), BadRequest);
}

}  // namespace
}  // namespace fwht::linear_layers
