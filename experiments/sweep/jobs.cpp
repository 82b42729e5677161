#include "experiments/sweep/jobs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <tuple>

#include "common/host/error.hpp"
#include "variants/registry.hpp"

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
    harness::require_judged(problem);
    Problem orthonormal = problem;
    orthonormal.scale = orthonormal_scale(problem.n());
    const auto [known, is_new] = scales.emplace(to_string(orthonormal), problem.scale);
    if (!is_new && known->second != problem.scale) {
      throw BadRequest(fmt::format(
          "{} differs from another problem in its scale only; time them in two folders", to_string(problem)));
    }
  }
}

// The plan is made when the job is run.
Job make_job(const Contestant& contestant, const Case& c,
             const std::shared_ptr<harness::TruthCache>& truths) {
  const auto make = [subject = contestant.subject, problem = c.problem, truths] {
    truths->of(problem, harness::judged_input(problem.dtype(), reference::InputClass::normal), 1);
    return subject(problem, truths);
  };
  return {harness::describe(contestant.name, contestant.memory, c.problem), c.mode, make};
}

// In polynomial time where the library can, and never deep enough for its stack: an expression is text from
// outside.
std::regex filter_expression(const std::string& text) {
#ifdef __GLIBCXX__
  constexpr auto kSyntax = std::regex::extended | std::regex_constants::__polynomial;
#else
  constexpr auto kSyntax = std::regex::extended;
#endif
  return std::regex(text, kSyntax);
}

}  // namespace

bool Filters::keep(const Case& c) const {
  const Problem& p = c.problem;
  return names(n, p.n()) && names(rows, p.rows) && names(elements, p.elements()) &&
         names(dtypes, p.dtype()) && names(placements, p.placement) && names(modes, c.mode);
}

std::string Job::name() const {
  return fmt::format("{}/{}", what.name, harness::name_of(mode));
}

Contestant contestant_of(const Variant& variant, const DeviceInfo& device) {
  return {
      std::string(variant.name), variant.memory,
      [&](const Problem& problem) {
        if (&variant == &rotate_then_quantize::variant && problem.encoding.is_plain())
          return Support{"without an encoding this variant is `auto`; time `auto` instead"};
        if (&variant == &automatic::variant && !problem.encoding.is_plain())
          return Support{"encoded rows of auto are timed under the name of the variant whose plans they are"};
        const Support support = variant.supports(problem, device);
        return support ? harness::fits_into_memory(harness::describe(variant, problem).buffers, device)
                       : support;
      },
      [&](const Problem& problem, const std::shared_ptr<harness::TruthCache>& truths) {
        return harness::transform_subject(variant, plan(variant, problem, device), device, truths);
      }};
}

JobList make_jobs(const std::vector<const Variant*>& variants, const std::vector<Case>& cases,
                  const DeviceInfo& device) {
  std::vector<Contestant> contestants;
  contestants.reserve(variants.size());
  for (const Variant* variant : variants)
    contestants.push_back(contestant_of(*variant, device));
  return make_jobs(contestants, cases);
}

JobList make_jobs(const std::vector<Contestant>& contestants, const std::vector<Case>& cases) {
  require_usable(cases);
  std::vector<Case> sorted = cases;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Case& a, const Case& b) { return group_of(a) < group_of(b); });
  const auto truths = std::make_shared<harness::TruthCache>();
  JobList list;
  std::set<std::string> listed;
  std::map<std::string, std::string> rows;  // names of jobs
  for (auto first = sorted.begin(); first != sorted.end();) {
    const auto last =
        std::find_if(first, sorted.end(), [&](const Case& c) { return group_of(c) != group_of(*first); });
    for (const Contestant& contestant : contestants) {
      for (auto c = first; c != last; ++c) {
        if (memory_of(c->mode) != contestant.memory) continue;
        const Job job = make_job(contestant, *c, truths);
        if (const Support support = contestant.supports(c->problem); support) {
          if (!listed.insert(job.name()).second) continue;
          const auto [other, is_new] = rows.emplace(result_key(describe(job)), job.name());
          if (!is_new) {
            throw BadRequest(
                fmt::format("{} and {} would be one row of results.csv, which does not tell their outputs "
                            "apart; time them in two folders",
                            other->second, job.name()));
          }
          list.jobs.push_back(job);
        } else if (const UnsupportedJob entry{job.what, support.why_not};
                   listed.insert(unsupported_key(describe(entry))).second) {
          list.unsupported.push_back(entry);
        }
      }
    }
    first = last;
  }
  return list;
}

void filter_by_name(std::vector<Job>& jobs, const std::string& filter) {
  if (filter.empty() || filter == "all") return;
  constexpr std::size_t kLongest = 1000;
  if (filter.size() > kLongest)
    throw BadRequest(
        fmt::format("--benchmark_filter has {} characters; the limit is {}", filter.size(), kLongest));
  const bool inverted = filter.front() == '-', any = !jobs.empty();
  try {
    const std::regex expression = filter_expression(filter.substr(inverted ? 1 : 0));
    std::erase_if(jobs,
                  [&](const Job& job) { return std::regex_search(job.name(), expression) == inverted; });
  } catch (const std::regex_error&) {
    throw BadRequest(fmt::format("--benchmark_filter={} is no regular expression", filter));
  }
  if (any && jobs.empty()) throw BadRequest(fmt::format("no name matches --benchmark_filter={}", filter));
}

CsvRow describe(const Job& job) {
  CsvRow row = job.what.columns;
  row["mode"] = harness::name_of(job.mode);
  return row;
}

CsvRow describe(const UnsupportedJob& unsupported) {
  CsvRow row = harness::part_of(unsupported.what.columns, "unsupported.csv");
  row["reason"] = unsupported.reason;
  return row;
}

std::string result_key(const CsvRow& row) {
  return key_of(row, "results.csv");
}

void require_same_problems(const std::vector<Case>& cases, const std::vector<Problem>& recorded,
                           const std::vector<CsvRow>& results) {
  const auto any_variant_and_mode = [](CsvRow row) {
    for (const char* column : {"variant", "memory", "mode"})
      row[column].clear();
    return result_key(row);
  };
  const auto row_of = [&](const Problem& problem) {
    return any_variant_and_mode(harness::describe("", Memory::host, problem).columns);
  };
  std::set<std::string> there;
  for (const CsvRow& row : results)
    there.insert(any_variant_and_mode(row));
  std::map<std::string, std::set<std::string>> known;  // texts of problems by row
  const auto text_of = [](Problem problem) {
    problem.programmatic_launch = false;  // a mode of its own
    return to_string(problem);
  };
  for (const Problem& problem : recorded)
    known[row_of(problem)].insert(text_of(problem));
  for (const Case& c : cases) {
    const std::string row = row_of(c.problem);
    const auto others = known.find(row);
    if (!there.contains(row) || others == known.end() || others->second.contains(text_of(c.problem)))
      continue;
    throw BadRequest(fmt::format(
        "{} is measured there, and results.csv does not tell {} from it; --output names another folder",
        *others->second.begin(), to_string(c.problem)));
  }
}

std::string unsupported_key(const CsvRow& row) {
  return key_of(row, "unsupported.csv");
}

}  // namespace fwht::sweep
