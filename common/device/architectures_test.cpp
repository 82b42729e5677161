#include "common/device/architectures.hpp"

#include <gtest/gtest.h>

namespace fwht {
namespace {

int on(std::string_view architectures, int major, int minor) {
  DeviceInfo device = h200_description();
  device.compute_major = major;
  device.compute_minor = minor;
  return code_on(architectures, device);
}

TEST(Architectures, MachineCodeOfTheSameMajorComesFirstThenPtx) {
  EXPECT_EQ(on("80,90a", 8, 0), 80);
  EXPECT_EQ(on("80,90a", 8, 9), 80);
  EXPECT_EQ(on("80,90a", 9, 0), 90);
  EXPECT_EQ(on("80,90a", 10, 0), 80) << "code of 90a runs on 9.0 alone";
  EXPECT_EQ(on("80,90", 10, 0), 90) << "by its PTX";
  EXPECT_EQ(on("80,90a,100,120", 10, 3), 100);
  EXPECT_EQ(on("80,90a,100,120", 12, 0), 120);
  EXPECT_EQ(on("80,90a,100,120", 11, 0), 100) << "by its PTX";
  EXPECT_EQ(on("80,86", 8, 9), 86);
  EXPECT_EQ(on("80,86", 8, 0), 80);
}

TEST(Architectures, RealIsMachineCodeAloneVirtualIsPtxAlone) {
  EXPECT_EQ(on("80-virtual,90-real", 9, 0), 90);
  EXPECT_EQ(on("80-virtual,90-real", 10, 0), 80);
  EXPECT_EQ(on("80-real", 9, 0), 0);
  EXPECT_EQ(on("80-real,90-virtual", 9, 0), 90);
}

TEST(Architectures, WhatIsNoNumberIsNone) {
  for (const char* none : {"", "native", "all-major", "90a", ","})
    EXPECT_EQ(on(none, 8, 0), 0) << none;
}

}  // namespace
}  // namespace fwht
