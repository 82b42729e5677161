#include "variants/rotate_then_quantize/rotate_then_quantize.hpp"

#include <gtest/gtest.h>

#include "common/contract/family.hpp"
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

}  // namespace
}  // namespace fwht::rotate_then_quantize
