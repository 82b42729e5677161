#include "experiments/linear/command.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "common/host/error.hpp"
#include "common/host/provenance.hpp"
#include "experiments/harness/cli.hpp"
#include "experiments/harness/interrupt.hpp"
#include "variants/linear/registry.hpp"

namespace fwht::linear_layers {
namespace {

struct LinearOptions : harness::FolderOptions {
  std::vector<std::string> variants, problems, modes;
  std::string list;
  Others others;
  bool dry_run = false, with_programmatic = false, rotation_study = false;
};

/// Those that are named, else all in device memory, or in host memory where there is no device.
std::vector<const LinearVariant*> chosen_of(const LinearOptions& options, const DeviceInfo& device) {
  auto chosen = harness::parse_items(options.variants,
                                     [](const std::string& name) { return &find_linear_variant(name); });
  if (!chosen.empty()) return chosen;
  const Memory memory = device.has_cuda() ? Memory::device : Memory::host;
  for (const LinearVariant* variant : linear_registry())
    if (variant->memory == memory) chosen.push_back(variant);
  return chosen;
}

std::vector<const LinearVariant*> variants_of(const LinearOptions& options, const DeviceInfo& device) {
  std::vector<const LinearVariant*> all = chosen_of(options, device);
  all.insert(all.end(), options.others.begin(), options.others.end());
  return all;
}

std::vector<LinearProblem> problems_of(const LinearOptions& options) {
  std::vector<LinearProblem> problems;
  if (!options.list.empty() || options.problems.empty())
    problems = problem_list(options.list.empty() ? "smoke" : options.list);
  for (const LinearProblem& problem : harness::parse_items(options.problems, parse_linear_problem)) {
    if (problem.m == 0) throw BadRequest(fmt::format("{}: m=0 leaves nothing to time", to_string(problem)));
    problems.push_back(problem);
  }
  if (options.with_programmatic) {
    std::vector<LinearProblem> both;
    for (LinearProblem problem : problems) {
      both.push_back(problem);
      problem.programmatic_launch = true;
      both.push_back(problem);
    }
    problems = both;
  }
  return problems;
}

/// What was asked for, as context.json says it.
std::string list_of(const LinearOptions& options) {
  if (options.rotation_study) return "rotation";
  if (!options.list.empty()) return options.list;
  return options.problems.empty() ? "smoke" : "problems";
}

/// What no memory holds counts as not supported. Weights are made on the host, for a device too.
Support supports(const LinearVariant& variant, const LinearProblem& problem, const DeviceInfo& device) {
  Support support = variant.supports(problem, device);
  for (const Memory memory : {variant.memory, Memory::host}) {
    if (support)
      support = harness::fits_into_memory(
          {memory, Placement::out_of_place, problem.bytes_read(), problem.bytes_written()}, device);
  }
  return support;
}

/// Problems outside, so that weights and truths serve every variant.
std::vector<LinearCase> cases_of(const LinearOptions& options, const DeviceInfo& device,
                                 std::vector<std::string>& refused) {
  auto modes = harness::parse_items(options.modes,
                                    [](const std::string& name) { return harness::kModes.parse(name); });
  if (modes.empty()) modes = {harness::Mode::cold, harness::Mode::host};
  if (std::ranges::any_of(modes, harness::is_programmatic))
    throw BadRequest("--mode replay_pdl: --programmatic asks for such launches, in mode cold or replay");
  std::vector<LinearCase> cases;
  for (const LinearProblem& problem : problems_of(options)) {
    for (const LinearVariant* variant : variants_of(options, device)) {
      const auto is_its_own = [&](harness::Mode mode) { return harness::memory_of(mode) == variant->memory; };
      if (std::none_of(modes.begin(), modes.end(), is_its_own)) continue;
      if (const Support support = supports(*variant, problem, device); !support) {
        refused.push_back(fmt::format("{}/{}: {}", variant->name, to_string(problem), support.why_not));
        continue;
      }
      for (const harness::Mode mode : modes)
        if (is_its_own(mode)) cases.push_back({variant, problem, mode});
    }
  }
  return cases;
}

std::string summary(const std::vector<harness::CsvRow>& rows) {
  std::string text = fmt::format("{:<22} {:>4} {:>6} {:>6} {:<5} {:<10} {:>9} {:>9} {:>6} {:>7}\n", "variant",
                                 "m", "n", "k", "pdl", "mode", "us", "limit", "share", "error");
  for (const harness::CsvRow& row : rows) {
    const auto at = [&](const char* name) { return row.contains(name) ? row.at(name) : std::string(); };
    const std::string error =
        at("rel_l2").empty() || at("one_rounding_rel_l2").empty()
            ? ""
            : fmt::format("{:.3f}", std::stod(at("rel_l2")) / std::stod(at("one_rounding_rel_l2")));
    text +=
        fmt::format("{:<22} {:>4} {:>6} {:>6} {:<5} {:<10} {:>9} {:>9} {:>6.6} {:>7} {}\n", at("variant"),
                    at("m"), at("n"), at("k"), at("programmatic"), at("mode"), at("time_us"), at("limit_us"),
                    at("fraction_of_limit"), error, at("status") == "ok" ? "" : at("message"));
  }
  return text;
}

bool parse(LinearOptions& options, const std::string& program, int argc, const char* const* argv) {
  CLI::App app{
      "Times linear layers with 4-bit weights, each checked against FP64, beside the fastest kernel that "
      "reads as many bytes.",
      program};
  harness::add_folder_options(app, options);
  app.add_option("--variant", options.variants,
                 "linear-layer variants (default: those in device memory; without a device the host's)");
  app.add_option("--list", options.list,
                 "smoke, paper, headline, rotated, shapes, prefill (default: smoke, or none with --problem)");
  app.add_option("--problem", options.problems, "one problem instead of a list: f16/m16/n8192/k8192/w4g128");
  app.add_option("--mode", options.modes,
                 "cold, replay ...; host for host variants (default: cold and host)");
  app.add_flag("--programmatic", options.with_programmatic,
               "each problem with programmatic dependent launch too");
  auto* study = app.add_flag("--rotation-study", options.rotation_study,
                             "instead: errors of 4-bit layers with and without rotation (host)");
  for (const char* of_timing : {"--variant", "--list", "--problem", "--mode", "--programmatic"})
    study->excludes(app.get_option(of_timing));
  app.add_flag("--dry-run", options.dry_run, "lists what would be timed, and what is not supported");
  return harness::parse_command_line(app, argc, argv);
}

int run(const LinearOptions& options, const std::string& program, int argc, const char* const* argv) {
  const DeviceInfo device = harness::open_device(options.device);
  std::vector<std::string> refused;
  const std::vector<LinearCase> cases =
      options.rotation_study ? std::vector<LinearCase>{} : cases_of(options, device, refused);
  const auto require_work = [&] {
    if (!cases.empty() || options.rotation_study) return;
    throw BadRequest(refused.empty()
                         ? "no variant that was asked for runs in a mode that was asked for"
                         : fmt::format("nothing that was asked for can be run here; {}{}", refused.front(),
                                       refused.size() == 1 ? "" : "; --dry-run lists the other reasons"));
  };
  if (options.dry_run) {
    if (options.rotation_study) {
      for (const harness::Task& task : rotation_tasks())
        std::cout << task.name() << '\n';
    }
    for (const LinearCase& c : cases)
      std::cout << c.name() << '\n';
    for (const std::string& line : refused)
      std::cout << "unsupported: " << line << '\n';
    require_work();
    return 0;
  }
  std::vector<std::string> names;
  for (const LinearVariant* variant : variants_of(options, device))
    names.emplace_back(variant->name);
  require_work();  // before a folder is made
  auto folder = harness::ResultsFolder::create_or_resume(options.output, options.resume,
                                                         gather_provenance(argc, argv, device),
                                                         {program, list_of(options), "", {1, 2}, names});
  if (!refused.empty())
    std::cerr << fmt::format("{} combinations are not supported here; --dry-run lists them\n",
                             refused.size());
  return harness::write_folder(folder, argc, argv, [&] {
    const char* table = options.rotation_study ? "linear_rotation.csv" : "linear.csv";
    bool all_run = false;
    if (options.rotation_study) {
      all_run = harness::run_tasks(rotation_tasks(), table, device, folder);
    } else {
      harness::Bench bench(device);
      harness::Limits limits(bench,
                             [&](const harness::CsvRow& row) { folder.table("limits.csv").append(row); });
      Data data(device.host_threads);
      all_run = harness::run_tasks(tasks(cases, bench, limits, data), table, device, folder);
    }
    if (harness::interrupted_by() != 0) return 1;
    if (all_run) folder.finish();
    if (!options.rotation_study) std::cout << summary(folder.rows(table));
    std::cout << folder.path().string() << std::endl;
    return all_run && harness::all_ok(folder, table) ? 0 : 1;
  });
}

}  // namespace

int run(const std::string& program, int argc, const char* const* argv, const Others& others) {
  LinearOptions options;
  options.others = others;
  if (!parse(options, program, argc, argv)) return 0;
  // Another list than the folder's must be asked for.
  const bool goes_on = !options.resume.empty() && options.list.empty() && options.problems.empty();
  if (!goes_on || options.rotation_study) return run(options, program, argc, argv);
  constexpr std::string_view kChoices[] = {"--variant", "--list",         "--problem",       "--mode",
                                           "--device",  "--programmatic", "--rotation-study"};
  const std::vector<std::string> words =
      harness::with_recorded_choices(options.resume, program, kChoices, {argv, argv + argc});
  const std::vector<const char*> all_argv = harness::pointers_to(words);
  const int all_argc = static_cast<int>(words.size());
  LinearOptions all;
  all.others = others;
  if (!parse(all, program, all_argc, all_argv.data())) return 0;
  return run(all, program, all_argc, all_argv.data());
}

}  // namespace fwht::linear_layers
