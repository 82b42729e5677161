// The measurements of one run of the sweep.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/gpu_timer.hpp"
#include "experiments/harness/checked_run.hpp"
#include "experiments/harness/csv.hpp"
#include "experiments/harness/limits.hpp"
#include "experiments/sweep/jobs.hpp"

namespace fwht::sweep {

struct Outcome {
  enum class Status {
    ok,
    incorrect,    ///< has no time
    failed,       ///< threw
    unsupported,  ///< does not fit into memory
    not_run       ///< the device was lost before
  };
  Status status = Status::not_run;
  harness::CsvRow row;  ///< for results.csv, or for unsupported.csv
  double time_us = 0.0, fraction_of_limit = 0.0;
  std::string message;  ///< why it is not ok
};

class Session {
 public:
  /// `record_limit`: called with each row of limits.csv.
  Session(const DeviceInfo& device, std::function<void(const harness::CsvRow&)> record_limit);

  /// Measures the limit, checks, times. Never throws for what a variant does: see Outcome.
  Outcome run(const Job& job);

  /// Non-empty once an error has made the device unusable for this process: what the error was. All later
  /// jobs of the device come back as not_run.
  const std::string& device_lost() const { return device_lost_; }

 private:
  Outcome measure(const Job& job);
  const reference::Checked& check(const Job& job, const harness::Truth& truth);
  Timing time(const Job& job, const harness::Truth& truth);
  double empty_us();
  void probe_device(const std::string& error);

  const DeviceInfo& device_;
  harness::Workspace workspace_;
  harness::TruthCache truths_;
  std::int64_t cold_bytes_;
  harness::Limits limits_;
  std::optional<double> empty_us_;
  std::string device_lost_;

  // What was checked last; another mode of the same problem needs no second check.
  std::string checked_name_;
  std::unique_ptr<Plan> plan_;
  reference::Checked checked_;
};

}  // namespace fwht::sweep
