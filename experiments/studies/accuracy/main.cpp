// fwht_accuracy: the error of every variant against FP64, beside what its steps predict.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/host/error.hpp"
#include "common/host/provenance.hpp"
#include "common/host/run_main.hpp"
#include "experiments/harness/cli.hpp"
#include "experiments/harness/grid.hpp"
#include "experiments/harness/interrupt.hpp"
#include "experiments/harness/tasks.hpp"
#include "experiments/studies/accuracy/accuracy.hpp"

namespace fwht::accuracy {
namespace {

using harness::CsvRow;
using harness::Performer;
using harness::ResultsFolder;

struct AccuracyOptions : harness::ExperimentOptions {
  std::vector<std::string> dtypes, n, inputs;
  std::vector<std::uint64_t> seeds;
  std::string elements;
  bool analysis = false;
};

bool parse(AccuracyOptions& options, int argc, const char* const* argv) {
  CLI::App app{"Measures the error of every variant against FP64, beside what its steps predict.",
               "fwht_accuracy"};
  harness::add_experiment_options(app, options);
  app.add_flag(
      "--analysis", options.analysis,
      "the whole analysis: n = 2 to 65536, twelve kinds of input, 2^22 elements (default: a quick summary)");
  app.add_option("--dtype", options.dtypes, "f16, bf16, f32 (default: these), f64");
  app.add_option("--n", options.n,
                 "row lengths: 4096, 2^12, 16..256, 14336 (default: 16 to 32768, and some of models)");
  app.add_option("--input", options.inputs,
                 "input classes (default: normal, uniform, outlier_channels, massive_channel, fa3_mixture)");
  std::vector<std::string> seeds = {"1", "2", "3"};
  app.add_option("--seed", seeds, "seeds (default: 1, 2, 3)")->delimiter(',');
  app.add_option(
      "--elements", options.elements,
      "elements of all seeds together (default: 2^20 on the device, 2^18 on the host; --analysis: 2^22 "
      "and 2^20)");
  if (!harness::parse_command_line(app, argc, argv)) return false;
  for (const std::string& text : seeds) {
    const std::uint64_t seed = harness::parse_seed(text);
    if (std::find(options.seeds.begin(), options.seeds.end(), seed) ==
        options.seeds.end())  // its rows count once
      options.seeds.push_back(seed);
  }
  return true;
}

/// Integers are exact or wrong: there is no error to measure.
Dtype parse_inexact(const std::string& name) {
  const Dtype dtype = parse_dtype(name);
  if (is_integer(dtype))
    throw BadRequest(fmt::format("--dtype {}: sums of integers are exact; known: f16, bf16, f32, f64", name));
  return dtype;
}

Selection selection_of(const AccuracyOptions& options) {
  return {options.analysis, harness::parse_items(options.dtypes, parse_inexact),
          harness::parse_all_counts(options.n, "--n"),
          harness::parse_items(options.inputs, reference::parse_input_class)};
}

/// The truth of a case serves all performers that follow each other with as many rows.
class Measurement {
 public:
  explicit Measurement(const AccuracyOptions& options) : options_(options) {}

  CsvRow run(const Performer& performer, const AccuracyCase& c, std::int64_t rows) {
    const Samples& samples = samples_of(c, rows);
    return measured_row(samples, samples.judge(performer.run(samples.problem(), samples.raw(), workspace_)));
  }

 private:
  const Samples& samples_of(const AccuracyCase& c, std::int64_t rows) {
    const bool same = samples_ && samples_->what().dtype == c.dtype && samples_->what().n == c.n &&
                      samples_->what().input == c.input &&
                      samples_->problem().rows == problem_of(c, rows, options_.seeds.size()).rows;
    if (!same) samples_.emplace(c, rows, options_.seeds);
    return *samples_;
  }

  const AccuracyOptions& options_;
  harness::Workspace workspace_;
  std::optional<Samples> samples_;
};

struct PlannedCases {
  std::vector<harness::Task> tasks;
  std::vector<std::int64_t> elements;    // of each task
  std::vector<std::string> unsupported;  // one line each
};

PlannedCases plan_work(const AccuracyOptions& options, const std::vector<Performer>& performers,
                       Measurement& measurement) {
  PlannedCases work;
  std::set<std::string> refused;
  for (const AccuracyCase& c : cases_of(selection_of(options))) {
    for (const bool on_device : {true, false}) {
      for (const Performer& performer : performers) {
        if (performer.on_device() != on_device) continue;
        // What an A100 would give is a question about the arithmetic, not about the data.
        const bool prediction = performer.source() == harness::Source::emulated_a100;
        if (prediction && (c.input != reference::InputClass::normal || c.dtype == Dtype::f32)) continue;
        const std::int64_t elements = options.elements.empty()
                                          ? default_elements(options.analysis, on_device, c.input)
                                          : harness::parse_count(options.elements, "--elements");
        const std::int64_t rows = rows_per_seed(c.n, elements, options.seeds.size());
        const Problem problem = problem_of(c, rows, options.seeds.size());
        validate(problem);
        if (const Support support = performer.supports(problem); support) {
          work.tasks.push_back({identity_of(performer, c), 1, [&measurement, &performer, c, rows] {
                                  return std::vector{measurement.run(performer, c, rows)};
                                }});
          work.elements.push_back(problem.elements());
        } else {
          const std::string line =
              fmt::format("{}/{}/n{}: {}", performer.name(), name_of(c.dtype), c.n, support.why_not);
          if (refused.insert(line).second) work.unsupported.push_back(line);
        }
      }
    }
  }
  return work;
}

// The measured over the predicted error: the worst case of each variant and dtype.
std::string summary(const std::vector<CsvRow>& rows) {
  struct Line {
    int cases = 0, ok = 0;
    double low = 1e300, high = 0.0;
  };
  std::map<std::tuple<std::string, std::string, std::string>, Line> lines;
  for (const CsvRow& row : rows) {
    Line& line = lines[{row.at("variant"), row.at("source"), row.at("dtype")}];
    ++line.cases;
    if (row.at("status") == "ok") ++line.ok;
    if (row.at("ratio_for_data").empty()) continue;
    const double ratio = std::stod(row.at("ratio_for_data"));
    line.low = std::min(line.low, ratio);
    line.high = std::max(line.high, ratio);
  }
  std::string text = fmt::format("\n{:<20} {:<14} {:<5} {:>9}  {}\n", "variant", "source", "dtype",
                                 "ok/cases", "measured / predicted error");
  for (const auto& [key, line] : lines) {
    text += fmt::format("{:<20} {:<14} {:<5} {:>9}  {}\n", std::get<0>(key), std::get<1>(key),
                        std::get<2>(key), fmt::format("{}/{}", line.ok, line.cases),
                        line.high > 0.0 ? fmt::format("{:.3f} .. {:.3f}", line.low, line.high) : "");
  }
  return text;
}

/// A case is measured once, whatever its seeds.
void require_same_seeds(const std::vector<CsvRow>& rows, const std::vector<std::uint64_t>& seeds) {
  const std::string asked = fmt::format("{}", fmt::join(seeds, ";"));
  for (const CsvRow& row : rows) {
    if (const std::string& there = row.at("seeds"); !there.empty() && there != asked)
      throw BadRequest(fmt::format(
          "the folder has rows of the seeds {}, this run asks for {}; name another folder", there, asked));
  }
}

/// Nor is it measured again where a summary was made of fewer elements.
void require_as_many_elements(const std::vector<CsvRow>& rows, const PlannedCases& work) {
  std::map<CsvRow, std::int64_t> there;
  for (const CsvRow& row : rows) {
    CsvRow identity;
    for (const char* column : {"variant", "source", "dtype", "n", "input"})
      identity[column] = row.at(column);
    if (const std::string& elements = row.at("elements"); !elements.empty())
      there[identity] = std::stoll(elements);
  }
  for (std::size_t i = 0; i < work.tasks.size(); ++i) {
    const auto found = there.find(work.tasks[i].identity);
    if (found != there.end() && found->second < work.elements[i])
      throw BadRequest(
          fmt::format("the folder has {} of {} elements, this run asks for {}; name another folder",
                      work.tasks[i].name(), found->second, work.elements[i]));
  }
}

int run(int argc, const char* const* argv) {
  AccuracyOptions options;
  if (!parse(options, argc, argv)) return 0;
  if (options.seeds.empty()) throw BadRequest("--seed names no seed");
  const std::vector<const Variant*> variants = harness::select_variants(options.variants);
  selection_of(options);  // unknown names are refused before the device is opened
  const DeviceInfo device = harness::open_device(options.device);
  const std::vector<Performer> performers =
      harness::performers(variants, device, {options.emulate, options.a100});
  Measurement measurement(options);
  const PlannedCases work = plan_work(options, performers, measurement);
  if (options.dry_run) {
    for (const harness::Task& task : work.tasks)
      std::cout << task.name() << '\n';
    for (const std::string& line : work.unsupported)
      std::cout << "unsupported: " << line << '\n';
    return 0;
  }
  if (work.tasks.empty()) {
    throw BadRequest("nothing that was asked for can be measured here; " +
                     (work.unsupported.empty() ? "no combination is left" : work.unsupported.front()));
  }
  ResultsFolder folder =
      ResultsFolder::open(options.output, options.resume, gather_provenance(argc, argv, device),
                          {"fwht_accuracy",
                           "",
                           "",
                           options.seeds,
                           harness::names_of(variants),
                           {},
                           [&](const std::string& table, const std::vector<CsvRow>& rows) {
                             if (table != "accuracy.csv") return;
                             require_same_seeds(rows, options.seeds);
                             require_as_many_elements(rows, work);
                           }});
  if (!work.unsupported.empty()) {
    std::cerr << fmt::format(
        "{} combinations of variant, dtype and n are not supported here; --dry-run lists them\n",
        work.unsupported.size());
  }
  return harness::write_folder(folder, argc, argv, [&] {
    const bool all_run = harness::run_tasks(work.tasks, "accuracy.csv", device, folder);
    if (harness::interrupted_by() != 0) return 1;
    if (all_run) folder.finish();
    std::cout << summary(folder.rows("accuracy.csv")) << '\n' << folder.path().string() << std::endl;
    return all_run && harness::all_ok(folder, "accuracy.csv") ? 0 : 1;
  });
}

}  // namespace
}  // namespace fwht::accuracy

int main(int argc, char** argv) {
  return fwht::run_main("fwht_accuracy", [&] { return fwht::accuracy::run(argc, argv); });
}
