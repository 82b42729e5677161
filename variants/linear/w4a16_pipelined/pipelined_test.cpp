#include "variants/linear/w4a16_pipelined/pipelined.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <tuple>

#include "common/device/ptx/fragments.hpp"
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
  // Register r of operand A: nibble 2 (r & 1) ... as unpack_word takes them; both operands must see the same
  // k.
  constexpr int kShift[4] = {0, 4, 8, 12};  // low halves of registers 0 to 3; high halves are 16 further
  for (int row = 0; row < kTileOutputs; ++row) {
    for (int k = 0; k < kStepK; ++k) {
      const NibblePlace at = nibble_place(row, k);
      int reg = 0;
      while (kShift[reg] != at.shift % 16)
        ++reg;
      const int half = at.shift / 16;
      EXPECT_EQ(ptx::a_row(at.lane, reg), row);
      // Operand B of the same multiply: the lane's vector of x holds k = 32 block + 8 t + 0 .. 7. Its words
      // 2 (word % 2) and 2 (word % 2) + 1 are registers 0 and 1. They meet columns 2 t, 2 t + 1 and
      // 2 t + 8, 2 t + 9 of operand A.
      const int column = ptx::a_column(at.lane, reg, half), t = at.lane % 4,
                block = 2 * at.vector + at.word / 2;
      const int b_register = column >= 8 ? 1 : 0;
      EXPECT_EQ(column % 8 / 2, t);
      EXPECT_EQ(32 * block + 8 * t + 2 * (2 * (at.word % 2) + b_register) + column % 2, k);
    }
  }
}

TEST(PipelinedLayout, AStageIsOperandB) {
  // As a wgmma reads it: multiply i of a row of 64 k takes bytes 32 i to 32 i + 31 of it. Row r of operand B
  // is 16-bit number r of them, and the vectors of 16 bytes lie where the swizzle puts them.
  constexpr int kTokens = 16;
  std::set<int> bytes;
  for (int token = 0; token < kTokens; ++token) {
    for (int lane = 0; lane < 4; ++lane) {
      for (int reg = 0; reg < 4; reg += 2) {
        for (int half = 0; half < 2; ++half) {
          for (int multiply = 0; multiply < 8; ++multiply) {
            // The k of the weight that operand A has there, by the place of its nibble.
            int k = 0;
            const auto is_there = [&](int candidate) {
              const NibblePlace at = nibble_place(0, candidate);
              return at.lane == lane && 4 * at.vector + at.word == multiply &&
                     at.shift == 8 * (reg / 2) + 16 * half;
            };
            while (k < kStepK && !is_there(k))
              ++k;
            ASSERT_LT(k, kStepK);
            const int row = ptx::a_column(lane, reg, half);
            const int byte = multiply % 4 * 32 + row * 2;
            const int swizzled = byte ^ ((token % 8) << 4);
            EXPECT_EQ(stage_word(kTokens, token, k), multiply / 4 * (kTokens * 128) + token * 128 + swizzled);
            bytes.insert(stage_word(kTokens, token, k));
            // Pairs of eight numbers differ in two bits: stage_tokens writes them so.
            EXPECT_EQ(stage_word(kTokens, token, k),
                      (stage_word(kTokens, token, k / 8 * 8) ^ (k % 8 / 2 << 4)) + k % 2 * 2);
          }
        }
      }
    }
  }
  EXPECT_EQ(bytes.size(), std::size_t{kTokens * kStepK});
}

TEST(PipelinedLayout, PackingKeepsEveryWeight) {
  for (const char* text : {"f16/m1/n64/k256/w4g128", "f16/m1/n40/k384/w4g32/v2",
                           "f16/m1/n24/k512/w4g64/sym/act", "f16/m1/n16/k256/w4g-1"}) {
    const LinearProblem problem = parse_linear_problem(text);
    const GptqWeights given = reference::random_weights(problem, reference::LinearData::normal, 3);
    const GptqWeights weights = sorted_rows(given);
    const Layout layout = layout_of(problem);
    std::vector<std::byte> packed(static_cast<std::size_t>(packed_bytes(problem)));
    pack(problem, given, packed.data());
    if (problem.act_order) {
      const std::vector<std::int32_t> order = row_order(given);
      EXPECT_EQ(std::memcmp(packed.data() + order_at(problem), order.data(), order.size() * 4), 0);
    }
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
      EXPECT_EQ(first_step(steps, form.shares(), 0), 0);
      EXPECT_EQ(first_step(steps, form.shares(), form.shares()), steps);
      for (int share = 0; share < form.shares(); ++share) {
        const std::int64_t length =
            first_step(steps, form.shares(), share + 1) - first_step(steps, form.shares(), share);
        EXPECT_TRUE(length == steps / form.shares() || length == steps / form.shares() + 1);
      }
      // A block's warps share what is its own.
      for (int rank = 0; rank < form.cluster; ++rank)
        EXPECT_EQ(first_step(steps, form.shares(), rank * form.k_warps),
                  first_step(steps, form.cluster, rank));
    }
  }
}

TEST(PipelinedForm, EveryNumberOfTokensHasOneThatFits) {
  for (std::int64_t m = 0; m <= 65; ++m) {
    LinearProblem problem = parse_linear_problem("f16/m1/n4096/k4096/w4g128");
    problem.m = m;
    for (const DeviceInfo& device : {a100_description(), h200_description()}) {
      const Form form = kForms[form_for(problem, device)];
      EXPECT_GE(form.tokens, std::min<std::int64_t>(m, 32));
      EXPECT_LE(form.shared_bytes(4096), device.shared_bytes_per_block);
      EXPECT_LE(form.threads(), 1024);
      EXPECT_TRUE(!form.rotates && (form.cluster == 1 || device.compute_capability() >= 90));
    }
  }
}

TEST(PipelinedForm, EveryLayerHasOneThatItsGroupsFit) {
  for (const char* text : {"f16/m8/n64/k256/w4g32", "f16/m8/n16384/k256/w4g64", "f16/m8/n16384/k256/w4g128",
                           "bf16/m32/n8192/k256/w4g32", "bf16/m32/n8192/k256/w4g-1"}) {
    const LinearProblem problem = parse_linear_problem(text);
    const Form form = kForms[form_for(problem, h200_description())];
    const Layout layout = layout_of(problem);
    EXPECT_TRUE(layout.scales <= form.most_scales && layout.tiles >= form.least_tiles &&
                layout.tiles <= form.most_tiles)
        << text;
  }
  // A form that takes groups of 128 only is taken for them.
  EXPECT_EQ(
      kForms[form_for(parse_linear_problem("f16/m1/n16384/k256/w4g128"), h200_description())].tiles_per_warp,
      4);
  EXPECT_EQ(
      kForms[form_for(parse_linear_problem("f16/m1/n16384/k256/w4g64"), h200_description())].tiles_per_warp,
      1);
}

TEST(PipelinedForm, WgmmaHasWholeWarpgroupsAndItsRegisters) {
  int found = 0;
  for (const Form& form : kForms) {
    if (!form.wgmma) continue;
    ++found;
    EXPECT_TRUE(form.row_warps % 4 == 0 && form.tiles_per_warp == 1 && form.x_stages > 2 && !form.rotates);
    EXPECT_LE(form.blocks_per_sm * form.threads(), 512);  // 128 registers each
    EXPECT_LE(form.blocks_per_sm * (form.shared_bytes(0) + 1024), 227 * 1024);
  }
  EXPECT_GT(found, 0);
}

TEST(PipelinedForm, RotatedSlicesFitInSharedMemory) {
  int found = 0;
  for (const Form& form : kForms) {
    if (!form.rotates) continue;
    ++found;
    EXPECT_LE(form.shared_bytes(kMostSlice), h200_description().shared_bytes_per_block);
  }
  EXPECT_GT(found, 0);
  // Numbers of a stage have places of their own, and those that a warp meets in one pass lie in different
  // banks.
  std::set<int> places;
  for (int i = 0; i < 1024; ++i)
    places.insert(stage_place(i));
  EXPECT_EQ(places.size(), 1024U);
  EXPECT_LT(*places.rbegin(), stage_pitch(1024));
  for (const int h : {8, 64}) {
    std::set<int> banks;
    for (int lane = 0; lane < 32; ++lane)
      banks.insert(stage_place(lane / h * (8 * h) + lane % h) % 32);
    EXPECT_EQ(banks.size(), 32U) << h;
  }
}

TEST(PipelinedSupport, ARotationInsideNeedsSlicesThatFit) {
  const auto why = [](const char* text, const DeviceInfo& device) {
    return rotating.supports(parse_linear_problem(text), device).why_not;
  };
  for (const char* fine : {"f16/m1/n4096/k4096/w4g128/rot", "bf16/m8/n4096/k8192/w4g128/rot128",
                           "f16/m8/n4096/k14336/w4g128/rot512", "f16/m33/n4096/k512/w4g32/rot256"})
    EXPECT_EQ(why(fine, h200_description()), "") << fine;
  for (const char* refused : {"f16/m1/n4096/k4096/w4g128", "f16/m1/n4096/k4096/w4g128/rot4",
                              "f16/m1/n4096/k32768/w4g128/rot", "f16/m1/n4096/k640/w4g128/rot128",
                              "f16/m1/n4096/k14336/w4g128/rot1024", "f16/m1/n4096/k4096/w4g128/act/rot"})
    EXPECT_NE(why(refused, h200_description()), "") << refused;
  EXPECT_NE(why("f16/m1/n4096/k4096/w4g128/rot", a100_description()), "");
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
