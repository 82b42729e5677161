#include <gtest/gtest.h>

#include <cstring>

#include "common/host/error.hpp"
#include "experiments/linear/linear.hpp"
#include "variants/linear/registry.hpp"

namespace fwht::linear_layers {
namespace {

LinearProblem small(bool act_order = false) {
  LinearProblem problem;
  problem.m = 1;
  problem.n = 16;
  problem.k = 256;
  problem.act_order = act_order;
  return problem;
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
