// fwht_studies: what the accuracy of a transform means. Tensor-core probes, placement of the scale,
// quantization after rotation, FP8 attention.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>
#include <vector>

#include "common/host/error.hpp"
#include "common/host/provenance.hpp"
#include "common/host/run_main.hpp"
#include "experiments/harness/cli.hpp"
#include "experiments/harness/interrupt.hpp"
#include "experiments/harness/tasks.hpp"
#include "experiments/studies/attention/attention.hpp"
#include "experiments/studies/overflow/overflow.hpp"
#include "experiments/studies/probes/probes.hpp"
#include "experiments/studies/quantization/quantization.hpp"

namespace fwht {
namespace {

using harness::ResultsFolder;
using harness::Task;

struct Study {
  const char* name;
  std::vector<Task> (*tasks)(const harness::StudySetup&);
  std::string table() const { return std::string(name) + ".csv"; }
};
constexpr Study kExperiments[] = {{"probes", probes::tasks},
                                  {"overflow", overflow::tasks},
                                  {"quantization", quantization::tasks},
                                  {"attention", attention::tasks}};

Study experiment_of(const std::string& name) {
  for (const Study& experiment : kExperiments) {
    if (experiment.name == name) return experiment;
  }
  throw BadRequest("unknown experiment '" + name + "'; known: probes, overflow, quantization, attention");
}

std::vector<Study> experiments_of(const std::vector<std::string>& lists) {
  std::vector<Study> chosen = harness::parse_items(lists, experiment_of);
  if (chosen.empty()) chosen.assign(std::begin(kExperiments), std::end(kExperiments));
  return chosen;
}

int run(int argc, const char* const* argv) {
  harness::ExperimentOptions options;
  std::vector<std::string> only;
  CLI::App app{
      "Probes the tensor cores, maps overflow by placement of the scale, and measures what rotation by every "
      "variant "
      "does for quantized tokens and for FP8 attention.",
      "fwht_studies"};
  harness::add_experiment_options(app, options);
  app.add_option("--only", only, "probes, overflow, quantization, attention (default: all)");
  if (!harness::parse_command_line(app, argc, argv)) return 0;
  const std::vector<Study> experiments = experiments_of(only);
  const std::vector<const Variant*> variants = harness::select_variants(options.variants);
  const DeviceInfo device = harness::open_device(options.device);
  const auto performers = harness::performers(variants, device, {options.emulate, options.a100});
  harness::Workspace workspace;
  const harness::StudySetup setup{device, performers, workspace};
  if (options.dry_run) {
    for (const Study& experiment : experiments) {
      for (const Task& task : experiment.tasks(setup))
        std::cout << experiment.name << ": " << task.name() << '\n';
    }
    return 0;
  }
  ResultsFolder folder =
      ResultsFolder::open(options.output, options.resume, gather_provenance(argc, argv, device),
                          {"fwht_studies", "", "", {}, harness::names_of(variants)});
  return harness::write_folder(folder, argc, argv, [&] {
    bool all_run = true, all_ok = true;
    for (const Study& experiment : experiments) {
      all_run = all_run && harness::run_tasks(experiment.tasks(setup), experiment.table(), device, folder);
      if (harness::interrupted_by() != 0) return 1;
      const auto rows = folder.rows(experiment.table());
      const bool ok = harness::all_ok(folder, experiment.table());
      std::cout << fmt::format("{:<13} {:>6} rows{}\n", experiment.name, rows.size(),
                               ok ? "" : ", not all ok");
      all_ok = all_ok && ok;
    }
    if (all_run) folder.finish();
    std::cout << folder.path().string() << std::endl;
    return all_run && all_ok ? 0 : 1;
  });
}

}  // namespace
}  // namespace fwht

int main(int argc, char** argv) {
  return fwht::run_main("fwht_studies", [&] { return fwht::run(argc, argv); });
}
