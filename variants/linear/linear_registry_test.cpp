// The golden support table of the second ladder: what every variant says it can do on three described
// machines. It guards against "skip everything, stay green", as variants/registry_test.cpp does for
// transforms.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "common/host/error.hpp"
#include "variants/linear/auto/auto.hpp"
#include "variants/linear/registry.hpp"

namespace fwht {
namespace {

struct Asked {
  char letter;
  const char* problem;
};
// clang-format off
constexpr Asked kAsked[] = {
    {'f', "f16/m1/n4096/k4096/w4g128"},
    {'b', "bf16/m1/n4096/k4096/w4g128"},
    {'2', "f16/m16/n4096/k4096/w4g128/v2"},
    {'s', "f16/m16/n4096/k4096/w4g128/sym"},
    {'t', "f16/m8/n4096/k4096/w4g32"},             // thirty-two
    {'i', "f16/m8/n4096/k4096/w4g64"},
    {'n', "f16/m8/n4096/k4224/w4g96"},             // ninety-six
    {'w', "f16/m8/n4096/k4096/w4g-1"},             // the whole
    {'o', "f16/m8/n40/k256/w4g128"},               // outputs that fill no tile
    {'k', "f16/m8/n4096/k4128/w4g32"},             // inputs that fill no step of 128
    {'m', "f16/m1000/n4096/k4096/w4g128"},
    {'M', "f16/m2000/n4096/k4096/w4g128"},
    {'a', "f16/m8/n4096/k4096/w4g128/act"},
    {'r', "f16/m8/n4096/k4096/w4g128/rot"},
    {'R', "f16/m8/n4096/k4096/w4g128/rot128"},
    {'A', "f16/m8/n4096/k4096/w4g128/act/rot"},
    {'x', "f16/m8/n4096/k6144/w4g128/rot12x512"},
    {'y', "f16/m8/n4096/k4096/w4g128/act/rot4096+signs"},
    {'d', "bf16/m8/n4096/k5120/w4g128/rotd20x256"},  // a dense factor
    {'p', "f16/m8/n4096/k4096/w4g128/pdl"},
    {'P', "f16/m8/n4096/k4096/w4g128/rot/pdl"},
};

struct Golden {
  std::string_view variant, h200, a100, no_cuda;
  bool needs_cublaslt = false;  // or says why there is none
};
constexpr Golden kGolden[] = {
    // variant                H200                  A100                no CUDA
    {"cpu",                   "fb2stinwokmMarRAxyd", "fb2stinwokmMarRAxyd", "fb2stinwokmMarRAxyd"},
    {"dense_fp16",            "fb2stinwokmM",       "fb2stinwokmM",     "", true},
    {"dequantize_then_dense", "fb2stinwokmM",       "fb2stinwokmM",     "", true},
    {"w4a16_data_parallel",   "f2wmM",              "f2wmM",            ""},
    {"w4a16_splitk",          "f2wmM",              "f2wmM",            ""},
    {"w4a16_splitk_8",        "f2wmM",              "f2wmM",            ""},
    {"w4a16_splitk_16",       "f2wmM",              "f2wmM",            ""},
    {"w4a16_splitk_f32",      "f2wmM",              "f2wmM",            ""},
    {"w4a16_pipelined",       "fb2stiwomap",        "fb2stiwoma",       ""},
    {"w4a16_prefill",         "fb2stiwomMa",        "",                 ""},
    {"rotated_w4a16",         "rRAxydP",            "rRAxyd",         ""},
    {"rotated_w4a16_prefill", "rRAxyd",             "",                 ""},
    {"rotated_w4a16_inside",  "rRP",                "",                 ""},
    {"w4a16",                 "fb2stiwomMarRAxydpP", "fb2stiwomarRAxyd", ""},
    {"auto",                  "fb2stinwokmMarRAxydpP", "fb2stinwokmMarRAxyd", "", true},
};
// clang-format on

DeviceInfo no_cuda_description() {
  DeviceInfo device;
  device.why_no_cuda = "no CUDA device: described without one";
  return device;
}

const Golden* golden_of(std::string_view variant) {
  for (const Golden& row : kGolden)
    if (row.variant == variant) return &row;
  return nullptr;
}

void expect_golden(const LinearVariant& variant, const Golden& row, std::string_view supported,
                   const DeviceInfo& device) {
  for (const Asked& asked : kAsked) {
    const Support answer = variant.supports(parse_linear_problem(asked.problem), device);
    const bool expected = supported.find(asked.letter) != std::string_view::npos;
    SCOPED_TRACE(std::string(variant.name) + " on " + device.name + ", " + asked.problem + ": " +
                 answer.why_not);
    const bool no_library = answer.why_not.find("cublasLt") != std::string::npos ||
                            answer.why_not.find("cuBLASLt") != std::string::npos ||
                            answer.why_not.find("built without") != std::string::npos;
    if (expected && !answer && row.needs_cublaslt && no_library) continue;
    EXPECT_EQ(static_cast<bool>(answer), expected);
    if (!answer) {
      EXPECT_GE(answer.why_not.size(), 8U);
      EXPECT_EQ(answer.why_not.find('\n'), std::string::npos);
      EXPECT_THROW(plan(variant, parse_linear_problem(asked.problem), device), BadRequest);
    }
  }
}

TEST(LinearRegistry, EveryVariantSupportsWhatTheTableSays) {
  for (const LinearVariant* variant : linear_registry()) {
    const Golden* row = golden_of(variant->name);
    ASSERT_NE(row, nullptr) << variant->name << " has no row";
    expect_golden(*variant, *row, row->h200, h200_description());
    expect_golden(*variant, *row, row->a100, a100_description());
    expect_golden(*variant, *row, row->no_cuda, no_cuda_description());
  }
}

// From the measured number of tokens on 16-bit weights, of large layers the prefill form first.
TEST(LinearRegistry, AutoChangesTheFormWhereItWasMeasured) {
  const DeviceInfo device = h200_description();
  const auto picked = [&](const char* text) -> std::string_view {
    const LinearVariant* const choice = linear::automatic::choice_for(parse_linear_problem(text), device);
    return choice == nullptr ? "none" : choice->name;
  };
  const auto refusal = [&](const char* name, const char* text) {
    return find_linear_variant(name).supports(parse_linear_problem(text), device).why_not;
  };
  const std::string no_dense = refusal("dense_fp16", "f16/m64/n4096/k4096/w4g128");
  const std::string no_prefill = refusal("w4a16_prefill", "f16/m64/n8192/k4096/w4g128");
  if (!no_dense.empty() || !no_prefill.empty()) GTEST_SKIP() << no_dense << no_prefill;
  EXPECT_EQ(picked("f16/m32/n8192/k4096/w4g128"), "w4a16");
  EXPECT_EQ(picked("f16/m33/n8192/k4096/w4g128"), "w4a16_prefill");
  EXPECT_EQ(picked("f16/m192/n8192/k4096/w4g128"), "w4a16_prefill");
  EXPECT_EQ(picked("f16/m193/n8192/k4096/w4g128"), "dense_fp16");
  EXPECT_EQ(picked("f16/m32/n4096/k8064/w4g128"), "w4a16");
  EXPECT_EQ(picked("f16/m33/n4096/k8064/w4g128"), "dense_fp16") << "2^25 weights less a group of columns";
}

// Code of sm_90a runs on 9.0 alone, not on newer devices either. Everything else runs on all of them.
TEST(LinearRegistry, OnlyWhatNeedsSm90aIsRefusedElsewhereAndNamesWhatItNeeds) {
  const std::pair<std::string_view, std::string_view> kNeeds[] = {
      {"w4a16_prefill", "wgmma"}, {"rotated_w4a16_prefill", "wgmma"}, {"rotated_w4a16_inside", "clusters"}};
  for (const LinearVariant* variant : linear_registry()) {
    const bool rotates = variant->name.starts_with("rotated");
    const LinearProblem problem =
        parse_linear_problem(rotates ? "f16/m8/n4096/k4096/w4g128/rot" : "f16/m8/n4096/k4096/w4g128");
    const auto* needs = std::find_if(std::begin(kNeeds), std::end(kNeeds),
                                     [&](const auto& need) { return need.first == variant->name; });
    for (const DeviceInfo& device : described_devices()) {
      const Support answer = variant->supports(problem, device);
      if (answer.why_not.starts_with("built without")) continue;
      const bool refused = needs != std::end(kNeeds) && device.compute_capability() != 90;
      EXPECT_EQ(static_cast<bool>(answer), !refused) << variant->name << " on " << device.name;
      if (!refused) continue;
      EXPECT_NE(answer.why_not.find(needs->second), std::string::npos) << answer.why_not;
      EXPECT_NE(answer.why_not.find(device.name), std::string::npos) << answer.why_not;
    }
  }
}

TEST(LinearRegistry, NamesAreUniqueAndFound) {
  std::set<std::string_view> names;
  for (const LinearVariant* variant : linear_registry()) {
    EXPECT_TRUE(names.insert(variant->name).second) << variant->name;
    EXPECT_EQ(&find_linear_variant(variant->name), variant);
    EXPECT_FALSE(variant->summary.empty());
  }
  for (const Golden& row : kGolden)
    EXPECT_TRUE(names.contains(row.variant)) << row.variant;
  EXPECT_THROW(find_linear_variant("w4a15"), BadRequest);
}

}  // namespace
}  // namespace fwht
