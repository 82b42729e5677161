#include "experiments/sweep/command.hpp"

#include <gtest/gtest.h>

#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "experiments/harness/results_folder.hpp"

namespace fwht::sweep {
namespace {

namespace fs = std::filesystem;

std::string dry_run(std::vector<const char*> words) {
  words.insert(words.begin(), "fwht_sweep");
  words.push_back("--dry-run");
  testing::internal::CaptureStdout();
  std::string failed;
  try {
    run("fwht_sweep", static_cast<int>(words.size()), words.data());
  } catch (const std::exception& error) {
    failed = error.what();
  }
  return testing::internal::GetCapturedStdout() + failed;
}

TEST(Resume, MeasuresTheRestOfTheRunThatWasKilled) {
  const fs::path path = fs::path(testing::TempDir()) / "sweep_resume";
  fs::remove_all(path);
  std::vector<const char*> argv{"fwht_sweep",  "--grid",      "g",   "--variant",
                                "cpu,cpu_f64", "--mode=host", "--n", "16",
                                "32",          "--output",    "r"};
  const std::string grid = "[host]\nn = 16..64\nrows = 4\ndtype = f32, f16\nmode = host, replay\n";
  harness::ResultsFolder::create(path,
                                 gather_provenance(static_cast<int>(argv.size()), argv.data(), this_device()),
                                 {"fwht_sweep", "g", grid, {1}, {"cpu", "cpu_f64"}});
  const std::string resumed = path.string();
  const char* const folder = resumed.c_str();
  EXPECT_EQ(dry_run({"--resume", folder}),
            "cpu/f16/n16/r4/host\ncpu_f64/f16/n16/r4/host\ncpu/f32/n16/r4/host\ncpu_f64/f32/n16/r4/host\n"
            "cpu/f16/n32/r4/host\ncpu_f64/f16/n32/r4/host\ncpu/f32/n32/r4/host\ncpu_f64/f32/n32/r4/host\n");
  EXPECT_EQ(dry_run({"--resume", folder, "--variant", "cpu", "--n=64", "--dtype", "f16"}),
            "cpu/f16/n64/r4/host\n")
      << "what is said here counts";
}

}  // namespace
}  // namespace fwht::sweep
