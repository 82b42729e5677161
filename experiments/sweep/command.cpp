#include "experiments/sweep/command.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "common/host/error.hpp"
#include "common/host/provenance.hpp"
#include "experiments/harness/cli.hpp"
#include "experiments/harness/grid.hpp"
#include "experiments/harness/interrupt.hpp"
#include "experiments/harness/progress.hpp"
#include "experiments/harness/results_folder.hpp"
#include "experiments/sweep/benchmark_run.hpp"
#include "experiments/sweep/flashinfer_trace.hpp"
#include "experiments/sweep/jobs.hpp"
#include "experiments/sweep/report.hpp"
#include "experiments/sweep/session.hpp"

namespace fwht::sweep {
namespace {

using harness::Case;
using harness::CsvRow;
using harness::Mode;
using harness::ResultsFolder;

struct SweepOptions {
  harness::GridOptions what;
  harness::FolderOptions folder;
  BenchmarkOptions benchmark;
  std::vector<std::string> rows, elements, placements, modes;
  std::vector<std::string> exported;  // format and folder
  bool list = false, list_json = false, list_grids = false, list_names = false, dry_run = false;
};

// What ./testbed must know before anything is built: experiments/names.txt is this list.
void print_names(const CLI::App& app) {
  std::set<std::string> variants, options;
  for (const std::string& name : harness::names_of(harness::select_variants({})))
    variants.insert(name);
  for (const CLI::Option* option : app.get_options()) {
    const std::vector<std::string>& names = option->get_lnames();
    for (const std::string& name : names)
      options.insert("--" + name);
  }
  for (const std::string& name : variants)
    std::cout << "variant " << name << '\n';
  for (const std::string& name : options)
    std::cout << "option " << name << '\n';
  for (const auto& [mode, name] : harness::kModes)
    std::cout << "mode " << name << '\n';
  for (const auto& [placement, name] : harness::kPlacements)
    std::cout << "placement " << name << '\n';
}

bool parse(SweepOptions& options, const std::string& program, int argc, const char* const* argv) {
  CLI::App app{"Checks and times variants of the fast Walsh-Hadamard transform over a grid of problems.",
               program};
  harness::add_grid_options(app, options.what);
  app.add_option("--rows", options.rows, "only these row counts of the grid")->take_all();
  app.add_option("--elements", options.elements, "only these element counts of the grid")->take_all();
  app.add_option("--placement", options.placements, "only in or out")->take_all();
  app.add_option("--mode", options.modes, "only replay, replay_pdl, alternating, cold or host")->take_all();
  harness::add_folder_options(app, options.folder);
  app.add_flag("--list", options.list, "list the variants and what they support on this machine");
  app.add_flag("--list-json", options.list_json,
               "list what the variants support on an H200, whether there is one here or not, as JSON");
  app.add_flag("--list-grids", options.list_grids, "list the built-in grids");
  app.add_flag("--list-names", options.list_names,
               "list the names that options take, as experiments/names.txt");
  app.add_flag("--dry-run", options.dry_run, "list what would be measured; measure and write nothing");
  app.add_option(
         "--export", options.exported,
         "flashinfer-trace DIR: also write definitions, workloads, solutions and traces in the schema of "
         "flashinfer-bench; with --dry-run definitions and workloads alone")
      ->expected(2);
  add_benchmark_options(app, options.benchmark);
  if (!harness::parse_command_line(app, argc, argv)) return false;
  finish(app, options.benchmark);
  if (!options.exported.empty()) {
    if (options.exported[0] != "flashinfer-trace")
      throw BadRequest(fmt::format("--export {}: known is flashinfer-trace", options.exported[0]));
    require_no_dataset(options.exported[1]);
  }
  if (options.list_names) {
    print_names(app);
    return false;
  }
  return true;
}

Filters filters_of(const SweepOptions& options) {
  Filters filters;
  filters.n = harness::parse_all_counts(options.what.n, "--n");
  filters.rows = harness::parse_all_counts(options.rows, "--rows");
  filters.elements = harness::parse_all_counts(options.elements, "--elements");
  filters.dtypes = harness::parse_items(options.what.dtypes, parse_dtype);
  filters.placements = harness::parse_items(
      options.placements, [](const std::string& name) { return harness::kPlacements.parse(name); });
  filters.modes = harness::parse_items(options.modes,
                                       [](const std::string& name) { return harness::kModes.parse(name); });
  return filters;
}

/// Another grid than the folder's must be asked for: its rows would stand among those of the other.
bool goes_on(const SweepOptions& options) {
  return !options.folder.resume.empty() && options.what.grid.empty() && options.what.problems.empty();
}

harness::Grid grid_of(const SweepOptions& options, const std::string& program) {
  harness::Grid grid =
      goes_on(options) ? harness::recorded_grid(options.folder.resume, program) : options.what.load();
  const Filters filters = filters_of(options);
  std::erase_if(grid.cases, [&](const Case& c) { return !filters.keep(c); });
  const std::vector<Mode> modes =
      filters.modes.empty() ? std::vector{Mode::replay, Mode::host} : filters.modes;
  for (const std::string& text : options.what.problems) {
    for (const Mode mode : modes) {
      Problem problem = parse_problem(text);
      problem.programmatic_launch = problem.programmatic_launch || is_programmatic(mode);
      if (problem.programmatic_launch != is_programmatic(mode)) {
        throw BadRequest(
            fmt::format("{} asks for programmatic dependent launch: its mode is replay_pdl, not {}", text,
                        harness::name_of(mode)));
      }
      grid.cases.push_back({problem, mode});
    }
  }
  return grid;
}

void print_dry_run(const JobList& list) {
  for (const Job& job : list.jobs)
    std::cout << job.name() << '\n';
  for (const UnsupportedJob& entry : list.unsupported) {
    std::cout << "unsupported: " << entry.what.name << ": " << entry.reason << '\n';
  }
}

// On disk before anything is measured, so that a killed run has them.
void write_unsupported(ResultsFolder& folder, const JobList& list) {
  std::set<std::string> there;
  for (const CsvRow& row : folder.rows("unsupported.csv"))
    there.insert(unsupported_key(row));
  harness::CsvWriter& table = folder.table("unsupported.csv");
  for (const UnsupportedJob& entry : list.unsupported) {
    if (const CsvRow row = describe(entry); there.insert(unsupported_key(row)).second) table.append(row);
  }
}

std::vector<Job> without_measured(std::vector<Job> jobs, const ResultsFolder& folder) {
  std::set<std::string> there;
  for (const CsvRow& row : folder.rows("results.csv"))
    there.insert(result_key(row));
  std::erase_if(jobs, [&](const Job& job) { return there.contains(result_key(describe(job))); });
  return jobs;
}

// Before anything is measured: Google Benchmark would end the program.
void require_writable(const std::string& file) {
  if (!file.empty() && !std::ofstream(file, std::ios::app))
    throw BadRequest(fmt::format("--benchmark_out={} cannot be written", file));
}

// Measures all jobs; returns false when the device was lost on the way.
bool measure_all(const std::vector<Job>& jobs, const BenchmarkOptions& benchmark, ResultsFolder& folder,
                 const Provenance& provenance) {
  harness::CsvWriter& results = folder.table("results.csv");
  harness::CsvWriter& limits = folder.table("limits.csv");
  harness::CsvWriter& unsupported = folder.table("unsupported.csv");
  harness::Progress progress(jobs.size());
  Session session(
      provenance.device, [&](const CsvRow& row) { limits.append(row); }, benchmark.replays());
  const auto measure = [&](const Job& job) -> Outcome {
    if (harness::interrupted_by() != 0)
      return {Outcome::Status::not_run, {}, {}, 0.0, "not run: interrupted"};
    if (!benchmark.asked_for) progress.begin(job.name());
    Outcome outcome = session.run(job);
    switch (outcome.status) {
      case Outcome::Status::incorrect:
      case Outcome::Status::failed:
        progress.note(fmt::format("{}: {}", job.name(), outcome.message));
        [[fallthrough]];
      case Outcome::Status::ok:
        results.append(outcome.row);
        break;
      case Outcome::Status::unsupported:
        unsupported.append(outcome.row);
        break;
      case Outcome::Status::not_run:
        break;
    }
    progress.done();
    return outcome;
  };
  if (benchmark.asked_for) {
    run_benchmarks(jobs, measure, benchmark, provenance);
  } else {
    for (const Job& job : jobs)
      measure(job);
  }
  if (harness::interrupted_by() != 0) return false;
  if (session.device_lost().empty()) return true;
  progress.note(
      fmt::format("{}; --resume {} measures the rest", session.device_lost(), folder.path().string()));
  return false;
}

// Before a folder is made: a run that can measure nothing is a bad request.
void require_jobs(const JobList& list) {
  if (!list.jobs.empty()) return;
  if (list.unsupported.empty())
    throw BadRequest("no variant that was asked for runs in a mode that was asked for");
  const UnsupportedJob& first = list.unsupported.front();
  throw BadRequest(fmt::format("nothing that was asked for can be run here; {}: {}{}", first.what.name,
                               first.reason,
                               list.unsupported.size() == 1 ? "" : "; --dry-run lists the other reasons"));
}

// The table, what went wrong, and the folder as the last line; returns the exit code.
int conclude(const ResultsFolder& folder, bool all_run, bool benchmark_reports) {
  const std::vector<CsvRow> results = folder.rows("results.csv");
  std::ostream& out = benchmark_reports ? std::cerr : std::cout;
  if (!benchmark_reports) out << best_variants(results);
  out << '\n' << problems_found(results) << summary(results, folder.rows("unsupported.csv").size());
  out << folder.path().string() << std::endl;
  return exit_code(all_run, results);
}

int run(SweepOptions& options, const std::string& program, int argc, const char* const* argv,
        const Others& others) {
  if (options.list_grids) {
    for (const harness::BuiltInGrid& grid : harness::built_in_grids())
      std::cout << grid.name << '\n';
    return 0;
  }
  if (options.list_json) {
    std::cout << harness::list_variants_json(h200_description(), "an NVIDIA H200");
    return 0;
  }
  const std::vector<const Variant*> variants = harness::select_variants(options.what.variants);
  const harness::Grid grid = grid_of(options, program);
  const DeviceInfo device = harness::open_device(options.folder.device);
  if (options.list) {
    std::cout << harness::list_variants(device);
    return 0;
  }
  std::vector<Contestant> contestants;
  contestants.reserve(variants.size());
  std::vector<std::string> names = harness::names_of(variants);
  for (const Variant* variant : variants)
    contestants.push_back(contestant_of(*variant, device));
  for (const Contestant& other : others ? others(device) : std::vector<Contestant>{}) {
    contestants.push_back(other);
    names.push_back(other.name);
  }
  JobList list = make_jobs(contestants, grid.cases);
  filter_by_name(list.jobs, options.benchmark.filter);
  if (options.benchmark.list_tests) {
    for (const Job& job : list.jobs)
      std::cout << job.name() << '\n';
    return 0;
  }
  const auto write_export = [&](const std::vector<CsvRow>& results, const Provenance& provenance) {
    if (options.exported.empty()) return;
    write_dataset(options.exported[1], flashinfer_trace(grid.cases, results, provenance));
  };
  if (options.dry_run) {
    print_dry_run(list);
    // Definitions and workloads need no machine that runs them; a run that could measure nothing is refused.
    if (options.exported.empty()) require_jobs(list);
    write_export({}, gather_provenance(argc, argv, device));
    return 0;
  }

  require_jobs(list);
  require_writable(options.benchmark.out);
  if (!options.exported.empty()) make_dataset(options.exported[1]);
  const Provenance provenance = gather_provenance(argc, argv, device);
  harness::RunInfo info{program, grid.name.empty() ? "problems" : grid.name, grid.text, {1}, names};
  info.accept = [&](const std::string& table, const std::vector<CsvRow>& rows) {
    if (table == "results.csv")
      require_same_problems(grid.cases, harness::recorded_problems(options.folder.resume, program), rows);
  };
  ResultsFolder folder =
      ResultsFolder::create_or_resume(options.folder.output, options.folder.resume, provenance, info);
  return harness::write_folder(folder, argc, argv, [&] {
    write_unsupported(folder, list);
    const bool all_run =
        measure_all(without_measured(list.jobs, folder), options.benchmark, folder, provenance);
    if (harness::interrupted_by() != 0) return 1;
    if (all_run) folder.finish();
    write_export(folder.rows("results.csv"), provenance);
    // Standard output belongs to Google Benchmark where it reports.
    return conclude(folder, all_run, options.benchmark.asked_for);
  });
}

}  // namespace

int run(const std::string& program, int argc, const char* const* argv, const Others& others) {
  SweepOptions options;
  if (!parse(options, program, argc, argv)) return 0;
  if (!goes_on(options)) return run(options, program, argc, argv, others);
  // Part of the arguments from here on, so that the folder's context names what this run was to measure.
  constexpr std::string_view kChoices[] = {"--variant",
                                           "--dtype",
                                           "--n",
                                           "--rows",
                                           "--elements",
                                           "--placement",
                                           "--mode",
                                           "--device",
                                           "--benchmark_filter",
                                           "--benchmark_repetitions"};
  const std::vector<std::string> words =
      harness::with_recorded_choices(options.folder.resume, program, kChoices, {argv, argv + argc});
  const std::vector<const char*> all_argv = harness::pointers_to(words);
  const int all_argc = static_cast<int>(words.size());
  SweepOptions all;
  if (!parse(all, program, all_argc, all_argv.data())) return 0;
  return run(all, program, all_argc, all_argv.data(), others);
}

}  // namespace fwht::sweep
