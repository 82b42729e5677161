#include "experiments/harness/cli.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "common/host/error.hpp"
#include "experiments/harness/device_work.hpp"
#include "experiments/harness/mode.hpp"
#include "variants/registry.hpp"

namespace fwht::harness {
namespace {

// CLI11 may put several lines into one message.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  while (!text.empty() && text.back() == ' ')
    text.pop_back();
  return text;
}

std::string range_supported(const Variant& variant, Dtype dtype, const DeviceInfo& device) {
  std::int64_t smallest = 0, largest = 0;
  for (std::int64_t n = 2; n <= std::int64_t{1} << 31; n *= 2) {
    if (!variant.supports(make_problem(dtype, n, 1), device)) continue;
    if (smallest == 0) smallest = n;
    largest = n;
  }
  return largest == 0 ? "" : fmt::format("{} n={}..{}", name_of(dtype), smallest, largest);
}

nlohmann::ordered_json describe_support(const Variant& variant, Dtype dtype, Placement placement,
                                        const DeviceInfo& device) {
  std::vector<std::int64_t> supported;
  std::map<std::string, std::vector<std::int64_t>> refused;
  for (int log_n = 1; log_n <= 31; ++log_n) {
    const std::int64_t n = std::int64_t{1} << log_n;
    const Support support = variant.supports(make_problem(dtype, n, 16, placement), device);
    (support ? supported : refused[support.why_not]).push_back(n);
  }
  nlohmann::ordered_json entry = {
      {"dtype", name_of(dtype)}, {"placement", name_of(placement)}, {"n", supported}};
  entry["refused"] = nlohmann::ordered_json::array();
  for (const auto& [reason, lengths] : refused)
    entry["refused"].push_back({{"n", lengths}, {"reason", reason}});
  return entry;
}

}  // namespace

bool parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return false;
  } catch (const CLI::ParseError& error) {
    throw BadRequest(one_line(error.what()));
  }
  // As an empty variable of a shell leaves it: `--resume ""` must not begin a new run.
  for (const CLI::Option* option : app.get_options()) {
    const std::vector<std::string>& values = option->results();
    if (std::find(values.begin(), values.end(), "") != values.end())
      throw BadRequest(fmt::format("{} has an empty value", option->get_name()));
  }
  return true;
}

void add_folder_options(CLI::App& app, FolderOptions& options, const std::string& output) {
  auto* named =
      app.add_option("--output", options.output, output + " (default: results/<time>_<commit>_<device>)");
  app.add_option("--resume", options.resume,
                 "a results folder to continue: what it has is not measured again")
      ->excludes(named);
  app.add_option("--device", options.device, "CUDA device (default: 0)");
}

Grid GridOptions::load() const {
  if (!problems.empty() && grid.empty()) return {};
  return load_grid(grid.empty() ? "quick" : grid);
}

void add_grid_options(CLI::App& app, GridOptions& options) {
  app.add_option("--grid", options.grid,
                 "a built-in grid or a file (default: quick, or none with --problem)");
  app.add_option("--problem", options.problems, "a problem instead of a grid: f16/n4096/r8192[/out][/ld4104]")
      ->take_all();
  app.add_option("--variant", options.variants, "names, with commas or repeated (default: all)")->take_all();
  app.add_option("--dtype", options.dtypes, "only these of the grid: f16, bf16, f32, f64, i32, i64")
      ->take_all();
  app.add_option("--n", options.n, "only these row lengths of the grid: 4096, 2^12, 16..256")->take_all();
}

void add_experiment_options(CLI::App& app, ExperimentOptions& options) {
  app.add_option("--variant", options.variants, "names, with commas or repeated (default: all)");
  add_folder_options(app, options,
                     "the results folder, a new one or one that a program of this build has made");
  app.add_flag(
      "--emulate", options.emulate,
      "emulate device variants on the host, bit for bit, instead of running them (without a device that "
      "happens by itself)");
  app.add_flag("--a100", options.a100,
               "add what the tensor cores of an A100 would give, emulated on the host");
  app.add_flag("--dry-run", options.dry_run, "list what would be done; measure and write nothing");
}

std::uint64_t parse_seed(const std::string& text) {
  std::int64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc{} || end != text.data() + text.size() || seed < 0)
    throw BadRequest(fmt::format("--seed={} must be a number from 0 to 2^63 - 1", text));
  return static_cast<std::uint64_t>(seed);
}

std::vector<std::int64_t> parse_all_counts(const std::vector<std::string>& lists, std::string_view what) {
  std::vector<std::int64_t> counts;
  for (const std::string& list : lists) {
    for (const std::int64_t count : parse_counts(list, what))
      counts.push_back(count);
  }
  return counts;
}

std::vector<const Variant*> select_variants(const std::vector<std::string>& names) {
  const auto chosen = parse_items(names, [](const std::string& name) { return &find_variant(name); });
  std::vector<const Variant*> variants;
  for (const Variant* variant : registry()) {
    if (names.empty() || std::find(chosen.begin(), chosen.end(), variant) != chosen.end())
      variants.push_back(variant);
  }
  if (variants.empty()) throw BadRequest("--variant names no variant");
  return variants;
}

std::vector<std::string> names_of(const std::vector<const Variant*>& variants) {
  std::vector<std::string> names;
  names.reserve(variants.size());
  for (const Variant* variant : variants)
    names.emplace_back(variant->name);
  return names;
}

DeviceInfo open_device(std::optional<int> ordinal) {
  if (ordinal && *ordinal < 0) throw BadRequest(fmt::format("--device {} must be at least 0", *ordinal));
  DeviceInfo device = this_device(ordinal.value_or(0));
  if (device.has_cuda()) {
    device::make_current(device.ordinal);
  } else if (ordinal) {
    throw BadRequest(fmt::format("--device {}: {}", *ordinal, device.why_no_cuda));
  }
  return device;
}

std::string list_variants(const DeviceInfo& device) {
  std::string text;
  std::map<std::string, std::vector<std::string_view>> absent;  // names by the reason
  for (const Variant* variant : registry()) {
    std::string supported;
    for (const Dtype dtype : kEveryDtype) {
      const std::string range = range_supported(*variant, dtype, device);
      if (!range.empty()) supported += (supported.empty() ? "" : ", ") + range;
    }
    text += fmt::format("{:<16} {:<7} {}\n", variant->name, name_of(variant->memory), variant->summary);
    if (!supported.empty()) {
      text += fmt::format("{:<25}{}\n", "", supported);
    } else {
      absent[variant->supports(make_problem(Dtype::f16, 1024, 1), device).why_not].push_back(variant->name);
    }
  }
  for (const auto& [why, names] : absent)
    text += fmt::format("not here, {}: {}\n", why, fmt::join(names, ", "));
  return text;
}

std::string list_variants_json(const DeviceInfo& device, const std::string& machine) {
  nlohmann::ordered_json list = {{"machine", machine}, {"variants", nlohmann::ordered_json::array()}};
  for (const Variant* variant : registry()) {
    nlohmann::ordered_json entry = {{"name", variant->name},
                                    {"summary", variant->summary},
                                    {"memory", name_of(variant->memory)},
                                    {"support", nlohmann::ordered_json::array()}};
    for (const Dtype dtype : kEveryDtype) {
      for (const Placement placement : {Placement::in_place, Placement::out_of_place}) {
        entry["support"].push_back(describe_support(*variant, dtype, placement, device));
      }
    }
    list["variants"].push_back(std::move(entry));
  }
  return list.dump(2) + "\n";
}

}  // namespace fwht::harness
