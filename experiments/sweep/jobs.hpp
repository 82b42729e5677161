// Which subject is timed in which mode.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/contract/variant.hpp"
#include "common/device/device_info.hpp"
#include "experiments/harness/csv.hpp"
#include "experiments/harness/grid.hpp"
#include "experiments/harness/subject.hpp"
#include "experiments/harness/transform.hpp"

namespace fwht::sweep {

/// Keeps a case when every list that is not empty names its value.
struct Filters {
  std::vector<std::int64_t> n, rows, elements;
  std::vector<Dtype> dtypes;
  std::vector<Placement> placements;
  std::vector<harness::Mode> modes;

  bool keep(const harness::Case& c) const;
};

/// Who takes part: a variant of the ladder, or a kernel of others (experiments/bench).
struct Contestant {
  std::string name;
  Memory memory = Memory::device;
  std::function<Support(const Problem&)> supports;
  /// Asked for when the job is run, and only for what is supported. Throws what making a plan throws.
  std::function<harness::Subject(const Problem&, const std::shared_ptr<harness::TruthCache>&)> subject;
};
/// `device` must outlive it.
Contestant contestant_of(const Variant& variant, const DeviceInfo& device);

struct Job {
  harness::Description what;
  harness::Mode mode = harness::Mode::host;
  std::function<harness::Subject()> make;

  /// "cpu/f16/n1024/r64/host": variant, problem and mode; the name in Google Benchmark.
  std::string name() const;
};

struct UnsupportedJob {
  harness::Description what;
  std::string reason;
};

struct JobList {
  std::vector<Job> jobs;
  std::vector<UnsupportedJob> unsupported;  ///< one per variant and problem, whatever the modes
};

/// Every contestant with the cases of its memory, what is not supported apart. In an order that makes FP64
/// truths once: by n and dtype, then by contestant, then as the grid has them. Throws BadRequest for no case,
/// for rows = 0, and for problems that differ in their scale only (the tables have no column for it).
JobList make_jobs(const std::vector<Contestant>& contestants, const std::vector<harness::Case>& cases);
/// The same for variants. `device` must outlive the jobs.
JobList make_jobs(const std::vector<const Variant*>& variants, const std::vector<harness::Case>& cases,
                  const DeviceInfo& device);

/// Keeps the jobs whose name the regular expression matches somewhere; with a "-" in front of it, the others.
/// As --benchmark_filter of Google Benchmark. Throws BadRequest for what is no regular expression, and where
/// it leaves none of the jobs.
void filter_by_name(std::vector<Job>& jobs, const std::string& filter);

/// What the tables say about a job or an unsupported problem before anything is measured.
harness::CsvRow describe(const Job& job);
harness::CsvRow describe(const UnsupportedJob& unsupported);

/// Identity of a row of results.csv; the same for a job and for the row that it became.
std::string result_key(const harness::CsvRow& row);
/// Throws BadRequest where a row of results.csv is of one of `recorded`, and not of the case that it would
/// pass for: of one with another scale, type or row stride of the output.
void require_same_problems(const std::vector<harness::Case>& cases, const std::vector<Problem>& recorded,
                           const std::vector<harness::CsvRow>& results);
/// Identity of a row of unsupported.csv.
std::string unsupported_key(const harness::CsvRow& row);

}  // namespace fwht::sweep
