#include "experiments/harness/results_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "common/contract/dtype.hpp"
#include "common/contract/encoding.hpp"
#include "common/contract/operator.hpp"
#include "common/contract/preparation.hpp"
#include "common/contract/problem.hpp"
#include "common/host/error.hpp"
#include "common/host/text_file.hpp"
#include "experiments/harness/interrupt.hpp"
#include "experiments/harness/schema.hpp"
#include "experiments/harness/sha256.hpp"
#include "experiments/harness/strict_json.hpp"
#include "variants/registry.hpp"

namespace fwht::harness {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kContext = "context.json";
constexpr const char* kSchema = "schema.json";

// Also a link that leads nowhere, which whoever reads it will refuse.
bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words)
    text += (text.empty() ? "" : " ") + word;
  return text;
}

// Of the last minute: how busy the machine was when the run began.
double load_average() {
  double load = 0.0;
  return getloadavg(&load, 1) == 1 ? load : 0.0;
}

Json describe_run(const Provenance& provenance, const RunInfo& run) {
  Json description = {{"program", run.program},
                      {"argv", provenance.argv},
                      {"commit", provenance.build.commit},
                      {"dirty", provenance.build.dirty},
                      {"grid", without_folders(run.grid)},
                      {"grid_text", run.grid_text},
                      {"utc_start", provenance.utc_start},
                      {"utc_end", nullptr},
                      {"load_average", load_average()},
                      {"complete", false}};
  if (!run.communication.empty()) {
    for (const auto& [name, value] : run.communication)
      description["communication"][name] = value;
  }
  return description;
}

std::string device_in_words(const DeviceInfo& device) {
  return device.has_cuda() ? device.name : device.host_name + " (host only)";
}

Json describe_device(const DeviceInfo& device) {
  return {{"present", device.has_cuda()},
          {"why_absent", device.why_no_cuda},
          {"name", device.name},
          {"compute_capability", fmt::format("{}.{}", device.compute_major, device.compute_minor)},
          {"sm_count", device.sm_count},
          {"l2_bytes", device.l2_bytes},
          {"memory_bytes", device.memory_bytes},
          {"clock_khz", device.clock_khz},
          {"driver_version", device.driver_version},
          {"runtime_version", device.runtime_version}};
}

Json new_context(const Provenance& provenance, const RunInfo& run) {
  const BuildRecord& build = provenance.build;
  const DeviceInfo& device = provenance.device;
  return {{"format_version", kResultsFormat},
          {"command", joined(provenance.argv)},
          {"argv", provenance.argv},
          {"utc_start", provenance.utc_start},
          {"utc_end", nullptr},
          {"commit", build.commit},
          {"dirty", build.dirty},
          {"sources_hash", build.sources_hash},
          {"version", build.version},
          {"build_type", build.build_type},
          {"cxx", build.cxx},
          {"cxx_flags", build.cxx_flags},
          {"cuda", build.cuda},
          {"cuda_flags", build.cuda_flags},
          {"host",
           {{"name", device.host_name},
            {"threads", device.host_threads},
            {"memory_bytes", device.host_memory_bytes}}},
          {"device", describe_device(device)},
          {"grid", without_folders(run.grid)},
          {"seeds", run.seeds},
          {"variants", run.variants},
          {"complete", false},
          {"runs", Json::array({describe_run(provenance, run)})}};
}

// Union: the ladder in its order, then kernels of others in theirs.
std::vector<std::string> merged_variants(const std::vector<std::string>& a,
                                         const std::vector<std::string>& b) {
  std::vector<std::string> all;
  for (const Variant* variant : registry()) {
    const auto names = [&](const std::vector<std::string>& list) {
      return std::find(list.begin(), list.end(), variant->name) != list.end();
    };
    if (names(a) || names(b)) all.emplace_back(variant->name);
  }
  for (const std::vector<std::string>* list : {&a, &b}) {
    for (const std::string& name : *list) {
      if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
    }
  }
  return all;
}

std::string reason_of(int error) {
  return std::error_code(error, std::generic_category()).message();
}

void refuse_other_origin(const Json& context, const Provenance& provenance, const std::string& name) {
  if (const std::string hash = context["sources_hash"]; hash != provenance.build.sources_hash) {
    throw BadRequest(fmt::format("{} comes from other sources (sources_hash {}, this program {})", name,
                                 hash.substr(0, 12), provenance.build.sources_hash.substr(0, 12)));
  }
  const BuildRecord& build = provenance.build;
  for (const auto& [entry, here] : {std::pair("build_type", build.build_type),
                                    {"cxx", build.cxx},
                                    {"cxx_flags", build.cxx_flags},
                                    {"cuda", build.cuda},
                                    {"cuda_flags", build.cuda_flags}}) {
    if (const Json there = context.value(entry, Json()); there != here) {
      throw BadRequest(fmt::format("{} comes from another build ({} {}, this program \"{}\")", name, entry,
                                   there.dump(), here));
    }
  }
  const Json& device = context["device"];
  const std::string there = device["present"].get<bool>()
                                ? device["name"].get<std::string>()
                                : context["host"]["name"].get<std::string>() + " (host only)";
  if (const std::string here = device_in_words(provenance.device); there != here) {
    throw BadRequest(fmt::format("{} was measured on {}, this is {}", name, there, here));
  }
  // No row says beside which host and driver it was timed: a folder has one of each.
  std::vector<std::pair<const char*, Json>> of_machine = {{"/host/name", provenance.device.host_name},
                                                          {"/host/threads", provenance.device.host_threads}};
  if (provenance.device.has_cuda()) {
    of_machine.emplace_back("/device/sm_count", provenance.device.sm_count);
    of_machine.emplace_back("/device/driver_version", provenance.device.driver_version);
  }
  for (const auto& [place, now] : of_machine) {
    if (const Json before = context[Json::json_pointer(place)]; before != now)
      throw BadRequest(fmt::format("{} was measured where {} is {}, here it is {}", name, place,
                                   before.dump(), now.dump()));
  }
}

// What context.json must hold, as analysis/load.py reads it; all else is kept as it is.
struct ContextEntry {
  const char* place;
  bool (*is)(const Json&);
  const char* what;
};
bool is_anything(const Json&) {
  return true;
}
bool is_word(const Json& value) {
  return value.is_string() && !value.get_ref<const std::string&>().empty();
}
bool is_text_or_null(const Json& value) {
  return value.is_string() || value.is_null();
}
bool is_count(const Json& value) {
  return value.is_number_integer() && value > 0;
}
bool is_size(const Json& value) {
  return value.is_number_integer() && value >= 0;
}
bool is_integer(const Json& value) {
  return value.is_number_integer();
}
bool is_version(const Json& value) {
  return value.is_number_integer() || value.is_string();
}
/// 2026-01-31T12:00:00Z
bool is_time(const Json& value) {
  if (!value.is_string()) return false;
  constexpr std::string_view kForm = "0000-00-00T00:00:00Z";
  const auto& text = value.get_ref<const std::string&>();
  return std::equal(text.begin(), text.end(), kForm.begin(), kForm.end(),
                    [](char c, char form) { return form == '0' ? c >= '0' && c <= '9' : c == form; });
}
bool is_text(const Json& value) {
  return value.is_string();
}
bool is_truth(const Json& value) {
  return value.is_boolean();
}
bool is_object(const Json& value) {
  return value.is_object();
}
template <bool (*is_item)(const Json&)>
bool is_list(const Json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), is_item);
}
bool is_seed(const Json& value) {
  return value.is_number_unsigned();
}
bool is_seeds(const Json& value) {
  return is_seed(value) || is_list<is_seed>(value);
}
bool has(const Json& object, const char* key, bool (*is)(const Json&)) {
  return object.contains(key) && is(object[key]);
}
bool is_run(const Json& value) {
  const bool with_load = value.is_object() && value.contains("load_average");
  return has(value, "program", is_text) && has(value, "complete", is_truth) &&
         has(value, "argv", is_list<is_text>) &&
         (!with_load || value["load_average"].is_number() || value["load_average"].is_null());
}
bool is_hash(const Json& value) {
  return is_text(value) && value.get_ref<const std::string&>().size() == 64 &&
         value.get_ref<const std::string&>().find_first_not_of("0123456789abcdef") == std::string::npos;
}
bool is_file(const Json& value) {
  return has(value, "rows", is_size) && has(value, "sha256", is_hash);
}
constexpr ContextEntry kEntries[] = {
    {"/command", is_text, "a text"},
    {"/argv", is_list<is_text>, "a list of words"},
    {"/utc_start", is_time, "a time as 2026-01-31T12:00:00Z"},
    {"/utc_end", is_text_or_null, "a text or null"},
    {"/commit", is_word, "a text"},
    {"/dirty", is_truth, "true or false"},
    {"/sources_hash", is_word, "a text"},
    {"/version", is_text, "a text"},
    {"/build_type", is_text, "a text"},
    {"/cxx", is_text, "a text"},
    {"/cxx_flags", is_text, "a text"},
    {"/cuda", is_text, "a text"},
    {"/cuda_flags", is_text, "a text"},
    {"/host", is_object, "an object"},
    {"/host/name", is_text, "a text"},
    {"/host/threads", is_count, "a positive integer"},
    {"/host/memory_bytes", is_count, "a positive integer"},
    {"/device", is_object, "an object"},
    {"/device/present", is_truth, "true or false"},
    {"/device/name", is_text, "a text"},
    {"/grid", is_anything, "there"},
    {"/seeds", is_seeds, "a list of seeds"},
    {"/variants", is_list<is_text>, "a list of names"},
    {"/complete", is_truth, "true or false"},
    {"/runs", is_list<is_run>, "a list of runs with program, argv and complete"}};
// Of a GPU that is there.
constexpr ContextEntry kDeviceEntries[] = {{"/device/why_absent", is_text, "a text"},
                                           {"/device/name", is_word, "a text"},
                                           {"/device/compute_capability", is_text, "a text"},
                                           {"/device/sm_count", is_count, "a positive integer"},
                                           {"/device/l2_bytes", is_size, "an integer that is not negative"},
                                           {"/device/memory_bytes", is_count, "a positive integer"},
                                           {"/device/clock_khz", is_integer, "an integer"},
                                           {"/device/driver_version", is_version, "an integer or a text"},
                                           {"/device/runtime_version", is_version, "an integer or a text"}};

void require_entries(const Json& context, std::span<const ContextEntry> entries, const std::string& name) {
  for (const ContextEntry& entry : entries) {
    const Json::json_pointer place(entry.place);
    if (!context.contains(place))
      throw BadRequest(fmt::format("{}: {} lacks {}", name, kContext, entry.place));
    if (!entry.is(context[place]))
      throw BadRequest(fmt::format("{}: {} in {} is not {}", name, entry.place, kContext, entry.what));
  }
}

void require_entries(const Json& context, const std::string& name) {
  require_entries(context, kEntries, name);
  if (context["device"]["present"].get<bool>()) require_entries(context, kDeviceEntries, name);
  if (!context.contains("files")) return;
  const Json& files = context["files"];
  if (!files.is_object() || !std::all_of(files.begin(), files.end(), is_file))
    throw BadRequest(fmt::format("{}: /files in {} is not an object of rows and sha256", name, kContext));
}

Json read_context(const fs::path& path) {
  if (!is_there(path / kContext))
    throw BadRequest(fmt::format("{} is no results folder: it has no {}", path.string(), kContext));
  const std::string text = read_text_file(path / kContext, (path / kContext).string());
  bool too_deep = false;
  Json context = parse_json(text, &too_deep);
  if (too_deep)
    throw BadRequest(
        fmt::format("{}: {} is nested deeper than {} levels", path.string(), kContext, kDeepestJson));
  if (!context.is_object())
    throw BadRequest(fmt::format("{}: {} is no JSON object", path.string(), kContext));
  const Json version = context.value("format_version", Json());
  if (!version.is_number_integer() || version != kResultsFormat) {
    throw BadRequest(fmt::format("{} has format_version {}, this program writes {}", path.string(),
                                 version.dump(-1, ' ', true, Json::error_handler_t::replace),
                                 kResultsFormat));
  }
  require_entries(context, path.string());
  return context;
}

// Throws BadRequest where operator or arrangement are none.
Problem problem_of(const CsvRow& row) {
  Problem problem = make_problem(parse_dtype(row.at("dtype")), parse_operator(row.at("operator")),
                                 std::stoll(row.at("rows")));
  if (const std::string& arrangement = row.at("arrangement"); !arrangement.empty())
    set_arrangement(problem, arrangement);
  return problem;
}

// The columns of a row must agree with each other, as analysis/load.py asks. Empty, or what is wrong.
std::string why_no_result(const CsvRow& row) {
  const auto number = [&](const char* column) { return std::stod(row.at(column)); };
  const double n = number("n"), elements = number("elements"), read = number("bytes_read");
  if (elements != n * number("rows")) return "elements is not n * rows";
  if (number("row_stride") < static_cast<double>(problem_of(row).block_elements()))
    return "row_stride is below n, times the inner dimension";
  if (read < elements * static_cast<double>(bytes_of(parse_dtype(row.at("dtype")))))
    return "bytes_read is below elements * bytes";
  if (number("useful_bytes") != read + number("bytes_written"))
    return "useful_bytes is not bytes_read + bytes_written";
  if (row.at("status") != "ok") return row.at("time_us").empty() ? "" : "it has a time and status is not ok";
  const double time_us = number("time_us");
  if (row.at("rel_l2").empty()) return "status is ok without rel_l2";
  if (row.at("encoding").empty() && !is_integer(parse_dtype(row.at("dtype"))) &&
      (row.at("predicted_rel_l2").empty() || !(number("predicted_rel_l2") > 0)))
    return "status is ok without a positive predicted_rel_l2";
  if (time_us < number("time_min_us") || time_us > number("time_max_us"))
    return "time_us is outside time_min_us to time_max_us";
  if (std::fabs(number("fraction_of_limit") * time_us / number("limit_us") - 1.0) > 0.01)
    return "fraction_of_limit is not limit_us / time_us";
  return "";
}

// Of a row of results.csv or unsupported.csv. Empty, or what is no problem.
std::string why_no_problem(const CsvRow& row) {
  try {
    const std::int64_t n = problem_of(row).n();
    if (std::to_string(n) != row.at("n"))
      return fmt::format("operator {} has rows of {} elements, not {}", row.at("operator"), n, row.at("n"));
    const std::string& encoding = row.at("encoding");
    if (encoding.empty()) return "";
    const std::size_t front = encoding.rfind('>');  // of prologue and pages
    parse_encoding(front == std::string::npos ? encoding : encoding.substr(front + 1));
    std::optional<Prologue> prologue;
    std::optional<Paging> paging;
    if (front != std::string::npos) parse_preparations(encoding.substr(0, front), prologue, paging);
    return "";
  } catch (const BadRequest& error) {
    return error.what();
  }
}

// Infinite numbers stand in rows of wrong results only.
std::string why_not_finite(const CsvRow& row, const Table& table) {
  if (const auto status = row.find("status"); status != row.end() && status->second != "ok") return "";
  for (const Column& column : table.columns) {
    if (column.type == Column::Type::number && row.at(column.name).ends_with("inf"))
      return fmt::format("column {} is infinite", column.name);
  }
  return "";
}

std::vector<CsvRow> read_table(const fs::path& path, const Table& table) {
  std::vector<CsvRow> rows = read_csv(path / table.name, table.columns);
  std::set<std::vector<std::string>> seen;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::string why = why_not_finite(rows[i], table);
    if (why.empty() && rows[i].contains("operator")) why = why_no_problem(rows[i]);
    if (why.empty() && table.name == "results.csv") why = why_no_result(rows[i]);
    if (!why.empty())
      throw BadRequest(fmt::format("{}, line {}: {}", (path / table.name).string(), i + 2, why));
    if (table.may_repeat) continue;
    std::vector<std::string> key;
    for (const std::string& column : table.key())
      key.push_back(rows[i].at(column));
    if (!seen.insert(std::move(key)).second) {
      throw BadRequest(
          fmt::format("{}, line {} repeats an earlier measurement", (path / table.name).string(), i + 2));
    }
  }
  return rows;
}

// These sources write one schema: another one was changed by hand, and would say something else of the rows.
void refuse_other_schema(const fs::path& path) {
  const fs::path file = path / kSchema;
  if (!is_there(file)) return;  // a run that was killed before it came to that
  if (parse_json(read_text_file(file, file.string())) != Json::parse(schema_json()))
    throw BadRequest(fmt::format("{} is not what this program writes", file.string()));
}

// Row count and hash of every table that lies in the folder.
Json describe_files(const fs::path& path) {
  Json files = Json::object();
  for (const Table& table : all_tables()) {
    const fs::path file = path / table.name;
    if (!is_there(file)) continue;
    const std::string text = read_text_file(file, file.string());
    const auto lines = std::count(text.begin(), text.end(), '\n');
    files[table.name] = {{"rows", std::max<std::int64_t>(lines - 1, 0)}, {"sha256", sha256(text)}};
  }
  return files;
}

void refuse_changed_files(const Json& context, const fs::path& path) {
  if (!context.contains("files")) return;
  const Json now = describe_files(path);
  for (const auto& [name, recorded] : context["files"].items()) {
    if (!now.contains(name))
      throw BadRequest(fmt::format("{} lacks {}, which its last run wrote", path.string(), name));
    if (now[name]["sha256"] == recorded["sha256"]) continue;
    const std::string rows = now[name]["rows"].dump(), before = recorded["rows"].dump();
    throw BadRequest(
        fmt::format("{} in {} differs from what its last run wrote ({})", name, path.string(),
                    rows == before ? "same row count, different hash" : rows + " rows, not " + before));
  }
}

void add_run(Json& context, const Provenance& provenance, const RunInfo& run) {
  context["runs"].push_back(describe_run(provenance, run));
  const Json& known = context["seeds"];
  auto seeds =
      known.is_array() ? known.get<std::vector<std::uint64_t>>() : std::vector{known.get<std::uint64_t>()};
  for (const std::uint64_t seed : run.seeds) {
    if (std::find(seeds.begin(), seeds.end(), seed) == seeds.end()) seeds.push_back(seed);
  }
  context["seeds"] = seeds;
  context["variants"] = merged_variants(context["variants"].get<std::vector<std::string>>(), run.variants);
  context["dirty"] = context["dirty"].get<bool>() || provenance.build.dirty;
  context["utc_end"] = nullptr;
  context["complete"] = false;
  context.erase("files");
}

// The words of a command line without the program, these options and their values.
std::vector<std::string> without_options(const std::vector<std::string>& argv,
                                         std::span<const std::string_view> options) {
  std::vector<std::string> words;
  for (std::size_t i = 1; i < argv.size(); ++i) {
    const std::string_view word = argv[i], name = word.substr(0, word.find('='));
    if (std::find(options.begin(), options.end(), name) == options.end()) {
      words.emplace_back(word);
    } else if (name == word) {
      ++i;  // its value
    }
  }
  return words;
}

// The options of a run with their values, in any order, without where its results go, what else says them,
// and which grid it has.
std::multiset<std::string> choices_of(const Json& run) {
  constexpr std::string_view kNoChoice[] = {"--output",
                                            "--resume",
                                            "--grid",
                                            "--export",
                                            "--benchmark_out",
                                            "--benchmark_out_format",
                                            "--benchmark_format",
                                            "--benchmark_report_aggregates_only",
                                            "--benchmark_display_aggregates_only"};
  std::vector<std::string> options;
  for (const std::string& word : run["argv"].get<std::vector<std::string>>()) {
    if (word.starts_with("--"))
      options.push_back(word);
    else if (!options.empty())
      options.back() += '=' + word;
  }
  std::erase_if(options, [&](const std::string& option) {
    return std::ranges::find(kNoChoice, option.substr(0, option.find('='))) != std::end(kNoChoice);
  });
  return {options.begin(), options.end()};
}

// Whether `later` did what `run` was asked for: the same choices from the same grid, or a sweep of all of it.
bool does_all_of(const Json& later, const Json& run) {
  const auto same = [&](const char* key) { return later.value(key, Json()) == run.value(key, Json()); };
  if (!same("program") || !same("grid") || !same("grid_text")) return false;
  const std::multiset<std::string> asked = choices_of(later), known = choices_of(run);
  if (asked == known) return true;
  const auto narrows = [](const std::string& choice) {
    constexpr std::string_view kFilters[] = {"--variant",  "--dtype",     "--n",    "--rows",
                                             "--elements", "--placement", "--mode", "--benchmark_filter"};
    return std::ranges::find(kFilters, choice.substr(0, choice.find('='))) != std::end(kFilters);
  };
  return run["program"] == "fwht_sweep" && asked.empty() && std::all_of(known.begin(), known.end(), narrows);
}

// The folder is complete when every run is, or a later one has done what it left undone.
bool all_complete(const Json& runs) {
  for (auto run = runs.begin(); run != runs.end(); ++run) {
    if (std::none_of(run, runs.end(), [&](const Json& later) {
          return later["complete"].get<bool>() && does_all_of(later, *run);
        }))
      return false;
  }
  return true;
}

// Names of files and comments of grids may be in any encoding, which JSON is not.
std::string text_of(const Json& context) {
  return context.dump(2, ' ', false, Json::error_handler_t::replace);
}

// In one step, so that a killed run leaves the old or the new file, never half of one. Empty, or why not.
std::string why_not_written(const fs::path& path, const char* name, std::string_view text) {
  const fs::path part = path / (std::string(name) + ".part");
  std::ofstream file(part);
  file << text << "\n";
  file.close();
  std::error_code error;
  if (file) fs::rename(part, path / name, error);
  if (file && !error) return "";
  std::error_code none;
  fs::remove(part, none);
  return fmt::format("{} cannot be written", (path / name).string());
}

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw BadRequest(fmt::format("{} cannot be made: {}", path.string(), error.message()));
}

// A folder that this call made: of two programs that start in one second each gets its own.
fs::path new_default_folder(const Provenance& provenance) {
  const fs::path parent = "results";
  make_folder(parent);
  const std::string name = results_folder_name(provenance);
  for (int number = 1; number <= 1000; ++number) {
    fs::path path = parent / (number == 1 ? name : fmt::format("{}_{}", name, number));
    std::error_code error;
    if (fs::create_directory(path, error)) return path;
    if (error) throw BadRequest(fmt::format("{} cannot be made: {}", path.string(), error.message()));
  }
  throw BadRequest(
      fmt::format("{} and 1000 names after it are taken; --output names another", (parent / name).string()));
}

std::string quoted_for_shell(const std::string& word) {
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-+=./,:^@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string quoted = "'";
  for (const char c : word)
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder)
    : directory_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (directory_ < 0)
    throw BadRequest(fmt::format("{} cannot be opened: {}", folder.string(), reason_of(errno)));
  if (flock(directory_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = errno;
  close(directory_);
  if (error == EWOULDBLOCK) throw BadRequest(fmt::format("another program is writing {}", folder.string()));
  throw BadRequest(fmt::format("{} cannot be locked ({}); use a folder on a local disk", folder.string(),
                               reason_of(error)));
}

FolderLock::FolderLock(FolderLock&& other) noexcept : directory_(std::exchange(other.directory_, -1)) {}

FolderLock::~FolderLock() {
  if (directory_ >= 0) close(directory_);
}

ResultsFolder::ResultsFolder(fs::path path, FolderLock lock, std::string context)
    : path_(std::move(path)), lock_(std::move(lock)), context_(std::move(context)) {
  for (const auto& [name, text] :
       {std::pair<const char*, std::string_view>{kContext, context_}, {kSchema, schema_json()}}) {
    if (const std::string why = why_not_written(path_, name, text); !why.empty()) throw BadRequest(why);
  }
}

ResultsFolder ResultsFolder::begin(const fs::path& path, const Provenance& provenance, const RunInfo& run) {
  FolderLock lock(path);
  std::error_code error;
  if (!fs::is_empty(path, error))  // looked at once nobody else can write
    throw BadRequest(fmt::format("{} is there already; --resume continues a results folder", path.string()));
  return ResultsFolder(path, std::move(lock), text_of(new_context(provenance, run)));
}

ResultsFolder ResultsFolder::create(const fs::path& path, const Provenance& provenance, const RunInfo& run) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_directory(path, error))
    throw BadRequest(fmt::format("{} is a file, not a folder", path.string()));
  make_folder(path);
  return begin(path, provenance, run);
}

ResultsFolder ResultsFolder::resume(const fs::path& path, const Provenance& provenance, const RunInfo& run) {
  std::error_code error;
  if (!fs::is_directory(path, error))
    throw BadRequest(fmt::format("{} is no results folder: there is no such folder", path.string()));
  FolderLock lock(path);
  Json context = read_context(path);
  refuse_other_origin(context, provenance, path.string());
  refuse_other_schema(path);
  refuse_changed_files(context, path);
  for (const Table& table : all_tables()) {  // refused before anything is changed
    const std::vector<CsvRow> rows = read_table(path, table);
    if (run.accept) run.accept(table.name, rows);
  }
  for (const Table& table : all_tables())
    cut_half_line(path / table.name);
  add_run(context, provenance, run);
  return ResultsFolder(path, std::move(lock), text_of(context));
}

ResultsFolder ResultsFolder::create_or_resume(const std::string& output, const std::string& resume_path,
                                              const Provenance& provenance, const RunInfo& run) {
  if (!resume_path.empty()) return resume(resume_path, provenance, run);
  if (!output.empty()) return create(output, provenance, run);
  return begin(new_default_folder(provenance), provenance, run);
}

ResultsFolder ResultsFolder::open(const std::string& output, const std::string& resume_path,
                                  const Provenance& provenance, const RunInfo& run) {
  std::error_code error;
  if (resume_path.empty() && !output.empty() && fs::exists(fs::path(output) / kContext, error))
    return resume(output, provenance, run);
  return create_or_resume(output, resume_path, provenance, run);
}

void ResultsFolder::start_anew(const std::string& name) {
  tables_.erase(name);
  fs::remove(path_ / name);
}

CsvWriter& ResultsFolder::table(const std::string& name) {
  std::unique_ptr<CsvWriter>& writer = tables_[name];
  if (!writer) writer = std::make_unique<CsvWriter>(path_ / name, table_schema(name).columns);
  return *writer;
}

std::vector<CsvRow> ResultsFolder::rows(const std::string& name) const {
  return read_table(path_, table_schema(name));
}

void ResultsFolder::finish() {
  Json context = Json::parse(context_);
  const std::string now = utc_now();
  Json& run = context["runs"].back();
  run["utc_end"] = now;
  run["complete"] = true;
  context["utc_end"] = now;
  context["complete"] = all_complete(context["runs"]);
  context["files"] = describe_files(path_);
  context_ = text_of(context);
  if (const std::string why = why_not_written(path_, kContext, context_); !why.empty())
    throw std::runtime_error(why);
}

namespace {

/// Empty where the folder has none of this program.
Json last_run(const fs::path& folder, const std::string& program) {
  const Json context = read_context(folder);
  const Json& runs = context["runs"];
  const auto last =
      std::find_if(runs.rbegin(), runs.rend(), [&](const Json& run) { return run["program"] == program; });
  return last == runs.rend() ? Json() : *last;
}

}  // namespace

Grid recorded_grid(const fs::path& folder, const std::string& program) {
  const Json last = last_run(folder, program);
  const auto text = [&](const char* key) {
    return !last.is_null() && has(last, key, is_text) ? last[key].get<std::string>() : "";
  };
  const bool with_problems = !last.is_null() && joined(last["argv"]).find("--problem") != std::string::npos;
  if (text("grid_text").empty() || with_problems) {
    throw BadRequest(
        fmt::format("no run of {} in {} can be resumed from a grid alone; name --grid or --problem", program,
                    folder.string()));
  }
  return parse_grid(text("grid"), text("grid_text"));
}

std::vector<std::string> with_recorded_choices(const fs::path& folder, const std::string& program,
                                               std::span<const std::string_view> options,
                                               std::span<const char* const> argv) {
  std::vector<std::string> words(argv.begin(), argv.end());
  const Json last = last_run(folder, program);
  if (last.is_null()) return words;
  const auto name_of = [](std::string_view word) { return word.substr(0, word.find('=')); };
  const auto is_recorded = [&](std::string_view name) {
    return std::ranges::find(options, name) != options.end() &&
           std::ranges::find(argv, name, name_of) == argv.end();
  };
  bool takes = false;  // an option has the words behind it that are none themselves
  for (const auto& word : last["argv"].get<std::vector<std::string>>()) {
    if (word.starts_with("--")) takes = is_recorded(name_of(word));
    if (takes) words.push_back(word);
  }
  return words;
}

std::vector<const char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<const char*> pointers;
  for (const std::string& word : words)
    pointers.push_back(word.c_str());
  return pointers;
}

std::vector<Problem> recorded_problems(const fs::path& folder, const std::string& program) {
  const Json context = read_context(folder);
  std::vector<Problem> problems;
  for (const Json& run : context["runs"]) {
    if (run["program"] != program) continue;
    if (has(run, "grid", is_text) && has(run, "grid_text", is_word)) {
      for (const Case& c : parse_grid(run["grid"], run["grid_text"].get<std::string>()).cases)
        problems.push_back(c.problem);
    }
    constexpr std::string_view kOption = "--problem";
    bool follows = false;
    for (const auto& word : run["argv"].get<std::vector<std::string>>()) {
      if (word.starts_with("--problem=")) {
        problems.push_back(parse_problem(word.substr(kOption.size() + 1)));
      } else if (follows && !word.starts_with("-")) {
        problems.push_back(parse_problem(word));
        continue;
      }
      follows = word.starts_with(kOption);  // more than one may follow
    }
  }
  return problems;
}

std::string command_to_resume(int argc, const char* const* argv, const fs::path& folder) {
  constexpr std::string_view kFolders[] = {"--output", "--resume"};
  std::string command = quoted_for_shell(argv[0]) + " ";
  for (const std::string& word : without_options({argv, argv + argc}, kFolders))
    command += quoted_for_shell(word) + " ";
  return command + "--resume " + quoted_for_shell(folder.string());
}

int write_folder(ResultsFolder& folder, int argc, const char* const* argv, const std::function<int()>& body) {
  const std::string hint = fmt::format("what was measured is in {}; this goes on: {}", folder.path().string(),
                                       command_to_resume(argc, argv, folder.path()));
  const InterruptWatch watch;
  int code = 0;
  try {
    code = body();
  } catch (const BadRequest&) {
    throw;
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("{}; {}", error.what(), hint));
  }
  if (interrupted_by() == 0) return code;
  std::cerr << "interrupted; " << hint << '\n';
  return 128 + interrupted_by();
}

}  // namespace fwht::harness
