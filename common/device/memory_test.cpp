#include "common/device/memory.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <ostream>
#include <utility>
#include <vector>

namespace fwht {

// For readable test names.
void PrintTo(Memory memory, std::ostream* out) {
  *out << (memory == Memory::host ? "host" : "device");
}

namespace {

class MemoryTest : public testing::TestWithParam<Memory> {
 protected:
  void SetUp() override {
    if (GetParam() == Memory::host) return;
    if (const DeviceInfo device = this_device(); !device.has_cuda()) GTEST_SKIP() << device.why_no_cuda;
  }
};

std::vector<std::uint8_t> bytes_of_buffer(const Buffer& buffer) {
  std::vector<std::uint8_t> bytes(buffer.bytes());
  buffer.download(bytes.data(), bytes.size());
  return bytes;
}

// Writes one byte relative to the buffer's data, past its bounds where asked: what a faulty kernel does.
void write_byte(Buffer& buffer, std::ptrdiff_t at, std::uint8_t value) {
  buffer.upload(&value, 1, static_cast<std::size_t>(at));
}

TEST_P(MemoryTest, StartsPoisonedAndAligned) {
  const Buffer buffer(GetParam(), 1000);
  EXPECT_EQ(buffer.memory(), GetParam());
  EXPECT_EQ(buffer.bytes(), 1000U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0U);
  EXPECT_EQ(bytes_of_buffer(buffer), std::vector<std::uint8_t>(1000, kPoisonByte));
  EXPECT_TRUE(buffer.guards_intact());
}

TEST_P(MemoryTest, OffsetIsWhatWasAsked) {
  for (const std::size_t offset : {1, 2, 4, 8, 16, 64}) {
    const Buffer buffer(GetParam(), 64, offset);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, offset);
    EXPECT_TRUE(buffer.guards_intact());
  }
}

TEST_P(MemoryTest, GoesThereAndBackWithOffsets) {
  Buffer buffer(GetParam(), 300, 2);
  std::vector<std::uint8_t> values(100);
  std::iota(values.begin(), values.end(), std::uint8_t{1});
  buffer.upload(values.data(), values.size(), 150);
  std::vector<std::uint8_t> back(100);
  buffer.download(back.data(), back.size(), 150);
  EXPECT_EQ(back, values);
  const std::vector<std::uint8_t> all = bytes_of_buffer(buffer);
  EXPECT_EQ(all[149], kPoisonByte);
  EXPECT_EQ(all[250], kPoisonByte);
  buffer.poison(0x5A);
  EXPECT_EQ(bytes_of_buffer(buffer), std::vector<std::uint8_t>(300, 0x5A));
  EXPECT_TRUE(buffer.guards_intact()) << "poison and upload stay inside";
}

TEST_P(MemoryTest, TileRepeatsThePeriodToTheRaggedEnd) {
  for (const std::size_t bytes : {12, 13, 37, 1000}) {
    Buffer buffer(GetParam(), bytes, 4);
    const std::uint8_t period[5] = {1, 2, 3, 4, 5};
    buffer.upload(period, 5);
    buffer.tile(5);
    const std::vector<std::uint8_t> all = bytes_of_buffer(buffer);
    for (std::size_t i = 0; i < bytes; ++i)
      ASSERT_EQ(all[i], period[i % 5]) << i << " of " << bytes;
    EXPECT_TRUE(buffer.guards_intact());
  }
}

// One byte anywhere in either zone is noticed, next to the data and at the far ends.
TEST_P(MemoryTest, GuardsNoticeEverySingleByte) {
  const auto guard = static_cast<std::ptrdiff_t>(Buffer::kGuardBytes);
  Buffer buffer(GetParam(), 100, 6);
  for (const std::ptrdiff_t at : {std::ptrdiff_t{-1}, std::ptrdiff_t{100}, -guard, 99 + guard,
                                  std::ptrdiff_t{-700}, std::ptrdiff_t{2000}}) {
    write_byte(buffer, at, 0xFE);
    EXPECT_FALSE(buffer.guards_intact()) << at;
    write_byte(buffer, at, kPoisonByte);
    EXPECT_TRUE(buffer.guards_intact()) << at;
  }
  write_byte(buffer, 0, 0);
  write_byte(buffer, 99, 0);
  EXPECT_TRUE(buffer.guards_intact()) << "the data are no guard";
}

TEST_P(MemoryTest, MovesWithoutCopying) {
  Buffer first(GetParam(), 64);
  void* data = first.data();
  Buffer second(std::move(first));
  EXPECT_EQ(second.data(), data);
  Buffer third;
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_TRUE(third.guards_intact());
}

TEST_P(MemoryTest, EmptyBufferHasGuardsToo) {
  Buffer buffer(GetParam(), 0);
  EXPECT_TRUE(buffer.guards_intact());
  write_byte(buffer, 0, 1);
  EXPECT_FALSE(buffer.guards_intact());
  buffer.upload(nullptr, 0);  // as an empty vector's address may be
  buffer.download(nullptr, 0);
}

TEST_P(MemoryTest, SaysHowMuchIsFree) {
  EXPECT_GT(free_bytes(GetParam()), std::int64_t{1} << 20);
  EXPECT_NO_THROW(synchronize(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Host, MemoryTest, testing::Values(Memory::host));
INSTANTIATE_TEST_SUITE_P(Gpu, MemoryTest, testing::Values(Memory::device));

TEST(Memory, WithoutCudaDeviceMemoryThrowsInsteadOfPretending) {
  if (this_device().has_cuda()) GTEST_SKIP() << "this machine has a CUDA device";
  EXPECT_ANY_THROW(Buffer(Memory::device, 16));
  EXPECT_ANY_THROW(free_bytes(Memory::device));
}

}  // namespace
}  // namespace fwht
