#include "common/device/nccl.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "common/host/error.hpp"

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime_api.h>)
#include <nccl.h>
// The numbers and layouts that nccl.cpp writes without the header.
static_assert(NCCL_UNIQUE_ID_BYTES == sizeof(fwht::nccl::UniqueId));
static_assert(ncclSuccess == 0 && ncclInProgress == 7 && ncclSum == 0);
static_assert(ncclInt8 == 0 && ncclFloat16 == 6 && ncclFloat32 == 7 && ncclFloat64 == 8 && ncclBfloat16 == 9);
#endif

namespace fwht {
namespace {

TEST(Nccl, WithoutItEveryCallSaysWhyInOneSentence) {
  const std::string why = nccl::why_not();
  if (why.empty()) GTEST_SKIP() << "this machine has NCCL " << nccl::version_text(nccl::version());
  EXPECT_TRUE(why.starts_with("built without NCCL (") || why.starts_with("libnccl.so.2 ")) << why;
  EXPECT_EQ(why.find('\n'), std::string::npos) << why;
  EXPECT_THROW(nccl::version(), BadRequest);
  EXPECT_THROW(nccl::make_unique_id(), BadRequest);
  EXPECT_THROW(nccl::connect({}, {0, 1, 0}, std::chrono::seconds(1)), BadRequest);
}

TEST(Nccl, VersionsAreWrittenAsNcclWritesThem) {
  EXPECT_EQ(nccl::version_text(22809), "2.28.9");
  EXPECT_EQ(nccl::version_text(23203), "2.32.3");
  EXPECT_EQ(nccl::version_text(21300), "2.13.0");
  EXPECT_EQ(nccl::version_text(2804), "2.8.4");
}

TEST(Nccl, VariablesAreThoseOfTheEnvironmentSorted) {
  ::setenv("NCCL_ZZZ_TEST", "b=c", 1);
  ::setenv("NCCL_AAA_TEST", "", 1);
  ::setenv("XNCCL_TEST", "1", 1);
  const auto found = nccl::variables();
  ASSERT_GE(found.size(), 2U);
  EXPECT_EQ(found.front(), (std::pair<std::string, std::string>("NCCL_AAA_TEST", "")));
  EXPECT_EQ(found.back(), (std::pair<std::string, std::string>("NCCL_ZZZ_TEST", "b=c")));
  for (const auto& [name, value] : found)
    EXPECT_NE(name, "XNCCL_TEST");
}

}  // namespace
}  // namespace fwht
