#include "experiments/harness/results_folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "common/error.hpp"
#include "experiments/harness/schema.hpp"
#include "variants/registry.hpp"

namespace fwht::harness {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kContext = "context.json";

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words)
    text += (text.empty() ? "" : " ") + word;
  return text;
}

Json describe_run(const Provenance& provenance, const RunInfo& run) {
  return {{"program", run.program},
          {"argv", provenance.argv},
          {"commit", provenance.build.commit},
          {"dirty", provenance.build.dirty},
          {"grid", run.grid},
          {"grid_text", run.grid_text},
          {"utc_start", provenance.utc_start},
          {"utc_end", nullptr},
          {"complete", false}};
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
          {"grid", run.grid},
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

void refuse_other_origin(const Json& context, const Provenance& provenance, const std::string& name) {
  const auto text = [&](const char* key) { return context.value(key, std::string()); };
  if (const std::string hash = text("sources_hash"); hash != provenance.build.sources_hash) {
    throw BadRequest(fmt::format("{} comes from other sources (sources_hash {}, this program {})", name,
                                 hash.substr(0, 12), provenance.build.sources_hash.substr(0, 12)));
  }
  const Json device = context.value("device", Json::object()), host = context.value("host", Json::object());
  const std::string there = device.value("present", false)
                                ? device.value("name", std::string())
                                : host.value("name", std::string()) + " (host only)";
  if (const std::string here = device_in_words(provenance.device); there != here) {
    throw BadRequest(fmt::format("{} was measured on {}, this is {}", name, there, here));
  }
}

Json read_context(const fs::path& path) {
  std::ifstream file(path / kContext);
  if (!file) throw BadRequest(fmt::format("{} is no results folder: it has no {}", path.string(), kContext));
  const Json context = Json::parse(file, nullptr, false);
  if (!context.is_object())
    throw BadRequest(fmt::format("{}: {} is no JSON object", path.string(), kContext));
  const Json version = context.value("format_version", Json());
  if (version != kResultsFormat) {
    throw BadRequest(fmt::format("{} has format_version {}, this program writes {}", path.string(),
                                 version.dump(), kResultsFormat));
  }
  return context;
}

void add_run(Json& context, const Provenance& provenance, const RunInfo& run) {
  if (!context["runs"].is_array()) context["runs"] = Json::array();
  context["runs"].push_back(describe_run(provenance, run));
  auto seeds = context.value("seeds", std::vector<std::uint64_t>());
  for (const std::uint64_t seed : run.seeds) {
    if (std::find(seeds.begin(), seeds.end(), seed) == seeds.end()) seeds.push_back(seed);
  }
  context["seeds"] = seeds;
  context["variants"] = merged_variants(context.value("variants", std::vector<std::string>()), run.variants);
  context["dirty"] = context.value("dirty", true) || provenance.build.dirty;
  context["utc_end"] = nullptr;
  context["complete"] = false;
}

// The folder is complete when the last run of every program is: a later run of the same program does what an
// earlier one left undone.
bool all_complete(const Json& runs) {
  std::map<std::string, bool> last;
  for (const Json& run : runs)
    last[run.value("program", std::string())] = run.value("complete", false);
  return std::all_of(last.begin(), last.end(), [](const auto& entry) { return entry.second; });
}

// Where a new folder goes that was given this name, or none.
fs::path path_of(const std::string& output, const Provenance& provenance) {
  return output.empty() ? fs::path("experiments/results") / results_folder_name(provenance)
                        : fs::path(output);
}

}  // namespace

ResultsFolder::ResultsFolder(fs::path path, std::string context)
    : path_(std::move(path)), context_(std::move(context)) {
  write_file(kContext, context_);
  write_file("schema.json", schema_json());
}

ResultsFolder ResultsFolder::create(const fs::path& path, const Provenance& provenance, const RunInfo& run) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_empty(path, error)) {
    throw BadRequest(fmt::format("{} is there already; --resume continues a results folder", path.string()));
  }
  fs::create_directories(path, error);
  if (error) throw BadRequest(fmt::format("{} cannot be made: {}", path.string(), error.message()));
  return ResultsFolder(path, new_context(provenance, run).dump(2));
}

ResultsFolder ResultsFolder::resume(const fs::path& path, const Provenance& provenance, const RunInfo& run) {
  Json context = read_context(path);
  refuse_other_origin(context, provenance, path.string());
  add_run(context, provenance, run);
  return ResultsFolder(path, context.dump(2));
}

ResultsFolder ResultsFolder::create_or_resume(const std::string& output, const std::string& resume_path,
                                              const Provenance& provenance, const RunInfo& run) {
  if (!resume_path.empty()) return resume(resume_path, provenance, run);
  return create(path_of(output, provenance), provenance, run);
}

ResultsFolder ResultsFolder::open(const std::string& output, const std::string& resume_path,
                                  const Provenance& provenance, const RunInfo& run) {
  const fs::path path = path_of(output, provenance);
  if (resume_path.empty() && fs::exists(path / kContext)) return resume(path, provenance, run);
  return create_or_resume(output, resume_path, provenance, run);
}

CsvWriter& ResultsFolder::table(const std::string& name) {
  std::unique_ptr<CsvWriter>& writer = tables_[name];
  if (!writer) writer = std::make_unique<CsvWriter>(path_ / name, table_schema(name).columns);
  return *writer;
}

void ResultsFolder::finish() {
  Json context = Json::parse(context_);
  const std::string now = utc_now();
  Json& run = context["runs"].back();
  run["utc_end"] = now;
  run["complete"] = true;
  context["utc_end"] = now;
  context["complete"] = all_complete(context["runs"]);
  context_ = context.dump(2);
  write_file(kContext, context_);
}

// In one step, so that a killed run leaves the old or the new file, never half of one.
void ResultsFolder::write_file(const char* name, const std::string& text) const {
  const fs::path part = path_ / (std::string(name) + ".part");
  std::ofstream file(part);
  file << text << "\n";
  file.close();
  std::error_code error;
  if (file) fs::rename(part, path_ / name, error);
  if (!file || error) throw BadRequest(fmt::format("{} cannot be written", path_.string()));
}

}  // namespace fwht::harness
