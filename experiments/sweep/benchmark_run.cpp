#include "experiments/sweep/benchmark_run.hpp"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "common/host/error.hpp"

namespace fwht::sweep {
namespace {

// Names as they are here, without what Google Benchmark says of its own loop ("/iterations:1/manual_time"),
// so that a filter with an end finds them and two outputs compare by variant, problem and mode. At the end
// `written` says whether the stream took everything: Google Benchmark, which opens and closes it, does not.
template <class Reporter>
class Named : public Reporter {
 public:
  template <class... Arguments>
  explicit Named(bool& written, Arguments... arguments) : Reporter(arguments...), written_(written) {}

  void ReportRuns(const std::vector<benchmark::BenchmarkReporter::Run>& runs) override {
    std::vector<benchmark::BenchmarkReporter::Run> named = runs;
    for (auto& run : named) {
      benchmark::BenchmarkName name;
      name.function_name = run.run_name.function_name;
      run.run_name = name;
    }
    Reporter::ReportRuns(named);
  }

  void Finalize() override {
    Reporter::Finalize();
    written_ = this->GetOutputStream().flush().good();
  }

 private:
  bool& written_;
};

// Google Benchmark's JSON with a context of our own: its context would name the host and the folder of the
// program.
class JsonFile : public Named<benchmark::JSONReporter> {
 public:
  JsonFile(bool& written, const Provenance& provenance) : Named(written), provenance_(provenance) {}

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
    GetOutputStream() << "{\n  \"context\": "
                      << about.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
                      << ",\n  \"benchmarks\": [\n";
    return true;
  }

 private:
  const Provenance& provenance_;
};

// Without the lines about the host's caches and its frequency: they say nothing about a device.
class Console : public Named<benchmark::ConsoleReporter> {
 public:
  explicit Console(bool& written) : Named(written, OO_None) {}
  bool ReportContext(const Context& context) override {
    name_field_width_ = context.name_field_width;
    return true;
  }
};

std::unique_ptr<benchmark::BenchmarkReporter> make_reporter(const std::string& format, bool& written,
                                                            const Provenance& provenance) {
  if (format == "json") return std::make_unique<JsonFile>(written, provenance);
  BENCHMARK_DISABLE_DEPRECATED_WARNING
  if (format == "csv") return std::make_unique<Named<benchmark::CSVReporter>>(written);
  BENCHMARK_RESTORE_DEPRECATED_WARNING
  return std::make_unique<Console>(written);
}

// One benchmark: its function is called once per repetition.
class Repetitions {
 public:
  Repetitions(const Job& job, const std::function<Outcome(const Job&)>& measure)
      : job_(job), measure_(measure) {}

  void run(benchmark::State& state) {
    if (next_ == 0) outcome_ = measure_(job_);
    const std::size_t replay = next_++;
    if (outcome_.status != Outcome::Status::ok) {
      state.SkipWithError(outcome_.message.c_str());
      return;
    }
    const double time_us = outcome_.timing.each_us.at(replay);
    for ([[maybe_unused]] const auto iteration : state)
      state.SetIterationTime(1e-6 * time_us);
    state.SetBytesProcessed(job_.what.traffic.useful());  // per one iteration, see Iterations(1)
    state.counters["fraction_of_limit"] = outcome_.limit_us / time_us;
  }

 private:
  const Job& job_;
  const std::function<Outcome(const Job&)>& measure_;
  Outcome outcome_;
  std::size_t next_ = 0;
};

}  // namespace

void add_benchmark_options(CLI::App& app, BenchmarkOptions& options) {
  const std::string group = "Google Benchmark";
  app.add_flag("--benchmark_list_tests", options.list_tests,
               "list the names variant/problem/mode; measure and write nothing")
      ->group(group);
  app.add_option("--benchmark_filter", options.filter,
                 "only names that the regular expression matches; -EXPRESSION: only the others")
      ->group(group);
  app.add_option("--benchmark_repetitions", options.repetitions,
                 fmt::format("replays of every graph (default: {})", TimerOptions{}.replays))
      ->group(group);
  app.add_option("--benchmark_format", options.format, "console, json or csv, on standard output")
      ->group(group);
  app.add_option("--benchmark_out", options.out, "a file for the report as well")->group(group);
  app.add_option("--benchmark_out_format", options.out_format, "json (default), console or csv")
      ->group(group);
  app.add_flag("--benchmark_report_aggregates_only", options.report_aggregates_only,
               "mean, median, standard deviation instead of every replay")
      ->group(group);
  app.add_flag("--benchmark_display_aggregates_only", options.display_aggregates_only,
               "the same on standard output only")
      ->group(group);
}

void finish(const CLI::App& app, BenchmarkOptions& options) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_name().starts_with("--benchmark_") && option->get_name() != "--benchmark_list_tests" &&
        option->count() > 0)
      options.asked_for = true;
  }
  if (app.count("--benchmark_repetitions") > 0 && (options.repetitions < 1 || options.repetitions > 1000))
    throw BadRequest(
        fmt::format("--benchmark_repetitions={} must be between 1 and 1000", options.repetitions));
  for (const auto& [name, format] :
       {std::pair{"format", options.format}, std::pair{"out_format", options.out_format}}) {
    if (format != "console" && format != "json" && format != "csv")
      throw BadRequest(fmt::format("--benchmark_{}={}: known are console, json, csv", name, format));
  }
}

void run_benchmarks(const std::vector<Job>& jobs, const std::function<Outcome(const Job&)>& measure,
                    const BenchmarkOptions& options, const Provenance& provenance) {
  if (jobs.empty()) return;
  std::vector<Repetitions> all;
  all.reserve(jobs.size());
  for (const Job& job : jobs) {
    all.emplace_back(job, measure);
    // One iteration: warm-up, launches and replays happen inside, see common/gpu_timer.
    benchmark::RegisterBenchmark(
        job.name().c_str(), [&repetitions = all.back()](benchmark::State& state) { repetitions.run(state); })
        ->Iterations(1)
        ->Repetitions(options.replays())
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
  std::vector<std::string> arguments = {"fwht_sweep"};
  if (!options.out.empty()) arguments.push_back("--benchmark_out=" + options.out);
  if (options.report_aggregates_only) arguments.emplace_back("--benchmark_report_aggregates_only=true");
  if (options.display_aggregates_only) arguments.emplace_back("--benchmark_display_aggregates_only=true");
  std::vector<char*> argv;
  for (std::string& argument : arguments)
    argv.push_back(argument.data());
  argv.push_back(nullptr);
  int argc = static_cast<int>(arguments.size());
  benchmark::Initialize(&argc, argv.data());
  bool displayed = false, written = options.out.empty();  // what is displayed is looked at where programs end
  const auto display = make_reporter(options.format, displayed, provenance);
  const auto file = options.out.empty() ? nullptr : make_reporter(options.out_format, written, provenance);
  benchmark::RunSpecifiedBenchmarks(display.get(), file.get(), "all");  // filtered by filter_by_name
  benchmark::ClearRegisteredBenchmarks();
  benchmark::Shutdown();
  if (!written)
    throw std::runtime_error(fmt::format("--benchmark_out={} was cut off while it was written", options.out));
}

}  // namespace fwht::sweep
