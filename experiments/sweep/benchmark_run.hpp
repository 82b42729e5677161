// The sweep as a Google Benchmark run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/host/provenance.hpp"
#include "experiments/sweep/jobs.hpp"
#include "experiments/sweep/session.hpp"

namespace CLI {
class App;
}

namespace fwht::sweep {

/// What the command line says in Google Benchmark's own words.
struct BenchmarkOptions {
  std::string filter, format = "console", out, out_format = "json";
  bool list_tests = false, report_aggregates_only = false, display_aggregates_only = false;
  int repetitions = 0;     ///< 0: the timer's replays
  bool asked_for = false;  ///< any of them was given but list_tests: Google Benchmark reports

  int replays() const { return repetitions > 0 ? repetitions : TimerOptions{}.replays; }
};
void add_benchmark_options(CLI::App& app, BenchmarkOptions& options);
/// Behind the parser: throws BadRequest for values that Google Benchmark would not take and for a file that
/// cannot be written.
void finish(const CLI::App& app, BenchmarkOptions& options);

/// Runs every job under its name, in order, with manual time: `measure` is called once per job, and each of
/// its replays is one repetition. The counters are bytes_per_second and fraction_of_limit; what is not ok
/// becomes an error. Reports go to standard output and, where options.out names a file, into it. Throws
/// std::runtime_error when that file did not take everything.
void run_benchmarks(const std::vector<Job>& jobs, const std::function<Outcome(const Job&)>& measure,
                    const BenchmarkOptions& options, const Provenance& provenance);

}  // namespace fwht::sweep
