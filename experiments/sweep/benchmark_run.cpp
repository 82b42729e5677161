#include "experiments/sweep/benchmark_run.hpp"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace fwht::sweep {
namespace {

// Google Benchmark's JSON with a context of our own: its context would name the host and the folder of the
// program.
class JsonFile : public benchmark::JSONReporter {
 public:
  explicit JsonFile(const Provenance& provenance) : provenance_(provenance) {}

  bool ReportContext(const Context& context) override {
    const nlohmann::ordered_json about = {
        {"date", utc_now()},
        {"executable", provenance_.argv.empty() ? "" : provenance_.argv.front()},
        {"num_cpus", context.cpu_info.num_cpus},
        {"mhz_per_cpu", context.cpu_info.cycles_per_second / 1e6},
        {"library_build_type", "release"},
        {"commit", provenance_.build.commit},
        {"sources_hash", provenance_.build.sources_hash},
        {"device", provenance_.device.has_cuda() ? provenance_.device.name : provenance_.device.host_name}};
    GetOutputStream() << "{\n  \"context\": " << about.dump() << ",\n  \"benchmarks\": [\n";
    return true;
  }

 private:
  const Provenance& provenance_;
};

// The terminal belongs to the progress line.
class Silent : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

void run_one(benchmark::State& state, const Job& job, const std::function<Outcome(const Job&)>& measure) {
  const Outcome outcome = measure(job);
  if (outcome.status != Outcome::Status::ok) state.SkipWithError(outcome.message.c_str());
  for ([[maybe_unused]] const auto iteration : state)
    state.SetIterationTime(1e-6 * outcome.time_us);
  if (outcome.status != Outcome::Status::ok) return;
  state.SetBytesProcessed(job.what.problem.useful_bytes());  // per one iteration, see Iterations(1)
  state.counters["fraction_of_limit"] = outcome.fraction_of_limit;
}

}  // namespace

void run_benchmarks(const std::vector<Job>& jobs, const std::function<Outcome(const Job&)>& measure,
                    const std::filesystem::path& json, const Provenance& provenance) {
  if (jobs.empty()) return;
  for (const Job& job : jobs) {
    // One iteration: warm-up, repetition and median happen inside, see common/gpu_timer.
    benchmark::RegisterBenchmark(job.name().c_str(),
                                 [&](benchmark::State& state) { run_one(state, job, measure); })
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
  std::string program = "fwht_sweep", out = fmt::format("--benchmark_out={}", json.string()),
              format = "--benchmark_out_format=json";
  char* argv[] = {program.data(), out.data(), format.data(), nullptr};
  int argc = 3;
  benchmark::Initialize(&argc, argv);
  Silent silent;
  JsonFile file(provenance);
  benchmark::RunSpecifiedBenchmarks(&silent, &file);
  benchmark::ClearRegisteredBenchmarks();
  benchmark::Shutdown();
}

}  // namespace fwht::sweep
