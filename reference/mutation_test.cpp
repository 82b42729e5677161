// The checker as a patient: known faults are planted in clean results; every one must be found, and clean
// results must never be called wrong. 2^16 elements a trial, as a conformance test uses.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>

#include "reference/rounding.hpp"
#include "reference/test_support.hpp"

namespace fwht::reference {
namespace {

constexpr std::int64_t kElements = 1 << 16;
constexpr std::int64_t kSizes[] = {64, 512, 4096, 32768};

struct Trial {
  Storage in, out;
  Numerics model;
  Matrix truth;
  std::mt19937_64 generator;

  Trial(Dtype dtype, std::int64_t n, bool staged, std::uint64_t seed)
      : in(make_problem(dtype, n, kElements / n), InputClass::normal, seed),
        out(in.problem),
        model(staged ? tensor_blocks(in.problem) : butterflies(in.problem)),
        truth(expected(in.problem, in.data())),
        generator(seed) {
    emulate(in.problem, model, in.data(), out.data(), 1);
  }

  const Problem& problem() const { return in.problem; }
  Format format() const { return format_of(problem().dtype()); }
  std::int64_t below(std::int64_t bound) {
    return std::uniform_int_distribution<std::int64_t>(0, bound - 1)(generator);
  }
  Checked verdict() const { return check(problem(), model, InputClass::normal, in.data(), out.data(), 1); }

  /// An element large enough that a fault in it is an error: the RMS is 1.
  Position visible_element() {
    while (true) {
      const Position at{below(problem().rows), below(problem().n())};
      if (std::fabs(out.get(at.row, at.column)) > 0.1) return at;
    }
  }
  void for_each(const std::function<double(double truth, double out)>& change) {
    for (std::int64_t r = 0; r < problem().rows; ++r) {
      for (std::int64_t i = 0; i < problem().n(); ++i)
        out.set(r, i, change(truth(r, i), out.get(r, i)));
    }
  }
};

/// Towards zero at the format's precision.
double truncated(const Format& format, double y) {
  const double ulp = ulp_of(format, y);
  return std::trunc(y / ulp) * ulp;
}

void sign_flip(Trial& t) {
  const Position at = t.visible_element();
  t.out.set(at.row, at.column, -t.out.get(at.row, at.column));
}

void zeroed_element(Trial& t) {
  const Position at = t.visible_element();
  t.out.set(at.row, at.column, 0.0);
}

void swapped_elements(Trial& t) {
  while (true) {
    const Position a = t.visible_element(), b = t.visible_element();
    const double x = t.out.get(a.row, a.column), y = t.out.get(b.row, b.column);
    if (std::fabs(x - y) < 0.2) continue;
    t.out.set(a.row, a.column, y);
    t.out.set(b.row, b.column, x);
    return;
  }
}

void row_copied(Trial& t) {
  const std::int64_t row = t.below(t.problem().rows);
  for (std::int64_t i = 0; i < t.problem().n(); ++i)
    t.out.set(row, i, t.out.get((row + 1) % t.problem().rows, i));
}

void gain_1e_4(Trial& t) {
  t.for_each([](double truth, double) { return truth * 1.0001; });
}

void extra_rounding(Trial& t) {
  // The result passes through storage once more on an incommensurate grid, as a separate scaling pass would
  // do.
  const Format format = t.format();
  t.for_each([&](double truth, double) { return round_fast(format, truth * 1.37) / 1.37; });
}

void truncation(Trial& t) {
  const Format format = t.format();
  t.for_each([&](double truth, double) { return truncated(format, truth); });
}

void one_ulp_on_a_quarter(Trial& t) {
  const Format format = t.format();
  t.for_each([&](double, double out) {
    const std::int64_t pick = t.below(8);
    return pick > 1 ? out : out + (pick ? 1.0 : -1.0) * ulp_of(format, out);
  });
}

void one_input_dropped(Trial& t) {
  Storage in = t.in;
  while (true) {
    const Position at{t.below(t.problem().rows), t.below(t.problem().n())};
    if (std::fabs(in.get(at.row, at.column)) < 0.5) continue;
    in.set(at.row, at.column, 0.0);
    break;
  }
  emulate(t.problem(), t.model, in.data(), t.out.data(), 1);
}

void every_level_in_storage(Trial& t) {
  emulate(t.problem(), stored_levels(t.problem()), t.in.data(), t.out.data(), 1);
}

struct Mutation {
  const char* name;
  void (*apply)(Trial&);
  bool staged;  ///< also planted in the staged tensor-core path
};

// The second path's own noise of k roundings hides a gain of 1e-4 and a quarter of an ulp at 2^16 elements,
// and its single elements hide one dropped input. Only faults that are visible above a path's promised error
// are asked for.
constexpr Mutation kMutations[] = {
    {"sign_flip", sign_flip, true},
    {"zeroed_element", zeroed_element, true},
    {"swapped_elements", swapped_elements, true},
    {"row_copied", row_copied, true},
    {"gain_1e_4", gain_1e_4, false},
    {"extra_rounding", extra_rounding, false},
    {"truncation", truncation, true},
    {"one_ulp_on_a_quarter", one_ulp_on_a_quarter, false},
    {"one_input_dropped", one_input_dropped, false},
    {"every_level_in_storage", every_level_in_storage, true},
};

class Fault : public testing::TestWithParam<Mutation> {};
INSTANTIATE_TEST_SUITE_P(Mutation, Fault, testing::ValuesIn(kMutations),
                         [](const auto& mutation) { return std::string(mutation.param.name); });

TEST_P(Fault, IsFound) {
  for (bool staged : {false, true}) {
    if (staged && !GetParam().staged) continue;
    for (Dtype dtype : {Dtype::f16, Dtype::bf16}) {
      for (std::int64_t n : kSizes) {
        for (std::uint64_t seed = 1; seed <= 3; ++seed) {
          Trial trial(dtype, n, staged, seed);
          GetParam().apply(trial);
          const Checked checked = trial.verdict();
          EXPECT_FALSE(checked.verdict)
              << (staged ? "staged " : "butterflies ") << to_string(trial.problem()) << " seed " << seed;
          EXPECT_FALSE(checked.verdict.message.empty());
        }
      }
    }
  }
}

// f32 results are held to fp32 standards: one TF32-like truncation, a biased accumulator, a flipped last bit
// everywhere, and exact results rounded once, which the model of fp32 sums does not have.
TEST(FaultF32, IsFound) {
  const auto faults = {
      std::function<double(double, double)>(
          [](double, double out) { return truncated(format_of(Dtype::f16), out); }),
      std::function<double(double, double)>([](double, double out) { return out * (1.0 - 3e-7); }),
      std::function<double(double, double)>([](double, double out) {
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(static_cast<float>(out)) ^ 1U);
      }),
      std::function<double(double truth, double)>([](double truth, double) { return truth; })};
  for (std::int64_t n : kSizes) {
    for (const auto& fault : faults) {
      Trial trial(Dtype::f32, n, false, 5);
      ASSERT_TRUE(trial.verdict().verdict) << trial.verdict().verdict.message;
      trial.for_each(fault);
      EXPECT_FALSE(trial.verdict().verdict) << n;
    }
  }
}

class NoFault : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Mutation, NoFault, testing::Bool(), [](const auto& staged) {
  return std::string(staged.param ? "staged" : "butterflies");
});

TEST_P(NoFault, NoAlarm) {
  for (Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    for (std::int64_t n : kSizes) {
      for (std::uint64_t seed = 100; seed < 140; ++seed) {
        const Checked checked = Trial(dtype, n, GetParam(), seed).verdict();
        EXPECT_TRUE(checked.verdict) << "seed " << seed << ": " << checked.verdict.message;
      }
    }
  }
}

}  // namespace
}  // namespace fwht::reference
