// Problems and results in the schema of FlashInfer Trace (flashinfer-bench), so that its tools read them:
// definitions with a PyTorch reference, workloads, solutions that call fwht, traces.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/host/provenance.hpp"
#include "experiments/harness/csv.hpp"
#include "experiments/harness/grid.hpp"

namespace fwht::sweep {

/// Files of one dataset, by their paths inside of it.
struct TraceFile {
  std::string path, text;
};

/// What that schema can say: contiguous rows of fp16, bf16, fp32 or integers in natural order, any operator
/// without signs and dense factors, the default scale.
bool can_be_traced(const Problem& problem);

/// Definitions and workloads of the cases that can be traced, a workload for each mode; solutions and traces
/// of those `results` (rows of results.csv) that belong to them.
std::vector<TraceFile> flashinfer_trace(const std::vector<harness::Case>& cases,
                                        const std::vector<harness::CsvRow>& results,
                                        const Provenance& provenance);

/// Throws BadRequest where the folder is there and not empty.
void require_no_dataset(const std::filesystem::path& folder);
/// Makes the folder, before anything is measured for it; throws BadRequest where it cannot be made or
/// written.
void make_dataset(const std::filesystem::path& folder);
/// Throws std::runtime_error where a file cannot be written.
void write_dataset(const std::filesystem::path& folder, const std::vector<TraceFile>& files);

}  // namespace fwht::sweep
