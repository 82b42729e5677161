// The checker is checked: a correct plan passes, and every way of being wrong is found.
#include "experiments/harness/checked_run.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "common/host/error.hpp"
#include "variants/registry.hpp"

namespace fwht::harness {
namespace {

using reference::Checked;
using reference::InputClass;

constexpr std::int64_t kPeriod = 1 << 14;

// The correct transform, and then a fault.
class Faulty final : public Plan {
 public:
  using Fault = std::function<void(const Plan& plan, std::uint16_t* in, std::uint16_t* out)>;

  Faulty(const Problem& problem, Fault fault)
      : Plan(problem),
        correct_(plan(find_variant("cpu"), problem, this_device())),
        fault_(std::move(fault)) {}
  Numerics numerics() const override { return correct_->numerics(); }
  Settings settings() const override { return {}; }

 private:
  void enqueue(const Operands& operands, Stream stream) const override {
    correct_->execute(operands.in, operands.out, stream);
    if (fault_)
      fault_(*this, static_cast<std::uint16_t*>(const_cast<void*>(operands.in)),
             static_cast<std::uint16_t*>(operands.out));
  }

  std::unique_ptr<Plan> correct_;
  Fault fault_;
};

Checked check_with(const char* problem_text, const Faulty::Fault& fault,
                   InputClass input = InputClass::normal) {
  const Problem problem = parse_problem(problem_text);
  TruthCache truths(kPeriod);
  Slices slices({Memory::host, problem.placement, problem.span_bytes(), problem.span_bytes_out()}, 1);
  return check_plan(Faulty(problem, fault), truths.of(problem, input, 1), slices);
}

// Rows below, at and above one period; ragged; strided; out of place; another scale.
constexpr const char* kProblems[] = {"f16/n1024/r3",
                                     "f16/n1024/r16",
                                     "f16/n1024/r64",
                                     "f16/n1024/r55",
                                     "bf16/n64/r700/out",
                                     "f32/n256/r100",
                                     "f16/n1024/r55/ld1032",
                                     "f16/n1024/r3/ld1025",
                                     "f16/n1024/r55/out/ld1032",
                                     "f16/n32768/r3",
                                     "f16/n2/r20001",
                                     "f16/n1024/r33/out/s1",
                                     "bf16/n1024/r48/ld1032",
                                     "f16/28x64/r33",
                                     "bf16/116tx8/r40/out",
                                     "f16/n256/r64/out/ldo264",
                                     "f16/n1024/r55/out/ld1032/ldo1024"};

// In another order, or between each other: below, at and above one period; with gaps between blocks; one
// block longer than a period; integers and fp64.
constexpr const char* kArranged[] = {"f16/n1024/r3/out/sequency",
                                     "f16/n1024/r55/out/from-dyadic",
                                     "bf16/n256/r70/out/from-sequency/dyadic",
                                     "f16/n64/r512/inner8",
                                     "f16/n64/r1200/inner8/out",
                                     "f16/n64/r1200/inner8/ld520",
                                     "f16/28x64/r30/inner3",
                                     "f16/n1024/r120/inner40",
                                     "f16/n64/r640/inner5/out/sequency",
                                     "f64/n128/r300/inner4/out/dyadic",
                                     "i32/n1024/r55",
                                     "i64/n256/r160/inner32/out"};

TEST(CheckedRun, CorrectPlansPass) {
  for (const char* problem : kProblems) {
    const Checked checked = check_with(problem, {});
    EXPECT_TRUE(checked.verdict) << problem << ": " << checked.verdict.message;
    EXPECT_GT(checked.stats.elements, 0) << problem;
  }
  EXPECT_TRUE(check_with("f16/n256/r500", {}, InputClass::massive_channel).verdict);
}

TEST(CheckedRun, CorrectPlansOfArrangedRowsPass) {
  for (const char* text : kArranged) {
    const Problem problem = parse_problem(text);
    const Checked checked = check_with(text, {}, judged_input(problem.dtype(), InputClass::normal));
    EXPECT_TRUE(checked.verdict) << text << ": " << checked.verdict.message;
    EXPECT_GT(checked.stats.expected_rms, 0.1) << text;
    EXPECT_EQ(checked.stats.rel_l2 == 0.0, problem.dtype() != Dtype::f16 && problem.dtype() != Dtype::bf16)
        << text;
  }
}

// Two elements that change places leave every sum of squares as it was; the last bit of an integer is within
// the rounding of no row. At the first, a later and the last block.
TEST(CheckedRun, ElementsInTheWrongPlaceAreFound) {
  for (const char* text :
       {"f16/n64/r1200/inner8/out", "f16/n1024/r55/out/sequency", "f16/n64/r640/inner5/out/sequency"}) {
    const Problem problem = parse_problem(text);
    const std::int64_t blocks = problem.rows / problem.inner;
    for (const std::int64_t block : {std::int64_t{0}, blocks / 2, blocks - 1}) {
      const Checked checked = check_with(text, [&](const Plan&, std::uint16_t*, std::uint16_t* out) {
        std::uint16_t* const first = out + block * problem.row_stride();
        std::swap(first[0], first[problem.inner == 1 ? 1 : problem.inner - 1]);
        std::swap(first[2 * problem.inner], first[4 * problem.inner]);
      });
      EXPECT_FALSE(checked.verdict) << text << " block " << block;
    }
  }
  const Checked off = check_with(
      "i32/n1024/r55",
      [](const Plan&, std::uint16_t*, std::uint16_t* out) { out[std::ptrdiff_t{2} * (50 * 1024 + 7)] ^= 1U; },
      InputClass::integers);
  EXPECT_FALSE(off.verdict);
}

TEST(CheckedRun, AnotherArrangementIsFound) {
  class Other final : public Plan {
   public:
    Other(const Problem& asked, const Problem& done)
        : Plan(asked), done_(plan(find_variant("cpu"), done, this_device())) {}
    Numerics numerics() const override { return done_->numerics(); }
    Settings settings() const override { return {}; }

   private:
    void enqueue(const Operands& operands, Stream) const override {
      done_->execute(operands.in, operands.out);
    }
    std::unique_ptr<Plan> done_;
  };
  for (const auto& [asked, done] :
       {std::pair{"f16/n1024/r16/out/sequency", "f16/n1024/r16/out"},
        {"f16/n1024/r16/out/sequency", "f16/n1024/r16/out/dyadic"},
        {"f16/n1024/r16/out/from-sequency/dyadic", "f16/n1024/r16/out/from-dyadic/sequency"},
        {"f16/n64/r256/inner8/out", "f16/n64/r256/inner16/out"},
        {"f16/n64/r256/inner8/out", "f16/n64/r256/out"}}) {
    const Problem problem = parse_problem(asked);
    TruthCache truths(kPeriod);
    Slices slices({Memory::host, problem.placement, problem.span_bytes(), problem.span_bytes()}, 1);
    EXPECT_FALSE(
        check_plan(Other(problem, parse_problem(done)), truths.of(problem, InputClass::normal, 1), slices)
            .verdict)
        << asked;
  }
}

void flip_low_bits(std::uint16_t& number) {
  number = static_cast<std::uint16_t>(number ^ 0x7F);
}

TEST(CheckedRun, OneWrongElementIsFoundWhereverItIs) {
  const Problem problem = parse_problem("f16/n1024/r55");  // three periods of 16 rows and a tail of 7
  for (const std::int64_t row : {0, 15, 16, 31, 40, 47, 48, 54}) {
    for (const std::int64_t column : {0, 511, 1023}) {
      const Checked checked =
          check_with("f16/n1024/r55", [&](const Plan&, std::uint16_t*, std::uint16_t* out) {
            flip_low_bits(out[row * problem.row_stride() + column]);
          });
      EXPECT_FALSE(checked.verdict) << row << "," << column;
      EXPECT_FALSE(checked.verdict.message.empty());
    }
  }
}

// Of n = 2^k and of an operator of factors: by the bound of the element, whatever the statistics say.
TEST(CheckedRun, AnElementJustOutsideItsBoundIsFound) {
  for (const char* problem : {"f16/n1024/r55", "f16/28x64/r33"}) {
    const Checked checked =
        check_with(problem, [](const Plan&, std::uint16_t*, std::uint16_t* out) { out[5] ^= 2U; });
    EXPECT_FALSE(checked.verdict) << problem;
    EXPECT_EQ(checked.stats.elementwise_violations, 1) << problem;
    EXPECT_EQ(checked.stats.first_wrong.column, 5) << problem;
  }
}

// As of a published kernel, of which nothing is known but that it rounds.
TEST(CheckedRun, OneWrongRowOfAPlanWithoutNumericsIsFound) {
  class Unknown final : public Plan {
   public:
    Unknown(const Problem& problem, std::int64_t wrong_row)
        : Plan(problem), correct_(plan(find_variant("cpu"), problem, this_device())), wrong_row_(wrong_row) {}
    Numerics numerics() const override { return {}; }
    Settings settings() const override { return {}; }

   private:
    void enqueue(const Operands& operands, Stream) const override {
      correct_->execute(operands.in, operands.out);
      auto* const out = static_cast<std::uint16_t*>(operands.out);
      for (std::int64_t i = 0; wrong_row_ >= 0 && i < problem().n(); ++i)
        out[wrong_row_ * problem().n() + i] ^= 0x20U;
    }
    std::unique_ptr<Plan> correct_;
    std::int64_t wrong_row_;
  };
  const Problem problem = parse_problem("f16/n64/r256");
  TruthCache truths(kPeriod);
  const auto verdict_of = [&](std::int64_t wrong_row) {
    Slices slices({Memory::host, problem.placement, problem.span_bytes(), problem.span_bytes_out()}, 1);
    return check_plan(Unknown(problem, wrong_row), truths.of(problem, InputClass::normal, 1), slices).verdict;
  };
  EXPECT_TRUE(verdict_of(-1)) << verdict_of(-1).message;
  EXPECT_NE(verdict_of(200).message.find("the relative L2 error of a row is"), std::string::npos);
}

TEST(CheckedRun, ARowThatIsOffByRoundingOnlyInALaterPeriodIsFound) {
  const Checked checked =
      check_with("f16/n1024/r64", [](const Plan& plan, std::uint16_t*, std::uint16_t* out) {
        out[40 * plan.problem().row_stride() + 7] ^=
            1U;  // one unit in the last place: within every tolerance
      });
  ASSERT_FALSE(checked.verdict);
  EXPECT_NE(checked.verdict.message.find("row 40 differs from row 24"), std::string::npos)
      << checked.verdict.message;
}

TEST(CheckedRun, RowsLeftUntouchedAreFound) {
  for (const char* problem : {"f16/n1024/r55", "f16/n1024/r55/out"}) {
    for (const std::int64_t row : {0, 20, 54}) {
      const Checked checked = check_with(problem, [&](const Plan& plan, std::uint16_t*, std::uint16_t* out) {
        std::memset(out + row * plan.problem().row_stride(), kPoisonByte, 2048);
      });
      EXPECT_FALSE(checked.verdict) << problem << " row " << row;
    }
  }
  // All rows alike: a plan that does nothing.
  const Problem problem = parse_problem("f16/n1024/r64/out");
  class Nothing final : public Plan {
   public:
    using Plan::Plan;
    explicit Nothing(const Problem& p) : Plan(p) {}
    Numerics numerics() const override { return single_rounding(Sums::fp32, problem()); }
    Settings settings() const override { return {}; }

   private:
    void enqueue(const Operands&, Stream) const override {}
  };
  TruthCache truths(kPeriod);
  for (const Placement placement : {Placement::in_place, Placement::out_of_place}) {
    Problem placed = problem;
    placed.placement = placement;
    Slices slices({Memory::host, placement, problem.span_bytes(), problem.span_bytes()}, 1);
    EXPECT_FALSE(check_plan(Nothing(placed), truths.of(placed, InputClass::normal, 1), slices).verdict);
  }
}

TEST(CheckedRun, WritesBetweenTheRowsAreFound) {
  for (const char* problem :
       {"f16/n1024/r55/ld1032", "f16/n1024/r55/out/ld1032", "f16/n64/r880/inner16/ld1032"}) {
    // One row of the first period, its last row, of a later period, of the tail; and every row alike.
    for (const std::int64_t row : {0, 15, 40, 50, -1}) {
      const Checked checked = check_with(problem, [&](const Plan& plan, std::uint16_t*, std::uint16_t* out) {
        for (std::int64_t r = 0; r + 1 < plan.problem().rows / plan.problem().inner; ++r) {
          if (row < 0 || r == row) out[r * plan.problem().row_stride() + 1030] = 0;
        }
      });
      EXPECT_FALSE(checked.verdict) << problem << " row " << row;
    }
  }
}

TEST(CheckedRun, WritesPastTheEndAndIntoTheInputAreFound) {
  const Checked past = check_with("f16/n1024/r16", [](const Plan& plan, std::uint16_t*, std::uint16_t* out) {
    out[plan.problem().elements()] = 0;
  });
  EXPECT_FALSE(past.verdict);
  for (const bool behind : {false, true}) {
    const Checked input =
        check_with("f16/n1024/r16/out", [&](const Plan& plan, std::uint16_t* in, std::uint16_t*) {
          in[behind ? plan.problem().elements() : -1] = 0;
        });
    EXPECT_FALSE(input.verdict) << (behind ? "behind the input" : "in front of it");
  }
  for (const std::int64_t element : {0, 1024 * 16, 1024 * 55 - 1}) {
    const Checked input = check_with(
        "f16/n1024/r55/out", [&](const Plan&, std::uint16_t* in, std::uint16_t*) { in[element] ^= 1U; });
    EXPECT_FALSE(input.verdict) << element;
    EXPECT_NE(input.verdict.message.find("input"), std::string::npos);
  }
}

TEST(CheckedRun, WhatThePlanThrowsIsPassedOn) {
  EXPECT_THROW(
      check_with("f16/n64/r4", [](const Plan&, std::uint16_t*, std::uint16_t*) { throw BadRequest("x"); }),
      BadRequest);
}

TEST(TruthCache, HoldsWholeRowsUpToThePeriod) {
  TruthCache truths(kPeriod);
  const auto rows = [&](const char* problem) {
    return truths.of(parse_problem(problem), InputClass::normal, 1).period.rows;
  };
  EXPECT_EQ(rows("f16/n1024/r3"), 3);
  EXPECT_EQ(rows("f16/n1024/r1000"), 16);
  EXPECT_EQ(rows("f16/n32768/r1000"), 1) << "a row longer than the period";
  EXPECT_EQ(rows("f16/n16384/r1000"), 1);
  EXPECT_EQ(rows("f16/n1024/r1000/inner5"), 20) << "whole blocks";
  EXPECT_EQ(rows("f16/n1024/r1000/inner500"), 500) << "a block longer than the period";
}

TEST(TruthCache, KeepsWhatIsAskedForAgain) {
  TruthCache truths(kPeriod);
  const Problem problem = make_problem(Dtype::f16, 64, 1000);
  const Truth* first = &truths.of(problem, InputClass::normal, 1);
  EXPECT_EQ(&truths.of(make_problem(Dtype::f16, 64, 5000), InputClass::normal, 1), first)
      << "the same period";
  EXPECT_NE(&truths.of(problem, InputClass::normal, 2), first);
  EXPECT_NE(&truths.of(problem, InputClass::uniform, 1), first);
  EXPECT_NE(&truths.of(make_problem(Dtype::bf16, 64, 1000), InputClass::normal, 1), first);
  EXPECT_EQ(&truths.of(problem, InputClass::normal, 1), first);
}

TEST(TruthCache, GivesTheInputWithoutItsTransform) {
  TruthCache alone(kPeriod), both(kPeriod);
  const Problem problem = make_problem(Dtype::f16, 64, 1000);
  const std::vector<std::byte> input = alone.input_of(problem, InputClass::normal, 1);
  EXPECT_EQ(input, both.of(problem, InputClass::normal, 1).raw);
  const Truth& later = alone.of(problem, InputClass::normal, 1);
  EXPECT_EQ(later.raw, input);
  EXPECT_EQ(later.expected, both.of(problem, InputClass::normal, 1).expected);
}

}  // namespace
}  // namespace fwht::harness
