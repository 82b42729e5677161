// What the command lines of the programs share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/contract/variant.hpp"
#include "common/device/device_info.hpp"
#include "experiments/harness/grid.hpp"

namespace CLI {
class App;
}

namespace fwht::harness {

/// Parses; returns false when --help was asked for and has been printed. Throws BadRequest in one sentence
/// for anything that cannot be parsed.
bool parse_command_line(CLI::App& app, int argc, const char* const* argv);

/// Where results go, and on which device they are made.
struct FolderOptions {
  std::string output, resume;
  std::optional<int> device;
};
/// `output` says what the program takes for its results folder.
void add_folder_options(CLI::App& app, FolderOptions& options,
                        const std::string& output = "the results folder to make");

/// Which variants on which problems: of a grid, and of it only a part, or single ones.
struct GridOptions {
  std::string grid;
  std::vector<std::string> variants, problems, n, dtypes;

  /// The grid asked for, quick where none is; empty when there are problems instead.
  Grid load() const;
};
void add_grid_options(CLI::App& app, GridOptions& options);

/// What the accuracy experiments share.
struct ExperimentOptions : FolderOptions {
  std::vector<std::string> variants;
  bool emulate = false, a100 = false, dry_run = false;
};
void add_experiment_options(CLI::App& app, ExperimentOptions& options);

/// Every item of lists with commas, parsed.
template <class Parse>
auto parse_items(const std::vector<std::string>& lists, const Parse& parse_item) {
  std::vector<std::decay_t<std::invoke_result_t<const Parse&, const std::string&>>> values;
  for (const std::string& list : lists) {
    for (const std::string& item : split_list(list))
      values.push_back(parse_item(item));
  }
  return values;
}
/// A seed as --seed has it: 0 to 2^63 - 1, else BadRequest.
std::uint64_t parse_seed(const std::string& text);

/// The numbers of all lists, as parse_counts reads each.
std::vector<std::int64_t> parse_all_counts(const std::vector<std::string>& lists, std::string_view what);

/// Variants by name, in ladder order; all of them when no name is given. Items may be lists with commas.
/// Throws BadRequest for an unknown name.
std::vector<const Variant*> select_variants(const std::vector<std::string>& names);

/// The names, for context.json.
std::vector<std::string> names_of(const std::vector<const Variant*>& variants);

/// This machine with CUDA device `ordinal` (default: 0) made current. One that was asked for must exist:
/// BadRequest.
DeviceInfo open_device(std::optional<int> ordinal);

/// One line a variant: where it runs, and what it supports on this machine or why it does not.
std::string list_variants(const DeviceInfo& device);

/// The same for programs, as JSON: {machine, variants: [{name, summary, memory, support: [{dtype, placement,
/// n: [supported], refused: [{n: [...], reason}]}]}]}, for contiguous rows of 2^1 to 2^30 elements. `machine`
/// says what `device` is.
std::string list_variants_json(const DeviceInfo& device, const std::string& machine);

}  // namespace fwht::harness
