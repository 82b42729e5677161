#include "experiments/harness/measure.hpp"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "experiments/harness/device_work.hpp"
#include "reference/inputs.hpp"

namespace fwht::harness {
namespace {

/// 2 MiB of f16 normal numbers: what copies move.
const std::vector<std::byte>& random_data() {
  static const std::vector<std::byte> data = [] {
    const Problem problem = make_problem(Dtype::f16, 1024, 1024);
    std::vector<std::byte> raw(static_cast<std::size_t>(problem.span_bytes()));
    reference::write_input(problem, reference::InputClass::normal, 1, raw.data());
    return raw;
  }();
  return data;
}

/// Where the scale drifts in place: puts the data back before every replay, and keeps replays short enough.
void keep_typical(TimerOptions& options, const Subject& subject, Mode mode, Slices& slices) {
  const std::int64_t most = (options.replays + 4) * options.max_launches;
  if (subject.buffers.placement != Placement::in_place || subject.applications >= most) return;
  auto pristine = std::make_shared<Slices>(subject.buffers, 1);
  subject.fill(*pristine);
  options.before_replay = [&slices, pristine](Stream stream) {
    for (std::int64_t i = 0; i < slices.count(); ++i) {
      enqueue_copy(slices.memory(), slices.out(i), pristine->in(0), slices.buffers().in_bytes, stream);
    }
  };
  const std::int64_t per_application = mode == Mode::alternating ? 2 : slices.count();
  options.max_launches = std::min(options.max_launches, subject.applications * per_application);
  options.min_launches = std::min(options.min_launches, options.max_launches);
}

}  // namespace

Bench::Bench(const DeviceInfo& device)
    : device_(device),
      cold_bytes_(device.has_cuda() ? free_bytes(Memory::device) / 2 : 0),
      unthrottled_(device.has_cuda() ? ClockWatch(device::pci_bus_id(device.ordinal)) : ClockWatch()) {}

Slices& Bench::filled(const Subject& subject, Mode mode) {
  const std::int64_t count = slice_count(mode, subject.buffers, device_.l2_bytes, cold_bytes_);
  Slices& slices = workspace_.get(subject.buffers, count);
  subject.fill(slices);
  return slices;
}

const std::vector<CopyKernel>& Bench::copies(Memory memory) {
  const auto found = copies_.find(memory);
  return found != copies_.end() ? found->second : copies_[memory] = copy_kernels(memory, device_);
}

Alternation Bench::alternation(const Description& subject) {
  const CopyKernel& neighbour = find_neighbour(copies(Memory::device), subject.traffic);
  const auto copy = [&](std::uint32_t mask) {
    return copy_subject(neighbour, Memory::device, subject.traffic, subject.buffers.placement, mask);
  };
  const auto key = std::pair{subject.traffic, subject.buffers.placement};
  if (!shares_us_.contains(key)) {
    const Subject alone = copy(sign_mask(Dtype::f16));
    shares_us_[key] = reference_share(alone.launch, filled(alone, Mode::alternating));
  }
  return {copy(subject.sign_mask).launch, shares_us_[key]};
}

double Bench::empty_us() {
  if (!empty_us_) empty_us_ = time_empty_kernel().time_us;
  return *empty_us_;
}

Subject copy_subject(const CopyKernel& kernel, Memory memory, Traffic traffic, Placement placement,
                     std::uint32_t mask) {
  Subject subject;
  subject.name = kernel.name;
  subject.buffers = {memory, placement, traffic.read, traffic.written};
  subject.traffic = traffic;
  subject.sign_mask = mask;
  subject.launch = [enqueue = kernel.enqueue, traffic, mask](const void* in, void* out, Stream stream) {
    enqueue(in, out, traffic, mask, stream);
  };
  subject.fill = [](Slices& slices) { slices.fill(random_data()); };
  return subject;
}

void measure_each(std::span<const Subject> subjects, Mode mode, Bench& bench,
                  const std::function<void(std::size_t index, const ClockedTiming&)>& done, int replays) {
  if (subjects.empty()) return;
  const Subject& first = subjects.front();
  Alternation beside;
  if (mode == Mode::alternating) beside = bench.alternation(first);
  Slices& slices = bench.filled(first, mode);
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    if (subjects[i].buffers != first.buffers || subjects[i].traffic != first.traffic)
      throw std::logic_error(subjects[i].name + " needs other buffers than " + first.name);
    TimerOptions options;
    options.replays = replays;
    keep_typical(options, subjects[i], mode, slices);
    const auto time = [&] { return time_in_mode(mode, subjects[i].launch, beside, slices, options); };
    if (first.buffers.memory == Memory::host) {
      done(i, ClockedTiming{time()});
      continue;
    }
    Unthrottled& unthrottled = bench.unthrottled();
    if (unthrottled.watch().is_there()) options.while_running = [&] { unthrottled.watch().sample(); };
    const std::string& name = subjects[i].name;
    done(i, unthrottled.measure(std::string_view(name).substr(0, name.find('/')), time));
  }
}

ClockedTiming measure(const Subject& subject, Mode mode, Bench& bench, int replays) {
  ClockedTiming measured;
  measure_each(
      {&subject, 1}, mode, bench, [&](std::size_t, const ClockedTiming& m) { measured = m; }, replays);
  return measured;
}

}  // namespace fwht::harness
