#include "experiments/tune/launch_tune.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "common/host/error.hpp"
#include "common/host/run_main.hpp"
#include "experiments/harness/limits.hpp"
#include "experiments/harness/transform.hpp"
#include "reference/inputs.hpp"
#include "variants/kit/launch_regime.hpp"

namespace fwht {
namespace {

using harness::Mode;

struct TuningOptions {
  std::vector<int> log_n, log_bytes{16, 18, 20, 21, 22, 23, 24, 25, 27};
  std::vector<std::int64_t> rows;  // in place of log_bytes
  std::vector<std::string> dtypes{"f16"};
  std::vector<std::string> modes;  // none: by the size
};

/// Sizes of the L2 by the honest mode, the others by the plain one.
Mode mode_for(std::int64_t bytes) {
  const Regime regime = regime_of(bytes);
  return regime == Regime::small || regime == Regime::dram ? Mode::replay : Mode::alternating;
}

std::vector<std::byte> random_data(const Problem& problem, reference::InputClass input) {
  std::vector<std::byte> data(static_cast<std::size_t>(problem.span_bytes()));
  reference::write_input(problem, input, 1, data.data());
  return data;
}

std::vector<std::byte> downloaded(const Buffer& buffer) {
  std::vector<std::byte> data(buffer.bytes());
  synchronize(Memory::device);
  buffer.download(data.data(), data.size());
  return data;
}

/// On rows that do not fill the last block, so that the tail is part of it.
void expect_the_same_bits(const LaunchTuning& tuning, const std::vector<LaunchCandidate>& all, Dtype dtype,
                          int log_n, const DeviceInfo& device) {
  const Problem problem = make_problem(dtype, std::int64_t{1} << log_n,
                                       (tuning.compared_elements >> log_n) + 3, Placement::out_of_place);
  const std::vector<std::byte> data =
      random_data(problem, tuning.compared_on_integers ? reference::InputClass::sign_dense
                                                       : reference::InputClass::normal);
  Buffer in(Memory::device, data.size()), out(Memory::device, data.size());
  in.upload(data.data(), data.size());
  plan(tuning.variant, problem, device)->execute(in.data(), out.data());
  const std::vector<std::byte> expected = downloaded(out);
  for (const LaunchCandidate& candidate : all) {
    Buffer got(Memory::device, data.size());
    candidate.enqueue(in.data(), got.data(), problem.rows, nullptr);
    if (downloaded(got) == expected && got.guards_intact()) continue;
    throw std::runtime_error(fmt::format("{}: {} ({}) gives other bits than {}", to_string(problem),
                                         candidate.values, tuning.columns, tuning.variant.name));
  }
}

class TuningRun {
 public:
  TuningRun(const LaunchTuning& tuning, const DeviceInfo& device, std::vector<Mode> modes)
      : tuning_(tuning),
        device_(device),
        modes_(std::move(modes)),
        bench_(device),
        limits_(bench_, [](auto&&...) {}) {}

  void measure(Dtype dtype, int log_n, const std::vector<std::int64_t>& row_counts) {
    const std::vector<LaunchCandidate> all = tuning_.candidates(dtype, log_n);
    if (!all.empty()) expect_the_same_bits(tuning_, all, dtype, log_n, device_);
    for (const std::int64_t rows : row_counts) {
      const Problem problem = make_problem(dtype, std::int64_t{1} << log_n, rows);
      if (problem.rows == 0) continue;
      if (modes_.empty()) time(all, problem, mode_for(problem.span_bytes()));
      for (const Mode mode : modes_)
        time(all, problem, mode);
    }
  }

 private:
  void time(const std::vector<LaunchCandidate>& all, const Problem& problem, Mode mode) {
    const harness::Description what = harness::describe(tuning_.variant, problem);
    const double limit_us = limits_.best(what, mode).timing.time_us;
    std::vector<harness::Subject> subjects;
    for (const LaunchCandidate& candidate : all) {
      harness::Subject subject{what};
      subject.launch = [&](const void* in, void* out, Stream stream) {
        candidate.enqueue(in, out, problem.rows, stream);
      };
      subject.fill = [&](harness::Slices& slices) {
        slices.fill(truths_.input_of(problem, reference::InputClass::normal, 1));
      };
      subjects.push_back(std::move(subject));
    }
    harness::measure_each(subjects, mode, bench_, [&](std::size_t i, const Timing& timing) {
      const double time_us = timing.time_us;
      std::cout << fmt::format("{},{},{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.3f}\n", name_of(problem.dtype()),
                               problem.n(), problem.elements(), harness::name_of(mode), all[i].values,
                               all[i].registers, all[i].spilled_bytes, time_us, limit_us, time_us - limit_us,
                               limit_us / time_us)
                << std::flush;
    });
  }

  const LaunchTuning& tuning_;
  const DeviceInfo& device_;
  std::vector<Mode> modes_;
  harness::Bench bench_;
  harness::Limits limits_;
  harness::TruthCache truths_;
};

template <class Number>
void expect_between(const std::string& option, const std::vector<Number>& values, Number smallest,
                    Number largest) {
  for (const Number value : values) {
    if (value < smallest || value > largest) {
      throw BadRequest(fmt::format("--{}={} must be between {} and {}", option, value, smallest, largest));
    }
  }
}

/// Candidates are launched one by one, on the device, and in no other way.
Mode launched_mode(const std::string& name) {
  const Mode mode = harness::kModes.parse(name);
  if (mode == Mode::host || mode == Mode::replay_pdl)
    throw BadRequest(fmt::format("--mode={} must be replay, alternating or cold", name));
  return mode;
}

/// Throws BadRequest for bad options and std::runtime_error when a candidate gives other bits.
int tune_launches(const LaunchTuning& tuning, const std::string& program, int argc, const char* const* argv) {
  TuningOptions options;
  for (int log_n = tuning.smallest_log_n; log_n <= tuning.largest_log_n; ++log_n)
    options.log_n.push_back(log_n);
  CLI::App app{fmt::format("Measures launch configurations of {}", tuning.variant.name), program};
  app.add_option("--log-n", options.log_n, "log2 of the row lengths");
  app.add_option("--log-bytes", options.log_bytes, "log2 of the bytes of the data");
  app.add_option("--rows", options.rows, "rows, in place of --log-bytes");
  app.add_option("--dtype", options.dtypes, "f16, bf16, f32");
  app.add_option("--mode", options.modes, "replay, alternating, cold (default: by the size)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  expect_between("log-n", options.log_n, tuning.smallest_log_n, tuning.largest_log_n);
  expect_between("log-bytes", options.log_bytes, 10, 33);
  expect_between("rows", options.rows, std::int64_t{1}, std::int64_t{1} << 32);
  const DeviceInfo device = this_device();
  if (Support cuda = require_cuda(device); !cuda) throw BadRequest(cuda.why_not);

  std::cout << "dtype,n,elements,mode," << tuning.columns
            << ",registers,spilled_bytes,time_us,limit_us,over_us,fraction\n";
  std::vector<Mode> modes;
  for (const std::string& name : options.modes)
    modes.push_back(launched_mode(name));
  TuningRun session(tuning, device, std::move(modes));
  for (const std::string& dtype : options.dtypes) {
    for (const int log_n : options.log_n) {
      std::vector<std::int64_t> rows = options.rows;
      for (const int size : rows.empty() ? options.log_bytes : std::vector<int>{})
        rows.push_back((std::int64_t{1} << size) / bytes_of(parse_dtype(dtype)) >> log_n);
      session.measure(parse_dtype(dtype), log_n, rows);
    }
  }
  return 0;
}

}  // namespace
}  // namespace fwht

int main(int argc, char** argv) {
  const fwht::LaunchTuning tuning = fwht::launch_tuning();
  const std::string program = std::string(tuning.variant.name) + "_tune";
  return fwht::run_main(program, [&] { return fwht::tune_launches(tuning, program, argc, argv); });
}
