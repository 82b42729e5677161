// The dispatcher on described machines: what it would pick, no kernel run.
#include "variants/auto/auto.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "common/error.hpp"
#include "variants/auto/tuning_table.hpp"
#include "variants/registry.hpp"

namespace fwht::automatic {
namespace {

constexpr const char* kText =
    "# fwht tuning table 1\n"
    "# device: a test\n"
    "# compute_capability: 90\n"
    "# sm_count: 132\n"
    "# source: nowhere\n"
    "dtype,n,elements,placement,variant\n"
    "f16,4096,8192,in,mma_split\n"
    "f16,4096,131072,in,wgmma\n"
    "f16,4096,8388608,out,warp_shuffle\n"
    "bf16,4096,8192,in,mma_split\n"
    "bf16,4096,67108864,in,mma_split\n";

std::string variant_for(const TuningTable& table, const char* problem) {
  const Choice* choice = table.nearest(parse_problem(problem));
  return choice == nullptr ? "" : choice->variant;
}

std::string refusal(const std::string& text) {
  try {
    parse_tuning_table(text, "t.csv");
  } catch (const BadRequest& error) {
    return error.what();
  }
  return "";
}

TEST(TuningTable, ChoosesTheNearestNumberOfElements) {
  const TuningTable table = parse_tuning_table(kText, "t.csv");
  EXPECT_EQ(table.choices.size(), 5U);
  EXPECT_EQ(table.device, "a test");
  EXPECT_EQ(variant_for(table, "f16/n4096/r1"), "mma_split");
  EXPECT_EQ(variant_for(table, "f16/n4096/r0"), "mma_split");
  EXPECT_EQ(variant_for(table, "f16/n4096/r7"), "mma_split");
  EXPECT_EQ(variant_for(table, "f16/n4096/r8"), "wgmma")
      << "2^15 is as far from 2^13 as from 2^17: the larger";
  EXPECT_EQ(variant_for(table, "f16/n4096/r1000000"), "wgmma");
  EXPECT_EQ(variant_for(table, "f16/n4096/r1/out"), "warp_shuffle") << "its own placement comes first";
  EXPECT_EQ(variant_for(table, "bf16/n4096/r1/out"), "mma_split") << "else that of in place";
  EXPECT_EQ(variant_for(table, "f32/n4096/r1"), "");
  EXPECT_EQ(variant_for(table, "f16/n8192/r1"), "");
  EXPECT_FALSE(table.is_one_for_all(Dtype::f16, 4096));
  EXPECT_TRUE(table.is_one_for_all(Dtype::bf16, 4096));
}

TEST(TuningTable, IsForDevicesOfItsKind) {
  const TuningTable table = parse_tuning_table(kText, "t.csv");
  EXPECT_TRUE(table.is_for(h200_description()));
  EXPECT_FALSE(table.is_for(a100_description()));
  EXPECT_FALSE(table.is_for(DeviceInfo{}));
}

TEST(TuningTable, RefusesWhatItCannotReadWithNameAndLine) {
  EXPECT_EQ(refusal("hello"), "tuning table t.csv, line 1: the first line is not '# fwht tuning table 1'");
  std::string text = kText;
  EXPECT_EQ(refusal(text + "f16,4096\n"),
            "tuning table t.csv, line 12: 2 cells, not the 5 of dtype,n,elements,placement,variant");
  EXPECT_NE(refusal(text + "f16,4096,-3,in,wgmma\n").find("'-3' is no positive number"), std::string::npos);
  EXPECT_NE(refusal(text + "f16,4096,8,inside,wgmma\n").find("unknown placement 'inside'"),
            std::string::npos);
  EXPECT_NE(refusal(text + "f8,4096,8,in,wgmma\n").find("f8"), std::string::npos);
  EXPECT_EQ(refusal("# fwht tuning table 1\n"), "tuning table t.csv names no sm_count");
}

TEST(ShippedTable, NamesListedDeviceVariantsThatSupportWhatItChoosesThemFor) {
  const TuningTable& table = shipped_table();
  EXPECT_TRUE(table.is_for(h200_description()));
  for (const Choice& choice : table.choices) {
    const Variant& chosen = find_variant(choice.variant);
    EXPECT_EQ(chosen.memory, Memory::device);
    const Problem problem =
        make_problem(choice.dtype, choice.n, choice.elements / choice.n, choice.placement);
    const Support support = chosen.supports(problem, h200_description());
    EXPECT_TRUE(support || support.why_not.starts_with("built without"))
        << choice.variant << ": " << support.why_not;
  }
}

TEST(Auto, AsksForOneRoundingAndNoGain) {
  const Problem problem = make_problem(Dtype::f16, 128, 1);
  const Numerics numerics = single_rounding(Sums::fp32, problem);
  EXPECT_TRUE(is_as_exact_as_can_be(numerics, problem.scale));
  Numerics twice = numerics;
  twice.steps.push_back(Step{});
  EXPECT_FALSE(is_as_exact_as_can_be(twice, problem.scale));
  Numerics shrinking = numerics;
  shrinking.steps.front().constant = std::nextafter(static_cast<float>(problem.scale), 0.0F);
  EXPECT_FALSE(is_as_exact_as_can_be(shrinking, problem.scale));
  Numerics leaking = numerics;
  leaking.promises.row_isolation = false;
  EXPECT_FALSE(is_as_exact_as_can_be(leaking, problem.scale));
}

TEST(Auto, SaysWhyTheWidestCandidateRefuses) {
  EXPECT_NE(variant.supports(make_problem(Dtype::f16, 100, 1), h200_description()).why_not.find("n=100"),
            std::string::npos);
  EXPECT_EQ(variant.supports(make_problem(Dtype::f16, 128, 1), DeviceInfo{}).why_not, "no CUDA device");
}

}  // namespace
}  // namespace fwht::automatic
