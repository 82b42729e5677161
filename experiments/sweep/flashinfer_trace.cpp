#include "experiments/sweep/flashinfer_trace.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "common/host/error.hpp"
#include "experiments/harness/transform.hpp"
#include "reference/operators.hpp"

namespace fwht::sweep {
namespace {

using harness::Case;
using harness::CsvRow;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

/// Models whose rows have this length, and where: of the model's config.json.
struct ModelWidth {
  std::int64_t n;
  const char* models;  // with blanks between them
};

constexpr ModelWidth kModels[] = {{768, "gpt2:hidden"},
                                  {896, "qwen2.5-0.5b:hidden"},
                                  {1024, "qwen3-0.6b:hidden"},
                                  {1408, "deepseek-v2-lite:expert"},
                                  {1536, "qwen2.5-1.5b:hidden"},
                                  {2048, "llama-3.2-1b:hidden"},
                                  {2560, "qwen3-4b:hidden"},
                                  {2880, "gpt-oss-20b:hidden"},
                                  {3072, "llama-3.2-3b:hidden"},
                                  {3584, "qwen2.5-7b:hidden"},
                                  {4096, "llama-3.1-8b:hidden"},
                                  {4864, "qwen2.5-0.5b:intermediate"},
                                  {5120, "qwen2.5-14b:hidden"},
                                  {5376, "gemma-3-27b:hidden"},
                                  {6144, "mixtral-8x22b:hidden"},
                                  {7168, "deepseek-v3:hidden"},
                                  {8192, "llama-3.1-70b:hidden llama-3.2-1b:intermediate"},
                                  {8960, "qwen2.5-1.5b:intermediate"},
                                  {9216, "gemma-2-2b:intermediate"},
                                  {9728, "qwen3-4b:intermediate"},
                                  {10944, "deepseek-v2-lite:intermediate"},
                                  {11008, "llama-2-7b:intermediate"},
                                  {12288, "qwen3-8b:intermediate"},
                                  {13824, "qwen2.5-14b:intermediate"},
                                  {14336, "llama-3.1-8b:intermediate"},
                                  {16384, "llama-3.1-405b:hidden"},
                                  {17408, "qwen3-14b:intermediate"},
                                  {17920, "phi-4:intermediate"},
                                  {18432, "deepseek-v3:intermediate"},
                                  {18944, "qwen2.5-7b:intermediate"},
                                  {21504, "gemma-3-27b:intermediate"},
                                  {22016, "llama-65b:intermediate"},
                                  {25600, "qwen3-32b:intermediate"},
                                  {27648, "qwen2.5-32b:intermediate"},
                                  {28672, "llama-3.1-70b:intermediate"},
                                  {29568, "qwen2.5-72b:intermediate"},
                                  {36864, "gemma-2-27b:intermediate"},
                                  {53248, "llama-3.1-405b:intermediate"}};

std::vector<std::string> models_of(std::int64_t n) {
  std::vector<std::string> names;
  for (const ModelWidth& width : kModels) {
    if (width.n != n) continue;
    std::string_view rest = width.models;
    for (std::size_t blank = 0; blank != std::string_view::npos; rest.remove_prefix(blank + 1)) {
      blank = rest.find(' ');
      names.emplace_back(rest.substr(0, blank));
      if (blank == std::string_view::npos) break;
    }
  }
  return names;
}

std::optional<std::string> torch_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::f16:
      return "float16";
    case Dtype::bf16:
      return "bfloat16";
    case Dtype::f32:
      return "float32";
    case Dtype::i32:
      return "int32";
    case Dtype::i64:
      return "int64";
    case Dtype::f64:
      return {};  // the schema has no name for it
  }
  return {};
}

std::string definition_name(const Problem& problem) {
  return fmt::format("hadamard_{}_{}", to_string(problem.op), name_of(problem.dtype()));
}

/// Of the operator's factors, slowest first: a power of two, or rows of + and -.
std::string factors_text(const Operator& op) {
  const reference::ExactOperator exact(op);
  std::string text;
  for (const reference::FactorStage& stage : exact.stages()) {
    if (stage.entries.empty()) {
      text += fmt::format("    {},\n", stage.order);
      continue;
    }
    std::string signs;
    for (const double entry : stage.entries)
      signs += entry > 0.0 ? '+' : '-';
    text += "    (\n";
    for (std::int64_t row = 0; row < stage.order; ++row) {
      text += fmt::format("        \"{}\"\n", signs.substr(static_cast<std::size_t>(row * stage.order),
                                                           static_cast<std::size_t>(stage.order)));
    }
    text += "    ),\n";
  }
  return text;
}

std::string reference_of(const Problem& problem) {
  const bool exact = is_integer(problem.dtype());
  return fmt::format(
      R"(import torch

# The Kronecker product of these, the first on the slowest index: a power of two is Sylvester's matrix, signs are
# a Hadamard matrix row by row.
FACTORS = [
{}]
SCALE = {}


@torch.no_grad()
def run(x):
    y = x.to(torch.{})
    right = x.shape[-1]
    for factor in FACTORS:
        if isinstance(factor, int):
            right //= factor
            half = right * factor // 2
            while half >= right:
                y = y.reshape(-1, 2, half)
                y = torch.stack((y[:, 0] + y[:, 1], y[:, 0] - y[:, 1]), 1)
                half //= 2
        else:
            order = round(len(factor) ** 0.5)
            right //= order
            matrix = torch.tensor([1 if sign == "+" else -1 for sign in factor], dtype=y.dtype, device=y.device)
            y = torch.einsum("ij,bjr->bir", matrix.reshape(order, order), y.reshape(-1, order, right))
    return (y * SCALE).reshape(x.shape).to(x.dtype)
)",
      factors_text(problem.op), exact ? "1" : fmt::format("{}", problem.scale), exact ? "int64" : "float64");
}

Json definition_of(const Problem& problem) {
  const Json tensor = {{"shape", {"rows", "n"}}, {"dtype", *torch_name(problem.dtype())}};
  Json tags = Json::array({"status:verified"});
  for (const std::string& model : models_of(problem.n()))
    tags.push_back("model:" + model.substr(0, model.find(':')));
  return {{"name", definition_name(problem)},
          {"op_type", "hadamard"},
          {"axes", {{"rows", {{"type", "var"}}}, {"n", {{"type", "const"}, {"value", problem.n()}}}}},
          {"inputs", {{"x", tensor}}},
          {"outputs", {{"y", tensor}}},
          {"reference", reference_of(problem)},
          {"tags", tags},
          {"description",
           fmt::format("Rows multiplied by a Hadamard matrix of order {}, {}. {}", problem.n(),
                       to_string(problem.op),
                       is_integer(problem.dtype()) ? "Bare sums." : "Orthonormal; rounded once.")}};
}

/// With the names of models, so that whoever reads a workload sees whose rows these are.
Json workload_of(const Problem& problem, harness::Mode mode) {
  std::string uuid =
      fmt::format("{}.r{}.{}.{}", definition_name(problem), problem.rows,
                  problem.placement == Placement::in_place ? "in" : "out", harness::name_of(mode));
  for (const std::string& model : models_of(problem.n()))
    uuid += "." + model;
  return {{"axes", {{"rows", problem.rows}}}, {"inputs", {{"x", {{"type", "random"}}}}}, {"uuid", uuid}};
}

std::string solution_name(const std::string& variant, const Problem& problem) {
  return fmt::format("fwht_{}_{}", variant, definition_name(problem));
}

Json solution_of(const CsvRow& row, const Problem& problem) {
  const std::string& variant = row.at("variant");
  const std::string call =
      problem.op.is_sylvester()
          ? fmt::format("fwht.hadamard_transform(x, variant=\"{}\"{})", variant,
                        is_integer(problem.dtype()) ? ", scale=1" : "")
          : fmt::format("fwht.operators.transform(x, \"{}\"{}, variant=\"{}\")", to_string(problem.op),
                        is_integer(problem.dtype()) ? ", scale=1" : "", variant);
  const std::string text = fmt::format("import fwht\n\n\ndef run(x):\n    return {}\n", call);
  return {{"name", solution_name(variant, problem)},
          {"definition", definition_name(problem)},
          {"author", "fwht"},
          {"spec",
           {{"language", "python"},
            {"target_hardware", {row.at("memory") == "device" ? "cuda" : "cpu"}},
            {"entry_point", "main.py::run"},
            {"dependencies", {"fwht"}},
            {"destination_passing_style", false}}},
          {"sources", {{{"path", "main.py"}, {"content", text}}}}};
}

Json evaluation_of(const CsvRow& row, const Provenance& provenance) {
  const bool on_device = row.at("memory") == "device";
  Json evaluation = {{"status", "RUNTIME_ERROR"},
                     {"environment",
                      {{"hardware", on_device ? provenance.device.name : provenance.device.host_name},
                       {"libs", {{"fwht", provenance.build.commit}}}}},
                     {"timestamp", utc_now()},
                     {"log", row.at("message")}};
  if (row.at("status") == "failed") return evaluation;
  const auto number = [&](const char* column) {
    const auto found = row.find(column);
    return found == row.end() || found->second.empty() ? 0.0 : std::stod(found->second);
  };
  // Elements have the size of their row's root mean square, 1 for random data and an orthonormal operator.
  const double worst = number("max_error_over_rms");
  evaluation["correctness"] = {{"max_relative_error", worst},
                               {"max_absolute_error", worst},
                               {"extra", {{"rel_l2", number("rel_l2")}}}};
  if (row.at("status") == "incorrect") {
    evaluation["status"] = "INCORRECT_NUMERICAL";
    return evaluation;
  }
  evaluation["status"] = "PASSED";
  evaluation["log"] = fmt::format(
      "mode {}, {} place; reference_latency_ms is that of {}, the fastest copy of the same bytes in the same "
      "run",
      row.at("mode"), row.at("placement") == "in" ? "in" : "out of", row.at("limit_kernel"));
  evaluation["performance"] = {{"latency_ms", 1e-3 * number("time_us")},
                               {"reference_latency_ms", 1e-3 * number("limit_us")},
                               {"speedup_factor", number("fraction_of_limit")}};
  return evaluation;
}

/// What tells rows of results.csv apart, but for the variant and its memory.
std::string problem_key(const CsvRow& row) {
  std::string key;
  for (const char* column :
       {"operator", "encoding", "arrangement", "dtype", "rows", "placement", "row_stride", "mode"})
    key += row.at(column) + "/";
  return key;
}

}  // namespace

bool can_be_traced(const Problem& problem) {
  return torch_name(problem.dtype()) && problem.in.dtype == problem.out.dtype &&
         problem.encoding.is_plain() && !problem.prologue && !problem.paging &&
         problem.is_arranged_plainly() && problem.contiguous() && !problem.op.has_signs() &&
         !problem.op.has_dense() && problem.rows > 0 &&
         problem.scale == default_scale(problem.dtype(), problem.n());
}

std::vector<TraceFile> flashinfer_trace(const std::vector<Case>& cases, const std::vector<CsvRow>& results,
                                        const Provenance& provenance) {
  std::map<std::string, std::string> files;  // by path
  std::map<std::string, std::pair<Problem, harness::Mode>> known;
  for (const Case& c : cases) {
    if (!can_be_traced(c.problem)) continue;
    CsvRow row = harness::describe("", Memory::device, c.problem).columns;
    row["mode"] = harness::name_of(c.mode);
    if (!known.emplace(problem_key(row), std::pair{c.problem, c.mode}).second) continue;
    const std::string name = definition_name(c.problem);
    files.emplace(fmt::format("definitions/hadamard/{}.json", name), definition_of(c.problem).dump(2) + "\n");
    const Json trace = {{"definition", name}, {"workload", workload_of(c.problem, c.mode)}};
    files[fmt::format("workloads/hadamard/{}.jsonl", name)] += trace.dump() + "\n";
  }
  for (const CsvRow& row : results) {
    const auto found = known.find(problem_key(row));
    if (found == known.end()) continue;
    const auto& [problem, mode] = found->second;
    const std::string name = definition_name(problem), solution = solution_name(row.at("variant"), problem);
    // A kernel of others has no source here.
    if (!row.at("variant").starts_with("peer:")) {
      files.emplace(fmt::format("solutions/hadamard/{}/{}.json", name, solution),
                    solution_of(row, problem).dump(2) + "\n");
    }
    const Json trace = {{"definition", name},
                        {"workload", workload_of(problem, mode)},
                        {"solution", solution},
                        {"evaluation", evaluation_of(row, provenance)}};
    files[fmt::format("traces/hadamard/{}.jsonl", name)] += trace.dump() + "\n";
  }
  std::vector<TraceFile> all;
  all.reserve(files.size());
  for (auto& [path, text] : files)
    all.push_back({path, std::move(text)});
  return all;
}

void require_no_dataset(const fs::path& folder) {
  std::error_code none;
  if (!fs::exists(folder, none) || (fs::is_directory(folder, none) && fs::is_empty(folder, none))) return;
  throw BadRequest(fmt::format("--export: {} is there already; name a new folder", folder.string()));
}

void make_dataset(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw BadRequest(fmt::format("--export: {} cannot be made: {}", folder.string(), error.message()));
  if (access(folder.c_str(), W_OK) != 0)
    throw BadRequest(fmt::format("--export: {} cannot be written", folder.string()));
}

void write_dataset(const fs::path& folder, const std::vector<TraceFile>& files) {
  for (const TraceFile& file : files) {
    const fs::path path = folder / file.path;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    std::ofstream out(path, std::ios::binary);
    out << file.text;
    out.close();
    if (error || !out) throw std::runtime_error(fmt::format("{} cannot be written", path.string()));
  }
}

}  // namespace fwht::sweep
