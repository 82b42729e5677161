// Long experiments as a list of tasks: with progress, resumable, each result on disk as soon as it is known.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/device/device_info.hpp"
#include "experiments/harness/results_folder.hpp"

namespace fwht::harness {

/// Makes `rows` rows of one table that share the columns of `identity`.
struct Task {
  CsvRow identity;
  int rows = 1;
  std::function<std::vector<CsvRow>()> run;  ///< without the identity, which is added

  std::string label = {};  ///< what progress calls it; "": the values of the identity, with slashes

  std::string name() const;
};

/// Runs what the folder's table does not hold completely. A task that throws becomes a row with status
/// "failed"; status "ok" is added where a row has none. Ends early when the device is lost or a signal has
/// come (interrupted_by). True when everything was run.
bool run_tasks(const std::vector<Task>& tasks, const std::string& table, const DeviceInfo& device,
               ResultsFolder& folder);

/// Whether all rows of the table have status "ok", but for predictions of another device: one that leaves the
/// bounds of its model is a finding about the model, not a wrong result.
bool all_ok(const ResultsFolder& folder, const std::string& table);

}  // namespace fwht::harness
