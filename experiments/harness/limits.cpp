#include "experiments/harness/limits.hpp"

#include <stdexcept>
#include <utility>
#include <vector>

namespace fwht::harness {
namespace {

CsvRow limit_row(const Subject& copy, Mode mode, const ClockedTiming& timing) {
  CsvRow row{{"memory", std::string(name_of(copy.buffers.memory))},
             {"useful_bytes", std::to_string(copy.traffic.useful())},
             {"bytes_read", std::to_string(copy.traffic.read)},
             {"bytes_written", std::to_string(copy.traffic.written)},
             {"placement", std::string(name_of(copy.buffers.placement))},
             {"mode", std::string(name_of(mode))},
             {"kernel", copy.name},
             {"time_us", csv_number(timing.time_us)},
             {"time_min_us", csv_number(timing.min_us)},
             {"time_max_us", csv_number(timing.max_us)}};
  timing.describe_clock(row);
  return row;
}

}  // namespace

Limits::Limits(Bench& bench, Record record) : bench_(bench), record_(std::move(record)) {}

const Limit& Limits::best(const Description& subject, Mode mode, bool programmatic) {
  const Placement placement = subject.buffers.placement;
  const auto key = std::tuple{subject.traffic, placement, mode, programmatic};
  const auto found = known_.find(key);
  return found != known_.end() ? found->second
                               : known_[key] = measure(subject.traffic, placement, mode, programmatic);
}

Limit Limits::measure(Traffic traffic, Placement placement, Mode mode, bool programmatic) {
  const Memory memory = memory_of(mode);
  std::vector<Subject> copies;
  for (const CopyKernel& kernel : bench_.copies(memory)) {
    // The neighbour of alternating mode is not a limit: replayed, its turning places meet what the L2 still
    // holds of the launch before, which no kernel with a map of its own can do.
    if (!kernel.why_not.empty() || kernel.neighbour || !kernel.moves(traffic)) continue;
    if (kernel.programmatic != programmatic) continue;
    copies.push_back(copy_subject(kernel, memory, traffic, placement, sign_mask(Dtype::f16)));
  }
  Limit best;
  measure_each(copies, mode, bench_, [&](std::size_t i, const ClockedTiming& timing) {
    record_(limit_row(copies[i], mode, timing));
    if (best.kernel.empty() || timing.time_us < best.timing.time_us) best = {copies[i].name, timing};
  });
  if (best.kernel.empty())
    throw std::runtime_error("no copy kernel runs here: there is no limit to compare with");
  return best;
}

}  // namespace fwht::harness
