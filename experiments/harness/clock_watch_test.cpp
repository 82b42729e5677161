#include "experiments/harness/clock_watch.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

namespace fwht::harness {
namespace {

constexpr const char* kBusId = "0000:1B:00.0";
constexpr std::uint64_t kIdle = 0x1, kUser = 0x2, kPower = 0x4, kThermal = 0x40;

class ClockWatchTest : public testing::Test {
 protected:
  ClockWatchTest() : library_(dlopen(FWHT_NVML_STAND_IN, RTLD_NOW)) {
    if (library_ == nullptr) throw std::runtime_error(dlerror());
    mhz_ = static_cast<unsigned*>(dlsym(library_, "stand_in_mhz"));
    reasons_ = static_cast<unsigned long long*>(dlsym(library_, "stand_in_reasons"));
    status_ = static_cast<int*>(dlsym(library_, "stand_in_status"));
    *status_ = 0;
    *reasons_ = 0;
    *mhz_ = 1980;
  }

  static ClockWatch watch() { return ClockWatch(kBusId, FWHT_NVML_STAND_IN); }

  /// A measurement that meets these states, one a call, and the last from then on.
  std::function<Timing()> meeting(Unthrottled& unthrottled, std::vector<std::uint64_t> reasons) {
    return [this, &unthrottled, reasons, calls = std::size_t{0}]() mutable {
      *reasons_ = reasons.at(std::min(calls++, reasons.size() - 1));
      *mhz_ = 1980 - static_cast<unsigned>(calls);
      unthrottled.watch().sample();
      return summarize({static_cast<double>(calls)}, 1);
    };
  }

  void* library_;
  unsigned* mhz_ = nullptr;
  unsigned long long* reasons_ = nullptr;
  int* status_ = nullptr;
  int pauses_ = 0;
  std::function<void()> count_ = [this] { ++pauses_; };
};

CsvRow row_of(const ClockedTiming& measured) {
  CsvRow row;
  measured.describe_clock(row);
  return row;
}

TEST(Throttling, HasTheNamesOfItsReasons) {
  EXPECT_EQ(throttle_text(0), "");
  EXPECT_EQ(throttle_text(kIdle | kUser), "") << "a GPU at rest, or at clocks that a user set";
  EXPECT_EQ(throttle_text(kIdle | kPower | kThermal), "sw_power_cap+hw_thermal_slowdown");
  EXPECT_EQ(throttle_text(0x400 | kPower), "sw_power_cap+0x400");
}

TEST_F(ClockWatchTest, KeepsTheLowestClockAndAllReasons) {
  ClockWatch clock = watch();
  ASSERT_TRUE(clock.is_there());
  clock.sample();
  *mhz_ = 1200;
  *reasons_ = kPower;
  clock.sample();
  *mhz_ = 1900;
  *reasons_ = kThermal;
  clock.sample();
  EXPECT_EQ(clock.state().sm_mhz, 1200);
  EXPECT_EQ(clock.state().reasons, kPower | kThermal);
  clock.begin();
  EXPECT_EQ(clock.state().sm_mhz, 0);
  *status_ = 3;  // not supported, as on a part of a GPU
  clock.sample();
  EXPECT_EQ(clock.state().sm_mhz, 0);
  EXPECT_FALSE(clock.state().reasons_known);
}

TEST_F(ClockWatchTest, WithoutAnAnswerNothingIsKnown) {
  EXPECT_FALSE(ClockWatch().is_there());
  EXPECT_FALSE(ClockWatch(kBusId, "libfwht-no-such.so").is_there());
  EXPECT_FALSE(ClockWatch(kBusId, "libm.so.6").is_there()) << "a library without these functions";
  EXPECT_FALSE(ClockWatch("0000:00:00.0", FWHT_NVML_STAND_IN).is_there()) << "another GPU";
  *status_ = 9;
  EXPECT_FALSE(watch().is_there()) << "no driver";
  Unthrottled nothing{ClockWatch(), count_};
  *reasons_ = kPower;
  const ClockedTiming measured = nothing.measure("a", meeting(nothing, {kPower}));
  EXPECT_TRUE(row_of(measured).empty());
  EXPECT_EQ(pauses_, 0);
}

TEST_F(ClockWatchTest, WhatWasThrottledIsMeasuredAgain) {
  Unthrottled unthrottled{watch(), count_};
  EXPECT_EQ(row_of(unthrottled.measure("a", meeting(unthrottled, {kIdle}))),
            (CsvRow{{"sm_clock_mhz", "1979"}, {"throttle", ""}, {"measurements", "1"}}));
  const ClockedTiming again = unthrottled.measure("a", meeting(unthrottled, {kPower, 0}));
  EXPECT_EQ(again.time_us, 2.0) << "the second measurement";
  EXPECT_EQ(row_of(again), (CsvRow{{"sm_clock_mhz", "1978"}, {"throttle", ""}, {"measurements", "2"}}));
  EXPECT_EQ(pauses_, 1);
}

// Behind a load that was throttled the clock comes back step by step, and no reason is left.
TEST_F(ClockWatchTest, WhatHadALowClockIsMeasuredAgain) {
  Unthrottled unthrottled{watch(), [this] { *mhz_ = ++pauses_ == 2 ? 1980 : 1900; }};
  const auto time = [&] {
    unthrottled.watch().sample();
    return summarize({static_cast<double>(*mhz_)}, 1);
  };
  EXPECT_EQ(unthrottled.measure("a", time).measurements, 1);
  *mhz_ = 1770;
  EXPECT_EQ(row_of(unthrottled.measure("a", time)),
            (CsvRow{{"sm_clock_mhz", "1900"}, {"throttle", ""}, {"measurements", "2"}}))
      << "within 5 % of the highest";
  *mhz_ = 1770;
  EXPECT_EQ(unthrottled.measure("a", time).time_us, 1980);
  pauses_ = 100;
  const std::function<Timing()> stays_low = [&] {
    *mhz_ = 1500;
    return time();
  };
  for (int i = 0; i < Unthrottled::kInVain; ++i)
    EXPECT_EQ(unthrottled.measure("b", stays_low).measurements, Unthrottled::kMost);
  EXPECT_EQ(unthrottled.measure("b", stays_low).measurements, 1) << "it is the load itself";
  EXPECT_EQ(unthrottled.measure("c", stays_low).measurements, Unthrottled::kMost)
      << "that of the next may not be";
}

TEST_F(ClockWatchTest, WhatStaysThrottledIsMarkedAndSoonMeasuredOnce) {
  Unthrottled unthrottled{watch(), count_};
  for (int i = 0; i < Unthrottled::kInVain; ++i) {
    const ClockedTiming marked = unthrottled.measure("a", meeting(unthrottled, {kPower}));
    EXPECT_EQ(row_of(marked),
              (CsvRow{{"sm_clock_mhz", "1977"}, {"throttle", "sw_power_cap"}, {"measurements", "3"}}));
  }
  EXPECT_EQ(unthrottled.measure("a", meeting(unthrottled, {kPower})).measurements, 1);
  EXPECT_EQ(unthrottled.measure("a", meeting(unthrottled, {0})).measurements, 1) << "cool again";
  EXPECT_EQ(unthrottled.measure("a", meeting(unthrottled, {kPower})).measurements, 3);
}

TEST_F(ClockWatchTest, AClockThatWasThrottledIsNoHighestClock) {
  Unthrottled unthrottled{watch(), count_};
  unthrottled.measure("a", [&] {
    *mhz_ = 2400;  // before it was held down
    *reasons_ = kPower;
    unthrottled.watch().sample();
    return summarize({1.0}, 1);
  });
  *reasons_ = 0;
  EXPECT_EQ(unthrottled.measure("b", meeting(unthrottled, {0})).measurements, 1);
}

TEST_F(ClockWatchTest, ALoadThatThrottlesSpoilsNothingForTheNext) {
  Unthrottled unthrottled{watch(), [this] {
                            if (++pauses_ == 20) *reasons_ = 0;  // cool again
                          }};
  for (int i = 0; i < Unthrottled::kInVain; ++i)
    unthrottled.measure("matmul", meeting(unthrottled, {kPower}));
  EXPECT_EQ(unthrottled.measure("matmul", meeting(unthrottled, {kPower})).measurements, 1);
  const int before = pauses_ = 17;
  EXPECT_EQ(row_of(unthrottled.measure("auto", meeting(unthrottled, {0}))),
            (CsvRow{{"sm_clock_mhz", "1979"}, {"throttle", ""}, {"measurements", "1"}}));
  EXPECT_EQ(pauses_, before + 3) << "until it was cool";
  EXPECT_EQ(unthrottled.measure("auto", meeting(unthrottled, {kPower})).measurements, 3);
  pauses_ = 100;  // it stays hot, and that is the machine's
  EXPECT_EQ(unthrottled.measure("wgmma", meeting(unthrottled, {kPower, 0})).measurements, 2);
  EXPECT_EQ(pauses_, 100 + Unthrottled::kMostPauses + 1);
  EXPECT_EQ(unthrottled.measure("passes", meeting(unthrottled, {0})).measurements, 1);
  unthrottled.measure("naive", meeting(unthrottled, {0}));
  EXPECT_EQ(pauses_, 100 + Unthrottled::kMostPauses + 2) << "none after a load that was not throttled";
}

}  // namespace
}  // namespace fwht::harness
