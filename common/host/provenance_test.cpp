#include "common/host/provenance.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace fwht {
namespace {

TEST(Provenance, KnowsWhatWasBuilt) {
  const BuildRecord build = this_build();
  EXPECT_EQ(build.sources_hash.size(), 64U);
  EXPECT_FALSE(build.cxx.empty());
  EXPECT_FALSE(build.version.empty());
  EXPECT_FALSE(build.build_type.empty());
  EXPECT_TRUE(build.commit == "unknown" || build.commit.size() == 40) << build.commit;
}

TEST(Provenance, NoVariableOfARunChangesTheCommit) {
  const std::string commit = this_build().commit;
  for (const char* name : {"GIT_COMMIT", "GIT_DIR", "FWHT_COMMIT", "GITHUB_SHA"})
    setenv(name, "0123456", 1);
  EXPECT_EQ(this_build().commit, commit);
}

TEST(Provenance, NamesTheFolderByTimeCommitAndDevice) {
  DeviceInfo device = h200_description();
  device.name = "NVIDIA H200";
  Provenance provenance = gather_provenance(0, nullptr, device);
  provenance.utc_start = "2026-09-01T12:34:56Z";
  provenance.build.commit = "07f562900112233";
  EXPECT_EQ(results_folder_name(provenance), "20260901T123456Z_07f5629_nvidia-h200");
  provenance.device = DeviceInfo{};
  provenance.device.host_name = "AMD EPYC 7B13 (x2)";
  EXPECT_EQ(results_folder_name(provenance), "20260901T123456Z_07f5629_amd-epyc-7b13-x2");
}

TEST(Provenance, KeepsTheArgumentsButNotWhereAMachineKeepsItsFiles) {
  const char* argv[] = {"/somewhere/bin/fwht_sweep",
                        "--grid",
                        "quick",
                        "--output=/somewhere/r1",
                        "../r2",
                        "f16/n8/r3",
                        "--resume",
                        "/somewhere/r3/"};
  EXPECT_EQ(gather_provenance(8, argv, DeviceInfo{}).argv,
            (std::vector<std::string>{"fwht_sweep", "--grid", "quick", "--output=r1", "../r2", "f16/n8/r3",
                                      "--resume", "r3"}));
}

TEST(Provenance, TimeIsUtcInIsoForm) {
  const std::string now = utc_now();
  ASSERT_EQ(now.size(), 20U);
  EXPECT_EQ(now.substr(0, 2), "20");
  EXPECT_EQ(now[10], 'T');
  EXPECT_EQ(now[19], 'Z');
}

}  // namespace
}  // namespace fwht
