#include "experiments/harness/procedure.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <vector>

namespace fwht::harness {
namespace {

Enqueue on_slice(const Launch& launch, Slices& slices, std::int64_t slice) {
  return
      [&launch, in = slices.in(slice), out = slices.out(slice)](Stream stream) { launch(in, out, stream); };
}

}  // namespace

std::int64_t slice_count(Mode mode, const Buffers& buffers, std::int64_t l2_bytes, std::int64_t cold_bytes) {
  return mode == Mode::cold ? cold_count(buffers.bytes(), l2_bytes, cold_bytes) : 1;
}

Timing time_in_mode(Mode mode, const Launch& launch, const Alternation& alternation, Slices& slices,
                    TimerOptions options) {
  std::vector<Enqueue> sequence;
  switch (mode) {
    case Mode::host:
      return time_on_host([&] { launch(slices.in(0), slices.out(0), nullptr); }, options);
    case Mode::replay:
    case Mode::replay_pdl:  // the launches themselves differ
      sequence = {on_slice(launch, slices, 0)};
      break;
    case Mode::alternating:
      sequence = {on_slice(alternation.reference, slices, 0), on_slice(launch, slices, 0)};
      break;
    case Mode::cold:
      for (std::int64_t i = 0; i < slices.count(); ++i)
        sequence.push_back(on_slice(launch, slices, i));
      break;
  }
  const Timing timing = time_on_device(sequence, options);
  return mode == Mode::alternating ? subtract_share(timing, alternation.share_us) : timing;
}

double reference_share(const Launch& reference, Slices& slices) {
  const Enqueue pair[] = {on_slice(reference, slices, 0), on_slice(reference, slices, 0)};
  return time_on_device(pair).time_us;
}

Timing subtract_share(Timing per_launch, double share_us) {
  const auto rest = [&](double average_us) { return 2.0 * average_us - share_us; };
  Timing timing{rest(per_launch.time_us), rest(per_launch.min_us), rest(per_launch.max_us),
                per_launch.launches / 2, per_launch.replays};
  for (const double average_us : per_launch.each_us)
    timing.each_us.push_back(rest(average_us));
  if (!(timing.time_us > 0.0) || !(timing.min_us > 0.0)) {
    throw std::runtime_error(
        fmt::format("a pair of copy and launch takes {:.3f} us (fastest {:.3f}), the copy's share "
                    "is {:.3f} us: no time is left for the launch",
                    2.0 * per_launch.time_us, 2.0 * per_launch.min_us, share_us));
  }
  return timing;
}

}  // namespace fwht::harness
