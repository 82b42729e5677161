#include "variants/rotate_then_quantize/rotate_then_quantize.hpp"

#include <gtest/gtest.h>

#include "common/contract/family.hpp"
#include "common/contract/problem.hpp"
#include "variants/kronecker/kronecker.hpp"
#include "variants/rotate_then_quantize/quantizer.hpp"

namespace fwht::rotate_then_quantize {
namespace {

TEST(SharersOfToken, AreAClusterThatRunsAtOnce) {
  for (const DeviceInfo& device : described_devices()) {
    const bool has_clusters = static_cast<bool>(require_programmatic_launch(device));
    const auto expect = [&](std::int64_t token, std::int64_t tokens, int sharers) {
      EXPECT_EQ(sharers_of_token(token, tokens, device), has_clusters ? sharers : 1)
          << device.name << ": " << tokens << " of " << token;
    };
    const std::int64_t multiprocessors = device.sm_count;
    expect(53248, 1, kMostSharers);
    expect(8192, multiprocessors / 8, 8);
    expect(8192, multiprocessors / 4, 4);
    expect(53248, multiprocessors / 2, 2);
    expect(53248, multiprocessors / 2 + 1, 1);
    expect(1 << 20, 1 << 20, 1);
    expect(8184, 1, 1);
  }
}

TEST(Quantizer, BeginsEarlyBehindRotationsThatLetIt) {
  const DeviceInfo device = h200_description();
  const auto begins = [&](const char* text) { return begins_early(parse_problem(text), device); };
  const bool is_hopper =
      static_cast<bool>(kronecker::variant.supports(parse_problem("f16/28x512/r1"), device));
  EXPECT_EQ(begins("bf16/36x1024/r1>e4m3:row"), is_hopper);
  EXPECT_EQ(begins("bf16/180x16/r2912>e4m3:row"), is_hopper);
  EXPECT_EQ(begins("bf16/12x128/r16>mxfp4"), is_hopper) << "several warps a row";
  for (const char* text : {"bf16/n4096/r1>e4m3:row", "bf16/n1/r4096>e4m3:row,t4096", "f32/n1024/r5>int4:row",
                           "bf16/132x4x28x2/r2269>e4m3:row", "bf16/12x64/r256>mxfp4"})
    EXPECT_FALSE(begins(text)) << text;
  EXPECT_FALSE(begins_early(parse_problem("bf16/36x1024/r1>e4m3:row"), a100_description()));
}

}  // namespace
}  // namespace fwht::rotate_then_quantize
