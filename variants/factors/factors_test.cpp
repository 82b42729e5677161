// The passes of an operator, run on the host by the kernel's index maps.
#include "variants/factors/factors.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "common/contract/hadamard_matrices.hpp"
#include "reference/emulation.hpp"

namespace fwht::factors {
namespace {

constexpr const char* kOperators[] = {"12x64",     "28x512",    "428x32",   "428tx32",     "76x2x36x2",
                                      "4x12",      "60x4x28x2", "28x1024",  "116tx4",      "172x128",
                                      "128+signs", "12x12x128", "428",      "16384+signs", "d5x4096",
                                      "d53x512",   "20x1024",   "12x2048",  "132",         "d7x2",
                                      "16xd6",     "12x2x20x2", "12xd5tx2", "256r",        "4r"};

/// Of a digit behind digit 0 of its column.
std::size_t offset_of(int digit, const Stage& stage) {
  return static_cast<std::size_t>(digit) * static_cast<std::size_t>(stage.stride);
}

TEST(Factors, EveryPassMeetsEveryElementOnce) {
  for (const char* text : kOperators) {
    const Operator op = parse_operator(text);
    const Program program = program_of(op);
    const int elements = program.rows_per_block * static_cast<int>(op.n());
    for (const Stage& stage : program.stages) {
      std::vector<int> seen(static_cast<std::size_t>(elements));
      for (int column = 0; column < stage.columns(elements); ++column) {
        for (int digit = 0; digit < stage.order; ++digit)
          ++seen.at(static_cast<std::size_t>(stage.first_of(column)) + offset_of(digit, stage));
      }
      EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; })) << text;
    }
  }
}

TEST(Factors, ItemsOfAProductCoverTheMatrixTimesTheColumnsAndFitTheThreads) {
  for (const char* text : kOperators) {
    const Operator op = parse_operator(text);
    const Program program = program_of(op);
    EXPECT_LE(program.threads, kMostThreads) << text;
    EXPECT_EQ(program.threads % 32, 0) << text;
    const int elements = program.rows_per_block * static_cast<int>(op.n());
    for (const Stage& stage : program.stages) {
      if (stage.levels > 0) continue;
      EXPECT_TRUE(stage.items_are_apart() || stage.items(elements) <= program.threads) << text;
      const int columns = stage.columns(elements), quads = stage.quads(elements);
      std::set<std::pair<int, int>> sums;  // row of the matrix, column of the data
      for (int item = 0; item < stage.items(elements); ++item) {
        for (int c = 0; c < kTileColumns; ++c) {
          const int column = stage.column_of(elements, item % quads, c);
          for (int i = 0; i < kTileRows; ++i) {
            const int row = item / quads * kTileRows + i;
            if (column >= columns || row >= stage.order) continue;
            EXPECT_TRUE(sums.emplace(row, column).second) << text;
            if (stage.columns_are_adjacent()) {
              EXPECT_EQ(stage.first_of(column), stage.first_of(column - c) + c) << text;
            }
          }
        }
      }
      EXPECT_EQ(static_cast<int>(sums.size()), stage.order * columns) << text;
    }
  }
}

/// The passes as the kernel does them, on one row of fp32 numbers.
void run_passes(const Operator& op, std::vector<float>& x) {
  const Program program = program_of(op);
  const auto n = static_cast<int>(op.n());
  std::vector<Stage> stages = program.stages;
  for (int level = 0; level < program.store_levels; ++level)
    stages.push_back({2, 1 << level, 1, nullptr});
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const Stage& stage = stages[s];
    for (int column = 0; column < stage.columns(n); ++column) {
      float* const at = x.data() + stage.first_of(column);
      std::vector<float> values(static_cast<std::size_t>(stage.order)), sums(values.size());
      for (int i = 0; i < stage.order; ++i)
        values[static_cast<std::size_t>(i)] = at[offset_of(i, stage)];
      if (stage.levels == 0) {
        const Factor& factor = op.factors()[static_cast<std::size_t>(program.factor_of[s])];
        for (int j = 0; j < stage.order; ++j) {
          for (int i = 0; i < stage.order; ++i) {
            const int entry = factor.transposed ? named_matrix(factor)(j, i) : named_matrix(factor)(i, j);
            sums[static_cast<std::size_t>(i)] +=
                static_cast<float>(entry) * values[static_cast<std::size_t>(j)];
          }
        }
      } else {
        sums = values;
        for (std::size_t half = 1; half < sums.size(); half *= 2) {
          for (std::size_t i = 0; i < sums.size(); ++i) {
            if (i & half) continue;
            const float a = sums[i], b = sums[i + half];
            sums[i] = a + b;
            sums[i + half] = a - b;
          }
        }
      }
      for (int i = 0; i < stage.order; ++i)
        at[offset_of(i, stage)] = sums[static_cast<std::size_t>(i)];
    }
  }
}

// The steps of the numerics, run by the emulation, give the very bits of the passes.
TEST(Factors, PassesDoWhatTheNumericsSay) {
  for (const char* text :
       {"12x64", "28x512", "428tx32", "76x2x36x2", "4x12", "116tx4", "12x2x20x2", "12x2", "256r", "28x64r"}) {
    const Problem problem = make_problem(Dtype::f32, parse_operator(text), 1, Placement::out_of_place);
    std::vector<float> x(static_cast<std::size_t>(problem.n())), want(x.size());
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (float& value : x)
      value = normal(random);
    reference::emulate(problem, numerics_of(problem), {x.data(), want.data()});
    run_passes(problem.op, x);
    for (float& value : x)
      value *= static_cast<float>(problem.scale);
    EXPECT_EQ(x, want) << text;
  }
}

TEST(Factors, TakesEveryRowLengthOfModelsUpToItsLimit) {
  for (const std::int64_t n : {768,   896,   1408,  1536,  2560,  2880,  3072,  3584,  4864,  5120,  5376,
                               6144,  7168,  8960,  9216,  9728,  10944, 11008, 12288, 13440, 13696, 13824,
                               14336, 17408, 17920, 18432, 18944, 20480, 21504, 22016, 25600, 27648, 28672}) {
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32}) {
      const Support support = variant.supports(make_problem(dtype, operator_for(n), 3), h200_description());
      EXPECT_TRUE(support) << n << ": " << support.why_not;
    }
  }
  EXPECT_EQ(variant.supports(make_problem(Dtype::f32, operator_for(29568), 3), h200_description()).why_not,
            "n=29568 must be between 2 and 28672");
  EXPECT_EQ(
      variant.supports(make_problem(Dtype::f32, parse_operator("12x148x16"), 3), h200_description()).why_not,
      "the operator 12x148x16 is not offered: its products take 1184 threads, above the limit of 1024");
}

}  // namespace
}  // namespace fwht::factors
