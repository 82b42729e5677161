// Prologues against values worked out by hand, and properties that they must have.
#include "reference/prologue.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "common/contract/dtype.hpp"

namespace fwht::reference {
namespace {

std::vector<std::uint16_t> bf16_of(const std::vector<float>& values) {
  std::vector<std::uint16_t> bits;
  for (const float value : values)
    bits.push_back(float_to_bf16(value));
  return bits;
}

TEST(RmsNorm, DividesByTheRootMeanSquareAndRoundsTwice) {
  const Problem problem = parse_problem("bf16/n4/r2/rms>e4m3:row");
  // Mean squares 4 and 0; weights with few bits, but for one.
  std::vector<std::uint16_t> rows = bf16_of({2.0F, -2.0F, 2.0F, 2.0F, 0.0F, -0.0F, 0.0F, 0.0F});
  const std::vector<std::uint16_t> weight = bf16_of({1.0F, 0.5F, -3.0F, 1.0078125F});
  PreparedOperands operands;
  operands.weight = weight.data();
  apply_prologue(problem, operands, rows.data());
  EXPECT_EQ(bf16_to_float(rows[0]), 1.0F);
  EXPECT_EQ(bf16_to_float(rows[1]), -0.5F);
  EXPECT_EQ(bf16_to_float(rows[2]), -3.0F);
  EXPECT_EQ(bf16_to_float(rows[3]), 1.0078125F);
  EXPECT_TRUE(std::isnan(bf16_to_float(rows[4]))) << "0 / 0, where epsilon is zero";
  rows = bf16_of({2.0F, -2.0F, 2.0F, 2.0F, 0.0F, -0.0F, 0.0F, 0.0F});
  operands.epsilon = 1e-6F;
  apply_prologue(problem, operands, rows.data());
  EXPECT_EQ(bf16_to_float(rows[4]), 0.0F);
  EXPECT_EQ(bf16_to_float(rows[0]), 1.0F);
  // 3 / sqrt(5) = 1.3416.. is stored as 1.34375 before it meets its weight: 1.34375 * 1.0078125 = 1.354.. ->
  // 1.3515625.
  rows = bf16_of({1.0F, 3.0F, 1.0F, 3.0F, 1.0F, 1.0F, 1.0F, 1.0F});
  const std::vector<std::uint16_t> telling = bf16_of({1.0F, 1.0078125F, 1.0F, 1.0F});
  operands.weight = telling.data();
  operands.epsilon = 0.0F;
  apply_prologue(problem, operands, rows.data());
  EXPECT_EQ(bf16_to_float(rows[3]), 1.34375F);
  EXPECT_EQ(bf16_to_float(rows[1]), 1.3515625F);
}

// The order of the sum is part of the contract: 2^24 + 1 + ... + 1 in another order is another number.
TEST(RmsNorm, SumsEightsInOrderAndThenPairs) {
  const Problem problem = parse_problem("f32/n16/r1/rms>e4m3:row");
  std::vector<float> row(16, 0.0F);
  row[0] = 4096.0F;                            // 2^24: ones are lost beside it, a pair of them is not
  row[1] = row[2] = row[3] = 1.0F;             // lost, one by one
  row[8] = row[9] = row[10] = row[11] = 1.0F;  // 4, as a sum of their own
  const std::vector<float> weight(16, 1.0F);
  PreparedOperands operands;
  operands.weight = weight.data();
  apply_prologue(problem, operands, row.data());
  const float mean = (16777216.0F + 4.0F) / 16.0F;
  EXPECT_EQ(row[1], 1.0F / std::sqrt(mean));
  EXPECT_EQ(row[0], 4096.0F * (1.0F / std::sqrt(mean)));
}

TEST(Rope, TurnsPairsByThePositionOfTheirHead) {
  const std::array<float, 8> table = {
      1.0F, 0.0F, 0.0F,  1.0F,   // position 0: turned by 0 and by a right angle
      0.5F, 1.0F, 0.25F, 0.0F};  // position 1: any numbers
  const std::array<std::int64_t, 2> positions = {1, 0};
  PreparedOperands operands;
  operands.cos_sin = table.data();
  operands.positions = positions.data();
  const std::vector<float> rows = {1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F, 7.0F, 8.0F,
                                   1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F, 7.0F, 8.0F};
  std::vector<std::uint16_t> halves = bf16_of(rows);
  apply_prologue(parse_problem("bf16/n8/r2/rope4>e4m3:row"), operands, halves.data());
  // Row 0, position 1: (1, 3) by (0.5, 0.25), (2, 4) by (1, 0).
  EXPECT_EQ(halves, bf16_of({-0.25F, 2.0F, 1.75F, 4.0F, 5.0F, 6.0F, 7.0F, 8.0F,  //
                             1.0F, -4.0F, 3.0F, 2.0F, 5.0F, 6.0F, 7.0F, 8.0F}));
  std::vector<std::uint16_t> neighbours = bf16_of(rows);
  apply_prologue(parse_problem("bf16/n8/r2/rope4ih2>e4m3:row"), operands, neighbours.data());
  // Both rows are heads of one token at position 1: (1, 2) by (0.5, 0.25), (3, 4) by (1, 0).
  EXPECT_EQ(neighbours, bf16_of({0.0F, 1.25F, 3.0F, 4.0F, 5.0F, 6.0F, 7.0F, 8.0F,  //
                                 0.0F, 1.25F, 3.0F, 4.0F, 5.0F, 6.0F, 7.0F, 8.0F}));
}

}  // namespace
}  // namespace fwht::reference
