#include "experiments/devices/served.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "common/host/bits.hpp"
#include "experiments/harness/grid.hpp"
#include "experiments/linear/linear.hpp"
#include "variants/auto/auto.hpp"
#include "variants/butterflies/launches.hpp"
#include "variants/factors/factors.hpp"
#include "variants/kronecker/kronecker.hpp"
#include "variants/linear/auto/auto.hpp"
#include "variants/linear/w4a16/w4a16.hpp"
#include "variants/mma_split/plain_launches.hpp"
#include "variants/mma_split/streamed_shape.hpp"
#include "variants/passes/passes.hpp"
#include "variants/passes/schedule.hpp"
#include "variants/registry.hpp"
#include "variants/rotate_then_quantize/rotate_then_quantize.hpp"
#include "variants/warp_kronecker/warp_kronecker.hpp"
#include "variants/warp_shuffle/warp_shuffle.hpp"
#include "variants/wgmma/wgmma.hpp"

namespace fwht::devices {
namespace {

/// What a line of the table is about, before row lengths that are served alike are put together: family,
/// dtype, what is asked for.
using ServedLine = std::array<std::string, 3>;

std::string words_of(const Problem& problem) {
  std::string words = problem.encoding.is_plain() ? "rows" : to_string(problem.encoding);
  if (problem.op.has_dense()) words += " dense";
  if (problem.op.has_signs()) words += " signs";
  if (problem.prologue) words += fmt::format(" {}", to_string(*problem.prologue));
  if (problem.paging) words += " pages";
  if (problem.inner != 1) words += " of another axis";
  if (problem.in_ordering != Ordering::natural || problem.out_ordering != Ordering::natural)
    words += " in another order";
  return words;
}

/// "64..4096 14336": rows of 2^k that follow each other as a range.
std::string lengths_text(const std::set<std::int64_t>& lengths) {
  std::string text;
  for (auto n = lengths.begin(); n != lengths.end(); ++n) {
    std::int64_t last = *n;
    while (is_power_of_two(last) && lengths.contains(2 * last))
      last *= 2;
    const bool inside_a_range = is_power_of_two(*n) && lengths.contains(*n / 2) && *n > 1;
    if (inside_a_range) continue;
    text += fmt::format("{}{}", text.empty() ? "" : " ", *n);
    if (last > *n) text += fmt::format("..{}", last);
  }
  return text;
}

/// "A100" of "NVIDIA A100 (described)".
std::string_view short_name(const DeviceInfo& device) {
  std::string_view name = device.name;
  name.remove_prefix(std::string_view("NVIDIA ").size());
  name.remove_suffix(std::string_view(" (described)").size());
  return name;
}

/// The kernels of a row length, whatever its amount of work.
template <class Kernels>
BlockNeeds needs_of(const Kernels& kernels) {
  BlockNeeds needs;
  for (const rows::KernelId& id : kernels) {
    needs.shared_bytes = std::max(needs.shared_bytes, std::int64_t{4} * id.tile().exchange_words());
    needs.threads = std::max(needs.threads, id.tile().threads);
  }
  return needs;
}

BlockNeeds kronecker_needs(const Problem& problem, const DeviceInfo& device) {
  const auto few = kronecker::few_rows_choice_for(problem.op, problem.rows, device.sm_count);
  const auto many = kronecker::choice_for(problem.op);
  BlockNeeds needs;
  for (const auto& choice : {few, many}) {
    if (!choice) continue;
    needs.shared_bytes = std::max<std::int64_t>(needs.shared_bytes, choice->launch.shared_bytes());
    needs.threads = std::max(needs.threads, choice->launch.threads());
  }
  return needs;
}

BlockNeeds factors_needs(const Problem& problem) {
  const factors::Program program = factors::program_of(problem.op);
  return {program.rows_per_block * problem.n() * std::int64_t{sizeof(float)}, program.threads};
}

BlockNeeds passes_needs(const Problem& problem, const DeviceInfo& device) {
  if (!problem.is_arranged_plainly()) return {};  // supports() has asked each of its tiles
  if (passes::shares_rows(problem, device)) {
    const passes::ClusterRow row =
        passes::cluster_row(passes::word_of(problem.dtype()), log2_floor(problem.n()));
    return {row.shared_bytes(), row.threads()};
  }
  if (passes::is_rounded(problem.dtype())) {
    return {passes::rounded_passes(log2_floor(problem.n()), device.shared_bytes_per_block).shared_bytes(), 0};
  }
  if (passes::holds_rows(problem, device)) {
    const passes::RowTile tile =
        passes::row_tile(passes::word_of(problem.dtype()), log2_floor(problem.n()), false);
    return {tile.shared_bytes(), tile.threads()};
  }
  const passes::Schedule schedule =
      passes::schedule_for(passes::word_of(problem.dtype()), log2_floor(problem.n()),
                           problem.elements() * bytes_of(problem.dtype()), device.shared_bytes_per_block);
  return {schedule.shared_bytes(), schedule.lowest == passes::Lowest::pair ? schedule.pair().threads : 0};
}

}  // namespace

std::vector<Problem> timed_problems() {
  std::vector<Problem> problems;
  std::set<std::string> seen;
  for (const harness::BuiltInGrid& grid : harness::built_in_grids()) {
    for (const harness::Case& c : harness::parse_grid(std::string(grid.name), grid.text).cases) {
      if (harness::memory_of(c.mode) == Memory::device && seen.insert(to_string(c.problem)).second)
        problems.push_back(c.problem);
    }
  }
  return problems;
}

std::vector<LinearProblem> timed_layers() {
  std::vector<LinearProblem> layers;
  std::set<std::string> seen;
  for (const char* list : {"smoke", "paper", "headline", "rotated", "shapes", "prefill"}) {
    for (const LinearProblem& problem : linear_layers::problem_list(list))
      if (seen.insert(to_string(problem)).second) layers.push_back(problem);
  }
  return layers;
}

std::string server_of(const Problem& problem, const DeviceInfo& device) {
  const std::vector<const Variant*> able = automatic::candidates(problem, device);
  if (able.empty()) return "-";
  const bool rotates_first = able.front() == &rotate_then_quantize::variant && problem.n() > 1;
  if (!rotates_first) return std::string(able.front()->name);
  return fmt::format("{}:{}", able.front()->name,
                     server_of(rotate_then_quantize::rotation_of(problem), device));
}

std::string server_of(const LinearProblem& problem, const DeviceInfo& device) {
  const LinearVariant* choice = linear::automatic::choice_for(problem, device);
  if (choice == nullptr) return "-";
  if (choice == &linear::by_tokens::variant) choice = &linear::by_tokens::choice_for(problem, device);
  return std::string(choice->name);
}

BlockNeeds block_needs(std::string_view variant, const Problem& problem, const DeviceInfo& device) {
  if (variant == "mma_split" && mma_split::is_streamed(log2_floor(problem.n()))) {
    const auto shape = mma_split::streamed_shape(log2_floor(problem.n()), device.shared_bytes_per_block);
    return {shape.shared_bytes(), mma_split::StreamedShape::kThreads};
  }
  // Kernels that write codes exchange as much as those that write rows.
  if (variant == "mma_split")
    return needs_of(mma_split::plain_kernels_of_size(problem.dtype(), log2_floor(problem.n())));
  if (variant == "kronecker") return kronecker_needs(problem, device);
  if (variant == "warp_kronecker") {
    const auto launch = warp_kronecker::choice_for(problem.op, problem.rows, device.sm_count)->launch;
    return {std::int64_t{4} * launch.exchange_words(), launch.threads()};
  }
  if (variant == "factors") return factors_needs(problem);
  if (variant == "passes") return passes_needs(problem, device);
  if (variant == "butterflies")
    return needs_of(butterflies::kernels_of_size(problem.dtype(), log2_floor(problem.n())));
  if (variant == "wgmma") return {wgmma::shared_bytes(wgmma::choose_launch(problem, device)), 0};
  return {};
}

std::string served_csv() {
  const std::vector<DeviceInfo> devices = described_devices();
  using Servers = std::vector<std::set<std::string>>;  // by device
  std::map<ServedLine, std::map<std::int64_t, Servers>> transforms;
  for (const Problem& problem : timed_problems()) {
    if (problem.programmatic_launch) continue;
    const ServedLine line{"transform", std::string(name_of(problem.dtype())), words_of(problem)};
    Servers& servers = transforms[line][problem.n()];
    servers.resize(devices.size());
    for (std::size_t i = 0; i < devices.size(); ++i)
      servers[i].insert(server_of(problem, devices[i]));
  }
  std::map<ServedLine, Servers> layers;
  for (const LinearProblem& problem : timed_layers()) {
    const std::string what = fmt::format("m={}{}", problem.m, problem.rotates() ? " rotated" : "");
    Servers& servers = layers[{"linear", std::string(name_of(problem.dtype)), what}];
    servers.resize(devices.size());
    for (std::size_t i = 0; i < devices.size(); ++i)
      servers[i].insert(server_of(problem, devices[i]));
  }

  std::string csv = "family,dtype,what,lengths";
  for (const DeviceInfo& device : devices)
    csv += fmt::format(",{} sm_{}", short_name(device), device.compute_capability());
  csv += "\n";
  const auto add = [&](const ServedLine& line, const std::string& lengths, const Servers& servers) {
    csv += fmt::format("{},{},\"{}\",{}", line[0], line[1], line[2], lengths);
    for (const std::set<std::string>& names : servers)
      csv += fmt::format(",{}", fmt::join(names, " "));
    csv += "\n";
  };
  for (const auto& [line, by_length] : transforms) {
    std::map<Servers, std::set<std::int64_t>> alike;
    for (const auto& [n, servers] : by_length)
      alike[servers].insert(n);
    std::map<std::set<std::int64_t>, Servers> sorted;  // by the shortest
    for (const auto& [servers, lengths] : alike)
      sorted[lengths] = servers;
    for (const auto& [lengths, servers] : sorted)
      add(line, lengths_text(lengths), servers);
  }
  for (const auto& [line, servers] : layers)
    add(line, "", servers);
  return csv;
}

}  // namespace fwht::devices
