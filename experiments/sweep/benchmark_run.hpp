// The sweep as a Google Benchmark run.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/provenance.hpp"
#include "experiments/sweep/jobs.hpp"
#include "experiments/sweep/session.hpp"

namespace fwht::sweep {

/// Registers every job under its name, with manual time, and runs them all in order: `measure` is called once
/// per job. The counters are bytes_per_second and fraction_of_limit; what is not ok becomes an error. Writes
/// Google Benchmark's own JSON to `json`.
void run_benchmarks(const std::vector<Job>& jobs, const std::function<Outcome(const Job&)>& measure,
                    const std::filesystem::path& json, const Provenance& provenance);

}  // namespace fwht::sweep
