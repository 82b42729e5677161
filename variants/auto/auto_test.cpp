// The dispatcher: what it would pick on described machines; on a GPU, that it only forwards.
#include "variants/auto/auto.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/contract/linear/rotation_layout.hpp"
#include "common/device/memory.hpp"
#include "common/host/error.hpp"
#include "common/host/text.hpp"
#include "common/testing/refusal.hpp"
#include "reference/inputs.hpp"
#include "variants/auto/tuning_table.hpp"
#include "variants/registry.hpp"
#include "variants/rotate_then_quantize/rotate_then_quantize.hpp"

namespace fwht::automatic {
namespace {

constexpr const char* kText =
    "# fwht tuning table 2\n"
    "# device: a test\n"
    "# compute_capability: 90\n"
    "# sm_count: 132\n"
    "# source: nowhere\n"
    "dtype,n,elements,placement,launch,variant\n"
    "f16,4096,8192,in,ordinary,mma_split\n"
    "f16,4096,131072,in,ordinary,wgmma\n"
    "f16,4096,8388608,out,ordinary,warp_shuffle\n"
    "f16,4096,8192,in,programmatic,butterflies\n"
    "bf16,4096,8192,in,ordinary,mma_split\n"
    "bf16,4096,67108864,in,ordinary,mma_split\n"
    "f16,14336,131072,in,ordinary,kronecker\n"
    "f16,14336,67108864,in,ordinary,factors\n";

std::string variant_for(const TuningTable& table, const char* problem) {
  const FastestVariant* choice = table.nearest(parse_problem(problem));
  return choice == nullptr ? "" : choice->variant;
}

std::string refusal(const std::string& text) {
  return bad_request_of([&] { parse_tuning_table(text, "t.csv"); });
}

TEST(TuningTable, ChoosesTheNearestNumberOfElements) {
  const TuningTable table = parse_tuning_table(kText, "t.csv");
  EXPECT_EQ(table.choices.size(), 8U);
  EXPECT_EQ(table.device, "a test");
  EXPECT_EQ(variant_for(table, "f16/n4096/r1"), "mma_split");
  EXPECT_EQ(variant_for(table, "f16/n4096/r0"), "mma_split");
  EXPECT_EQ(variant_for(table, "f16/n4096/r7"), "mma_split");
  EXPECT_EQ(variant_for(table, "f16/n4096/r8"), "wgmma")
      << "2^15 is as far from 2^13 as from 2^17: the larger";
  EXPECT_EQ(variant_for(table, "f16/n4096/r1000000"), "wgmma");
  EXPECT_EQ(variant_for(table, "f16/n4096/r1/out"), "warp_shuffle") << "its own placement comes first";
  EXPECT_EQ(variant_for(table, "bf16/n4096/r1/out"), "mma_split") << "else that of in place";
  EXPECT_EQ(variant_for(table, "f16/n4096/r7/pdl"), "butterflies") << "as far from its own launch's point";
  EXPECT_EQ(variant_for(table, "f16/n4096/r8/pdl"), "wgmma") << "nearer to the larger of ordinary launches";
  EXPECT_EQ(variant_for(table, "f16/n4096/r1/out/pdl"), "warp_shuffle");
  EXPECT_EQ(variant_for(table, "bf16/n4096/r1/pdl"), "mma_split") << "no point of its own launch";
  EXPECT_EQ(variant_for(table, "f32/n4096/r1"), "");
  EXPECT_EQ(variant_for(table, "f16/n8192/r1"), "");
  EXPECT_EQ(variant_for(table, "f16/28x512/r1"), "kronecker");
  EXPECT_EQ(variant_for(table, "f16/28x512/r4000"), "factors");
  EXPECT_EQ(variant_for(table, "f16/28x512+signs/r4000/out"), "factors") << "as without signs";
  EXPECT_EQ(variant_for(table, "f16/4096+signs/r1"), "") << "the row of 4096 is for Sylvester alone";
  EXPECT_EQ(variant_for(table, "f16/28x512/r1>e4m3:row"), "") << "codes go by the rule";
  EXPECT_EQ(variant_for(table, "f16/n4096/r2/inner2"), "") << "and so does another axis";
  using Names = std::set<std::string_view>;
  EXPECT_EQ(table.variants_for(Dtype::f16, 4096),
            (Names{"mma_split", "wgmma", "warp_shuffle", "butterflies"}));
  EXPECT_EQ(table.variants_for(Dtype::bf16, 4096), Names{"mma_split"});
  EXPECT_EQ(table.variants_for(Dtype::f32, 4096), Names{});
}

TEST(TuningTable, IsForDevicesOfItsKind) {
  const TuningTable table = parse_tuning_table(kText, "t.csv");
  EXPECT_TRUE(table.is_for(h200_description()));
  EXPECT_FALSE(table.is_for(a100_description()));
  EXPECT_FALSE(table.is_for(DeviceInfo{}));
  // Either number alone tells two chips apart.
  DeviceInfo fewer = h200_description();
  fewer.sm_count = 114;
  EXPECT_FALSE(table.is_for(fewer)) << "an H100 PCIe";
  DeviceInfo newer = h200_description();
  newer.compute_major = 10;
  EXPECT_FALSE(table.is_for(newer));
}

std::string measured_of(std::span<const MeasuredOn> all, const DeviceInfo& device) {
  const MeasuredOn* found = of_class(all, device);
  return found == nullptr ? "none" : found->device;
}

/// A described device by a part of its name.
DeviceInfo described(std::string_view name) {
  for (const DeviceInfo& device : described_devices())
    if (device.name.find(name) != std::string::npos) return device;
  return {};
}

TEST(DeviceClass, IsTheNearestCapabilityAtOrBelowTheDevices) {
  const std::vector<MeasuredOn> one{{"NVIDIA H200", 90, 132}};
  for (const char* newer : {"H100", "H200", "B200", "RTX 5090"})
    EXPECT_EQ(measured_of(one, described(newer)), "NVIDIA H200") << newer;
  for (const char* older : {"A100", "L40S", "RTX 4090"})
    EXPECT_EQ(measured_of(one, described(older)), "none") << older;
  EXPECT_EQ(measured_of(one, DeviceInfo{}), "none");
  EXPECT_EQ(measured_of({}, described("H200")), "none");

  // One more file each: nobody else's table changes but that of devices nearer to it.
  const std::vector<MeasuredOn> more{{"NVIDIA A100", 80, 108},
                                     {"NVIDIA H100", 90, 132},
                                     {"NVIDIA H100 PCIe", 90, 114},
                                     {"NVIDIA H200", 90, 132},
                                     {"NVIDIA GeForce RTX 5090", 120, 170}};
  EXPECT_EQ(measured_of(more, described("A100")), "NVIDIA A100");
  EXPECT_EQ(measured_of(more, described("L40S")), "NVIDIA A100");
  EXPECT_EQ(measured_of(more, described("H100")), "NVIDIA H100") << "of equals, the one of its name";
  EXPECT_EQ(measured_of(more, described("H200")), "NVIDIA H200");
  EXPECT_EQ(measured_of(more, described("B200")), "NVIDIA H100") << "as many SMs as either: the first";
  EXPECT_EQ(measured_of(more, described("RTX 5090")), "NVIDIA GeForce RTX 5090");
  DeviceInfo fewer = described("H100");
  fewer.name = "a board";
  fewer.sm_count = 112;
  EXPECT_EQ(measured_of(more, fewer), "NVIDIA H100 PCIe") << "the nearest number of SMs";
}

TEST(DeviceClass, WhatTheNearestTableLacksComesFromTheOthersOfItsCapability) {
  const std::vector<MeasuredOn> all{
      {"NVIDIA A100", 80, 108}, {"NVIDIA H100", 90, 132}, {"NVIDIA H200", 90, 132}};
  const auto without = [&](std::set<std::string> lacking, std::string_view device) {
    const auto has = [&](const MeasuredOn& m) { return !lacking.contains(m.device); };
    const MeasuredOn* found = of_class<MeasuredOn>(all, described(device), has);
    return found == nullptr ? "none" : found->device;
  };
  EXPECT_EQ(without({}, "H100"), "NVIDIA H100");
  EXPECT_EQ(without({"NVIDIA H100"}, "H100"), "NVIDIA H200");
  EXPECT_EQ(without({"NVIDIA H200"}, "H200"), "NVIDIA H100");
  EXPECT_EQ(without({"NVIDIA H100"}, "B200"), "NVIDIA H200");
  EXPECT_EQ(without({"NVIDIA H100", "NVIDIA H200"}, "H100"), "none") << "not that of an older capability";
  EXPECT_EQ(without({"NVIDIA A100"}, "L40S"), "none");
}

TEST(DeviceClass, BoardsOfOneChipTakeTheTableOfThatChip) {
  const std::vector<MeasuredOn> two{{"NVIDIA H200", 90, 132}, {"NVIDIA H100 80GB HBM3", 90, 132}};
  EXPECT_EQ(measured_of(two, described("H100")), "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(measured_of(two, described("H200")), "NVIDIA H200");
  DeviceInfo board = described("H100");
  const std::map<std::string, int> boards{
      {"NVIDIA H100 80GB HBM3", 132}, {"NVIDIA H100 NVL", 132}, {"NVIDIA H100 PCIe", 114}};
  for (const auto& [name, sm_count] : boards) {
    board.name = name;
    board.sm_count = sm_count;
    EXPECT_EQ(measured_of(two, board), "NVIDIA H100 80GB HBM3") << name;
  }
  EXPECT_EQ(said_of(two[1], board), "shipped for sm_90, measured on NVIDIA H100 80GB HBM3");
  board.name = "NVIDIA H100 80GB HBM3";
  board.sm_count = 132;
  EXPECT_EQ(said_of(two[1], board), "shipped");
  EXPECT_EQ(said_of(two[0], board), "shipped for sm_90, measured on NVIDIA H200");
  EXPECT_EQ(words_in_common("NVIDIA H100", "NVIDIA H100"), 2);
  EXPECT_EQ(words_in_common("NVIDIA H100", "NVIDIA H10"), 1);
  EXPECT_EQ(words_in_common("", "NVIDIA H100"), 0);
}

TEST(DeviceClass, IsSaid) {
  const MeasuredOn h200{"NVIDIA H200", 90, 132};
  EXPECT_EQ(said_of(h200, described("H200")), "shipped");
  EXPECT_EQ(said_of(h200, described("H100")), "shipped for sm_90, measured on NVIDIA H200");
  EXPECT_EQ(said_of(h200, described("B200")), "shipped for sm_90, measured on NVIDIA H200");
}

TEST(TuningTable, RefusesWhatItCannotReadWithNameAndLine) {
  EXPECT_EQ(refusal("hello"), "tuning table t.csv, line 1: the first line is not '# fwht tuning table 2'");
  std::string text = kText;
  EXPECT_EQ(refusal(text + "f16,4096\n"),
            "tuning table t.csv, line 15: 2 cells, not the 6 of dtype,n,elements,placement,launch,variant");
  EXPECT_NE(refusal(text + "f16,4096,-3,in,ordinary,wgmma\n").find("'-3' is no positive number"),
            std::string::npos);
  EXPECT_NE(refusal(text + "f16,4096,8,inside,ordinary,wgmma\n").find("unknown placement 'inside'"),
            std::string::npos);
  EXPECT_NE(refusal(text + "f16,4096,8,in,cold,wgmma\n").find("unknown launch 'cold'; known: ordinary"),
            std::string::npos);
  EXPECT_EQ(refusal(text + "f16,4096,8,in,ordinary,auto\n"),
            "tuning table t.csv, line 15: auto cannot be the choice: it is what chooses");
  EXPECT_EQ(refusal(text + "f32,4096,8,in,ordinary,rotate_then_quantize\n"),
            "tuning table t.csv, line 15: rotate_then_quantize cannot be the choice: its rotation is that of "
            "auto");
  EXPECT_EQ(refusal(text + "f16,4096,8,in,ordinary,cpu\n"),
            "tuning table t.csv, line 15: cpu cannot be the choice: it works in host memory");
  EXPECT_TRUE(refusal(text + "f16,4096,8,in,ordinary,nosuch\n")
                  .starts_with("tuning table t.csv, line 15: unknown variant 'nosuch'; known: "));
  EXPECT_NE(refusal(text + "f8,4096,8,in,ordinary,wgmma\n").find("f8"), std::string::npos);
  EXPECT_TRUE(refusal(text + "f16,5136,8,in,ordinary,factors\n")
                  .starts_with("tuning table t.csv, line 15: n=5136 is no power of two times"))
      << "the grid multiplies by operator_for(n)";
  EXPECT_EQ(refusal("# fwht tuning table 2\n"), "tuning table t.csv names no sm_count");
}

TEST(TuningTable, RefusesNumbersThatNoDeviceHas) {
  const std::string title = "# fwht tuning table 2\n";
  EXPECT_EQ(refusal(title + "# sm_count: 99999999999\n"),
            "tuning table t.csv, line 2: 99999999999 is above the limit of 100000");
}

// FWHT_TUNING names a file; whatever else it names is refused in one sentence when a plan is made.
TEST(TuningFile, IsAFile) {
  const auto refusal_of = [](const char* path) -> std::string {
    setenv("FWHT_TUNING", path, 1);
    std::string said = "accepted";
    try {
      candidates(make_problem(Dtype::f16, 4096, 1), h200_description());
    } catch (const BadRequest& error) {
      said = error.what();
    }
    unsetenv("FWHT_TUNING");
    return said;
  };
  EXPECT_EQ(refusal_of("/nonexistent/t.csv"), "FWHT_TUNING=/nonexistent/t.csv: there is no such file");
  EXPECT_EQ(refusal_of("/dev/zero"), "FWHT_TUNING=/dev/zero: this is a device, not a file");
  EXPECT_EQ(refusal_of("/tmp"), "FWHT_TUNING=/tmp: this is a folder, not a file");
  EXPECT_EQ(refusal_of(""), "accepted") << "empty: not set";
}

TEST(Rule, GivesTensorCoresWhatTheyServeAndTheRestToAdditions) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32}) {
    for (std::int64_t n = 2; n <= 16384; n *= 2) {
      const Problem problem = make_problem(dtype, n, 3);
      std::string_view first;
      for (const std::string_view name : preferred_variants(problem, a100_description())) {
        if (first.empty() && find_variant(name).supports(problem, a100_description())) first = name;
      }
      EXPECT_EQ(first, dtype == Dtype::f32 || n <= 32 ? "butterflies" : "mma_split") << to_string(problem);
    }
  }
}

TEST(Rule, GivesLongRowsWhatABlocksSharedMemoryHoldsWhereThereIsNoHopper) {
  DeviceInfo l40s = a100_description();
  l40s.shared_bytes_per_block = 99 << 10;
  const auto first = [](const char* text, const DeviceInfo& device) -> std::string_view {
    const Problem problem = parse_problem(text);
    for (const std::string_view name : preferred_variants(problem, device))
      if (find_variant(name).supports(problem, device)) return name;
    return "none";
  };
  for (const DeviceInfo& device : {a100_description(), l40s}) {
    EXPECT_EQ(first("bf16/n32768/r3", device), "mma_split");
    EXPECT_EQ(first("f16/n32768/r3/ld32769", device), "warp_shuffle");
    EXPECT_EQ(first("f16/n32768/r3/out/ldo32776", device), "mma_kronecker");
  }
  EXPECT_EQ(first("f16/n65536/r3", a100_description()), "mma_split");
  EXPECT_EQ(first("f16/n65536/r3", l40s), "passes");
}

TEST(Rule, GivesOtherOperatorsHoppersTensorCoresThenFp32) {
  for (const char* text : {"f16/172x128/r3", "f32/172x128/r3", "bf16/108x128+signs/r3"}) {
    const Problem problem = parse_problem(text);
    EXPECT_EQ(preferred_variants(problem, h200_description()),
              (std::vector<std::string_view>{"mma_split", "kronecker", "mma_kronecker", "warp_kronecker",
                                             "factors"}))
        << text;
    EXPECT_TRUE(variant.supports(problem, a100_description())) << text;
  }
}

// Rows of m 2^k in registers: short ones, those of many warps, others where there are very few or many. On
// Hopper few short ones, and those of at most half the order of kronecker's launch.
TEST(Rule, GivesRowsToRegistersWhereTheyAreSooner) {
  const auto first = [](const std::string& text, const DeviceInfo& device) {
    return candidates(parse_problem(text), device).front()->name;
  };
  for (const char* rows : {"1", "108", "109", "100000"}) {
    for (const char* op :
         {"12x64", "28x128", "84x64+signs", "36x256", "20x16", "28x32", "180x16", "140x64", "172x64"})
      EXPECT_EQ(first(concat("f16/", op, "/r", rows), a100_description()), "warp_kronecker") << op << rows;
  }
  EXPECT_EQ(first("bf16/12x512/r216", a100_description()), "warp_kronecker");
  EXPECT_EQ(first("bf16/12x512/r217", a100_description()), "mma_kronecker");
  EXPECT_EQ(first("bf16/12x512/r683", a100_description()), "warp_kronecker") << "2^22 elements";
  for (const char* op : {"108x128", "172x128"}) {
    EXPECT_EQ(first(concat("bf16/", op, "/r108"), a100_description()), "mma_kronecker") << op;
    EXPECT_EQ(first(concat("bf16/", op, "/r109"), a100_description()), "warp_kronecker") << op;
  }
  for (const char* op : {"28x256", "28x512", "12x1024", "68x256", "28x1024", "68x512", "52x1024"}) {
    for (const char* rows : {"1", "217", "5000"})
      EXPECT_EQ(first(concat("bf16/", op, "/r", rows), a100_description()), "warp_kronecker") << op << rows;
  }
  EXPECT_EQ(first("bf16/36x1024/r864", a100_description()), "warp_kronecker");
  EXPECT_EQ(first("bf16/36x1024/r865", a100_description()), "mma_kronecker") << "a quarter of zeros";
  EXPECT_EQ(first("bf16/28x8/r5", a100_description()), "factors") << "too few columns";
  EXPECT_EQ(first("bf16/180x128/r5000", a100_description()), "mma_kronecker") << "too many rows of X";
  // A row length that no table has.
  EXPECT_EQ(first("f16/28x64/r5", h200_description()), "warp_kronecker");
  for (const char* text : {"20x16/r100000", "12x32/r100000", "172x32/r5000", "36x32/r5", "36x32/r910"})
    EXPECT_EQ(first(concat("f16/", text), h200_description()), "warp_kronecker") << text;
  // Of a length that one has, but not with these orders.
  EXPECT_EQ(first("f16/88x16/r5957", h200_description()), "warp_kronecker") << "44x32 goes to kronecker";
  const Problem many = parse_problem("f16/28x64/r5000");
  EXPECT_EQ(first(to_string(many), h200_description()),
            find_variant("kronecker").supports(many, h200_description()) ? "kronecker" : "warp_kronecker");
  for (const char* text : {"100x16/r100000", "52x32/r5", "36x32/r911"}) {
    const Problem problem = parse_problem(concat("f16/", text));
    if (!find_variant("kronecker").supports(problem, h200_description())) continue;
    EXPECT_EQ(first(to_string(problem), h200_description()), "kronecker") << text;
  }
}

TEST(Rule, GivesTheRegularMatrixToTensorCoresInRegistersThenToFactors) {
  for (const DeviceInfo& device : {h200_description(), a100_description()}) {
    const auto first = [&](const char* text) {
      return candidates(parse_problem(text), device).front()->name;
    };
    for (const char* text : {"f16/256r/r3", "bf16/256r/r4096/out", "bf16/64r/r1"})
      EXPECT_EQ(first(text), "mma_split") << text;
    for (const char* text : {"f32/256r/r3", "f16/4r/r3", "bf16/16r/r3", "f16/256r+signs/r3"})
      EXPECT_EQ(first(text), "factors") << text;
    EXPECT_EQ(first("bf16/256r/r60>int8:row,t3840"), "rotate_then_quantize");
  }
}

TEST(Rule, GivesRowsWithSignsToTensorCoresInRegisters) {
  for (const DeviceInfo& device : {h200_description(), a100_description()}) {
    const auto first = [&](const char* text) {
      return candidates(parse_problem(text), device).front()->name;
    };
    for (const char* text : {"bf16/128+signs/r65536", "f16/signs+128/r1/out", "bf16/4096+signs/r3/ld4097",
                             "f16/16384+signs/r3", "bf16/64+signs/r3"})
      EXPECT_EQ(first(text), "mma_split") << text;
    for (const char* text : {"f32/128+signs/r3", "bf16/8+signs/r3"})
      EXPECT_EQ(first(text), "factors") << text;
    for (const char* text : {"f16/28x512/r3", "bf16/28x128+signs/r3"})
      EXPECT_NE(first(text), "mma_split") << text;
  }
}

// One kernel where it serves, else two launches; also where the table knows the rows' own fastest variant.
TEST(Rule, GivesCodesToOneKernelWhereOneServes) {
  const auto first = [](const char* text) -> std::string_view {
    const std::vector<const Variant*> found = candidates(parse_problem(text), h200_description());
    return found.empty() ? "none" : found.front()->name;
  };
  EXPECT_EQ(first("bf16/n128/r4096>e4m3:row"), "mma_split");
  EXPECT_EQ(first("f16/n16384/r64>nvfp4:128x4"), "mma_split");
  EXPECT_EQ(first("bf16/n4096/r64>e4m3:tensor"), "mma_split");
  EXPECT_EQ(first("f16/n4096/r64>int4:row,quarot"), "mma_split");
  EXPECT_EQ(first("bf16/n128/r64>e4m3:row,t8192"), "rotate_then_quantize") << "a scale of several rows";
  EXPECT_EQ(first("bf16/n32/r64>mxfp8"), "rotate_then_quantize") << "shorter than a row of mma_split";
  for (const char* text :
       {"bf16/n32768/r64>int4:row", "bf16/28x512/r4096>e4m3:row", "f16/28x1024/r1>mxfp4"}) {
    const bool fused =
        static_cast<bool>(find_variant("kronecker").supports(parse_problem(text), h200_description()));
    EXPECT_EQ(first(text), fused ? "kronecker" : "rotate_then_quantize")
        << "needs wgmma in the build: " << text;
  }
  EXPECT_EQ(first("bf16/n32768/r64>e4m3:tensor"), "rotate_then_quantize")
      << "a scale that kronecker does not find";
  EXPECT_EQ(first("bf16/12x64/r4096>e4m3:row"), "mma_kronecker") << "shorter than kronecker's rows of codes";
  EXPECT_EQ(first("bf16/12x64/r64>e4m3:row"), "rotate_then_quantize") << "the same, but few";
  EXPECT_EQ(first("bf16/n32/r64>mxfp8/f32"), "none") << "two launches have no fp32 result";
}

// Without Hopper's kernels mma_kronecker writes the codes of m 2^k in one launch, unless there are few.
TEST(Rule, GivesCodesOfMatricesToOneKernelOnAnyTensorCore) {
  for (const DeviceInfo& device : described_devices()) {
    const auto first = [&](const char* text) {
      return candidates(parse_problem(text), device).front()->name;
    };
    const bool has_hopper =
        static_cast<bool>(find_variant("wgmma").supports(make_problem(Dtype::f16, 65536, 1), device));
    const auto expect = [&](const char* text, std::string_view on_hopper, std::string_view elsewhere) {
      EXPECT_EQ(first(text), has_hopper ? on_hopper : elsewhere) << device.name << " " << text;
    };
    const char *one = "mma_kronecker", *two = "rotate_then_quantize", *hopper = "kronecker";
    // Where Hopper's kernels end: short rows, and one scale of a long one, of half a wave to a whole one.
    expect("bf16/180x16/r728>mxfp4", one, one);
    expect("bf16/180x16/r400>mxfp4", two, one);
    expect("bf16/12x64/r4096>e4m3:row", one, two);
    expect("bf16/12x64/r8192>e4m3:row", one, one);
    expect("bf16/180x16/r2912>e4m3:row", two, two);
    expect("bf16/180x16/r23301>e4m3:row", one, two);
    if (find_variant(one).supports(parse_problem("bf16/36x1024/r64>e4m3:row"), device)) {
      expect("bf16/36x1024/r64>e4m3:row", two, one);
      expect("bf16/36x1024/r100>e4m3:row", one, one);
      expect("bf16/36x1024/r1820>e4m3:row", two, one);
    }
    for (const char* text : {"f16/36x1024/r64>mxfp8", "bf16/76x2x36x2/r192>mxfp4",
                             "f16/60x4x28x2+signs/r192>int4:128", "bf16/132x4x28x2/r64>nvfp4"})
      expect(text, two, one);
    // Behind a dense factor: many short rows, fewer in groups, and one scale of rows to 16384.
    for (const char* text :
         {"f16/d28x64/r3>e4m3:row", "f16/d28x64/r800>e4m3:row", "bf16/d20x256/r600>mxfp4",
          "bf16/d28x512/r1000>e4m3:row", "bf16/d20x1024/r4096>e4m3:row", "bf16/d20x1024/r102>mxfp4"})
      expect(text, two, one);
    for (const char* text :
         {"f16/d28x64/r900>e4m3:row", "f16/d28x64/r4096>e4m3:row", "bf16/d20x256/r819>mxfp4",
          "bf16/d28x512/r1170>e4m3:row", "bf16/d20x1024/r204>mxfp4"})
      expect(text, one, one);
    for (const char* text : {"bf16/n32768/r64>int4:128", "bf16/28x512/r4096>e4m3:row",
                             "f16/28x1024/r64>mxfp4", "bf16/28x128+signs/r512>nvfp4"})
      expect(text, hopper, one);
    for (const char* text : {"bf16/n32768/r64>int4:row", "bf16/28x512/r1>e4m3:row"})
      expect(text, hopper, one);
    // Few rows; one scale a row of flat or narrow tiles; rows that are rotated in narrow tiles, or very long.
    for (const char* text :
         {"f16/28x1024/r1>mxfp4", "bf16/28x128+signs/r3>nvfp4", "bf16/28x256/r4096>e4m3:row",
          "bf16/172x64/r4096>e4m3:row", "bf16/20x1024/r256>e4m3:row"})
      expect(text, hopper, two);
    for (const char* text :
         {"bf16/180x16/r64>mxfp4", "bf16/132x4x28x2/r64>e4m3:row", "bf16/52x1024/r315>mxfp4"})
      expect(text, two, two);
    expect("bf16/428x32/r612>mxfp4", two, two);
    EXPECT_EQ(first("bf16/n16384/r64>e4m3:row"), "mma_split") << device.name;
    if (find_variant(one).supports(parse_problem("bf16/72x1024/r64>e4m3:128"), device)) {
      EXPECT_EQ(first("bf16/72x1024/r64>e4m3:128"), one) << device.name << ": longer than two launches take";
    }
    EXPECT_EQ(first("bf16/n65536/r64>e4m3:128"), "rotate_then_quantize") << device.name;
  }
}

TEST(ShippedTable, NamesListedDeviceVariantsThatSupportWhatItChoosesThemFor) {
  const TuningTable& table = *of_class(shipped_tables(), h200_description());
  EXPECT_TRUE(table.is_own_of(h200_description()));
  for (const FastestVariant& choice : table.choices) {
    const Variant& chosen = find_variant(choice.variant);
    EXPECT_EQ(chosen.memory, Memory::device);
    const Problem problem =
        make_problem(choice.dtype, operator_for(choice.n), choice.elements / choice.n, choice.placement);
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

/// What auto is asked for: every dtype and row length 2^k, some of models, few rows to many, both placements,
/// with gaps.
std::vector<Problem> many_problems(std::int64_t most_elements) {
  std::vector<std::int64_t> lengths{768, 2880, 11008, 13696, 14336, 28672};
  for (std::int64_t n = 2; n <= 65536; n *= 2)
    lengths.push_back(n);
  std::vector<Problem> problems;
  for (const Dtype dtype : kAllDtypes) {
    for (const std::int64_t n : lengths) {
      for (std::int64_t elements = 1 << 10; elements <= most_elements; elements *= 16) {
        for (const Placement placement : {Placement::in_place, Placement::out_of_place}) {
          for (const std::int64_t gap : {0, 1, 8}) {
            for (const bool programmatic : {false, true}) {
              Problem problem =
                  make_problem(dtype, operator_for(n), std::max<std::int64_t>(elements / n, 1), placement);
              problem.set_row_stride(n + gap);
              problem.programmatic_launch = programmatic;
              problems.push_back(problem);
            }
          }
        }
      }
    }
  }
  return problems;
}

/// The variant that auto should plan with: of the measured choice and the rule's, the first that supports the
/// problem. Written anew, from the contract; nullptr: none.
const Variant* first_choice(const TuningTable* table, const Problem& problem, const DeviceInfo& device) {
  const FastestVariant* measured = table == nullptr ? nullptr : table->nearest(problem);
  if (measured != nullptr && find_variant(measured->variant).supports(problem, device))
    return &find_variant(measured->variant);
  for (const std::string_view name : preferred_variants(problem, device)) {
    if (find_variant(name).supports(problem, device)) return &find_variant(name);
  }
  return nullptr;
}

TEST(Auto, TriesTheMeasuredChoiceFirstThenTheRules) {
  unsetenv("FWHT_TUNING");
  std::map<std::string, int> differ;  // by device
  for (const DeviceInfo& device : described_devices()) {
    for (const Problem& problem : many_problems(std::int64_t{1} << 26)) {
      const auto has = [&](const TuningTable& t) { return t.nearest(problem) != nullptr; };
      const TuningTable* table = of_class(shipped_tables(), device, has);
      const Variant* expected = first_choice(table, problem, device);
      const std::vector<const Variant*> found = candidates(problem, device);
      ASSERT_EQ(found.empty() ? nullptr : found.front(), expected) << to_string(problem);
      EXPECT_EQ(static_cast<bool>(variant.supports(problem, device)), expected != nullptr)
          << to_string(problem);
      EXPECT_EQ(std::set(found.begin(), found.end()).size(), found.size()) << to_string(problem);
      differ[device.name] += expected != first_choice(nullptr, problem, device);
    }
  }
  EXPECT_GT(differ[h200_description().name], 0) << "table and rule agree everywhere: this test shows nothing";
  EXPECT_GT(differ[described("H100").name], 0) << "its own table, or its class's";
  EXPECT_EQ(differ[a100_description().name], 0) << "the rule";
}

bool has_operator(std::int64_t n) {
  try {
    operator_for(n);
  } catch (const BadRequest&) {
    return false;
  }
  return true;
}

/// How many of `problems` there are; every one of a length without an operator of its own, and `auto` has
/// candidates wherever it supports one.
int count_without_an_operator_of_the_length(const std::vector<std::string>& problems,
                                            const DeviceInfo& device) {
  int count = 0;
  for (const std::string& text : problems) {
    const Problem problem = parse_problem(text);
    if (has_operator(problem.n()) || !variant.supports(problem, device)) continue;
    EXPECT_FALSE(candidates(problem, device).empty()) << device.name << " " << text;
    ++count;
  }
  return count;
}

TEST(Auto, TakesOperatorsOfLengthsThatHaveNone) {
  unsetenv("FWHT_TUNING");
  const LinearProblem layer = parse_linear_problem("f16/m4/n1024/k8576/w4g128/rotd67x128");
  const std::vector<std::string> rows{"f16/428x12/r4",
                                      "f16/d67x64/r4",
                                      "f16/d131x16/r4",
                                      "f16/d5/r3",
                                      "f32/d5/r3",
                                      "f16/d67x64/r4/out",
                                      to_string(fwht::rotation_of(layer))};
  const std::vector<std::string> codes{"f16/d67x64/r4>e4m3:row", "f16/d67x64/r4>mxfp8"};
  std::vector<std::string> many;
  for (const char* dtype : {"f16", "bf16", "f32"}) {
    for (const char* order : {"d3", "d5", "d67", "d131", "d255", "428", "428x12x"}) {
      for (std::int64_t columns = 1; columns <= 1024; columns *= 2) {
        const char* between = std::string_view(order).ends_with('x') ? "" : "x";
        const std::string op = columns == 1 ? std::string(order) : concat(order, between, columns);
        if (!op.ends_with('x')) many.push_back(concat(dtype, "/", op, "/r3"));
      }
    }
  }
  for (const DeviceInfo& device : described_devices()) {
    EXPECT_EQ(count_without_an_operator_of_the_length(rows, device), static_cast<int>(rows.size()))
        << device.name;
    EXPECT_EQ(count_without_an_operator_of_the_length(codes, device), static_cast<int>(codes.size()))
        << device.name;
    for (const std::string& text : codes) {
      const Problem rotation = rotate_then_quantize::rotation_of(parse_problem(text));
      EXPECT_FALSE(candidates(rotation, device).empty()) << device.name << " " << text;
    }
    EXPECT_GT(count_without_an_operator_of_the_length(many, device), 60) << device.name;
  }
}

// ------------------------------------------------------------ it only forwards

std::string setting(const Plan& plan, std::string_view name) {
  for (const auto& [key, value] : plan.settings()) {
    if (key == name) return std::get<std::string>(value);
  }
  return "";
}

/// The settings that are words: which kernel, which launch.
std::string words_of(const Plan& plan) {
  std::string words;
  for (const auto& [key, value] : plan.settings()) {
    if (const auto* word = std::get_if<std::string>(&value)) words += " " + key + "=" + *word;
  }
  return words;
}

/// What every input repeats, whatever its rows.
const std::vector<std::byte>& input_of(Dtype dtype) {
  static std::map<Dtype, std::vector<std::byte>> inputs;
  std::vector<std::byte>& bytes = inputs[dtype];
  if (bytes.empty()) {
    const Problem period = make_problem(dtype, 4096, 7);
    bytes.resize(static_cast<std::size_t>(period.span_bytes()));
    reference::write_input(period, reference::InputClass::normal, 17, bytes.data());
  }
  return bytes;
}

/// The output of the plan for one input, with pointers `offset` elements behind a 256-byte boundary.
std::vector<std::byte> run(const Plan& plan, std::int64_t offset) {
  const Problem& problem = plan.problem();
  const std::vector<std::byte>& input = input_of(problem.dtype());
  const auto size = static_cast<std::size_t>(problem.span_bytes());
  const auto misalign = static_cast<std::size_t>(offset * bytes_of(problem.dtype()));
  Buffer in(Memory::device, size, misalign), out(Memory::device, size, misalign);
  in.upload(input.data(), std::min(size, input.size()));
  if (size > input.size()) in.tile(input.size());
  std::vector<std::byte> bytes(size);
  synchronize(Memory::device);
  const bool in_place = problem.placement == Placement::in_place;
  plan.execute(in.data(), in_place ? in.data() : out.data());
  synchronize(Memory::device);
  (in_place ? in : out).download(bytes.data(), bytes.size());
  return bytes;
}

class AutoGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!device.has_cuda()) GTEST_SKIP() << device.why_no_cuda;
  }
  const DeviceInfo device = this_device();
};

// The plan of auto is the plan of the variant that it names: the same settings, the same bits. So what the
// conformance suite shows of that variant holds for auto too. Settings are compared for every problem, bits
// once for each kernel and way to call it, on its smallest problem: copies to the host are what takes time
// here.
TEST_F(AutoGpu, OnlyForwards) {
  std::set<std::string> seen, ran;
  std::map<std::pair<Dtype, std::int64_t>, std::map<std::string, Problem>> picked_for;
  std::set<std::pair<Dtype, std::int64_t>> promised;
  for (const Problem& problem : many_problems(std::int64_t{1} << 22)) {
    if (!variant.supports(problem, device)) continue;
    const std::unique_ptr<Plan> forwarding = plan(variant, problem, device);
    const std::string picked = setting(*forwarding, "picked");
    const std::unique_ptr<Plan> own = plan(find_variant(picked), problem, device);
    ASSERT_EQ(picked, candidates(problem, device).front()->name) << to_string(problem);
    Settings settings = forwarding->settings();
    std::erase_if(settings, [](const Setting& one) {
      return one.first == "picked" || one.first == "picked_by" || one.first == "for_odd_pointers";
    });
    EXPECT_EQ(settings, own->settings()) << to_string(problem);
    EXPECT_EQ(forwarding->one_stream_at_a_time(), own->one_stream_at_a_time());
    EXPECT_TRUE(is_as_exact_as_can_be(forwarding->numerics(), problem.scale)) << to_string(problem);
    Problem without_rows = problem;
    without_rows.rows = 1;
    if (ran.insert(to_string(without_rows) + picked + words_of(*own)).second) {
      EXPECT_EQ(run(*forwarding, 0), run(*own, 0)) << to_string(problem) << " by " << picked;
    }
    seen.insert(picked);
    const auto row = std::pair{problem.dtype(), problem.n()};
    picked_for[row].emplace(picked, problem);
    const Promises promises = forwarding->numerics().promises;
    if (promises.batch_invariant || promises.layout_invariant) promised.insert(row);
    if (HasFailure()) return;
  }
  EXPECT_GT(seen.size(), 1U) << "one variant serves everything: this test shows little";
  for (const auto& row : promised) {
    // Where several variants keep a promise together, a row has the same bits by each.
    std::vector<std::byte> expected;
    for (const auto& [picked, problem] : picked_for[row]) {
      std::vector<std::byte> bits = run(*plan(variant, problem, device), 0);
      bits.resize(static_cast<std::size_t>(problem.n() * bytes_of(problem.dtype())));
      if (expected.empty()) expected = bits;
      EXPECT_EQ(expected, bits) << to_string(problem) << " by " << picked << ": one result is promised";
    }
  }
}

// Whichever variants share such a length, all of them add the same numbers in the same order.
TEST_F(AutoGpu, PromisesTheSameBitsForAnyNumberOfFp32Rows) {
  for (std::int64_t n = 64; n <= 32768; n *= 2) {
    for (const std::int64_t rows : {1, 40, 2048}) {
      const Problem problem = make_problem(Dtype::f32, n, rows);
      const Promises promises = plan(variant, problem, device)->numerics().promises;
      EXPECT_TRUE(promises.batch_invariant && promises.layout_invariant) << to_string(problem);
    }
  }
}

TEST_F(AutoGpu, TakesOddPointersByAnotherVariant) {
  int with_fallback = 0;
  for (const Problem& problem : many_problems(std::int64_t{1} << 20)) {
    if (!variant.supports(problem, device)) continue;
    const std::unique_ptr<Plan> forwarding = plan(variant, problem, device);
    const std::string fallback = setting(*forwarding, "for_odd_pointers");
    if (fallback.empty()) continue;
    ++with_fallback;
    const std::unique_ptr<Plan> own = plan(find_variant(fallback), problem, device);
    EXPECT_EQ(forwarding->alignment(), own->alignment());
    EXPECT_NE(fallback, setting(*forwarding, "picked"));
    EXPECT_FALSE(forwarding->numerics().promises.layout_invariant) << to_string(problem);
    EXPECT_EQ(run(*forwarding, 1), run(*own, 1)) << to_string(problem) << " by " << fallback;
    if (HasFailure()) return;
  }
  if (device.compute_capability() == 90) {
    EXPECT_GT(with_fallback, 0);
  }
}

}  // namespace
}  // namespace fwht::automatic
