#include "experiments/harness/tasks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "common/device/memory.hpp"
#include "experiments/harness/interrupt.hpp"
#include "experiments/harness/performer.hpp"
#include "experiments/harness/progress.hpp"

namespace fwht::harness {
namespace {

bool has_identity(const CsvRow& row, const CsvRow& identity) {
  return std::all_of(identity.begin(), identity.end(), [&](const auto& entry) {
    const auto found = row.find(entry.first);
    return found != row.end() && found->second == entry.second;
  });
}

std::vector<CsvRow> outcome_of(const Task& task) {
  std::vector<CsvRow> rows;
  try {
    rows = task.run();
  } catch (const DiskFull&) {
    throw;
  } catch (const std::exception& error) {
    rows = {{{"status", "failed"}, {"message", error.what()}}};
  }
  for (CsvRow& row : rows) {
    row.insert(task.identity.begin(), task.identity.end());
    row.insert({"status", "ok"});
  }
  return rows;
}

bool device_lost(const DeviceInfo& device) {
  if (!device.has_cuda()) return false;
  try {
    synchronize(Memory::device);
    return false;
  } catch (const std::exception&) {
    return true;
  }
}

}  // namespace

std::string Task::name() const {
  std::string text = label;
  if (!text.empty()) return text;
  for (const auto& [column, value] : identity) {
    if (!value.empty()) text += (text.empty() ? "" : "/") + value;
  }
  return text;
}

bool run_tasks(const std::vector<Task>& tasks, const std::string& table, const DeviceInfo& device,
               ResultsFolder& folder) {
  const std::vector<CsvRow> there = folder.rows(table);
  const auto missing = [&](const Task& task) {
    return std::none_of(there.begin(), there.end(),
                        [&](const CsvRow& row) {
                          return has_identity(row, task.identity) && row.at("status") == "failed";
                        }) &&
           std::count_if(there.begin(), there.end(),
                         [&](const CsvRow& row) { return has_identity(row, task.identity); }) < task.rows;
  };
  std::vector<const Task*> left;
  std::set<CsvRow> listed;  // a task that was asked for twice runs once
  for (const Task& task : tasks) {
    if ((there.empty() || missing(task)) && listed.insert(task.identity).second) left.push_back(&task);
  }
  CsvWriter& writer = folder.table(table);
  Progress progress(left.size());
  for (const Task* task : left) {
    if (interrupted_by() != 0) return false;
    progress.begin(task->name());
    for (const CsvRow& row : outcome_of(*task)) {
      // What a killed run left of a task of several rows stays.
      if (std::any_of(there.begin(), there.end(), [&](const CsvRow& old) { return has_identity(old, row); }))
        continue;
      writer.append(row);
      if (row.at("status") != "ok")
        progress.note(fmt::format("{}: {}: {}", task->name(), row.at("status"), row.at("message")));
    }
    progress.done();
    if (device_lost(device)) {
      progress.note(fmt::format("the device became unusable in {}; --resume {} measures the rest",
                                task->name(), folder.path().string()));
      return false;
    }
  }
  return true;
}

bool all_ok(const ResultsFolder& folder, const std::string& table) {
  const std::vector<CsvRow> rows = folder.rows(table);
  return std::all_of(rows.begin(), rows.end(), [](const CsvRow& row) {
    const auto source = row.find("source");  // not every table has one
    return row.at("status") == "ok" ||
           (source != row.end() && source->second == name_of(Source::emulated_a100));
  });
}

}  // namespace fwht::harness
