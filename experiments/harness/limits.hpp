// The limit of a problem: the best copy kernel that reads and writes as many bytes, measured in the same run
// and mode.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <tuple>

#include "common/device/gpu_timer.hpp"
#include "experiments/harness/measure.hpp"

namespace fwht::harness {

struct Limit {
  std::string kernel;  ///< the fastest
  Timing timing;
};

class Limits {
 public:
  /// Called once for every copy kernel and key, in the order of measuring, with a row of limits.csv.
  using Record = std::function<void(const CsvRow&)>;

  Limits(Bench& bench, Record record);

  /// The limit for what moves as many bytes as the subject, in the mode's memory. Measured when first asked
  /// for. Throws OutOfMemory when the buffers do not fit, BadRequest without a device.
  ///
  /// @param programmatic  by copies that are launched with programmatic dependence
  const Limit& best(const Description& subject, Mode mode, bool programmatic);
  const Limit& best(const Description& subject, Mode mode) {
    return best(subject, mode, is_programmatic(mode));
  }

 private:
  Limit measure(Traffic traffic, Placement placement, Mode mode, bool programmatic);

  Bench& bench_;
  Record record_;
  std::map<std::tuple<Traffic, Placement, Mode, bool>, Limit> known_;
};

}  // namespace fwht::harness
