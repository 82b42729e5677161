#include "common/device/gpu_timer.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "common/device/device_info.hpp"

namespace fwht {
namespace {

TimerOptions bounds(double replay_us, std::int64_t min_launches, std::int64_t max_launches) {
  TimerOptions options;
  options.replay_us = replay_us;
  options.min_launches = min_launches;
  options.max_launches = max_launches;
  return options;
}

TEST(Timer, RepeatsASequenceForTheTimeAskedForWithinItsBounds) {
  const TimerOptions options = bounds(1000.0, 4, 2000);
  EXPECT_EQ(sequence_repeats(1.0, 1, options), 1000);
  EXPECT_EQ(sequence_repeats(1.0, 2, options), 500);
  EXPECT_EQ(sequence_repeats(3.0, 1, options), 334);   // rounded up: at least replay_us
  EXPECT_EQ(sequence_repeats(0.1, 1, options), 2000);  // max_launches
  EXPECT_EQ(sequence_repeats(0.1, 3, options), 666);
  EXPECT_EQ(sequence_repeats(1e6, 1, options), 4);  // min_launches
  EXPECT_EQ(sequence_repeats(1e6, 2, options), 2);
  EXPECT_EQ(sequence_repeats(1.0, 5000, options), 1);  // a long sequence is never cut
  EXPECT_EQ(sequence_repeats(0.0, 1, options), 2000);  // a time below the clock's resolution
}

TEST(Timer, SummarizesByTheMedian) {
  const Timing timing = summarize({50.0, 10.0, 20.0}, 10);
  EXPECT_EQ(timing.each_us, (std::vector<double>{5.0, 1.0, 2.0})) << "in order";
  EXPECT_EQ(timing.time_us, 2.0);
  EXPECT_EQ(timing.min_us, 1.0);
  EXPECT_EQ(timing.max_us, 5.0);
  EXPECT_EQ(timing.launches, 10);
  EXPECT_EQ(timing.replays, 3);
  EXPECT_EQ(summarize({4.0, 1.0, 2.0, 3.0}, 1).time_us, 2.5);
  EXPECT_THROW(summarize({}, 1), std::logic_error);
  EXPECT_THROW(summarize({1.0}, 0), std::logic_error);
}

TEST(Timer, CountsHostCallsAndPutsTheDataBackBeforeEachReplay) {
  std::int64_t calls = 0, restored = 0;
  TimerOptions options = bounds(0.0, 3, 3);
  options.replays = 5;
  options.before_replay = [&](Stream) { ++restored; };
  const Timing timing = time_on_host([&] { ++calls; }, options);
  EXPECT_EQ(timing.launches, 3);
  EXPECT_EQ(timing.replays, 5);
  EXPECT_EQ(calls, 1 + 1 + 5 * 3);
  EXPECT_EQ(restored, 1 + 1 + 5);
  EXPECT_LE(timing.min_us, timing.time_us);
  EXPECT_LE(timing.time_us, timing.max_us);
}

TEST(Timer, PassesOnWhatACallThrows) {
  EXPECT_THROW(time_on_host([] { throw std::domain_error("no"); }), std::domain_error);
}

TEST(TimerGpu, TimesAnEmptyKernelAndASequence) {
  if (const DeviceInfo device = this_device(); !device.has_cuda()) GTEST_SKIP() << device.why_no_cuda;
  const Timing empty = time_empty_kernel();
  EXPECT_GT(empty.time_us, 0.1);
  EXPECT_LT(empty.time_us, 50.0);
  EXPECT_GE(empty.launches, 4);
  EXPECT_EQ(empty.replays, 7);

  int calls = 0;
  const Enqueue nothing = [&](Stream) { ++calls; };
  const Enqueue sequence[] = {nothing, nothing, nothing};
  TimerOptions options;
  int samples = 0;
  options.while_running = [&] { ++samples; };
  const Timing timing = time_on_device(sequence, options);
  EXPECT_GE(samples, 1);
  EXPECT_EQ(timing.launches % 3, 0);
  EXPECT_GE(calls, timing.launches);
}

TEST(TimerGpu, MeasuresTheSameEarlyAndLateInAProcess) {
  if (const DeviceInfo device = this_device(); !device.has_cuda()) GTEST_SKIP() << device.why_no_cuda;
  const double early = time_empty_kernel().time_us;
  double late = 0.0;
  for (int i = 0; i < 40; ++i)
    late = time_empty_kernel().time_us;
  EXPECT_NEAR(late / early, 1.0, 0.1) << early << " us, then " << late << " us";
}

TEST(TimerGpu, SurvivesALaunchThatThrowsInsideTheCapture) {
  if (const DeviceInfo device = this_device(); !device.has_cuda()) GTEST_SKIP() << device.why_no_cuda;
  int calls = 0;
  const Enqueue second_throws = [&](Stream) {
    if (++calls > 1) throw std::domain_error("no");
  };
  EXPECT_THROW(time_on_device(std::span(&second_throws, 1)), std::domain_error);
  EXPECT_GT(time_empty_kernel().time_us, 0.0);
}

TEST(TimerGpu, SaysWhyThereIsNothingToTimeWithoutCuda) {
  const DeviceInfo device = this_device();
  if (device.has_cuda()) GTEST_SKIP() << "this machine has a CUDA device";
  EXPECT_THROW(time_empty_kernel(), std::runtime_error);
}

}  // namespace
}  // namespace fwht
