// The programs as a user meets them: exit codes, one sentence, what is written and what is not.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "experiments/program_fixture.hpp"

namespace fwht {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSweep = FWHT_SWEEP_PROGRAM;
constexpr const char* kAccuracy = FWHT_ACCURACY_PROGRAM;
constexpr const char* kAnalysis = FWHT_STUDIES_PROGRAM;
constexpr const char* kRunOnce = FWHT_RUN_ONCE_PROGRAM;
constexpr const char* kProfile = FWHT_PROFILE_PROGRAM;
constexpr const char* kLinear = FWHT_LINEAR_PROGRAM;
constexpr const char* kTensorParallel = FWHT_TENSOR_PARALLEL_PROGRAM;

using Programs = ProgramFixture;

TEST_F(Programs, RefuseBadInputInOneSentence) {
  expect_refused(kSweep, "--grid nope", "unknown grid 'nope'");
  expect_refused(kSweep, "--variant nope", "unknown variant 'nope'; known: cpu");
  expect_refused(kSweep, "--dtype f8", "unknown dtype 'f8'");
  expect_refused(kSweep, "--mode warm", "unknown mode 'warm'");
  expect_refused(kSweep, "--n 8x", "'8x' is no positive number");
  expect_refused(kSweep, "--n 17", "no problem is left");
  expect_refused(kSweep, "--problem f16/n8", "names no rows");
  expect_refused(kSweep, "--variant cpu,,naive --grid smoke", "'cpu,,naive' has an empty item");
  expect_refused(kSweep, "--variant cpu --grid smoke --benchmark_filter='(n64'", "is no regular expression");
  expect_refused(kSweep, "--variant cpu --grid smoke --benchmark_filter=nope", "no name matches");
  expect_refused(kSweep, "--variant cpu --grid smoke --benchmark_filter=nope --dry-run", "no name matches");
  expect_refused(kSweep, "--benchmark_repetitions=0", "--benchmark_repetitions=0 must be between 1 and 1000");
  expect_refused(kSweep, "--benchmark_out_format=xml", "known are console, json, csv");
  expect_refused(kSweep, "--variant cpu --grid smoke --benchmark_out=/proc/none/b.json",
                 "--benchmark_out=/proc/none/b.json cannot be written");
  expect_refused(kSweep, "--bogus", "--bogus");
  expect_refused(kSweep, "--output /proc/none/here --variant cpu --grid smoke",
                 "/proc/none/here cannot be made");
  expect_refused(kSweep, "--resume . --variant cpu --grid smoke", "is no results folder");
  expect_refused(kSweep, "--resume nope --variant cpu --grid smoke",
                 "nope is no results folder: there is no such");
  expect_refused(kSweep, "--output /dev/null --variant cpu --grid smoke",
                 "/dev/null is a file, not a folder");
  expect_refused(kSweep, "--grid . ", "grid '.': this is a folder, not a file");
  expect_refused(kSweep, "--grid /dev/zero", "grid '/dev/zero': this is a device, not a file");
  {
    const fs::path empty = fs::path(testing::TempDir()) / "programs_test_empty.grid";
    std::ofstream(empty).close();
    expect_refused(kSweep, "--grid " + empty.string(), "programs_test_empty.grid' is empty");
  }
  expect_refused(kSweep, "--grid 'a\x1b[31m\nb'", "unknown grid 'a?[31m b'");
  {
    const fs::path pipe = fs::path(testing::TempDir()) / "programs_test.pipe";
    fs::remove(pipe);
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    expect_refused(kSweep, "--grid " + pipe.string(), "this is a named pipe, not a file");
    fs::remove(pipe);
  }
  const std::string tiny = "--variant cpu --problem f16/n8/r1 ";
  for (const char* program : {kSweep, kAccuracy, kAnalysis, kProfile, kLinear, kTensorParallel}) {
    for (const char* option : {"--resume", "--output"}) {
      expect_refused(program, std::string(option) + " ''", std::string(option) + " has an empty value");
      expect_refused(program, std::string(option) + "=", option);
    }
  }
  expect_refused(kSweep, "--grid ''", "--grid has an empty value");
  expect_refused(kSweep, tiny + "--variant ''", "--variant has an empty value");
  const std::string long_name(300, 'x');
  expect_refused(kSweep, tiny + "--resume " + long_name, "is no results folder");
  expect_refused(kSweep, tiny + "--output " + long_name, "cannot be made: File name too long");
  expect_refused(kSweep, "--variant cpu --grid " + long_name, "unknown grid '");
  for (const char* program : {kSweep, kAccuracy, kAnalysis, kProfile})
    expect_refused(program, "--variant naive --device -5", "--device -5 must be at least 0");
  expect_refused(kRunOnce, "--variant cpu --problem f16/n8/r1 --device -5", "--device -5 must be at least 0");
  // What nothing supports, and what no memory holds.
  expect_refused(kSweep, "--problem f32/n3/r4", "cpu/f32/n3/r4: n=3 must be a power of two");
  expect_refused(kSweep, "--variant cpu --problem f32/n4/r100000000000000", "MiB of host memory, there are");
  expect_refused(kSweep, "--variant cpu --problem f32/n4/r4 --mode replay",
                 "no variant that was asked for runs");
  expect_refused(kAccuracy, "--variant cpu --n 3", "n=3 is no power of two");
  expect_refused(kAccuracy, "--variant wgmma --n 128", "nothing that was asked for can be measured here");
  expect_refused(kAccuracy, "--input nope", "nope");
  expect_refused(kAccuracy, "--variant nope", "unknown variant 'nope'");
  expect_refused(kAccuracy, "--dtype f8", "unknown dtype 'f8'");
  expect_refused(kAccuracy, "--dtype i32",
                 "--dtype i32: sums of integers are exact; known: f16, bf16, f32, f64");
  expect_refused(kAccuracy, "--variant cpu --n 64 --seed 1,-1",
                 "--seed=-1 must be a number from 0 to 2^63 - 1");
  expect_refused(kAccuracy, "--output /proc/none/here --variant cpu", "/proc/none/here cannot be made");
  expect_refused(kAnalysis, "--only nope", "unknown experiment 'nope'");
  expect_refused(kAnalysis, "--variant nope", "unknown variant 'nope'");
  expect_refused(kAnalysis, "--only probes --output /proc/none/here", "/proc/none/here cannot be made");
  expect_refused(kRunOnce, "--variant nope --problem f16/n8/r1", "unknown variant 'nope'");
  expect_refused(kRunOnce, "--variant cpu --problem f16/n12/r1", "n=12 must be a power of two");
  expect_refused(kRunOnce, "--variant cpu --problem f16/n8/r1 --repeat 0", "--repeat=0 must be at least 1");
  expect_refused(kRunOnce, "--variant cpu --problem f16/n8/r1 --seed 18446744073709551617",
                 "--seed=18446744073709551617 must be a number from 0 to 2^63 - 1");
  expect_refused(kRunOnce, "--variant cpu --problem bf16/n64/r6/rms", "timed with an encoding, not plain");
  expect_refused(kRunOnce, "--variant cpu --problem f16/n8/r1 --seed -1",
                 "--seed=-1 must be a number from 0 to 2^63 - 1");
  expect_refused(kRunOnce, "--variant cpu --problem f32/n4/r100000000000000 --check",
                 "cpu: needs 1525878906 MiB of host memory, there are");
  expect_refused(kRunOnce, "--variant cpu", "--problem is required");
  expect_refused(kLinear, "--variant nope", "unknown linear layer 'nope'; known: cpu");
  expect_refused(kLinear, "--list nope", "unknown list of layers 'nope'; known: smoke");
  expect_refused(kLinear, "--problem f16/m1/n8/k3/w4g128", "k = 3 inputs: a positive multiple of 8");
  expect_refused(kLinear, "--mode warm", "unknown mode 'warm'");
  expect_refused(kLinear, "--variant cpu --problem f16/m1/n128/k128/w4g128/pdl",
                 "nothing that was asked for can be run here; cpu/f16/m1/n128/k128/w4g128/pdl: ");
  expect_refused(kLinear, "--variant cpu --output /proc/none/here", "/proc/none/here cannot be made");
  expect_refused(kLinear, "--variant cpu --mode cold", "no variant that was asked for runs in a mode");
  expect_refused(kLinear, "--variant cpu --problem f16/m0/n128/k128/w4g128", "m=0 leaves nothing to time");
  expect_refused(kLinear, "--variant cpu --problem f16/m1/n8388608/k8388608/w4g128",
                 "MiB of host memory, there are");
  for (const char* option : {"--variant cpu", "--list smoke", "--problem f16/m1/n128/k128/w4g128",
                             "--mode host", "--programmatic"})
    expect_refused(kLinear, std::string("--rotation-study ") + option, "excludes --rotation-study");
  expect_refused(kProfile, "--variant nope", "unknown variant 'nope'");
  expect_refused(kProfile, "--grid nope", "unknown grid 'nope'");
  expect_refused(kProfile, "--n 17", "no problem is left");
  expect_refused(kProfile, "--list --most-kernels -3", "--most-kernels=-3 must be at least 1");
  expect_refused(kProfile, "--output /proc/none/here --device 99 --variant naive --problem f16/n8/r1",
                 "--device 99");
}

TEST_F(Programs, AProfileListsWhatItWouldLaunch) {
  const Ended grid = run(kProfile, "--list --variant naive --n 8192 --dtype bf16");
  EXPECT_EQ(grid.code, 0) << grid.err;
  EXPECT_EQ(grid.out, "naive/bf16/n8192/r4\nnaive/bf16/n8192/r1024\nnaive/bf16/n8192/r8192\n");
  // A launch by programmatic dependent launch is the same launch when it is alone.
  const Ended small = run(kProfile, "--list --variant naive --n 512 --dtype f16");
  EXPECT_EQ(small.out, "naive/f16/n512/r64\nnaive/f16/n512/r16384\nnaive/f16/n512/r131072\n");
  // Row counts of one's own replace those of the grid, each shape once.
  const Ended rows = run(kProfile, "--list --variant naive --n 8192 --dtype f16 --rows 4,16");
  EXPECT_EQ(rows.out, "naive/f16/n8192/r4\nnaive/f16/n8192/r16\n");
  const Ended problem = run(kProfile, "--list --variant naive,cpu --problem f32/n64/r3/out");
  EXPECT_EQ(problem.out, "cpu/f32/n64/r3/out\nnaive/f32/n64/r3/out\n");
  EXPECT_TRUE(fs::is_empty(folder));
}

// It ends as the run would; why nothing can be run is listed first.
TEST_F(Programs, ADryRunRefusesWhatTheRunRefuses) {
  for (const char* program : {kSweep, kLinear}) {
    for (const char* dry : {"", " --dry-run"})
      expect_refused(program, std::string("--variant cpu --mode replay") + dry, "no variant that was asked");
  }
  const std::string pdl = "--variant cpu --problem f16/m1/n128/k128/w4g128/pdl --dry-run";
  for (const Ended& ended : {run(kSweep, "--variant cpu --problem f32/n3/r4 --dry-run"), run(kLinear, pdl)}) {
    EXPECT_EQ(ended.code, 2);
    EXPECT_TRUE(ended.out.starts_with("unsupported: cpu/")) << ended.out;
    EXPECT_NE(ended.err.find("nothing that was asked for can be run here; cpu/"), std::string::npos);
  }
  const std::string elsewhere = "--variant cpu --problem f16/n8/r1 --mode replay --dry-run";
  EXPECT_EQ(run(kSweep, elsewhere + " --export flashinfer-trace planned").code, 0)
      << "definitions and workloads need no machine";
}

TEST_F(Programs, ADryRunWritesNothing) {
  const Ended ended = run(kSweep, "--dry-run --variant cpu --grid smoke --n 1024 --dtype f16");
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.out, "cpu/f16/n1024/r64/host\ncpu/f16/n1024/r64/out/host\n");
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST_F(Programs, LinearLayersListWhatTheyWouldDo) {
  const std::string problem = "--problem f16/m1/n128/k128/w4g128 --variant cpu --dry-run";
  EXPECT_EQ(run(kLinear, problem).out, "cpu/f16/m1/n128/k128/w4g128/host\n");
  const Ended both = run(kLinear, "--list smoke " + problem);
  EXPECT_TRUE(both.out.starts_with("cpu/f16/m1/n512/k512/w4g128/host\n")) << both.out;
  EXPECT_TRUE(both.out.ends_with("cpu/f16/m1/n128/k128/w4g128/host\n")) << "a list and problems add up";
  const Ended study = run(kLinear, "--rotation-study --dry-run");
  EXPECT_TRUE(
      study.out.starts_with("normal weights, normal tokens, no rotation\n"
                            "normal weights, normal tokens, rotation 128\n"))
      << study.out << study.err;
  EXPECT_TRUE(fs::is_empty(folder));
  const Ended ended = run(kLinear, "--problem f16/m1/n128/k128/w4g128 --variant cpu --output r");
  EXPECT_NE(ended.err.find("cpu/f16/m1/n128/k128/w4g128/host"), std::string::npos) << ended.err;
}

std::string last_line(const std::string& text) {
  std::istringstream lines(text);
  std::string line, last;
  while (std::getline(lines, line))
    last = line;
  return last;
}

TEST_F(Programs, SweepThenAccuracyFillOneFolder) {
  const std::string sweep =
      "--variant cpu --problem f16/n64/r100 --problem f16/n128/r9/out "
      "--problem i32/n64/r8/out/sequency --problem i32/n64/r8/out";
  const Ended first = run(kSweep, sweep + " --output r");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(last_line(first.out), "r");
  const std::string results = text_of(folder / "r/results.csv");
  EXPECT_EQ(std::count(results.begin(), results.end(), '\n'), 5);
  for (const char* file : {"limits.csv", "unsupported.csv", "schema.json", "context.json"}) {
    EXPECT_TRUE(fs::exists(folder / "r" / file)) << file;
  }
  EXPECT_FALSE(fs::exists(folder / "r/benchmark.json")) << "written on request only";
  EXPECT_NE(text_of(folder / "r/context.json").find("\"complete\": true"), std::string::npos);

  // Again: nothing is measured twice; another folder is not made over it.
  EXPECT_EQ(run(kSweep, sweep + " --resume r").code, 0);
  EXPECT_EQ(text_of(folder / "r/results.csv"), results);
  EXPECT_EQ(run(kSweep, sweep + " --output r").code, 2);
  EXPECT_EQ(text_of(folder / "r/results.csv"), results);

  const std::string accuracy =
      "--variant cpu --n 64 --dtype f16 --input normal,uniform --elements 4096 --output r";
  const Ended second = run(kAccuracy, accuracy);
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(last_line(second.out), "r");
  const std::string errors = text_of(folder / "r/accuracy.csv");
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 3);
  EXPECT_EQ(run(kAccuracy, accuracy).code, 0);
  EXPECT_EQ(text_of(folder / "r/accuracy.csv"), errors);
}

TEST_F(Programs, SweepExportsADataset) {
  const std::string sweep = "--variant cpu --problem f16/n64/r9/out --mode host --export ";
  expect_refused(kSweep, sweep + "other elsewhere --output s", "known is flashinfer-trace");
  for (const char* place : {"/proc/none/here", "/dev/null/here"})
    expect_refused(kSweep, sweep + "flashinfer-trace " + place + " --output s", "here cannot be made: ");
  EXPECT_EQ(run(kSweep, sweep + "flashinfer-trace planned --dry-run").code, 0);
  EXPECT_TRUE(fs::exists(folder / "planned/definitions/hadamard/hadamard_64_f16.json"));
  EXPECT_FALSE(fs::exists(folder / "planned/traces"));
  EXPECT_EQ(run(kSweep, sweep + "flashinfer-trace measured --output r").code, 0);
  EXPECT_TRUE(fs::exists(folder / "measured/traces/hadamard/hadamard_64_f16.jsonl"));
  const Ended again = run(kSweep, sweep + "flashinfer-trace measured --output s");
  EXPECT_EQ(again.code, 2);
  EXPECT_NE(again.err.find("measured is there already"), std::string::npos) << again.err;
  EXPECT_FALSE(fs::exists(folder / "s"));
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

TEST_F(Programs, LinearLayersAreNotTakenFromAFolderUnasked) {
  const std::string problem = "--problem f16/m1/n128/k128/w4g128 --variant cpu";
  ASSERT_EQ(run(kLinear, problem + " --output r").code, 0);
  const std::string before = text_of(folder / "r/linear.csv");
  const Ended again = run(kLinear, problem + " --output r");
  EXPECT_EQ(again.code, 2);
  EXPECT_NE(again.err.find("r is there already; --resume continues a results folder"), std::string::npos)
      << again.err;
  EXPECT_EQ(run(kLinear, problem + " --resume r").code, 0);
  EXPECT_EQ(text_of(folder / "r/linear.csv"), before);
}

TEST_F(Programs, LinearLayersGoOnWithWhatTheFolderHas) {
  const std::string problem = "--problem f16/m1/n128/k128/w4g128 f16/m2/n128/k128/w4g128 ";
  ASSERT_EQ(run(kLinear, problem + "--variant cpu --output r").code, 0);
  EXPECT_EQ(run(kLinear, "--resume r --dry-run").out,
            "cpu/f16/m1/n128/k128/w4g128/host\ncpu/f16/m2/n128/k128/w4g128/host\n");
  EXPECT_EQ(run(kLinear, "--resume r").code, 0);
  const Ended mixed = run(kLinear, problem + "--mode replay_pdl --output p");
  EXPECT_EQ(mixed.code, 2);
  EXPECT_NE(mixed.err.find("--mode replay_pdl: --programmatic asks for such launches"), std::string::npos)
      << mixed.err;
}

// Without a grid or a problem a folder goes on with its own grid, and with what its last run chose of it.
TEST_F(Programs, SweepGoesOnWithTheGridOfTheFolder) {
  std::ofstream(folder / "g.grid") << "[a]\nn = 8\nrows = 1, 2\ndtype = f16\nmode = host\n";
  ASSERT_EQ(run(kSweep, "--variant cpu --grid g.grid --n 8 --rows 1 --output r").code, 0);
  fs::remove(folder / "g.grid");
  EXPECT_EQ(run(kSweep, "--resume r --dry-run").out, "cpu/f16/n8/r1/host\n");
  EXPECT_EQ(run(kSweep, "--rows 1,2 --resume r --dry-run").out, "cpu/f16/n8/r1/host\ncpu/f16/n8/r2/host\n");
  ASSERT_EQ(run(kSweep, "--rows 1,2 --resume r").code, 0);
  const std::string results = text_of(folder / "r/results.csv");
  EXPECT_EQ(std::count(results.begin(), results.end(), '\n'), 1 + 2) << results;
  ASSERT_EQ(run(kSweep, "--variant cpu --problem f16/n8/r3 --output p").code, 0);
  const Ended ended = run(kSweep, "--variant cpu --resume p");
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(
      ended.err.find("no run of fwht_sweep in p can be resumed from a grid alone; name --grid or --problem"),
      std::string::npos)
      << ended.err;
}

// results.csv has no column for the scale: a row with another one is none of the problem that is asked for.
TEST_F(Programs, SweepDoesNotTakeRowsWithAnotherScaleForItsOwn) {
  ASSERT_EQ(run(kSweep, "--variant cpu --problem f16/n8/r1/s1 --problem f16/n8/r2/out/ldo9 --output r").code,
            0);
  std::ofstream(folder / "g.grid") << "[a]\nproblem = f16/n8/r1\nmode = host\n";
  const std::string context = text_of(folder / "r/context.json");
  for (const auto& [other, measured] :
       {std::pair{"--problem f16/n8/r1", "f16/n8/r1/s1 is measured there"},
        {"--grid g.grid", "f16/n8/r1/s1 is measured there"},
        {"--problem=f16/n8/r1/s2 --variant cpu_f64", "f16/n8/r1/s1 is measured there"},
        {"--problem f16/n8/r2/out", "f16/n8/r2/out/ldo9 is measured there"}}) {
    const Ended ended = run(kSweep, std::string("--variant cpu ") + other + " --resume r");
    EXPECT_EQ(ended.code, 2) << other;
    EXPECT_NE(ended.err.find(measured), std::string::npos) << ended.err;
  }
  EXPECT_EQ(text_of(folder / "r/context.json"), context);
  EXPECT_EQ(run(kSweep, "--variant cpu_f64 --problem f16/n8/r1/s1 f16/n8/r3 --resume r").code, 0);
  EXPECT_EQ(run(kSweep, "--variant cpu --problem f16/n8/r3 --resume r").code, 0);
}

TEST_F(Programs, ASeedThatIsNamedTwiceCountsOnce) {
  const std::string accuracy = "--variant cpu --n 64 --dtype f16 --input normal --elements 4096 ";
  ASSERT_EQ(run(kAccuracy, accuracy + "--seed 1,1 --output r").code, 0);
  ASSERT_EQ(run(kAccuracy, accuracy + "--seed 1 --output s").code, 0);
  EXPECT_EQ(text_of(folder / "r/accuracy.csv"), text_of(folder / "s/accuracy.csv"));
}

// A summary's rows would pass for those of the whole analysis; more elements than asked for do no harm.
TEST_F(Programs, AccuracyRefusesAFolderWithFewerElements) {
  const std::string accuracy = "--variant cpu --n 64 --dtype f16 --input normal --seed 1 --elements ";
  ASSERT_EQ(run(kAccuracy, accuracy + "4096 --output r").code, 0);
  const std::string context = text_of(folder / "r/context.json");
  for (const char* option : {"--output", "--resume"}) {
    const Ended ended = run(kAccuracy, accuracy + "8192 " + option + " r");
    EXPECT_EQ(ended.code, 2);
    EXPECT_NE(ended.err.find("f16/normal/64/measured/cpu of 4096 elements, this run asks for 8192"),
              std::string::npos)
        << ended.err;
  }
  EXPECT_EQ(text_of(folder / "r/context.json"), context);
  EXPECT_EQ(run(kAccuracy, accuracy + "2048 --resume r").code, 0);
}

// Names, repetitions and reports are Google Benchmark's; the record is results.csv.
TEST_F(Programs, SweepIsAGoogleBenchmarkProgram) {
  const std::string problems = "--variant cpu --problem f16/n64/r100 --problem f16/n128/r9/out ";
  const Ended list = run(kSweep, problems + "--benchmark_list_tests --benchmark_filter=out");
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_EQ(list.out, "cpu/f16/n128/r9/out/host\n");
  EXPECT_TRUE(fs::is_empty(folder));

  const Ended ended = run(kSweep, problems +
                                      "--benchmark_filter=n64/r100/host$ --benchmark_repetitions=4 "
                                      "--benchmark_out=b.json --output r");
  ASSERT_EQ(ended.code, 0) << ended.err;
  for (const char* part : {"cpu/f16/n64/r100/host_mean", "cpu/f16/n64/r100/host_median",
                           "cpu/f16/n64/r100/host_stddev", "fraction_of_limit=", "bytes_per_second="})
    EXPECT_NE(ended.out.find(part), std::string::npos) << part << ended.out;
  EXPECT_EQ(last_line(ended.err), "r");
  const std::string results = text_of(folder / "r/results.csv"), json = text_of(folder / "b.json");
  EXPECT_EQ(std::count(results.begin(), results.end(), '\n'), 2) << "one row for four replays";
  EXPECT_EQ(count_of(json, "\"name\": \"cpu/f16/n64/r100/host\""), 4U) << json;
  EXPECT_EQ(count_of(json, "\"run_type\": \"iteration\""), 4U);
  EXPECT_GE(count_of(json, "\"fraction_of_limit\""), 4U);
  EXPECT_GE(count_of(json, "\"bytes_per_second\""), 4U);
  EXPECT_NE(json.find("\"commit\""), std::string::npos);

  for (const std::string format : {"json", "csv", "console"}) {
    const Ended full = run(kSweep, problems + "--benchmark_out=/dev/full --benchmark_out_format=" + format +
                                       " --output full_" + format);
    EXPECT_EQ(full.code, 1);
    EXPECT_NE(full.err.find("--benchmark_out=/dev/full was cut off while it was written"), std::string::npos)
        << full.err;
  }

  // The only repetition is the time of results.csv.
  const Ended one =
      run(kSweep, problems +
                      "--benchmark_filter=out/ --benchmark_repetitions=1 --benchmark_format=csv "
                      "--output one");
  ASSERT_EQ(one.code, 0) << one.err;
  const std::string row = text_of(folder / "one/results.csv");
  std::istringstream lines(one.out), fields;
  std::string line;
  while (std::getline(lines, line) && !line.starts_with("\"cpu/f16/n128/r9/out/host\"")) {
  }
  fields.str(line);
  std::string name, iterations, real_us;
  std::getline(fields, name, ',');
  std::getline(fields, iterations, ',');
  std::getline(fields, real_us, ',');
  ASSERT_FALSE(real_us.empty()) << one.out;
  EXPECT_NE(row.find(',' + real_us.substr(0, 4)), std::string::npos) << real_us << row;
}

// Without a device the tensor cores are those of the model; the rows say so.
TEST_F(Programs, AnalysisFillsTheTablesThatWereAskedFor) {
  const Ended ended = run(kAnalysis, "--variant cpu --only probes --emulate --output r");
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(last_line(ended.out), "r");
  const std::string probes = text_of(folder / "r/probes.csv");
  EXPECT_NE(probes.find("emulated_a100,mma.sync.m16n8k16"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder / "r/attention.csv"));
  EXPECT_EQ(run(kAnalysis, "--variant cpu --only probes --emulate --output r").code, 0);
  EXPECT_EQ(text_of(folder / "r/probes.csv"), probes) << "nothing is done twice";
}

TEST_F(Programs, AFolderOfAnotherBuildIsLeftAlone) {
  ASSERT_EQ(run(kSweep, "--variant cpu --problem f16/n64/r100 --output r").code, 0);
  const fs::path context = folder / "r/context.json";
  const std::string text = text_of(context);
  std::string other = text;
  const std::size_t hash = other.find("\"sources_hash\": \"") + 17;
  other[hash] = other[hash] == 'x' ? 'y' : 'x';
  std::ofstream(context) << other;
  for (const auto& [program, arguments] : {std::pair{kSweep, "--variant cpu --problem f16/n64/r9 --resume r"},
                                           std::pair{kAccuracy, "--variant cpu --output r"}}) {
    const Ended ended = run(program, arguments);
    EXPECT_EQ(ended.code, 2);
    EXPECT_NE(ended.err.find("comes from other sources"), std::string::npos) << ended.err;
    EXPECT_EQ(text_of(context), other);
  }
  std::string old = text;
  old.replace(old.find("\"format_version\": 1"), 19, "\"format_version\": 7");
  std::ofstream(context) << old;
  const Ended ended = run(kSweep, "--variant cpu --problem f16/n64/r9 --resume r");
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.err.find("format_version 7"), std::string::npos) << ended.err;
}

TEST_F(Programs, AFullStandardOutputIsAFailure) {
  for (const char* arguments :
       {"--list", "--list-json", "--list-grids", "--list-names", "--help", "--dry-run --grid smoke"}) {
    const Ended ended = run(kSweep, arguments, "", "/dev/full");
    EXPECT_EQ(ended.code, 1) << arguments;
    EXPECT_EQ(ended.err, "fwht_sweep: failed: cannot write to standard output\n");
  }
}

// ./testbed refuses what is not in this file before anything is built.
TEST_F(Programs, TheCommittedNamesAreTheProgramsOwn) {
  EXPECT_EQ(run(kSweep, "--list-names").out, text_of(FWHT_NAMES_FILE))
      << "fwht_sweep --list-names > experiments/names.txt writes them anew";
}

TEST_F(Programs, ANewFolderHasItsOwnName) {
  const std::string problem = "--variant cpu --problem f16/n64/r9";
  const std::string first = last_line(run(kSweep, problem).out), second = last_line(run(kSweep, problem).out);
  EXPECT_TRUE(first.starts_with("results/") && second.starts_with("results/")) << first << second;
  EXPECT_NE(first, second);
}

TEST_F(Programs, NamesAndCommentsMayBeInAnyEncoding) {
  std::ofstream(folder / "g.grid") << "# L\xE4nge\n[a]\nn = 8\nrows = 1\ndtype = f16\nmode = host\n";
  const Ended first = run(kSweep, "--variant cpu --grid g.grid --output r\xFF --benchmark_out=b\xFF.json");
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(run(kSweep, "--variant cpu --resume r\xFF").code, 0);
  EXPECT_NE(text_of(folder / "r\xFF/context.json").find("# L\xEF\xBF\xBDnge"), std::string::npos);
}

TEST_F(Programs, AFolderHasOneWriter) {
  ASSERT_EQ(run(kSweep, "--variant cpu --problem f16/n64/r9 --output r").code, 0);
  const std::string context = text_of(folder / "r/context.json");
  const int held = open((folder / "r").c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(held, LOCK_EX | LOCK_NB), 0);
  for (const auto& [program, arguments] : {std::pair{kSweep, "--variant cpu --problem f16/n64/r8 --resume r"},
                                           std::pair{kAccuracy, "--variant cpu --n 64 --output r"},
                                           std::pair{kAnalysis, "--variant cpu --only probes --output r"}}) {
    const Ended ended = run(program, arguments);
    EXPECT_EQ(ended.code, 2);
    EXPECT_NE(ended.err.find("another program is writing r"), std::string::npos) << ended.err;
  }
  close(held);
  EXPECT_EQ(text_of(folder / "r/context.json"), context);
}

// Stopped on the way, by whatever.
class Interrupted : public ProgramFixture {
 protected:
  std::int64_t lines(const fs::path& table) const {
    const std::string text = text_of(folder / table);
    return std::count(text.begin(), text.end(), '\n');
  }

  /// Starts it, its errors in the file err, with `signal` handled as `action` says, and waits until the table
  /// has so many lines.
  pid_t start(const std::vector<std::string>& words, int signal, sighandler_t action, const fs::path& table,
              std::int64_t wanted) {
    const pid_t child = fork();
    if (child == 0) {
      std::signal(signal, action);
      if (chdir(folder.c_str()) != 0) _exit(99);
      if (!std::freopen("/dev/null", "w", stdout) || !std::freopen("err", "w", stderr)) _exit(99);
      std::vector<char*> argv;
      argv.reserve(words.size() + 1);
      for (const std::string& word : words)
        argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(99);
    }
    for (int i = 0; i < 1000 && lines(table) < wanted; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return child;
  }

  /// Whole rows, how to go on, and the shell's exit code of the signal; what it says on stderr.
  std::string interrupt(int signal, const std::vector<std::string>& words, const fs::path& table) {
    const pid_t child = start(words, signal, SIG_DFL, table, 3);  // a test in the background may ignore it
    kill(child, signal);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + signal);
    EXPECT_EQ(text_of(folder / table).back(), '\n');
    return text_of(folder / "err");
  }
};

TEST_F(Interrupted, ASweepSaysHowToGoOn) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const std::string name = "signal" + std::to_string(signal);
    const std::string said =
        interrupt(signal, {kSweep, "--variant", "cpu", "--grid", "smoke", "--output", name},
                  fs::path(name) / "results.csv");
    const std::string again = "--variant cpu --grid smoke --resume " + name;
    EXPECT_NE(said.find("what was measured is in " + name + "; this goes on: "), std::string::npos) << said;
    EXPECT_NE(said.find(again), std::string::npos) << said;
    const std::string before = text_of(folder / name / "results.csv");
    EXPECT_EQ(run(kSweep, again).code, 0);
    EXPECT_TRUE(text_of(folder / name / "results.csv").starts_with(before));
    EXPECT_EQ(lines(fs::path(name) / "results.csv"), 1 + 18);
  }
}

TEST_F(Interrupted, LinearLayersSayHowToGoOn) {
  std::vector<std::string> words = {kLinear, "--variant", "cpu", "--output", "r"};
  for (int m = 1; m <= 40; ++m) {
    words.emplace_back("--problem");
    words.push_back("f16/m" + std::to_string(m) + "/n1024/k1024/w4g128");
  }
  const std::string said = interrupt(SIGINT, words, "r/linear.csv");
  EXPECT_NE(said.find("this goes on: "), std::string::npos) << said;
  const std::size_t done = static_cast<std::size_t>(lines("r/linear.csv"));
  EXPECT_LT(done, 41U);
  const std::string before = text_of(folder / "r/linear.csv");
  EXPECT_EQ(run(kLinear, "--variant cpu --problem f16/m40/n1024/k1024/w4g128 --resume r").code, 0);
  EXPECT_TRUE(text_of(folder / "r/linear.csv").starts_with(before));
}

// The ranks stop together, or the others would wait for the one that stopped.
TEST_F(Interrupted, RanksStopTogether) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string said =
      interrupt(SIGTERM,
                {kTensorParallel, "--host", "--ranks", "4", "--shape", "512x8192x512", "--tokens",
                 "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20", "--limit", "60", "--output", "r"},
                "r/tensor_parallel.csv");
  EXPECT_NE(said.find("what was measured is in r; this goes on: "), std::string::npos) << said;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(50))
      << "a rank waited for another";
}

// A disk that fills up while the sweep runs (here: files end at 8000 bytes): whole rows, exit code 1, how to
// go on.
TEST_F(Interrupted, AFullDiskKeepsWholeRowsAndSaysHowToGoOn) {
  const fs::path results = folder / "r/results.csv";
  std::string rows = "1";
  for (int i = 2; i <= 64; ++i)
    rows += ", " + std::to_string(i);
  std::ofstream(folder / "g.grid") << "[a]\nn = 8\nrows = " << rows << "\ndtype = f16\nmode = host\n";
  // With SIGXFSZ ignored a write fails, as on a full disk.
  const pid_t child = start({kSweep, "--variant", "cpu", "--grid", "g.grid", "--output", "r"}, SIGXFSZ,
                            SIG_IGN, "r/results.csv", 2);
  ASSERT_GT(child, 0);
  const rlimit full{8000, RLIM_INFINITY};  // after the schema, which is longer, has been written
  ASSERT_EQ(prlimit(child, RLIMIT_FSIZE, &full, nullptr), 0);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  const std::string said = text_of(folder / "err"), before = text_of(results);
  const std::string again = "--variant cpu --grid g.grid --resume r";
  EXPECT_NE(said.find("what was measured is in r; this goes on: "), std::string::npos) << said;
  EXPECT_NE(said.find(again), std::string::npos) << said;
  EXPECT_EQ(before.back(), '\n');
  EXPECT_LT(lines("r/results.csv"), 1 + 64);
  const Ended ended = run(kSweep, again);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(text_of(results).starts_with(before));
  EXPECT_EQ(lines("r/results.csv"), 1 + 64);
}

// Killed in the middle: what was measured is there, and --resume measures the rest.
TEST_F(Interrupted, AKilledSweepLosesNothing) {
  const fs::path results = folder / "r/results.csv";
  const pid_t child = start({kSweep, "--variant", "cpu", "--grid", "smoke", "--output", "r"}, SIGTERM,
                            SIG_DFL, "r/results.csv", 4);
  ASSERT_GT(child, 0);
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  const std::string before = text_of(results);
  ASSERT_GE(lines("r/results.csv"), 4);
  if (WIFSIGNALED(status)) {
    EXPECT_NE(text_of(folder / "r/context.json").find("\"complete\": false"), std::string::npos);
  }
  const Ended ended = run(kSweep, "--variant cpu --grid smoke --resume r");
  EXPECT_EQ(ended.code, 0) << ended.err;
  const std::string kept = before.substr(0, before.find_last_of('\n') + 1);
  EXPECT_TRUE(text_of(results).starts_with(kept));
  EXPECT_EQ(lines("r/results.csv"), 1 + 18) << "every case of the smoke grid once";
}

TEST_F(Programs, RunOnceChecksAndReports) {
  const Ended ended = run(kRunOnce, "--variant cpu --problem f16/n256/r9/out --repeat 3 --check");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("check      ok"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("launches   3"), std::string::npos);
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST_F(Programs, ATraceOfProblemsIsAGrid) {
  const std::string trace = (folder / "trace.grid").string();
  setenv("FWHT_TRACE", trace.c_str(), 1);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(run(kRunOnce, "--variant cpu --problem f16/n256/r9/out --repeat 3").code, 0);
  EXPECT_EQ(run(kLinear, "--problem f16/m2/n64/k256/w4g128 --variant cpu --dry-run").code, 0);
  unsetenv("FWHT_TRACE");
  const Ended listed = run(kSweep, "--grid " + trace + " --variant cpu --dry-run");
  EXPECT_EQ(listed.code, 0) << listed.err;
  EXPECT_NE(listed.out.find("f16/n256/r9/out"), std::string::npos) << listed.out;
  setenv("FWHT_TRACE", (folder / "none" / "trace").c_str(), 1);
  const Ended refused = run(kRunOnce, "--variant cpu --problem f16/n256/r9/out");
  unsetenv("FWHT_TRACE");
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("trace cannot be written"), std::string::npos) << refused.err;
}

TEST_F(Programs, ListWhatThereIs) {
  const Ended variants = run(kSweep, "--list");
  EXPECT_EQ(variants.code, 0);
  EXPECT_NE(variants.out.find("cpu "), std::string::npos);
  EXPECT_NE(variants.out.find("naive "), std::string::npos);
  std::set<std::string> reasons;
  std::istringstream listed(variants.out);
  for (std::string line; std::getline(listed, line);) {
    if (line.find("not here") != std::string::npos) {
      EXPECT_TRUE(reasons.insert(line.substr(0, line.rfind(": "))).second) << line << " is said twice";
    }
  }
  EXPECT_EQ(run(kSweep, "--list-grids").out,
            "smoke\nquick\npaper\ntune\nhost\nheadline\npublished\nfused\ncodes\nprepared\noperands\nwidths\n"
            "long\narrangements\npeers\n");
  for (const char* program : {kSweep, kAccuracy, kAnalysis, kRunOnce, kProfile}) {
    const Ended help = run(program, "--help");
    EXPECT_EQ(help.code, 0);
    EXPECT_NE(help.out.find("--variant"), std::string::npos);
  }
}

}  // namespace
}  // namespace fwht
