// fwht_accuracy: the error of every variant against FP64, beside what its NumericModel predicts.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "common/provenance.hpp"
#include "experiments/accuracy/accuracy.hpp"
#include "experiments/support/cli.hpp"
#include "experiments/support/grid.hpp"
#include "experiments/support/progress.hpp"
#include "experiments/support/results_folder.hpp"

namespace fwht::accuracy {
namespace {

namespace fs = std::filesystem;
using support::CsvRow;
using support::ResultsFolder;

struct Options {
  std::vector<std::string> variants, dtypes, n, inputs;
  std::vector<std::uint64_t> seeds = {1, 2, 3};
  std::string elements, output, resume;
  int device = -1;
  bool dry_run = false;
};

bool parse(Options& options, int argc, const char* const* argv) {
  CLI::App app{"Measures the error of every variant against FP64, beside what its numeric model predicts.",
               "fwht_accuracy"};
  app.add_option("--variant", options.variants, "names, with commas or repeated (default: all)");
  app.add_option("--dtype", options.dtypes, "f16, bf16, f32 (default: all)");
  app.add_option("--n", options.n, "row lengths: 4096, 2^12, 16..256 (default: 16 to 32768)");
  app.add_option("--input", options.inputs,
                 "input classes (default: normal, uniform, outlier_channels, massive_channel, fa3_mixture)");
  app.add_option("--seed", options.seeds, "seeds (default: 1, 2, 3)")->delimiter(',');
  app.add_option("--elements", options.elements,
                 "elements of one seed (default: 2^20 on the device, 2^18 on the host)");
  auto* output =
      app.add_option("--output", options.output,
                     "the results folder, a new one or one that the sweep has made with this build "
                     "(default: experiments/results/<time>_<commit>_<device>)");
  app.add_option("--resume", options.resume,
                 "a results folder to continue: what it has is not measured again")
      ->excludes(output);
  app.add_option("--device", options.device, "CUDA device (default: 0)");
  app.add_flag("--dry-run", options.dry_run, "list what would be measured; measure and write nothing");
  return support::parse_command_line(app, argc, argv);
}

template <class Value, class Parse>
std::vector<Value> parse_each(const std::vector<std::string>& lists, Parse parse_item) {
  std::vector<Value> values;
  for (const std::string& list : lists) {
    for (const std::string& item : support::split_list(list))
      values.push_back(parse_item(item));
  }
  return values;
}

std::vector<Case> cases_of(const Options& options) {
  auto dtypes = parse_each<Dtype>(options.dtypes, parse_dtype);
  if (dtypes.empty()) dtypes.assign(std::begin(kAllDtypes), std::end(kAllDtypes));
  auto inputs = parse_each<reference::InputClass>(options.inputs, reference::parse_input_class);
  if (inputs.empty()) inputs = summary_inputs();
  std::vector<std::int64_t> lengths;
  for (const std::string& list : options.n) {
    for (const std::int64_t n : support::parse_counts(list, "--n"))
      lengths.push_back(n);
  }
  if (lengths.empty()) lengths = summary_lengths();
  std::vector<Case> cases;
  for (const std::int64_t n : lengths) {
    for (const Dtype dtype : dtypes) {
      for (const reference::InputClass input : inputs)
        cases.push_back({dtype, n, input});
    }
  }
  return cases;
}

struct Job {
  const Variant* variant;
  Case what;
  std::int64_t rows;  // of one seed

  std::string name() const {
    return fmt::format("{}/{}/n{}/{}", variant->name, name_of(what.dtype), what.n,
                       reference::name_of(what.input));
  }
};

std::int64_t elements_for(const Options& options, Memory memory) {
  if (!options.elements.empty()) return support::parse_count(options.elements, "--elements");
  return memory == Memory::device ? std::int64_t{1} << 20 : std::int64_t{1} << 18;
}

struct Work {
  std::vector<Job>
      jobs;  // cases outermost, so that the truth of a case serves all variants of the same memory
  std::vector<CsvRow> unsupported;
};

Work plan_work(const Options& options, const std::vector<const Variant*>& variants,
               const DeviceInfo& device) {
  if (options.seeds.empty()) throw BadRequest("--seed names no seed");
  Work work;
  std::set<std::string> listed;
  const std::vector<Case> all = cases_of(options);
  for (const Case& c : all) {
    for (const Memory memory : {Memory::device, Memory::host}) {
      for (const Variant* variant : variants) {
        if (variant->memory != memory || !listed.insert(accuracy_key(*variant, c)).second) continue;
        const std::int64_t rows = rows_per_seed(c.n, elements_for(options, memory));
        const Problem problem = problem_of(c, rows, options.seeds.size());
        validate(problem);
        if (const Support support = variant->supports(problem, device); support) {
          work.jobs.push_back({variant, c, rows});
        } else if (c.input == all.front().input) {  // once, whatever the inputs
          work.unsupported.push_back({{"variant", std::string(variant->name)},
                                      {"dtype", std::string(name_of(c.dtype))},
                                      {"n", std::to_string(c.n)},
                                      {"rows", std::to_string(problem.rows)},
                                      {"placement", "in"},
                                      {"reason", support.why_not}});
        }
      }
    }
  }
  return work;
}

ResultsFolder open_folder(const Options& options, const Provenance& provenance,
                          const support::RunInfo& info) {
  if (!options.resume.empty()) return ResultsFolder::resume(options.resume, provenance, info);
  const fs::path path = options.output.empty()
                            ? fs::path("experiments/results") / results_folder_name(provenance)
                            : fs::path(options.output);
  const bool there = fs::exists(path / "context.json");
  return there ? ResultsFolder::resume(path, provenance, info)
               : ResultsFolder::create(path, provenance, info);
}

// One variant on one case; false when the device is lost.
class Runner {
 public:
  Runner(const Options& options, const DeviceInfo& device) : options_(options), device_(device) {}

  CsvRow run(const Job& job) {
    const Samples& samples = samples_of(job);
    try {
      const std::unique_ptr<Plan> the_plan = plan(*job.variant, samples.problem(), device_);
      support::Slices& slices =
          workspace_.get(job.variant->memory, Placement::in_place, samples.problem().span_bytes());
      return measured_row(*job.variant, samples, the_plan->numerics(), samples.check(*the_plan, slices));
    } catch (const std::exception& error) {
      probe_device(error.what());
      return failed_row(*job.variant, samples, error.what());
    }
  }

  const std::string& device_lost() const { return device_lost_; }

 private:
  const Samples& samples_of(const Job& job) {
    const bool same = samples_ && samples_->what().dtype == job.what.dtype &&
                      samples_->what().n == job.what.n && samples_->what().input == job.what.input &&
                      samples_->problem().rows == problem_of(job.what, job.rows, options_.seeds.size()).rows;
    if (!same) samples_.emplace(job.what, job.rows, options_.seeds);
    return *samples_;
  }

  void probe_device(const std::string& error) {
    if (!device_.has_cuda()) return;
    try {
      synchronize(Memory::device);
    } catch (const std::exception&) {
      device_lost_ = "the device became unusable: " + error;
    }
  }

  const Options& options_;
  const DeviceInfo& device_;
  support::Workspace workspace_;
  std::optional<Samples> samples_;
  std::string device_lost_;
};

bool measure_all(const std::vector<Job>& jobs, const Options& options, const DeviceInfo& device,
                 ResultsFolder& folder) {
  support::CsvWriter& table = folder.table("accuracy.csv");
  support::Progress progress(jobs.size());
  Runner runner(options, device);
  for (const Job& job : jobs) {
    progress.begin(job.name());
    const CsvRow row = runner.run(job);
    table.append(row);
    if (row.at("status") != "ok") progress.note(fmt::format("{}: {}", job.name(), row.at("message")));
    progress.done();
    if (!runner.device_lost().empty()) {
      progress.note(
          fmt::format("{}; --resume {} measures the rest", runner.device_lost(), folder.path().string()));
      return false;
    }
  }
  return true;
}

// The measured over the predicted error: the worst case of each variant and dtype.
std::string summary(const std::vector<CsvRow>& rows) {
  struct Line {
    int cases = 0, ok = 0;
    double low = 1e300, high = 0.0;
  };
  std::map<std::pair<std::string, std::string>, Line> lines;
  for (const CsvRow& row : rows) {
    Line& line = lines[{row.at("variant"), row.at("dtype")}];
    ++line.cases;
    if (row.at("status") == "ok") ++line.ok;
    if (row.at("ratio").empty()) continue;
    const double ratio = std::stod(row.at("ratio"));
    line.low = std::min(line.low, ratio);
    line.high = std::max(line.high, ratio);
  }
  std::string text =
      fmt::format("\n{:<16} {:<5} {:>9}  {}\n", "variant", "dtype", "ok/cases", "measured / predicted error");
  for (const auto& [key, line] : lines) {
    text += fmt::format("{:<16} {:<5} {:>9}  {}\n", key.first, key.second,
                        fmt::format("{}/{}", line.ok, line.cases),
                        line.high > 0.0 ? fmt::format("{:.3f} .. {:.3f}", line.low, line.high) : "");
  }
  return text;
}

int run(int argc, const char* const* argv) {
  Options options;
  if (!parse(options, argc, argv)) return 0;
  const std::vector<const Variant*> variants = support::select_variants(options.variants);
  cases_of(options);  // unknown names are refused before the device is opened
  const DeviceInfo device = support::open_device(options.device);
  Work work = plan_work(options, variants, device);
  if (options.dry_run) {
    for (const Job& job : work.jobs)
      std::cout << job.name() << '\n';
    for (const CsvRow& row : work.unsupported) {
      std::cout << fmt::format("unsupported: {}/{}/n{}: {}\n", row.at("variant"), row.at("dtype"),
                               row.at("n"), row.at("reason"));
    }
    return 0;
  }

  const Provenance provenance = gather_provenance(argc, argv, device);
  ResultsFolder folder =
      open_folder(options, provenance, {"fwht_accuracy", "", "", options.seeds, support::names_of(variants)});
  std::set<std::string> there;
  for (const CsvRow& row : folder.rows("accuracy.csv"))
    there.insert(accuracy_key(row));
  std::erase_if(work.jobs,
                [&](const Job& job) { return there.contains(accuracy_key(*job.variant, job.what)); });
  if (!work.unsupported.empty()) {
    std::cerr << fmt::format(
        "{} combinations of variant, dtype and n are not supported here; --dry-run lists them\n",
        work.unsupported.size());
  }
  const bool all_run = measure_all(work.jobs, options, device, folder);
  if (all_run) folder.finish();

  const std::vector<CsvRow> rows = folder.rows("accuracy.csv");
  bool all_ok = all_run;
  for (const CsvRow& row : rows)
    all_ok = all_ok && row.at("status") == "ok";
  std::cout << summary(rows) << '\n' << folder.path().string() << std::endl;
  return all_ok ? 0 : 1;
}

}  // namespace
}  // namespace fwht::accuracy

int main(int argc, char** argv) {
  return fwht::run_main("fwht_accuracy", [&] { return fwht::accuracy::run(argc, argv); });
}
