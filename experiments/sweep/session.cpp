#include "experiments/sweep/session.hpp"

#include <utility>

#include "common/device/memory.hpp"

namespace fwht::sweep {

using harness::csv_number;
using harness::CsvRow;

namespace {

void add_time(CsvRow& row, std::int64_t useful_bytes, const Timing& timing) {
  row["time_us"] = csv_number(timing.time_us);
  row["time_min_us"] = csv_number(timing.min_us);
  row["time_max_us"] = csv_number(timing.max_us);
  row["launches"] = std::to_string(timing.launches);
  row["replays"] = std::to_string(timing.replays);
  row["bytes_per_second"] = csv_number(static_cast<double>(useful_bytes) / (1e-6 * timing.time_us));
}

Outcome without_time(CsvRow row, Outcome::Status status, const char* word, const std::string& message) {
  row["status"] = word;
  row["message"] = message;
  return {status, std::move(row), {}, 0.0, message};
}

}  // namespace

Session::Session(const DeviceInfo& device, std::function<void(const CsvRow&)> record_limit, int replays)
    : bench_(device), limits_(bench_, std::move(record_limit)), replays_(replays) {}

Outcome Session::run(const Job& job) {
  if (!device_lost_.empty() && job.what.buffers.memory == Memory::device) {
    return {Outcome::Status::not_run, {}, {}, 0.0, "not run: " + device_lost_};
  }
  try {
    return measure(job);
  } catch (const harness::DiskFull&) {  // of the limits' table: no fault of the variant
    throw;
  } catch (const harness::OutOfMemory& error) {
    return {Outcome::Status::unsupported,
            describe(UnsupportedJob{job.what, error.what()}),
            {},
            0.0,
            error.what()};
  } catch (const std::exception& error) {
    checked_name_.clear();
    probe_device(error.what());
    return without_time(describe(job), Outcome::Status::failed, "failed", error.what());
  }
}

// An error such as an illegal address stays with the process: every later call would fail as well, and to
// blame the variants that come next would be wrong.
void Session::probe_device(const std::string& error) {
  if (!bench_.device().has_cuda()) return;
  try {
    synchronize(Memory::device);
  } catch (const std::exception&) {
    device_lost_ = "the device became unusable: " + error;
  }
}

Outcome Session::measure(const Job& job) {
  const harness::Limit& limit = limits_.best(job.what, job.mode);
  const harness::Judgement& judgement = check(job);

  CsvRow row = describe(job);
  row.insert(judgement.columns.begin(), judgement.columns.end());
  row["settings"] = subject_->settings();
  if (subject_->host_us && judgement.verdict) {
    if (const double host_us = subject_->host_us(); host_us > 0.0) row["host_us"] = csv_number(host_us);
  }
  row["limit_us"] = csv_number(limit.timing.time_us);
  row["limit_kernel"] = limit.kernel;
  if (job.what.buffers.memory == Memory::device) row["empty_us"] = csv_number(bench_.empty_us());
  if (!judgement.verdict) {  // a wrong result has no time
    return without_time(std::move(row), Outcome::Status::incorrect, "incorrect", judgement.verdict.message);
  }
  const harness::ClockedTiming measured = harness::measure(*subject_, job.mode, bench_, replays_);
  measured.describe_clock(row);
  Outcome outcome{Outcome::Status::ok, std::move(row), measured, limit.timing.time_us};
  outcome.row["status"] = "ok";
  add_time(outcome.row, job.what.traffic.useful(), outcome.timing);
  outcome.row["fraction_of_limit"] = csv_number(outcome.limit_us / outcome.timing.time_us);
  return outcome;
}

const harness::Judgement& Session::check(const Job& job) {
  if (job.what.name != checked_name_) {
    checked_name_.clear();
    subject_.reset();
    subject_ = job.make();
    judgement_ = subject_->check(bench_.slice(*subject_));
    checked_name_ = job.what.name;
  }
  return judgement_;
}

}  // namespace fwht::sweep
