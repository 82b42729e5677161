#include "experiments/sweep/session.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "experiments/sweep/benchmark_run.hpp"
#include "experiments/sweep/report.hpp"
#include "variants/registry.hpp"

namespace fwht::sweep {
namespace {

using harness::CsvRow;
using harness::Mode;

Support everything(const Problem&, const DeviceInfo&) {
  return {};
}

// Returns its input: wrong, and in place the quickest of all.
class Identity final : public Plan {
 public:
  explicit Identity(const Problem& problem) : Plan(problem) {}
  Numerics numerics() const override { return single_rounding(Sums::fp32_any_order, problem()); }
  Settings settings() const override { return {{"tile", std::int64_t{3}}, {"form", std::string("none")}}; }

 private:
  void enqueue(const Operands&, Stream) const override {}
};

class Throwing final : public Plan {
 public:
  explicit Throwing(const Problem& problem) : Plan(problem) {}
  Numerics numerics() const override { return single_rounding(Sums::fp32_any_order, problem()); }
  Settings settings() const override { return {}; }

 private:
  void enqueue(const Operands&, Stream) const override {
    throw std::runtime_error("broken, \"really\"\nbroken");
  }
};

const Variant kIdentity{"identity", "", Memory::host, everything,
                        [](const Problem& p, const DeviceInfo&) -> std::unique_ptr<Plan> {
                          return std::make_unique<Identity>(p);
                        }};
const Variant kThrowing{"throwing", "", Memory::host, everything,
                        [](const Problem& p, const DeviceInfo&) -> std::unique_ptr<Plan> {
                          return std::make_unique<Throwing>(p);
                        }};

// cpu, and one bit of the last code wrong.
class OneCodeOff final : public Plan {
 public:
  OneCodeOff(const Problem& problem, const DeviceInfo& device)
      : Plan(problem), cpu_(plan(cpu::variant, problem, device)) {}
  Numerics numerics() const override { return cpu_->numerics(); }
  Settings settings() const override { return {}; }

 private:
  void enqueue(const Operands& operands, Stream stream) const override {
    cpu_->execute(operands, stream);
    if (problem().encoding.is_plain()) return;
    static_cast<unsigned char*>(operands.out)[problem().span_bytes_out() - 1] ^= 0x20U;
  }
  std::unique_ptr<Plan> cpu_;
};
const Variant kOneCodeOff{"one_code_off", "", Memory::host, everything,
                          [](const Problem& p, const DeviceInfo& device) -> std::unique_ptr<Plan> {
                            return std::make_unique<OneCodeOff>(p, device);
                          }};

// cpu, by another operator than asked for.
class ByAnother final : public Plan {
 public:
  ByAnother(const Problem& asked, const Operator& op, const DeviceInfo& device) : Plan(asked) {
    Problem problem = asked;
    problem.op = op;
    cpu_ = plan(cpu::variant, problem, device);
  }
  Numerics numerics() const override { return cpu_->numerics(); }
  Settings settings() const override { return {}; }

 private:
  void enqueue(const Operands& operands, Stream stream) const override {
    Operands taken = operands;
    if (!cpu_->problem().op.has_signs()) taken.signs = nullptr;
    cpu_->execute(taken, stream);
  }
  std::unique_ptr<Plan> cpu_;
};

class SessionTest : public testing::Test {
 protected:
  Outcome run(const Variant& variant, const char* problem, Mode mode = Mode::host) {
    return session.run(make_jobs({&variant}, {{parse_problem(problem), mode}}, device).jobs.at(0));
  }
  DeviceInfo device = this_device();
  std::vector<CsvRow> limits;
  Session session{device, [this](const CsvRow& row) { limits.push_back(row); }};
};

TEST_F(SessionTest, ACorrectResultHasATimeBesideItsLimit) {
  const Outcome outcome = run(cpu::variant, "f16/n256/r64");
  ASSERT_EQ(outcome.status, Outcome::Status::ok) << outcome.message;
  const CsvRow& row = outcome.row;
  EXPECT_EQ(row.at("status"), "ok");
  const double time_us = std::stod(row.at("time_us")), limit_us = std::stod(row.at("limit_us"));
  EXPECT_GT(time_us, 0.0);
  EXPECT_NEAR(std::stod(row.at("fraction_of_limit")), limit_us / time_us, 1e-3 * limit_us / time_us);
  EXPECT_NEAR(std::stod(row.at("bytes_per_second")), 2 * 2 * 256 * 64 / (1e-6 * time_us),
              1e-3 * 65536e6 / time_us);
  EXPECT_LE(std::stod(row.at("time_min_us")), time_us);
  EXPECT_LE(time_us, std::stod(row.at("time_max_us")));
  EXPECT_GT(std::stod(row.at("rel_l2")), 0.0);
  EXPECT_NE(row.at("settings").find("\"threads\""), std::string::npos);
  // The limit is the best of the copies that were measured and written down.
  ASSERT_FALSE(limits.empty());
  double best = 1e300;
  for (const CsvRow& limit : limits) {
    EXPECT_EQ(limit.at("useful_bytes"), row.at("useful_bytes"));
    best = std::min(best, std::stod(limit.at("time_us")));
  }
  EXPECT_EQ(best, limit_us);
  const std::size_t measured = limits.size();
  run(cpu::variant, "bf16/n64/r256");
  EXPECT_EQ(limits.size(), measured) << "the same bytes have the same limit";
  run(cpu::variant, "bf16/n64/r256/out");
  EXPECT_GT(limits.size(), measured);
}

TEST_F(SessionTest, HasAsManyReplaysAsItIsAskedFor) {
  Session three(
      device, [](const CsvRow&) {}, 3);
  const Outcome outcome =
      three.run(make_jobs({&cpu::variant}, {{parse_problem("f16/n64/r64"), Mode::host}}, device).jobs.at(0));
  ASSERT_EQ(outcome.status, Outcome::Status::ok) << outcome.message;
  EXPECT_EQ(outcome.row.at("replays"), "3");
  EXPECT_EQ(outcome.timing.each_us.size(), 3U);
}

// Codes and scales are compared bit for bit, the time is that of fewer bytes.
TEST_F(SessionTest, EncodedResultsAreJudgedByTheReference) {
  for (const char* text :
       {"bf16/n256/r64>e4m3:row", "f16/n256/r66>e4m3:128,mn", "f32/n64/r64>int4:32",
        "bf16/n128/r64>e4m3:row,t1024", "bf16/n256/r64>nvfp4:128x4", "f16/n128/r64>e4m3:tensor,vllm_static",
        "bf16/n1/r65536>mxfp8:t4096", "bf16/n256/r9000/rms>e4m3:row", "bf16/128+signs/r64/rope64h2>mxfp4",
        "f16/n128/r60/rope64/page16x4>e4m3:128", "bf16/n128/r70/page16x4>mxfp4"}) {
    const Outcome outcome = run(cpu::variant, text);
    ASSERT_EQ(outcome.status, Outcome::Status::ok) << text << ": " << outcome.message;
    EXPECT_EQ(outcome.row.at("bytes_written"), std::to_string(parse_problem(text).bytes_written()));
    const double error = std::stod(outcome.row.at("rel_l2"));
    EXPECT_GT(error, 0.02) << text;
    EXPECT_LT(error, 0.13) << text;
  }
}

// Signs and dense factors, in front, behind and transposed: by operands of the harness's own.
TEST_F(SessionTest, OperatorsWithDataAreJudgedByFp64) {
  for (const char* text : {"bf16/256+signs/r64", "f32/signs+256/r9000/out", "f16/28x16+signs/r5000",
                           "f16/d28x16/r5000", "bf16/d5tx64/r64/out", "f64/d7xd3x4+signs/r9"}) {
    const Outcome outcome = run(cpu::variant, text);
    ASSERT_EQ(outcome.status, Outcome::Status::ok) << text << ": " << outcome.message;
    EXPECT_EQ(outcome.row.at("operator"), to_string(parse_problem(text).op));
  }
  for (const char* text : {"bf16/d28x16/r64>e4m3:row", "bf16/signs+256/r64>e4m3:row", "bf16/d5tx64/r70>mxfp4",
                           "f16/d28x128/r4000>e4m3:tensor,vllm_static",
                           "f16/n1/r8/ld4>e4m3:tensor,vllm_static", "f16/n1/r8/s2>e4m3:tensor,vllm_static"}) {
    const Outcome outcome = run(cpu::variant, text);
    ASSERT_EQ(outcome.status, Outcome::Status::ok) << text << ": " << outcome.message;
    EXPECT_LT(std::stod(outcome.row.at("rel_l2")), 0.13) << text << ": orthonormal, so no code saturates";
  }
}

// What leaves signs or dense factors out, or transposes them, is noticed.
TEST_F(SessionTest, ResultsOfAnotherOperatorAreWrong) {
  static const char* executed = nullptr;  // Variant has pointers to functions
  const Variant other{"other", "", Memory::host, everything,
                      [](const Problem& problem, const DeviceInfo& here) -> std::unique_ptr<Plan> {
                        return std::make_unique<ByAnother>(problem, parse_operator(executed), here);
                      }};
  for (const auto& [asked, done] : {std::pair{"bf16/256+signs/r64", "256"},
                                    {"bf16/signs+256/r64", "256+signs"},
                                    {"f16/d28x16/r64", "d28tx16"},
                                    {"f16/28x16+signs/r64", "28x16"}}) {
    executed = done;
    EXPECT_EQ(run(other, asked).status, Outcome::Status::incorrect) << asked << " by " << done;
  }
}

// A variant may take rows of this length with signs alone, or choose another kernel for them: its codes are
// judged by its own plain result with signs.
TEST_F(SessionTest, CodesOfSignedRowsAreJudgedByTheSignedPlainResult) {
  const Variant signs_only{"signs_only", "", Memory::host,
                           [](const Problem& p, const DeviceInfo&) -> Support {
                             if (!p.op.has_signs()) return {"only with signs"};
                             return {};
                           },
                           cpu::variant.make_plan};
  const char* text = "bf16/128+signs/r64/rms>mxfp4";
  const Outcome outcome = run(signs_only, text);
  ASSERT_EQ(outcome.status, Outcome::Status::ok) << outcome.message;
  EXPECT_EQ(outcome.row.at("rel_l2"), run(cpu::variant, text).row.at("rel_l2"));
}

TEST_F(SessionTest, AWrongCodeHasNoTime) {
  for (const char* text : {"bf16/n256/r64>e4m3:row", "bf16/n256/r64>nvfp4", "bf16/n256/r64>mxfp4:128x4",
                           "bf16/256+signs/r64/rms>mxfp4"}) {
    const Outcome outcome = run(kOneCodeOff, text);
    EXPECT_EQ(outcome.status, Outcome::Status::incorrect) << text;
    EXPECT_NE(outcome.message.find("codes of row 63"), std::string::npos) << outcome.message;
    EXPECT_FALSE(outcome.row.contains("time_us"));
  }
}

// Lie 10 of ten: a speed is printed for a wrong result.
TEST_F(SessionTest, AWrongResultHasNoTime) {
  const Outcome outcome = run(kIdentity, "f16/n256/r64");
  EXPECT_EQ(outcome.status, Outcome::Status::incorrect);
  EXPECT_EQ(outcome.row.at("status"), "incorrect");
  EXPECT_FALSE(outcome.row.at("message").empty());
  EXPECT_EQ(outcome.row.at("settings"), R"({"tile":3,"form":"none"})");
  for (const char* column :
       {"time_us", "time_min_us", "time_max_us", "bytes_per_second", "fraction_of_limit"}) {
    EXPECT_FALSE(outcome.row.contains(column)) << column;
  }
}

TEST_F(SessionTest, AVariantThatThrowsFailsAndTheNextOneRuns) {
  const Outcome outcome = run(kThrowing, "f16/n256/r64");
  EXPECT_EQ(outcome.status, Outcome::Status::failed);
  EXPECT_EQ(outcome.row.at("status"), "failed");
  EXPECT_EQ(outcome.row.at("message"), "broken, \"really\"\nbroken");
  EXPECT_FALSE(outcome.row.contains("time_us"));
  EXPECT_EQ(run(cpu::variant, "f16/n256/r64").status, Outcome::Status::ok);
}

// A full disk is no fault of the variant: nothing that comes next could be kept either.
TEST_F(SessionTest, AFullDiskEndsTheRun) {
  Session full(device, [](const CsvRow&) { throw harness::DiskFull("limits.csv"); });
  const JobList list = make_jobs({&cpu::variant}, {{parse_problem("f16/n256/r64"), Mode::host}}, device);
  EXPECT_THROW(full.run(list.jobs.at(0)), harness::DiskFull);
}

// Told from the list where the memory of the machine is known, else by the run.
TEST_F(SessionTest, WhatDoesNotFitIsUnsupportedNotFailed) {
  const JobList list =
      make_jobs({&cpu::variant}, {{parse_problem("f16/n1024/r35184372088832"), Mode::host}}, device);
  EXPECT_TRUE(list.jobs.empty());
  ASSERT_EQ(list.unsupported.size(), 1U);
  EXPECT_NE(list.unsupported[0].reason.find("of host memory, there are"), std::string::npos);
  device.host_memory_bytes = 0;
  const Outcome outcome = run(cpu::variant, "f16/n1024/r35184372088832");
  EXPECT_EQ(outcome.status, Outcome::Status::unsupported);
  EXPECT_NE(outcome.row.at("reason").find("of host memory"), std::string::npos);
  EXPECT_EQ(outcome.row.at("variant"), "cpu");
}

TEST_F(SessionTest, DataThatWouldOverflowIsPutBack) {
  // Unscaled in place: each application grows f16 data by 2^6, so that the third one would overflow.
  const Outcome outcome = run(cpu::variant, "f16/n4096/r8/s1");
  ASSERT_EQ(outcome.status, Outcome::Status::ok) << outcome.message;
  EXPECT_EQ(outcome.row.at("launches"), "1");
  EXPECT_NE(outcome.row.at("settings").find("\"scale\":1.0"), std::string::npos);
}

TEST_F(SessionTest, StridedAndOutOfPlaceProblemsAreTimed) {
  for (const char* problem : {"f16/n64/r33/ld72", "f32/n64/r33/out", "bf16/n64/r33/out/ld65"}) {
    EXPECT_EQ(run(cpu::variant, problem).status, Outcome::Status::ok) << problem;
  }
}

class SessionGpu : public SessionTest {};

TEST_F(SessionGpu, TimesEveryModeOfADeviceVariant) {
  if (!device.has_cuda()) GTEST_SKIP() << device.why_no_cuda;
  for (const Mode mode : {Mode::replay, Mode::alternating, Mode::cold}) {
    const Outcome outcome = run(naive::variant, "f16/n256/r1024", mode);
    ASSERT_EQ(outcome.status, Outcome::Status::ok) << outcome.message;
    EXPECT_GT(std::stod(outcome.row.at("fraction_of_limit")), 0.0);
    EXPECT_LT(std::stod(outcome.row.at("fraction_of_limit")), 1.5);
    EXPECT_GT(std::stod(outcome.row.at("empty_us")), 0.0);
  }
}

// Lies 3 and 9 of ten: failures are counted and the exit code is 0; everything is skipped and the run is
// green.
TEST_F(SessionTest, OnlyASweepOfRightResultsExitsWithZero) {
  const CsvRow right = run(cpu::variant, "f16/n256/r64").row, wrong = run(kIdentity, "f16/n256/r64").row,
               failed = run(kThrowing, "f16/n256/r64").row;
  EXPECT_EQ(exit_code(true, {right, right}), 0);
  EXPECT_EQ(exit_code(true, {right, wrong, right}), 1);
  EXPECT_EQ(exit_code(true, {right, failed}), 1);
  EXPECT_EQ(exit_code(false, {right}), 1) << "the device was lost";
  EXPECT_EQ(exit_code(true, {}), 1) << "nothing was measured";
}

TEST(Report, SaysInWordsWhatCameOut) {
  const auto row = [](const char* status, const char* fastest, const char* slowest) {
    return CsvRow{{"status", status}, {"time_min_us", fastest}, {"time_max_us", slowest}};
  };
  EXPECT_FALSE(is_noisy(row("ok", "10", "11.9")));
  EXPECT_TRUE(is_noisy(row("ok", "10", "12.1"))) << "beyond 1.2";
  EXPECT_FALSE(is_noisy(row("failed", "", "")));
  EXPECT_EQ(summary({row("ok", "10", "11"), row("ok", "10", "10")}, 0), "2 results correct, 0 wrong\n");
  EXPECT_EQ(
      summary({row("ok", "10", "11"), row("incorrect", "", ""), row("failed", "", ""), row("failed", "", "")},
              0),
      "1 results correct, 1 wrong, 2 failed\n");
  const std::string all = summary({row("ok", "10", "13"), row("incorrect", "", "")}, 7);
  EXPECT_TRUE(all.starts_with("1 results correct, 1 wrong\n1 of them are noisy: ")) << all;
  CsvRow held = row("ok", "10", "11");
  held["throttle"] = "sw_power_cap";
  EXPECT_TRUE(is_throttled(held));
  EXPECT_EQ(
      summary({held, row("ok", "10", "11")}, 0),
      "2 results correct, 0 wrong\n1 of them were throttled in every measurement: the column throttle says "
      "why\n");
  EXPECT_NE(all.find("7 problems are not supported by a variant: unsupported.csv says why\n"),
            std::string::npos);
}

TEST(Report, NamesTheBestVariantOfEachLength) {
  const auto row = [](const char* variant, const char* n, const char* status, const char* time_us) {
    return CsvRow{{"variant", variant},
                  {"dtype", "f16"},
                  {"n", n},
                  {"rows", "1"},
                  {"elements", "1024"},
                  {"placement", "in"},
                  {"arrangement", std::string(variant) == "walsh" ? "sequency" : ""},
                  {"operator", n},
                  {"encoding", std::string(variant) == "codes" ? "e4m3:row" : ""},
                  {"row_stride", std::string(variant) == "apart" ? "24" : n},
                  {"mode", "replay"},
                  {"status", status},
                  {"time_us", time_us},
                  {"limit_kernel", "c"},
                  {"fraction_of_limit", "0.5"},
                  {"message", "why"}};
  };
  const std::vector<CsvRow> rows = {row("slow", "16", "ok", "3"),        row("quick", "16", "ok", "2"),
                                    row("wrong", "16", "incorrect", ""), row("slow", "512", "ok", "4"),
                                    row("walsh", "16", "ok", "1"),       row("codes", "16", "ok", "9"),
                                    row("apart", "16", "ok", "8")};
  const std::string table = best_variants(rows);
  EXPECT_NE(table.find("f16, 2^10 elements, in place, replay"), std::string::npos) << table;
  EXPECT_NE(table.find("quick"), std::string::npos);
  EXPECT_EQ(table.find("wrong"), std::string::npos);
  EXPECT_GT(table.find("walsh"), table.find("f16, 2^10 elements, in place, replay, sequency"))
      << "another problem";
  EXPECT_NE(table.find("in place, replay, e4m3:row\n"), std::string::npos) << table;
  EXPECT_NE(table.find("codes"), std::string::npos) << "slower, and of other results";
  EXPECT_NE(table.find("16/ld24  apart"), std::string::npos) << table;
  EXPECT_LT(table.find("quick"), table.find("slow")) << "one line a length";
  EXPECT_EQ(problems_found(rows), "incorrect: wrong f16/n16/r1 replay: why\n");
  EXPECT_EQ(best_variants({}), "");
}

}  // namespace
}  // namespace fwht::sweep
