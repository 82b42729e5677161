#include "experiments/sweep/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/memory.hpp"
#include "experiments/harness/device_work.hpp"
#include "experiments/harness/procedure.hpp"
#include "experiments/harness/settings_json.hpp"

namespace fwht::sweep {

using harness::csv_number;
using harness::CsvRow;
using harness::Mode;
using harness::Slices;

namespace {

constexpr std::uint64_t kSeed = 1;
constexpr auto kInput = reference::InputClass::normal;

CsvRow limit_row(Memory memory, std::int64_t useful_bytes, Placement placement, Mode mode,
                 const std::string& kernel, const Timing& timing) {
  return {{"memory", std::string(harness::name_of(memory))},
          {"useful_bytes", std::to_string(useful_bytes)},
          {"bytes_read", std::to_string(useful_bytes / 2)},
          {"bytes_written", std::to_string(useful_bytes / 2)},
          {"placement", std::string(harness::name_of(placement))},
          {"mode", std::string(harness::name_of(mode))},
          {"kernel", kernel},
          {"time_us", csv_number(timing.time_us)},
          {"time_min_us", csv_number(timing.min_us)},
          {"time_max_us", csv_number(timing.max_us)}};
}

void add_numerics(CsvRow& row, const Plan& plan, const reference::ErrorStats& stats) {
  row["rel_l2"] = csv_number(stats.rel_l2);
  row["predicted_rel_l2"] =
      csv_number(reference::predicted_rel_l2(plan.numerics(), plan.problem(), stats.expected_rms));
  row["max_error_over_rms"] = csv_number(stats.max_error_over_rms);
  row["gain"] = csv_number(stats.gain);
}

void add_time(CsvRow& row, const Problem& problem, const Timing& timing) {
  row["time_us"] = csv_number(timing.time_us);
  row["time_min_us"] = csv_number(timing.min_us);
  row["time_max_us"] = csv_number(timing.max_us);
  row["launches"] = std::to_string(timing.launches);
  row["replays"] = std::to_string(timing.replays);
  row["bytes_per_second"] = csv_number(static_cast<double>(problem.useful_bytes()) / (1e-6 * timing.time_us));
}

Outcome without_time(const Job& job, Outcome::Status status, const char* word, const std::string& message) {
  Outcome outcome{status, describe(job), 0.0, 0.0, message};
  outcome.row["status"] = word;
  outcome.row["message"] = message;
  return outcome;
}

}  // namespace

Session::Session(const DeviceInfo& device, std::function<void(const CsvRow&)> record_limit)
    : device_(device),
      cold_bytes_(device.has_cuda() ? free_bytes(Memory::device) / 2 : 0),
      limits_(device, workspace_, cold_bytes_,
              [record = std::move(record_limit)](auto&&... limit) { record(limit_row(limit...)); }) {}

Outcome Session::run(const Job& job) {
  if (!device_lost_.empty() && job.variant->memory == Memory::device) {
    return {Outcome::Status::not_run, {}, 0.0, 0.0, "not run: " + device_lost_};
  }
  try {
    return measure(job);
  } catch (const harness::OutOfMemory& error) {
    const Unsupported entry{job.variant, job.what.problem, error.what()};
    return {Outcome::Status::unsupported, describe(entry), 0.0, 0.0, error.what()};
  } catch (const std::exception& error) {
    checked_name_.clear();
    probe_device(error.what());
    return without_time(job, Outcome::Status::failed, "failed", error.what());
  }
}

// An error such as an illegal address stays with the process: every later call would fail as well, and to
// blame the variants that come next would be wrong.
void Session::probe_device(const std::string& error) {
  if (!device_.has_cuda()) return;
  try {
    synchronize(Memory::device);
  } catch (const std::exception&) {
    device_lost_ = "the device became unusable: " + error;
  }
}

Outcome Session::measure(const Job& job) {
  const Problem& problem = job.what.problem;
  const harness::Limit& limit = limits_.best(problem.useful_bytes(), problem.placement, job.what.mode);
  const harness::Truth& truth = truths_.of(problem, kInput, kSeed);
  const reference::Checked& checked = check(job, truth);

  Outcome outcome;
  outcome.row = describe(job);
  CsvRow& row = outcome.row;
  add_numerics(row, *plan_, checked.stats);
  row["settings"] = harness::settings_json(*plan_);
  row["limit_us"] = csv_number(limit.timing.time_us);
  row["limit_kernel"] = limit.kernel;
  if (job.variant->memory == Memory::device) row["empty_us"] = csv_number(empty_us());
  if (!checked.verdict) {  // a wrong result has no time
    outcome.status = Outcome::Status::incorrect;
    outcome.message = checked.verdict.message;
    row["status"] = "incorrect";
    row["message"] = outcome.message;
    return outcome;
  }
  const Timing timing = time(job, truth);
  outcome.status = Outcome::Status::ok;
  outcome.time_us = timing.time_us;
  outcome.fraction_of_limit = limit.timing.time_us / timing.time_us;
  row["status"] = "ok";
  add_time(row, problem, timing);
  row["fraction_of_limit"] = csv_number(outcome.fraction_of_limit);
  return outcome;
}

const reference::Checked& Session::check(const Job& job, const harness::Truth& truth) {
  const Problem& problem = job.what.problem;
  const std::string name = fmt::format("{}/{}", job.variant->name, to_string(problem));
  if (name != checked_name_) {
    checked_name_.clear();
    plan_.reset();
    plan_ = plan(*job.variant, problem, device_);
    Slices& slices = workspace_.get(job.variant->memory, problem.placement, problem.span_bytes());
    checked_ = harness::check_plan(*plan_, truth, slices);
    checked_name_ = name;
  }
  return checked_;
}

Timing Session::time(const Job& job, const harness::Truth& truth) {
  const Problem& problem = job.what.problem;
  const Mode mode = job.what.mode;
  const Memory memory = job.variant->memory;
  const auto period = static_cast<std::int64_t>(truth.raw.size());

  harness::Alternation alternation;
  if (mode == Mode::alternating) {
    alternation = limits_.alternation(problem.useful_bytes(), problem.placement, problem.dtype());
  }
  const std::int64_t count =
      harness::slice_count(mode, problem.placement, problem.span_bytes(), device_.l2_bytes, cold_bytes_);
  Slices& slices = workspace_.get(memory, problem.placement, problem.span_bytes(), count);
  slices.fill(truth.raw.data(), period);

  TimerOptions options;
  const std::int64_t applications = harness::applications_in_place(plan_->numerics(), problem);
  const std::int64_t most = (options.replays + 4) * options.max_launches;
  if (problem.placement == Placement::in_place && applications < most) {
    // The scale drifts: put the data back before every replay, and keep replays short enough.
    auto pristine = std::make_shared<Slices>(memory, Placement::in_place, problem.span_bytes(), 1);
    pristine->fill(truth.raw.data(), period);
    options.before_replay = [&slices, pristine](Stream stream) {
      for (std::int64_t i = 0; i < slices.count(); ++i) {
        harness::enqueue_copy(slices.memory(), slices.out(i), pristine->in(0), slices.bytes(), stream);
      }
    };
    const std::int64_t per_application = mode == Mode::alternating ? 2 : count;
    options.max_launches = std::min(options.max_launches, applications * per_application);
    options.min_launches = std::min(options.min_launches, options.max_launches);
  }
  const harness::Launch launch = [this](const void* in, void* out, Stream stream) {
    plan_->execute(in, out, stream);
  };
  return harness::time_in_mode(mode, launch, alternation, slices, options);
}

double Session::empty_us() {
  if (!empty_us_) empty_us_ = time_empty_kernel().time_us;
  return *empty_us_;
}

}  // namespace fwht::sweep
