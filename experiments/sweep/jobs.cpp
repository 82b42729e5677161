#include "experiments/sweep/jobs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "common/error.hpp"
#include "experiments/harness/schema.hpp"

namespace fwht::sweep {

using harness::Case;
using harness::CsvRow;
using harness::Mode;

namespace {

template <class Value>
bool names(const std::vector<Value>& list, const Value& value) {
  return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
}

auto group_of(const Case& c) {
  return std::tuple{c.problem.n(), c.problem.dtype()};
}

std::string key_of(const CsvRow& row, const char* table) {
  std::string key;
  for (const std::string& column : harness::table_schema(table).key())
    key += row.at(column) + "/";
  return key;
}

void require_usable(const std::vector<Case>& cases) {
  if (cases.empty())
    throw BadRequest("no problem is left to time: the grid and the filters have none in common");
  std::map<std::string, double> scales;
  for (const Case& c : cases) {
    const Problem& problem = c.problem;
    if (problem.rows == 0)
      throw BadRequest(fmt::format("{}: rows=0 leaves nothing to time", to_string(problem)));
    Problem orthonormal = problem;
    orthonormal.scale = orthonormal_scale(problem.n());
    const auto [known, is_new] = scales.emplace(to_string(orthonormal), problem.scale);
    if (!is_new && known->second != problem.scale) {
      throw BadRequest(fmt::format("{} differs from another problem in its scale only; time them in two runs",
                                   to_string(problem)));
    }
  }
}

CsvRow describe_problem(const Variant& variant, const Problem& problem) {
  return {{"variant", std::string(variant.name)},
          {"operator", to_string(problem.op)},
          {"encoding", to_string(problem.encoding)},
          {"dtype", std::string(name_of(problem.dtype()))},
          {"n", std::to_string(problem.n())},
          {"rows", std::to_string(problem.rows)},
          {"placement", std::string(harness::name_of(problem.placement))}};
}

}  // namespace

bool Filters::keep(const Case& c) const {
  const Problem& p = c.problem;
  return names(n, p.n()) && names(rows, p.rows) && names(elements, p.elements()) &&
         names(dtypes, p.dtype()) && names(placements, p.placement) && names(modes, c.mode);
}

std::string Job::name() const {
  return fmt::format("{}/{}/{}", variant->name, to_string(what.problem), harness::name_of(what.mode));
}

JobList make_jobs(const std::vector<const Variant*>& variants, const std::vector<Case>& cases,
                  const DeviceInfo& device) {
  require_usable(cases);
  std::vector<Case> sorted = cases;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Case& a, const Case& b) { return group_of(a) < group_of(b); });
  JobList list;
  std::set<std::string> listed;
  for (auto first = sorted.begin(); first != sorted.end();) {
    const auto last =
        std::find_if(first, sorted.end(), [&](const Case& c) { return group_of(c) != group_of(*first); });
    for (const Variant* variant : variants) {
      for (auto c = first; c != last; ++c) {
        if (memory_of(c->mode) != variant->memory) continue;
        const Job job{variant, *c};
        if (const Support support = variant->supports(c->problem, device); support) {
          if (listed.insert(job.name()).second) list.jobs.push_back(job);
        } else if (const Unsupported entry{variant, c->problem, support.why_not};
                   listed.insert(unsupported_key(describe(entry))).second) {
          list.unsupported.push_back(entry);
        }
      }
    }
    first = last;
  }
  return list;
}

CsvRow describe(const Job& job) {
  const Problem& problem = job.what.problem;
  CsvRow row = describe_problem(*job.variant, problem);
  row["memory"] = harness::name_of(job.variant->memory);
  row["elements"] = std::to_string(problem.elements());
  row["row_stride"] = std::to_string(problem.row_stride());
  row["mode"] = harness::name_of(job.what.mode);
  row["bytes_read"] = std::to_string(problem.bytes_read());
  row["bytes_written"] = std::to_string(problem.bytes_written());
  row["useful_bytes"] = std::to_string(problem.useful_bytes());
  return row;
}

CsvRow describe(const Unsupported& unsupported) {
  CsvRow row = describe_problem(*unsupported.variant, unsupported.problem);
  row["reason"] = unsupported.reason;
  return row;
}

std::string result_key(const CsvRow& row) {
  return key_of(row, "results.csv");
}

std::string unsupported_key(const CsvRow& row) {
  return key_of(row, "unsupported.csv");
}

}  // namespace fwht::sweep
