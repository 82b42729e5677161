#include "experiments/sweep/jobs.hpp"

#include <gtest/gtest.h>

#include <set>

#include "common/host/error.hpp"
#include "variants/registry.hpp"

namespace fwht::sweep {
namespace {

using harness::Case;
using harness::Mode;

DeviceInfo host_only() {
  DeviceInfo device;
  device.why_no_cuda = "no CUDA device: none here";
  return device;
}

std::vector<std::string> names(const JobList& list) {
  std::vector<std::string> all;
  for (const Job& job : list.jobs)
    all.push_back(job.name());
  return all;
}

TEST(Jobs, GoByLengthAndDtypeThenByVariant) {
  const std::vector<Case> cases = {
      {parse_problem("f16/n64/r8"), Mode::host},   {parse_problem("bf16/n64/r8"), Mode::host},
      {parse_problem("f16/n16/r4"), Mode::host},   {parse_problem("f16/n64/r2"), Mode::host},
      {parse_problem("f16/n64/r8"), Mode::replay}, {parse_problem("f16/n64/r8"), Mode::cold},
      {parse_problem("f16/n64/r8"), Mode::host}};
  const JobList here = make_jobs({&cpu::variant, &naive::variant}, cases, host_only());
  EXPECT_EQ(names(here), (std::vector<std::string>{"cpu/f16/n16/r4/host", "cpu/f16/n64/r8/host",
                                                   "cpu/f16/n64/r2/host", "cpu/bf16/n64/r8/host"}));
  ASSERT_EQ(here.unsupported.size(), 1U) << "once for all modes";
  EXPECT_EQ(here.unsupported[0].reason, "no CUDA device: none here");
  EXPECT_EQ(describe(here.unsupported[0]).at("variant"), "naive");
  const JobList there = make_jobs({&cpu::variant, &naive::variant}, cases, h200_description());
  EXPECT_EQ(names(there)[3], "naive/f16/n64/r8/replay");
  EXPECT_EQ(names(there)[4], "naive/f16/n64/r8/cold");
  EXPECT_TRUE(there.unsupported.empty());
}

TEST(Jobs, RefuseWhatCannotBeTimed) {
  EXPECT_THROW(make_jobs({&cpu::variant}, {}, host_only()), BadRequest);
  EXPECT_THROW(make_jobs({&cpu::variant}, {{parse_problem("f16/n8/r0"), Mode::host}}, host_only()),
               BadRequest);
  make_jobs({&cpu::variant}, {{parse_problem("bf16/64+signs/r64>e4m3:row"), Mode::host}}, host_only());
  for (const char* text : {"f16/n64/r4/rms", "bf16/64+signs/r4/rms", "bf16/64+signs/r4>e4m3:row/f32",
                           "bf16/d4x16/r4>e4m3:row/f32", "bf16/n64/r4/rms>e4m3:row/f32"}) {
    try {
      make_jobs({&cpu::variant}, {{parse_problem(text), Mode::host}}, host_only());
      ADD_FAILURE() << text << " is judged by nothing";
    } catch (const BadRequest& error) {
      EXPECT_NE(std::string(error.what()).find(" timed with"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(
      make_jobs({&cpu::variant},
                {{parse_problem("f16/n8/r4"), Mode::host}, {parse_problem("f16/n8/r4/s1"), Mode::host}},
                host_only()),
      BadRequest);
  EXPECT_EQ(
      make_jobs({&cpu::variant}, {{parse_problem("f16/n8/r4/s1"), Mode::host}}, host_only()).jobs.size(), 1U);
  const char *packed = "f16/n256/r64/out", *apart = "f16/n256/r64/out/ldo264";
  make_jobs({&cpu::variant}, {{parse_problem(apart), Mode::host}}, host_only());
  EXPECT_THROW(
      make_jobs({&cpu::variant}, {{parse_problem(packed), Mode::host}, {parse_problem(apart), Mode::host}},
                host_only()),
      BadRequest)
      << "one row of results.csv cannot be both";
}

TEST(Jobs, AnH200HasKernelsForWholeGridsPreparedAndOperands) {
  const std::vector<Case> cases = harness::load_grid("prepared").cases;
  const JobList list = make_jobs({&mma_split::variant}, cases, h200_description());
  EXPECT_EQ(list.jobs.size(), cases.size());
  const std::vector<Case> with_operands = harness::load_grid("operands").cases;
  EXPECT_EQ(make_jobs({&automatic::variant}, with_operands, h200_description()).jobs.size(),
            with_operands.size());
  EXPECT_TRUE(list.unsupported.empty()) << list.unsupported.front().reason;
}

TEST(Jobs, AnH200HasAKernelForEveryKindOfArrangement) {
  const std::vector<Case> cases = harness::load_grid("arrangements").cases;
  std::set<std::string> found;
  for (const Job& job : make_jobs({&passes::variant}, cases, h200_description()).jobs) {
    const std::string& words = job.what.columns.at("arrangement");
    found.insert(job.what.columns.at("dtype") + "/" + (words.starts_with("inner") ? "inner" : words));
  }
  EXPECT_EQ(found, (std::set<std::string>{"f16/inner", "f32/", "f32/dyadic", "f32/from-sequency", "f32/inner",
                                          "f32/sequency", "f64/", "f64/inner", "f64/sequency", "i32/",
                                          "i32/inner", "i32/sequency", "i64/", "i64/sequency"}));
  const auto arranged = [&](const Variant& variant) {
    std::set<std::string> problems;
    for (const Job& job : make_jobs({&variant}, cases, h200_description()).jobs)
      if (!job.what.columns.at("arrangement").empty())
        problems.insert(job.name().substr(job.name().find('/')));
    return problems;
  };
  EXPECT_EQ(arranged(automatic::variant), arranged(passes::variant));
  EXPECT_EQ(make_jobs({&cpu::variant}, cases, host_only()).unsupported.size(), 0U);
}

TEST(Jobs, TimeCodesOfEitherIntermediate) {
  const JobList list = make_jobs({&cpu::variant},
                                 {{parse_problem("bf16/n128/r4>e4m3:row/f32"), Mode::host},
                                  {parse_problem("f32/n128/r4>e4m3:row/f32"), Mode::host},
                                  {parse_problem("bf16/n128/r4>e4m3:row"), Mode::host}},
                                 host_only());
  EXPECT_EQ(list.jobs.size(), 3U);
  EXPECT_TRUE(list.unsupported.empty());
}

TEST(Jobs, FiltersKeepWhatEveryListNames) {
  const Case c{parse_problem("f16/n64/r8/out"), Mode::host};
  Filters filters;
  EXPECT_TRUE(filters.keep(c));
  filters.n = {16, 64};
  filters.rows = {8};
  filters.elements = {512};
  filters.dtypes = {Dtype::f16};
  filters.placements = {Placement::out_of_place};
  filters.modes = {Mode::host};
  EXPECT_TRUE(filters.keep(c));
  const auto refuses = [&](auto Filters::*list, auto value) {
    Filters other = filters;
    other.*list = {value};
    return !other.keep(c);
  };
  EXPECT_TRUE(refuses(&Filters::n, 16));
  EXPECT_TRUE(refuses(&Filters::rows, 16));
  EXPECT_TRUE(refuses(&Filters::elements, 64));
  EXPECT_TRUE(refuses(&Filters::dtypes, Dtype::bf16));
  EXPECT_TRUE(refuses(&Filters::placements, Placement::in_place));
  EXPECT_TRUE(refuses(&Filters::modes, Mode::replay));
}

TEST(Jobs, RowsAreFoundAgainByTheirKey) {
  const DeviceInfo device = host_only();
  const Job job =
      make_jobs({&cpu::variant}, {{parse_problem("f16/n64/r8/out/ld72"), Mode::host}}, device).jobs.at(0);
  harness::CsvRow row = describe(job);
  EXPECT_EQ(row.at("elements"), "512");
  EXPECT_EQ(row.at("useful_bytes"), "2048");
  EXPECT_EQ(row.at("row_stride"), "72");
  row["time_us"] = std::string("1.5");
  EXPECT_EQ(result_key(row), result_key(describe(job)));
  for (const char* column : {"variant", "memory", "operator", "encoding", "arrangement", "dtype", "n", "rows",
                             "placement", "row_stride", "mode"}) {
    harness::CsvRow other = row;
    other[column].push_back('x');
    EXPECT_NE(result_key(other), result_key(row)) << column;
  }
}

TEST(Jobs, AreFilteredByNameAsGoogleBenchmarkDoes) {
  const std::vector<Case> cases = {{parse_problem("f16/n16/r4"), Mode::host},
                                   {parse_problem("f16/n64/r8"), Mode::host},
                                   {parse_problem("bf16/n64/r8/out"), Mode::host}};
  const auto left = [&](const char* filter) {
    JobList list = make_jobs({&cpu::variant}, cases, host_only());
    filter_by_name(list.jobs, filter);
    return names(list);
  };
  EXPECT_EQ(left("").size(), 3U);
  EXPECT_EQ(left("all").size(), 3U);
  EXPECT_EQ(left("^cpu/f16/n16/r4/host$"), (std::vector<std::string>{"cpu/f16/n16/r4/host"}));
  EXPECT_EQ(left("n64.*/(out|in)/"), (std::vector<std::string>{"cpu/bf16/n64/r8/out/host"}));
  EXPECT_EQ(left("-n64"), (std::vector<std::string>{"cpu/f16/n16/r4/host"}));
  EXPECT_THROW(left("(n64"), BadRequest);
  EXPECT_THROW(left("n32"), BadRequest) << "nothing is left";
}

}  // namespace
}  // namespace fwht::sweep
