// fwht_profile: every variant on every problem once, in regions that a profiler sees, and which of the
// profiler's rows belong to what. `python -m analysis profile` runs it under Nsight Compute.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/device/memory.hpp"
#include "common/host/error.hpp"
#include "common/host/provenance.hpp"
#include "common/host/run_main.hpp"
#include "experiments/harness/cli.hpp"
#include "experiments/harness/grid.hpp"
#include "experiments/harness/interrupt.hpp"
#include "experiments/harness/measure.hpp"
#include "experiments/harness/results_folder.hpp"
#include "experiments/harness/transform.hpp"
#include "experiments/profile/peaks.hpp"
#include "experiments/profile/region.hpp"
#include "variants/registry.hpp"

namespace fwht::profile {
namespace {

using harness::CsvRow;
using harness::ResultsFolder;

struct ProfileOptions {
  harness::GridOptions what;
  harness::FolderOptions folder;
  std::vector<std::string> rows;
  std::int64_t most_kernels = 6;
  bool list = false;
};

bool parse(ProfileOptions& options, int argc, const char* const* argv) {
  CLI::App app{
      "Executes every variant of the device once on every problem, for a profiler (see ./testbed profile).",
      "fwht_profile"};
  harness::add_grid_options(app, options.what);
  app.add_option("--rows", options.rows, "these row counts instead of the grid's")->take_all();
  app.add_option("--most-kernels", options.most_kernels,
                 "problems that take more launches are left out (default: 6)");
  harness::add_folder_options(app, options.folder);
  app.add_flag("--list", options.list, "list what would be launched; launch and write nothing");
  return harness::parse_command_line(app, argc, argv);
}

template <class Value>
std::set<Value> set_of(const std::vector<Value>& values) {
  return {values.begin(), values.end()};
}

// The grid's shapes with other row counts: every operator and dtype once for each.
std::vector<Problem> with_rows(const std::vector<Problem>& problems, const std::set<std::int64_t>& rows) {
  if (rows.empty()) return problems;
  std::vector<Problem> changed;
  for (const Problem& problem : problems) {
    for (const std::int64_t count : rows) {
      Problem other = problem;
      other.rows = count;
      if (std::find(changed.begin(), changed.end(), other) == changed.end()) changed.push_back(other);
    }
  }
  return changed;
}

std::vector<Problem> problems_of(const ProfileOptions& options, const harness::Grid& grid) {
  const std::set<std::int64_t> n = set_of(harness::parse_all_counts(options.what.n, "--n"));
  const std::set<Dtype> dtypes = set_of(harness::parse_items(options.what.dtypes, parse_dtype));
  std::vector<Problem> problems;
  for (const harness::Case& item : grid.cases) {
    if (item.mode == harness::Mode::host) continue;  // nothing of it runs on the device
    Problem problem = item.problem;
    problem.programmatic_launch = false;  // a launch alone: there is nothing to overlap with
    if (!n.empty() && !n.contains(problem.n())) continue;
    if (!dtypes.empty() && !dtypes.contains(problem.dtype())) continue;
    if (std::find(problems.begin(), problems.end(), problem) == problems.end()) problems.push_back(problem);
  }
  problems = with_rows(problems, set_of(harness::parse_all_counts(options.rows, "--rows")));
  for (const std::string& text : options.what.problems)
    problems.push_back(parse_problem(text));
  if (problems.empty()) throw BadRequest("no problem is left: the grid has none with these --n and --dtype");
  std::erase_if(problems, [](const Problem& problem) { return problem.rows == 0; });
  return problems;
}

std::string refusal(const Variant& variant, const Problem& problem, const DeviceInfo& device) {
  if (variant.memory == Memory::host) return "runs on the host, where Nsight Compute sees nothing";
  if (!problem.is_arranged_plainly())
    return fmt::format("the arrangement {} has no column here", arrangement_text(problem));
  return variant.supports(problem, device).why_not;
}

class ProfileRun {
 public:
  ProfileRun(ResultsFolder& folder, const DeviceInfo& device, std::int64_t most_kernels)
      : folder_(folder), device_(device), most_kernels_(most_kernels), bench_(device) {}

  void run_peaks() {
    for (const Peak& peak : peaks(device_)) {
      if (!peak.why_not.empty()) {
        std::cerr << fmt::format("peak {}: {}\n", peak.name, peak.why_not);
        continue;
      }
      Buffer buffer(Memory::device, static_cast<std::size_t>(peak.bytes));
      const auto enqueue = [&](Stream stream) { peak.enqueue(buffer.data(), stream); };
      run({{"peak", peak.name}}, enqueue);
    }
  }

  void run_problem(const Variant& variant, const Problem& problem) {
    if (const std::string why_not = refusal(variant, problem, device_); !why_not.empty()) {
      leave_out(variant, problem, why_not);
      return;
    }
    const harness::Subject subject =
        harness::transform_subject(variant, plan(variant, problem, device_), device_, truths_);
    harness::Slices& slices = bench_.filled(subject, harness::Mode::replay);
    const auto enqueue = [&](Stream stream) { subject.launch(slices.in(0), slices.out(0), stream); };
    if (const std::int64_t count = count_kernels(enqueue); count > most_kernels_) {
      leave_out(variant, problem,
                fmt::format("takes {} launches; problems with more than {} are not profiled", count,
                            most_kernels_));
      return;
    }
    CsvRow row = harness::part_of(subject.columns, "launches.csv");
    row["settings"] = subject.settings();
    run(std::move(row), enqueue);
  }

  std::int64_t kernels() const { return kernels_; }

 private:
  void leave_out(const Variant& variant, const Problem& problem, const std::string& reason) {
    CsvRow row = harness::part_of(harness::describe(variant, problem).columns, "not_profiled.csv");
    row["reason"] = reason;
    folder_.table("not_profiled.csv").append(row);
  }

  // Once unseen, so that code is loaded and the L2 is as a repeated call finds it; then in the region.
  void run(CsvRow row, const Enqueue& enqueue) {
    enqueue(nullptr);
    synchronize(Memory::device);
    const std::int64_t count = count_kernels(enqueue);
    run_profiled(enqueue);
    row["kernels"] = std::to_string(count);
    kernels_ += count;
    folder_.table("launches.csv").append(row);
  }

  ResultsFolder& folder_;
  const DeviceInfo& device_;
  std::int64_t most_kernels_;
  harness::Bench bench_;
  std::shared_ptr<harness::TruthCache> truths_ = std::make_shared<harness::TruthCache>();
  std::int64_t kernels_ = 0;
};

std::vector<const Variant*> device_variants(const ProfileOptions& options) {
  std::vector<const Variant*> variants = harness::select_variants(options.what.variants);
  if (options.what.variants.empty()) {
    std::erase_if(variants, [](const Variant* variant) { return variant->memory == Memory::host; });
  }
  return variants;
}

int run(int argc, const char* const* argv) {
  ProfileOptions options;
  if (!parse(options, argc, argv)) return 0;
  if (options.most_kernels < 1)
    throw BadRequest(fmt::format("--most-kernels={} must be at least 1", options.most_kernels));
  const std::vector<const Variant*> variants = device_variants(options);
  const harness::Grid grid = options.what.load();
  const std::vector<Problem> problems = problems_of(options, grid);
  if (options.list) {
    for (const Variant* variant : variants) {
      for (const Problem& problem : problems)
        std::cout << variant->name << '/' << to_string(problem) << '\n';
    }
    return 0;
  }
  const DeviceInfo device = harness::open_device(options.folder.device);
  if (!device.has_cuda()) throw BadRequest("profiling needs a CUDA device: " + device.why_no_cuda);

  const Provenance provenance = gather_provenance(argc, argv, device);
  const harness::RunInfo info{
      "fwht_profile",
      grid.name.empty() ? "problems" : grid.name,
      grid.text,
      {1},
      harness::names_of(variants),
      {},
      [&](const std::string& table, const std::vector<harness::CsvRow>&) {
        // `analysis profile` writes it beside launches.csv, once Nsight Compute has answered.
        if (table == "launches.csv" && std::filesystem::exists(options.folder.resume + "/profile.csv"))
          throw BadRequest("the folder holds a profile already; another one needs another folder");
      }};
  ResultsFolder folder =
      ResultsFolder::create_or_resume(options.folder.output, options.folder.resume, provenance, info);
  for (const char* table : {"launches.csv", "not_profiled.csv"})  // of a run that was stopped
    folder.start_anew(table);
  return harness::write_folder(folder, argc, argv, [&] {
    ProfileRun session(folder, device, options.most_kernels);
    session.run_peaks();
    for (const Variant* variant : variants) {
      for (const Problem& problem : problems) {
        if (harness::interrupted_by() != 0) return 1;
        session.run_problem(*variant, problem);
      }
    }
    folder.finish();
    std::cout << session.kernels() << " kernels\n" << folder.path().string() << std::endl;
    return 0;
  });
}

}  // namespace
}  // namespace fwht::profile

int main(int argc, char** argv) {
  return fwht::run_main("fwht_profile", [&] { return fwht::profile::run(argc, argv); });
}
