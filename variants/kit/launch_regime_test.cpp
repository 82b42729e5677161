#include "variants/kit/launch_regime.hpp"

#include <gtest/gtest.h>

namespace fwht {
namespace {

constexpr std::int64_t kKiB = 1024, kMiB = 1024 * kKiB;

TEST(LaunchRegime, BoundsLieBetweenTheMeasuredSizes) {
  EXPECT_EQ(regime_of(0), Regime::small);
  EXPECT_EQ(regime_of(256 * kKiB), Regime::small);
  EXPECT_EQ(regime_of(1 * kMiB), Regime::light);
  EXPECT_EQ(regime_of(2 * kMiB), Regime::light);
  EXPECT_EQ(regime_of(4 * kMiB), Regime::medium);
  EXPECT_EQ(regime_of(8 * kMiB), Regime::medium);
  EXPECT_EQ(regime_of(16 * kMiB), Regime::full);
  EXPECT_EQ(regime_of(32 * kMiB), Regime::full);
  EXPECT_EQ(regime_of(64 * kMiB), Regime::dram);
  EXPECT_EQ(regime_of(std::int64_t{1} << 40), Regime::dram);
}

TEST(LaunchRegime, RegimesAreCounted) {
  EXPECT_EQ(kRegimes, static_cast<int>(Regime::dram) + 1);
}

}  // namespace
}  // namespace fwht
