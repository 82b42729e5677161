#include "experiments/studies/overflow/overflow.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "reference/emulation.hpp"
#include "reference/hadamard.hpp"
#include "variants/registry.hpp"

namespace fwht::overflow {
namespace {

double norm_of(const Problem& problem, const std::vector<std::byte>& raw, std::int64_t row) {
  return reference::load_rows(problem, raw.data(), row, 1).norm();
}

TEST(Overflow, RowsHaveTheNormAskedFor) {
  const Problem problem = make_problem(Dtype::f16, 1024, 4);
  for (const auto& [shape, name] : kShapes) {
    const auto raw = make_rows(problem, shape, 1000.0);
    ASSERT_FALSE(raw.empty());
    for (std::int64_t r = 0; r < problem.rows; ++r)
      EXPECT_NEAR(norm_of(problem, raw, r), 1000.0, 1.0) << name_of(shape);
  }
  EXPECT_TRUE(make_rows(problem, RowShape::one_hot, 70000.0).empty()) << "fp16 cannot hold the entry";
}

// Orthonormal stages keep the 2-norm of a row: no intermediate exceeds it, and equal entries gather all of it
// in one.
TEST(Overflow, HadacoreOverflowsFromANormOf65504OnWhereTheExactResultIsSmall) {
  const Problem problem = make_problem(Dtype::f16, 32768, 2);
  const harness::Performer hadacore(hadacore::published_variant, harness::Source::emulated, this_device());
  harness::Workspace workspace;
  const auto counted = [&](double norm) {
    const auto in = make_rows(problem, RowShape::block, norm * 65504.0);
    EXPECT_LT(reference::expected(problem, in.data()).cwiseAbs().maxCoeff(), 0.1 * 65504.0);
    return count(problem, in, hadacore.run(problem, in, workspace).output);
  };
  EXPECT_EQ(counted(0.99).spurious, 0);
  const Count beyond = counted(1.01);
  EXPECT_EQ(beyond.overflowing, 0);
  EXPECT_EQ(beyond.spurious, 2);
  EXPECT_GT(beyond.spurious_values, 0);
}

TEST(Overflow, ARowWhoseResultOverflowsIsNotSpurious) {
  const Problem problem = make_problem(Dtype::f16, 1024, 4);
  const auto in = make_rows(problem, RowShape::constant, 2.0 * 65504.0);
  std::vector<std::byte> out(in.size());
  reference::emulate(problem, single_rounding(Sums::fp32, problem), in.data(), out.data());
  const Count c = count(problem, in, out);
  EXPECT_EQ(c.overflowing, 4);
  EXPECT_EQ(c.spurious, 0);
  EXPECT_TRUE(std::isnan(c.rel_l2)) << "no row is left to measure";
}

// Scale first: no overflow but precision lost on small data. Scale last in storage: the other way round.
TEST(Overflow, EachPlaceOfTheScaleHasItsPrice) {
  const Problem problem = make_problem(Dtype::f16, 32768, 2);
  const auto error = [&](ScalePlacement placement, RowShape shape, double norm) {
    const auto in = make_rows(problem, shape, norm);
    return count(problem, in, transform(placement, problem, in));
  };
  const double small = 0.18;  // RMS 1e-3: 3.1e-3 for the scale before (docs/numerics.md, Range)
  EXPECT_NEAR(error(ScalePlacement::before, RowShape::normal, small).rel_l2, 3.1e-3, 3e-4);
  EXPECT_EQ(error(ScalePlacement::before, RowShape::normal, 0.5 * 65504.0).spurious, 0);
  EXPECT_EQ(error(ScalePlacement::after_in_storage, RowShape::normal, 2.0 * 65504.0).spurious, 2);
}

TEST(Overflow, TasksAreDistinctAndCountTheirRows) {
  const DeviceInfo device = this_device();
  const auto performers = harness::performers({&cpu::variant}, device);
  harness::Workspace workspace;
  std::set<std::string> names;
  for (const harness::Task& task : tasks({device, performers, workspace})) {
    EXPECT_TRUE(names.insert(task.name()).second);
    if (task.identity.at("n") != "128") continue;
    EXPECT_EQ(std::ssize(task.run()), task.rows) << task.name();
  }
  EXPECT_EQ(names.size(), 3U * 4U * 3U);
}

}  // namespace
}  // namespace fwht::overflow
