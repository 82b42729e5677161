#include "variants/linear/w4a16_pipelined/pipelined.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <tuple>

#include "common/bits.hpp"
#include "common/ptx/fragments.hpp"
#include "reference/linear/linear.hpp"

namespace fwht::linear::pipelined {
namespace {

TEST(PipelinedLayout, EveryNibbleHasItsOwnPlace) {
  std::set<std::tuple<int, int, int, int>> places;
  for (int row = 0; row < kTileOutputs; ++row) {
    for (int k = 0; k < kStepK; ++k) {
      const NibblePlace at = nibble_place(row, k);
      EXPECT_TRUE(at.vector >= 0 && at.vector < 2 && at.lane >= 0 && at.lane < 32 && at.word >= 0 &&
                  at.word < 4);
      EXPECT_TRUE(at.shift % 4 == 0 && at.shift >= 0 && at.shift <= 28);
      places.insert({at.vector, at.lane, at.word, at.shift});
    }
  }
  EXPECT_EQ(places.size(), std::size_t{kTileOutputs * kStepK});
}

TEST(PipelinedLayout, AWordIsOperandA) {
  // Register r of operand A: nibble 2 (r & 1) ... as unpack_word takes them; both operands must see the same k.
  constexpr int kShift[4] = {0, 4, 8, 12};  // low halves of registers 0 to 3; high halves are 16 further
  for (int row = 0; row < kTileOutputs; ++row) {
    for (int k = 0; k < kStepK; ++k) {
      const NibblePlace at = nibble_place(row, k);
      int reg = 0;
      while (kShift[reg] != at.shift % 16)
        ++reg;
      const int half = at.shift / 16;
      EXPECT_EQ(ptx::a_row(at.lane, reg), row);
      // Operand B of the same multiply: the lane's vector of x holds k = 32 block + 8 t + 0 .. 7; its words 2 (word % 2)
      // and 2 (word % 2) + 1 are registers 0 and 1, which meet columns 2 t, 2 t + 1 and 2 t + 8, 2 t + 9 of operand A.
      const int column = ptx::a_column(at.lane, reg, half), t = at.lane % 4,
                block = 2 * at.vector + at.word / 2;
      const int b_register = column >= 8 ? 1 : 0;
      EXPECT_EQ(column % 8 / 2, t);
      EXPECT_EQ(32 * block + 8 * t + 2 * (2 * (at.word % 2) + b_register) + column % 2, k);
    }
  }
}

TEST(PipelinedLayout, PackingKeepsEveryWeight) {
  for (const char* text : {"f16/m1/n64/k256/w4g128", "f16/m1/n40/k384/w4g32/v2",
                           "f16/m1/n24/k512/w4g64/sym/act", "f16/m1/n16/k256/w4g-1"}) {
    const LinearProblem problem = parse_linear_problem(text);
    const GptqWeights given = reference::random_weights(problem, reference::LinearData::normal, 3);
    const GptqWeights weights = sorted_rows(given);
    const Layout layout = layout_of(problem);
    std::vector<std::byte> packed(static_cast<std::size_t>(layout.bytes()));
    pack(problem, given, packed.data());
    const int lowest = problem.zero_points == ZeroPoints::v1 ? 1 : 0;
    for (std::int64_t c = 0; c < problem.n; ++c) {
      for (std::int64_t k = 0; k < problem.k; ++k) {
        const std::int64_t tile = c / kTileOutputs, step = k / kStepK, at = tile * layout.steps + step;
        const int row = static_cast<int>(c % kTileOutputs);
        const NibblePlace place = nibble_place(row, static_cast<int>(k % kStepK));
        std::uint32_t word = 0;
        std::memcpy(&word,
                    packed.data() + at * kStepBytes + place.vector * 512 + place.lane * 16 + place.word * 4,
                    4);
        ASSERT_EQ(static_cast<int>(word >> place.shift & 15U), weights.q(k, c))
            << text << " " << k << " " << c;
        const std::int64_t s = k % kStepK / (kStepK / layout.scales);
        const std::int64_t pair = (at * 8 + row % 8) * layout.scales + s;
        std::uint16_t scale = 0;
        std::memcpy(&scale, packed.data() + layout.scales_at() + pair * 4 + row / 8 * 2, 2);
        const std::int64_t group = weights.group_of(k);
        ASSERT_EQ(scale, weights.scales[static_cast<std::size_t>(group * problem.n + c)]);
        const auto zeros = static_cast<int>(packed[static_cast<std::size_t>(layout.zeros_at() + pair)]);
        ASSERT_EQ((zeros >> (row / 8 * 4) & 15) + lowest, weights.zero(group, c));
      }
    }
  }
}

TEST(PipelinedForm, SharesOfKCoverEveryStepOnce) {
  for (const std::int64_t steps : {1, 3, 8, 32, 86, 224}) {
    for (const Form& form : kForms) {
      EXPECT_EQ(first_step(steps, form.k_warps, 0), 0);
      EXPECT_EQ(first_step(steps, form.k_warps, form.k_warps), steps);
      for (int share = 0; share < form.k_warps; ++share) {
        const std::int64_t length =
            first_step(steps, form.k_warps, share + 1) - first_step(steps, form.k_warps, share);
        EXPECT_TRUE(length == steps / form.k_warps || length == steps / form.k_warps + 1);
      }
    }
  }
}

TEST(PipelinedForm, EveryNumberOfTokensHasOneThatFits) {
  for (std::int64_t m = 0; m <= 65; ++m) {
    const Form form = kForms[form_for(m)];
    EXPECT_GE(form.tokens, std::min<std::int64_t>(m, 32));
    EXPECT_LE(form.shared_bytes(), a100_description().shared_bytes_per_block);
    EXPECT_LE(form.threads(), 1024);
  }
}

TEST(PipelinedSupport, RefusesWithASentence) {
  const auto why = [](const char* text, const DeviceInfo& device) {
    return variant.supports(parse_linear_problem(text), device).why_not;
  };
  EXPECT_EQ(why("f16/m1024/n4096/k4096/w4g128", h200_description()), "");
  EXPECT_NE(why("f16/m1025/n4096/k4096/w4g128", h200_description()), "");
  EXPECT_NE(why("f16/m1/n4096/k4000/w4g32", h200_description()), "");
  EXPECT_NE(why("f16/m1/n4096/k4224/w4g96", h200_description()), "");
  EXPECT_NE(why("f16/m1/n4096/k4096/w4g128/rot", h200_description()), "");
  EXPECT_EQ(why("f16/m1/n4096/k4096/w4g128", a100_description()), "");
  EXPECT_NE(why("f16/m1/n4096/k4096/w4g128/pdl", a100_description()), "");
}

}  // namespace
}  // namespace fwht::linear::pipelined
