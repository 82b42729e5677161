#include "common/device/device_info.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "common/host/error.hpp"

namespace fwht {
namespace {

TEST(DeviceInfo, ThisMachineIsDescribedAndNeverThrows) {
  const DeviceInfo info = this_device();
  EXPECT_FALSE(info.host_name.empty());
  EXPECT_GE(info.host_threads, 1);
  EXPECT_GT(info.host_memory_bytes, 0);
  if (info.has_cuda()) {
    EXPECT_FALSE(info.name.empty());
    EXPECT_GT(info.sm_count, 0);
    EXPECT_GT(info.shared_bytes_per_block, 0);
  } else {
    EXPECT_EQ(info.sm_count, 0);
    EXPECT_EQ(info.compute_capability(), 0);
  }
}

TEST(DeviceInfo, AnOrdinalThatDoesNotExistIsSaid) {
  const DeviceInfo info = this_device(1000);
  EXPECT_FALSE(info.has_cuda());
  EXPECT_EQ(info.sm_count, 0);
}

TEST(DeviceInfo, HostThreadsCanBeLimited) {
  const int usual = this_device().host_threads;
  set_host_threads(1);
  EXPECT_EQ(this_device().host_threads, 1);
  set_host_threads(1 << 20);
  EXPECT_EQ(this_device().host_threads, usual) << "never more than are usable";
  set_host_threads(0);
  EXPECT_EQ(this_device().host_threads, usual);
  EXPECT_THROW(set_host_threads(-1), BadRequest);
}

TEST(DeviceInfo, Descriptions) {
  EXPECT_TRUE(h200_description().has_cuda());
  EXPECT_EQ(h200_description().compute_capability(), 90);
  EXPECT_EQ(h200_description().shared_bytes_per_block, 227 * 1024);
  EXPECT_EQ(a100_description().compute_capability(), 80);
  EXPECT_EQ(a100_description().shared_bytes_per_block, 163 * 1024);
  EXPECT_FALSE(DeviceInfo{}.has_cuda());
  std::set<std::string> names;
  int before = 0;
  for (const DeviceInfo& device : described_devices()) {
    EXPECT_TRUE(names.insert(device.name).second) << device.name;
    EXPECT_GE(device.compute_capability(), before) << device.name;
    before = device.compute_capability();
    EXPECT_EQ(device.shared_bytes_per_sm, device.shared_bytes_per_block + 1024) << "what the system keeps";
  }
  EXPECT_TRUE(names.contains(h200_description().name) && names.contains(a100_description().name));
}

}  // namespace
}  // namespace fwht
