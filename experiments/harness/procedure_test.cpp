#include "experiments/harness/procedure.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>

#include "common/device/device_info.hpp"
#include "experiments/harness/device_work.hpp"

namespace fwht::harness {
namespace {

TEST(Procedure, SubtractsTheCopysOwnShareFromAPair) {
  // 24.48 us a pair of copy and launch, 24.25 us a pair of two copies.
  const Timing timing = subtract_share({12.24, 12.2, 12.5, 200, 7, {12.5, 12.2}}, 12.125);
  EXPECT_NEAR(timing.time_us, 12.355, 1e-12);
  EXPECT_NEAR(timing.min_us, 12.275, 1e-12);
  EXPECT_NEAR(timing.max_us, 12.875, 1e-12);
  EXPECT_EQ(timing.launches, 100) << "launches of the subject";
  EXPECT_EQ(timing.replays, 7);
  ASSERT_EQ(timing.each_us.size(), 2U);
  EXPECT_NEAR(timing.each_us[0], 12.875, 1e-12);
  EXPECT_NEAR(timing.each_us[1], 12.275, 1e-12);
  // The reference itself: twice its share less its share.
  EXPECT_EQ(subtract_share({3.0, 3.0, 3.0, 2, 7}, 3.0).time_us, 3.0);
}

TEST(Procedure, NeverReportsATimeThatIsNoTime) {
  EXPECT_THROW(subtract_share({1.0, 1.0, 1.0, 2, 7}, 2.0), std::runtime_error);
  EXPECT_THROW(subtract_share({1.0, 0.4, 1.0, 2, 7}, 1.0), std::runtime_error);
  EXPECT_THROW(subtract_share({1.0, 1.0, 1.0, 2, 7}, 3.0), std::runtime_error);
}

TEST(Procedure, ColdRotationsExceedTheCaches) {
  constexpr std::int64_t kMiB = 1 << 20, kL2 = 60 * kMiB, kPlenty = std::int64_t{1} << 40;
  EXPECT_EQ(cold_count(16 * kMiB, kL2, kPlenty), 33);
  for (const std::int64_t bytes : {64 * kMiB / 1024, kMiB, 3 * kMiB, 128 * kMiB, 512 * kMiB, 1024 * kMiB}) {
    EXPECT_GT(cold_count(bytes, kL2, kPlenty) * bytes, 4 * kL2) << bytes;
    EXPECT_GE(cold_count(bytes, kL2, kPlenty), 2) << bytes;
  }
  EXPECT_GT(cold_count(128 * kMiB, kL2, kPlenty) * 128 * kMiB, 512 * kMiB);
  // Little memory: less than 512 MiB, but never less than four times the L2.
  EXPECT_EQ(cold_count(16 * kMiB, kL2, 320 * kMiB), 20);
  EXPECT_GT(cold_count(16 * kMiB, kL2, kMiB) * 16 * kMiB, 4 * kL2);
  const Buffers in_place{Memory::device, Placement::in_place, 16 * kMiB, 16 * kMiB};
  const Buffers halved{Memory::device, Placement::out_of_place, 16 * kMiB, 8 * kMiB};
  EXPECT_EQ(slice_count(Mode::replay, in_place, kL2, kPlenty), 1);
  EXPECT_EQ(slice_count(Mode::cold, in_place, kL2, kPlenty), 33);
  EXPECT_EQ(slice_count(Mode::cold, halved, kL2, kPlenty), 22);
}

TEST(Procedure, TimesAHostLaunchOnItsSlice) {
  Slices slices({Memory::host, Placement::out_of_place, 4096, 4096}, 1);
  std::int64_t calls = 0;
  const Launch launch = [&](const void* in, void* out, Stream) {
    std::memcpy(out, in, 4096);
    ++calls;
  };
  const Timing timing = time_in_mode(Mode::host, launch, {}, slices);
  EXPECT_GT(timing.time_us, 0.0);
  EXPECT_GE(calls, timing.launches * timing.replays);
}

constexpr std::byte kSixBytes[] = {std::byte{1}, std::byte{2}, std::byte{3},
                                   std::byte{4}, std::byte{5}, std::byte{6}};

TEST(Slices, RepeatThePeriodInEveryInput) {
  for (const std::int64_t count : {1, 3}) {
    Slices slices({Memory::host, Placement::out_of_place, 1000, 700}, count);
    slices.fill(kSixBytes);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto* in = static_cast<const unsigned char*>(slices.in(i));
      const auto* out = static_cast<const unsigned char*>(slices.out(i));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(in) % 256, 0U);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(out) % 256, 0U);
      for (int b = 0; b < 1000; ++b)
        ASSERT_EQ(in[b], 1 + b % 6) << i;
      for (int b = 0; b < 700; ++b)
        ASSERT_EQ(out[b], kPoisonByte) << i;
    }
    EXPECT_TRUE(slices.input().guards_intact() && slices.output().guards_intact());
  }
  Slices small({Memory::host, Placement::in_place, 4, 4}, 1);
  small.fill(kSixBytes);  // a period longer than the slice is cut
  EXPECT_TRUE(small.input().guards_intact());
  EXPECT_EQ(small.in(0), small.out(0));
}

TEST(Workspace, KeepsWhatFitsAndRefusesWhatDoesNot) {
  Workspace workspace;
  Slices& first = workspace.get({Memory::host, Placement::in_place, 4096, 4096});
  EXPECT_EQ(&workspace.get({Memory::host, Placement::in_place, 4096, 4096}), &first);
  EXPECT_NE(&workspace.get({Memory::host, Placement::out_of_place, 4096, 4096}), &first);
  try {
    workspace.get({Memory::host, Placement::in_place, std::int64_t{1} << 50, std::int64_t{1} << 50});
    FAIL() << "not refused";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("of host memory, "), std::string::npos) << error.what();
  }
}

void expect_breaks_found(Memory memory) {
  for (const std::size_t period : {std::size_t{6}, std::size_t{1024}}) {
    const std::size_t bytes = 7 * period + 2;
    Buffer buffer(memory, bytes);
    std::vector<unsigned char> data(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      data[i] = static_cast<unsigned char>(i % period * 37);
    buffer.upload(data.data(), bytes);
    const auto find = [&](std::size_t length) {
      return period_break(buffer, static_cast<std::int64_t>(period), static_cast<std::int64_t>(length));
    };
    EXPECT_EQ(find(bytes), -1);
    for (const std::size_t broken : {period, 3 * period + 2, bytes - 2}) {
      const unsigned char wrong[2] = {static_cast<unsigned char>(data[broken] + 1), data[broken + 1]};
      buffer.upload(wrong, 2, broken);
      const std::int64_t found = find(bytes);
      EXPECT_GE(found, 0) << period;
      EXPECT_LE(found, static_cast<std::int64_t>(broken)) << period;
      EXPECT_GT(found + 16, static_cast<std::int64_t>(broken)) << period;
      EXPECT_EQ(find(broken), -1) << "what lies behind does not count";
      buffer.upload(data.data() + broken, 2, broken);
    }
    EXPECT_EQ(find(7 * period), -1);
    EXPECT_EQ(find(period / 2), -1);
  }
}

TEST(PeriodBreak, FindsTheFirstDifferenceOnTheHost) {
  expect_breaks_found(Memory::host);
}

TEST(PeriodBreakGpu, FindsTheFirstDifferenceOnTheDevice) {
  if (const DeviceInfo device = this_device(); !device.has_cuda()) GTEST_SKIP() << device.why_no_cuda;
  expect_breaks_found(Memory::device);
}

TEST(ProcedureGpu, TimesInEveryMode) {
  if (const DeviceInfo device = this_device(); !device.has_cuda()) GTEST_SKIP() << device.why_no_cuda;
  constexpr std::int64_t kBytes = 1 << 20;
  const Launch copy = [](const void* in, void* out, Stream stream) {
    enqueue_copy(Memory::device, out, in, kBytes, stream);
  };
  Slices slices({Memory::device, Placement::out_of_place, kBytes, kBytes}, 4);
  const Alternation beside{copy, reference_share(copy, slices)};
  EXPECT_GT(beside.share_us, 0.0);
  for (const Mode mode : {Mode::replay, Mode::alternating, Mode::cold}) {
    const Timing timing = time_in_mode(mode, copy, beside, slices);
    EXPECT_GT(timing.time_us, 0.1) << name_of(mode);
    EXPECT_LT(timing.time_us, 1000.0) << name_of(mode);
    if (mode == Mode::cold) {
      EXPECT_EQ(timing.launches % 4, 0);
    }
  }
}

}  // namespace
}  // namespace fwht::harness
