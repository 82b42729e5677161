#include "experiments/harness/limits.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "reference/inputs.hpp"

namespace fwht::harness {

namespace {

// The problem whose random input the copies move.
Problem random_problem() {
  return make_problem(Dtype::f16, 1024, 1024);
}

Launch as_launch(const CopyKernel& kernel, std::int64_t useful_bytes, std::uint32_t mask) {
  return [enqueue = kernel.enqueue, bytes = useful_bytes / 2, mask](
             const void* in, void* out, Stream stream) { enqueue(in, out, bytes, mask, stream); };
}

}  // namespace

Limits::Limits(const DeviceInfo& device, Workspace& workspace, std::int64_t cold_bytes, Record record)
    : device_(device), workspace_(workspace), cold_bytes_(cold_bytes), record_(std::move(record)) {}

const std::vector<CopyKernel>& Limits::kernels(Memory memory) {
  const auto found = kernels_.find(memory);
  return found != kernels_.end() ? found->second : kernels_[memory] = copy_kernels(memory, device_);
}

Slices& Limits::slices(std::int64_t useful_bytes, Placement placement, Mode mode) {
  if (random_.empty()) {
    random_.resize(static_cast<std::size_t>(random_problem().span_bytes()));
    reference::write_input(random_problem(), reference::InputClass::normal, 1, random_.data());
  }
  const Memory memory = memory_of(mode);
  const std::int64_t bytes = useful_bytes / 2;
  Slices& all = workspace_.get(memory, placement, bytes,
                               slice_count(mode, placement, bytes, device_.l2_bytes, cold_bytes_));
  all.fill(random_.data(), static_cast<std::int64_t>(random_.size()));
  return all;
}

Alternation Limits::alternation(std::int64_t useful_bytes, Placement placement, Dtype dtype) {
  const CopyKernel& reference = find_copy(kernels(Memory::device), kReferenceCopy);
  const auto key = std::pair{useful_bytes, placement};
  if (!shares_us_.contains(key)) {
    const Launch launch = as_launch(reference, useful_bytes, sign_mask(Dtype::f16));
    shares_us_[key] = reference_share(launch, slices(useful_bytes, placement, Mode::alternating));
  }
  return {as_launch(reference, useful_bytes, sign_mask(dtype)), shares_us_[key]};
}

const Limit& Limits::best(std::int64_t useful_bytes, Placement placement, Mode mode) {
  const auto key = std::tuple{useful_bytes, placement, mode};
  const auto found = known_.find(key);
  return found != known_.end() ? found->second : known_[key] = measure(useful_bytes, placement, mode);
}

Limit Limits::measure(std::int64_t useful_bytes, Placement placement, Mode mode) {
  const Memory memory = memory_of(mode);
  Alternation beside;
  if (mode == Mode::alternating) beside = alternation(useful_bytes, placement, Dtype::f16);
  Slices& buffers = slices(useful_bytes, placement, mode);
  Limit best;
  for (const CopyKernel& kernel : kernels(memory)) {
    // The neighbour of alternating mode is not a limit: replayed, its turning places meet what the L2 still
    // holds of the launch before, which no kernel with a map of its own can do.
    if (!kernel.why_not.empty() || kernel.name == kReferenceCopy) continue;
    if (kernel.programmatic != is_programmatic(mode)) continue;
    const Launch launch = as_launch(kernel, useful_bytes, sign_mask(Dtype::f16));
    const Timing timing = time_in_mode(mode, launch, beside, buffers);
    record_(memory, useful_bytes, placement, mode, kernel.name, timing);
    if (best.kernel.empty() || timing.time_us < best.timing.time_us) best = {kernel.name, timing};
  }
  if (best.kernel.empty())
    throw std::runtime_error("no copy kernel runs here: there is no limit to compare with");
  return best;
}

}  // namespace fwht::harness
