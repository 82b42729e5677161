#include "common/device/ptx/fragments.hpp"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace fwht::ptx {
namespace {

// Cells read off the figures of the PTX ISA.
TEST(Fragments, AgreeWithTheFiguresOfThePtxIsa) {
  struct Cell {
    int lane, r, half, row, column;
  };
  for (const Cell& c : {Cell{0, 0, 0, 0, 0}, Cell{1, 0, 1, 0, 3}, Cell{4, 1, 0, 9, 0}, Cell{31, 0, 1, 7, 7},
                        Cell{2, 2, 0, 0, 12}, Cell{31, 3, 1, 15, 15}}) {
    EXPECT_EQ(a_row(c.lane, c.r), c.row);
    EXPECT_EQ(a_column(c.lane, c.r, c.half), c.column);
  }
  for (const Cell& c :
       {Cell{0, 0, 1, 1, 0}, Cell{3, 0, 0, 6, 0}, Cell{4, 1, 0, 8, 1}, Cell{31, 1, 1, 15, 7}}) {
    EXPECT_EQ(b_row(c.lane, c.r, c.half), c.row);
    EXPECT_EQ(b_column(c.lane), c.column);
  }
  for (const Cell& c : {Cell{0, 1, 0, 0, 1}, Cell{5, 2, 0, 9, 2}, Cell{31, 3, 0, 15, 7}}) {
    EXPECT_EQ(d_row(c.lane, c.r), c.row);
    EXPECT_EQ(d_column(c.lane, c.r), c.column);
  }
  EXPECT_EQ(wgmma_d_row(127, 127), 63);  // the last cell of m64n256k16
  EXPECT_EQ(wgmma_d_column(127, 127), 255);
  EXPECT_EQ(wgmma_d_row(32, 4), 16);
  EXPECT_EQ(wgmma_d_column(33, 4), 8 + 2);
  EXPECT_EQ(wgmma_d_row(33, 6), 16 + 8);
}

TEST(Fragments, EveryCellBelongsToOneRegister) {
  std::set<std::pair<int, int>> a, b, d;
  for (int lane = 0; lane < 32; ++lane) {
    for (int r = 0; r < 4; ++r) {
      EXPECT_TRUE(d.emplace(d_row(lane, r), d_column(lane, r)).second);
      for (int half = 0; half < 2; ++half) {
        EXPECT_TRUE(a.emplace(a_row(lane, r), a_column(lane, r, half)).second);
        if (r < 2) {
          EXPECT_TRUE(b.emplace(b_row(lane, r, half), b_column(lane)).second);
        }
        // The operands of m16n8k8 are the first halves.
        EXPECT_EQ(r < 2, a_column(lane, r, half) < 8);
        EXPECT_EQ(r < 1, b_row(lane, r, half) < 8);
      }
    }
  }
  EXPECT_EQ(a.size(), 256U);
  EXPECT_EQ(*a.rbegin(), std::pair(15, 15));
  EXPECT_EQ(b.size(), 128U);
  EXPECT_EQ(*b.rbegin(), std::pair(15, 7));
  EXPECT_EQ(d.size(), 128U);
  EXPECT_EQ(*d.rbegin(), std::pair(15, 7));

  std::set<std::pair<int, int>> wide;
  for (int thread = 0; thread < 128; ++thread) {
    for (int i = 0; i < 128; ++i)
      EXPECT_TRUE(wide.emplace(wgmma_d_row(thread, i), wgmma_d_column(thread, i)).second);
  }
  EXPECT_EQ(wide.size(), 64U * 256U);
  EXPECT_EQ(*wide.rbegin(), std::pair(63, 255));
}

TEST(Fragments, ResultsAreOperands) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int half = 0; half < 2; ++half) {
      for (int r = 0; r < 2; ++r) {  // as operand A: in its place
        EXPECT_EQ(a_row(lane, r), d_row(lane, 2 * r + half));
        EXPECT_EQ(a_column(lane, r, half), d_column(lane, 2 * r + half));
      }
      EXPECT_EQ(b_row(lane, 0, half), d_column(lane, half));  // as operand B: transposed
      EXPECT_EQ(b_column(lane), d_row(lane, half));
    }
  }
}

TEST(Fragments, MinusIdentityHasTheLowerIndexInTheLowerHalf) {
  for (int lane = 0; lane < 32; ++lane) {
    const std::uint32_t word = minus_identity_fragment(lane);
    const int g = lane / 4, t = lane % 4;  // rows 2 t and 2 t + 1 of column g
    EXPECT_EQ(word, g == 2 * t ? 0x0000BF80U : g == 2 * t + 1 ? 0xBF800000U : 0U);
  }
}

}  // namespace
}  // namespace fwht::ptx
