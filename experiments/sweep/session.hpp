// The measurements of one run of the sweep.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/device/gpu_timer.hpp"
#include "experiments/harness/csv.hpp"
#include "experiments/harness/limits.hpp"
#include "experiments/harness/measure.hpp"
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
  Timing timing = {};   ///< where it is ok
  double limit_us = 0.0;
  std::string message = {};  ///< why it is not ok
};

class Session {
 public:
  /// `record_limit`: called with each row of limits.csv. `replays`: of every variant; the copies have the
  /// timer's own number.
  Session(const DeviceInfo& device, std::function<void(const harness::CsvRow&)> record_limit,
          int replays = TimerOptions{}.replays);

  /// Measures the limit, checks, times. Never throws for what a variant does: see Outcome.
  Outcome run(const Job& job);

  /// Non-empty once an error has made the device unusable for this process: what the error was. All later
  /// jobs of the device come back as not_run.
  const std::string& device_lost() const { return device_lost_; }

 private:
  Outcome measure(const Job& job);
  const harness::Judgement& check(const Job& job);
  void probe_device(const std::string& error);

  harness::Bench bench_;
  harness::Limits limits_;
  int replays_;
  std::string device_lost_;

  // What was checked last; another mode of the same problem needs no second check.
  std::string checked_name_;
  std::optional<harness::Subject> subject_;
  harness::Judgement judgement_;
};

}  // namespace fwht::sweep
