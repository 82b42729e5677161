#include "experiments/harness/copy_kernels.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "common/device/memory.hpp"
#include "common/host/error.hpp"
#include "experiments/harness/device_work.hpp"

namespace fwht::harness {
namespace {

// Even sizes around every granule: one number, a vector, a CTA's share, a chunk, several waves.
constexpr std::int64_t kSizes[] = {2,      14,     16,    18,     30,          4096,          16 * 1000 + 2,
                                   32768,  32770,  65534, 196608, 196608 + 14, (1 << 20) - 2, (1 << 20) + 6,
                                   600014, 9437186};

std::vector<std::uint16_t> random_numbers(std::int64_t bytes) {
  std::mt19937 generator(7);
  std::vector<std::uint16_t> numbers(static_cast<std::size_t>(bytes / 2));
  for (std::uint16_t& number : numbers)
    number = static_cast<std::uint16_t>(generator());
  return numbers;
}

std::vector<std::uint16_t> flipped(std::vector<std::uint16_t> numbers, std::uint32_t mask) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<std::uint16_t>(numbers[i] ^ (mask >> (i % 2 == 0 ? 0 : 16)));
  }
  return numbers;
}

std::vector<std::uint16_t> contents(const Buffer& buffer) {
  std::vector<std::uint16_t> numbers(buffer.bytes() / 2);
  buffer.download(numbers.data(), buffer.bytes());
  return numbers;
}

void expect_copies(const CopyKernel& kernel, Memory memory, std::int64_t bytes, std::uint32_t mask,
                   bool in_place) {
  SCOPED_TRACE(kernel.name + ", " + std::to_string(bytes) +
               (in_place ? " bytes in place" : " bytes out of place"));
  const auto size = static_cast<std::size_t>(bytes);
  const std::vector<std::uint16_t> numbers = random_numbers(bytes);
  Buffer in(memory, size), out(memory, in_place ? 0 : size);
  in.upload(numbers.data(), size);
  kernel.enqueue(in.data(), in_place ? in.data() : out.data(), {bytes, bytes}, mask, nullptr);
  synchronize(memory);
  // Vectors are compared as a whole: a failure prints no million numbers.
  EXPECT_TRUE(contents(in_place ? in : out) == flipped(numbers, mask));
  EXPECT_TRUE(contents(in) == (in_place ? flipped(numbers, mask) : numbers)) << "the input was changed";
  EXPECT_TRUE(in.guards_intact() && out.guards_intact()) << "written past the end";
}

// Equal shares, scales behind the codes, an odd rest, hardly anything and nothing.
std::vector<std::int64_t> written_for(int store_bytes, std::int64_t vectors) {
  std::vector<std::int64_t> written;
  for (const std::int64_t rest : {std::int64_t{0}, vectors / 4, vectors, 2 * vectors + 3, 3 * vectors}) {
    const std::int64_t bytes = store_bytes * vectors + rest;
    if (store_bytes == 8 || rest < 4 * vectors) written.push_back(bytes);
  }
  return written;
}

void expect_folds(const CopyKernel& kernel, Memory memory) {
  for (const std::int64_t read : kSizes) {
    if (read > std::int64_t{1} << 21) continue;
    for (const std::int64_t written : written_for(kernel.store_bytes, (read + 15) / 16)) {
      const Traffic traffic{read, written};
      if (!kernel.moves(traffic)) continue;  // as many as are read
      SCOPED_TRACE(kernel.name + ", " + std::to_string(read) + " to " + std::to_string(written) + " bytes");
      const std::vector<std::uint16_t> numbers = random_numbers(read);
      Buffer in(memory, static_cast<std::size_t>(read)), out(memory, static_cast<std::size_t>(written));
      in.upload(numbers.data(), static_cast<std::size_t>(read));
      kernel.enqueue(in.data(), out.data(), traffic, sign_mask(Dtype::f16), nullptr);
      synchronize(memory);
      std::vector<std::byte> got(static_cast<std::size_t>(written)), expected(got.size());
      out.download(got.data(), got.size());
      fold_copy(numbers.data(), expected.data(), traffic, sign_mask(Dtype::f16));
      EXPECT_TRUE(got == expected);
      EXPECT_TRUE(contents(in) == numbers) << "the input was changed";
      EXPECT_TRUE(in.guards_intact() && out.guards_intact()) << "written past the end";
    }
  }
}

TEST(CopyKernels, StoreAsMuchOfAVectorAsIsToBeWritten) {
  EXPECT_EQ(store_bytes({4096, 4096}), 16);
  EXPECT_EQ(store_bytes({2, 2}), 16);
  EXPECT_EQ(store_bytes({4096, 2048}), 8);
  EXPECT_EQ(store_bytes({4096, 2048 + 4 * 16}), 8) << "scales";
  EXPECT_EQ(store_bytes({4096, 2047}), 4);
  EXPECT_EQ(store_bytes({4096, 1024 + 128}), 4) << "4 bits and a byte for every 16";
  EXPECT_EQ(store_bytes({4096, 1023}), 0);
  EXPECT_EQ(store_bytes({4096, 0}), 0);
}

TEST(CopyKernels, AFoldIsWhatItSays) {
  const std::uint32_t in[] = {1, 2, 4, 8, 16, 32, 64, 128};
  std::uint32_t out[5] = {};
  fold_copy(in, out, {32, 20}, 0);
  EXPECT_EQ(std::vector<std::uint32_t>(out, out + 5), (std::vector<std::uint32_t>{3, 12, 48, 192, 15}));
  fold_copy(in, out, {32, 12}, 0x100);
  EXPECT_EQ(std::vector<std::uint32_t>(out, out + 3), (std::vector<std::uint32_t>{0x10F, 0x1F0, 0x10F}));
  std::uint32_t last = 0xFFFFFFFF;
  fold_copy(in, &last, {18, 3}, 0);  // two bytes of the second vector; the word is cut off
  EXPECT_EQ(last, 0xFF00000FU);
}

// Every traffic has its limit: copies, folds and, for mode alternating, a neighbour.
void expect_limits_for_all_traffic(const std::vector<CopyKernel>& kernels, bool neighbours) {
  for (const Traffic traffic : {Traffic{4096, 4096}, {4096, 2112}, {4096, 1152}, {4096, 16}, {4096, 0}}) {
    EXPECT_TRUE(std::any_of(kernels.begin(), kernels.end(), [&](const CopyKernel& k) {
      return k.moves(traffic) && !k.neighbour && k.why_not.empty();
    })) << traffic.written;
    if (neighbours) {
      EXPECT_TRUE(find_neighbour(kernels, traffic).moves(traffic));
    }
  }
}

TEST(CopyKernels, EveryTrafficHasALimit) {
  const std::vector<CopyKernel> kernels = copy_kernels(Memory::host, this_device());
  expect_limits_for_all_traffic(kernels, false);
  EXPECT_THROW(find_neighbour(kernels, {64, 64}), std::logic_error);
}

TEST(CopyKernels, AreFoundByName) {
  const std::vector<CopyKernel> kernels = copy_kernels(Memory::host, this_device());
  EXPECT_EQ(find_copy(kernels, "host_t1").store_bytes, 16);
  EXPECT_THROW(find_copy(kernels, "no such copy"), std::logic_error);
}

TEST(CopyKernelsGpu, EveryTrafficHasALimit) {
  const DeviceInfo device = this_device();
  if (!device.has_cuda()) GTEST_SKIP() << device.why_no_cuda;
  const std::vector<CopyKernel> kernels = copy_kernels(Memory::device, device);
  expect_limits_for_all_traffic(kernels, true);
  EXPECT_EQ(find_neighbour(kernels, {64, 64}).name, "rotated_v2_t256");
}

void expect_all_copy(Memory memory, const DeviceInfo& device) {
  const std::vector<CopyKernel> kernels = copy_kernels(memory, device);
  ASSERT_FALSE(kernels.empty());
  for (const CopyKernel& kernel : kernels) {
    if (!kernel.why_not.empty()) {
      EXPECT_THROW(kernel.enqueue(nullptr, nullptr, {}, 0, nullptr), BadRequest) << kernel.name;
      continue;
    }
    if (kernel.store_bytes != 16) {
      expect_folds(kernel, memory);
      continue;
    }
    for (const std::int64_t bytes : kSizes) {
      for (const Dtype dtype : {Dtype::f16, Dtype::f32}) {
        for (const bool in_place : {true, false}) {
          expect_copies(kernel, memory, bytes, sign_mask(dtype), in_place);
        }
      }
    }
  }
}

TEST(CopyKernels, HostCopiesFlipTheSignsAndNothingElse) {
  DeviceInfo device = this_device();
  device.host_threads = 3;
  expect_all_copy(Memory::host, device);
}

TEST(CopyKernels, HostCopiesUseOneThreadUpToAll) {
  DeviceInfo device = this_device();
  device.host_threads = 6;
  std::vector<std::string> names;
  for (const CopyKernel& kernel : copy_kernels(Memory::host, device))
    names.push_back(kernel.name);
  names.resize(5);
  EXPECT_EQ(names, (std::vector<std::string>{"host_t1", "host_t2", "host_t4", "host_t6", "host_write8_t1"}));
}

TEST(CopyKernels, RefuseDeviceMemoryWithTheReason) {
  DeviceInfo device = h200_description();
  device.why_no_cuda = "no CUDA device: told so";
  try {
    copy_kernels(Memory::device, device);
    FAIL() << "not refused";
  } catch (const BadRequest& error) {
    EXPECT_NE(std::string(error.what()).find("told so"), std::string::npos);
  }
}

TEST(CopyKernelsGpu, FlipTheSignsAndNothingElse) {
  const DeviceInfo device = this_device();
  if (!device.has_cuda()) GTEST_SKIP() << device.why_no_cuda;
  expect_all_copy(Memory::device, device);
}

TEST(CopyKernelsGpu, TheFamiliesThatTheDeviceCanRunAreThere) {
  const DeviceInfo device = this_device();
  if (!device.has_cuda()) GTEST_SKIP() << device.why_no_cuda;
  const std::vector<CopyKernel> kernels = copy_kernels(Memory::device, device);
  EXPECT_EQ(find_copy(kernels, "rotated_v2_t256").why_not, "");
  EXPECT_EQ(find_copy(kernels, "persistent_v1_t256").why_not, "");
  const std::string refusal = find_copy(kernels, "bulk_persistent_4x16k").why_not;
  if (device.compute_capability() < 90) {
    EXPECT_NE(refusal.find("9.0"), std::string::npos) << refusal;
  } else if (device.compute_capability() == 90) {
    EXPECT_EQ(refusal, "");
  }
}

TEST(CopyKernelsGpu, RefuseMisalignedAddresses) {
  const DeviceInfo device = this_device();
  if (!device.has_cuda()) GTEST_SKIP() << device.why_no_cuda;
  Buffer buffer(Memory::device, 64, 2);
  for (const CopyKernel& kernel : copy_kernels(Memory::device, device)) {
    EXPECT_THROW(kernel.enqueue(buffer.data(), buffer.data(), {32, 32}, 0, nullptr), BadRequest)
        << kernel.name;
  }
}

// Sizes that do not fit 32 bits: offsets in bytes and in 16-bit numbers.
TEST(CopyKernelsGpu, SixtyFourBitSizes) {
  const DeviceInfo device = this_device();
  if (!device.has_cuda()) GTEST_SKIP() << device.why_no_cuda;
  constexpr std::int64_t kPeriod = 1 << 20, kBytes = (std::int64_t{1} << 33) + kPeriod;
  if (free_bytes(Memory::device) < kBytes + (1 << 28)) GTEST_SKIP() << "needs 8 GiB of free device memory";
  Buffer buffer(Memory::device, kBytes);
  std::vector<std::uint16_t> numbers = random_numbers(kPeriod);
  buffer.upload(numbers.data(), kPeriod);
  buffer.tile(kPeriod);
  for (const CopyKernel& kernel : copy_kernels(Memory::device, device)) {
    if (!kernel.why_not.empty() || kernel.store_bytes != 16) continue;
    kernel.enqueue(buffer.data(), buffer.data(), {kBytes, kBytes}, sign_mask(Dtype::f16), nullptr);
    numbers = flipped(numbers, sign_mask(Dtype::f16));
    EXPECT_EQ(period_break(buffer, kPeriod, kBytes), -1) << kernel.name;
    std::vector<std::uint16_t> first(numbers.size());
    buffer.download(first.data(), kPeriod);
    EXPECT_TRUE(first == numbers) << kernel.name;
  }
  EXPECT_TRUE(buffer.guards_intact());
}

}  // namespace
}  // namespace fwht::harness
