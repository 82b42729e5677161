// What the sweep prints at its end.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "experiments/harness/csv.hpp"

namespace fwht::sweep {

/// Tables of the best variant for each n, one for each dtype, size, placement and mode, from rows of
/// results.csv; only rows with status ok count. Empty for no such row.
std::string best_variants(const std::vector<harness::CsvRow>& results);

/// One line for each row that is not ok.
std::string problems_found(const std::vector<harness::CsvRow>& results);

/// A row whose slowest replay took more than 1.2 times the fastest: the machine did something else as well.
bool is_noisy(const harness::CsvRow& result);
/// A row that was throttled in every measurement.
bool is_throttled(const harness::CsvRow& result);

/// In words: how many results are correct, wrong, noisy, throttled, and how many problems a variant does not
/// support. Ends its lines.
std::string summary(const std::vector<harness::CsvRow>& results, std::size_t unsupported);

/// What the program exits with: 0 when every job was run and every row is ok, 1 otherwise; also 1 without
/// rows, for a sweep that measured nothing has shown nothing.
int exit_code(bool all_run, const std::vector<harness::CsvRow>& results);

}  // namespace fwht::sweep
