#include "experiments/sweep/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <tuple>
#include <utility>

namespace fwht::sweep {

using harness::CsvRow;

namespace {

struct Best {
  std::string variant, limit_kernel;
  double time_us = 0.0, fraction = 0.0;
};

// dtype, mode, placement, arrangement and encoding, elements.
using Table = std::tuple<std::string, std::string, std::string, std::string, std::int64_t>;

std::string joined(const CsvRow& row, std::initializer_list<const char*> columns) {
  std::string text;
  for (const char* column : columns)
    if (!row.at(column).empty()) text += ", " + row.at(column);
  return text;
}

// What tells rows of a table apart: "4096", "28x512", "4096/ld4104".
std::string row_of(const CsvRow& row) {
  const bool side_by_side = row.at("arrangement").find("inner") == std::string::npos;
  const bool apart = side_by_side && row.at("row_stride") != row.at("n");
  return row.at("operator") + (apart ? "/ld" + row.at("row_stride") : "");
}

std::string count_text(std::int64_t count) {
  const auto bits = static_cast<std::uint64_t>(count);
  return std::has_single_bit(bits) ? fmt::format("2^{}", std::bit_width(bits) - 1) : std::to_string(count);
}

}  // namespace

std::string best_variants(const std::vector<CsvRow>& results) {
  std::map<Table, std::map<std::pair<std::int64_t, std::string>, Best>> tables;
  for (const CsvRow& row : results) {
    if (row.at("status") != "ok") continue;
    const Table table{row.at("dtype"), row.at("mode"), row.at("placement"),
                      joined(row, {"arrangement", "encoding"}), std::stoll(row.at("elements"))};
    const double time_us = std::stod(row.at("time_us"));
    Best& best = tables[table][{std::stoll(row.at("n")), row_of(row)}];
    if (best.variant.empty() || time_us < best.time_us) {
      best = {row.at("variant"), row.at("limit_kernel"), time_us, std::stod(row.at("fraction_of_limit"))};
    }
  }
  std::string text;
  for (const auto& [table, lengths] : tables) {
    const auto& [dtype, mode, placement, more, elements] = table;
    text += fmt::format("\n{}, {} elements, {} place, {}{}\n", dtype, count_text(elements),
                        placement == "in" ? "in" : "out of", mode, more);
    text +=
        fmt::format("{:>8}  {:<16} {:>12}  {:>8}  {}\n", "n", "best variant", "us", "of limit", "limit by");
    for (const auto& [length, best] : lengths) {
      text += fmt::format("{:>8}  {:<16} {:>12.3f}  {:>8.2f}  {}\n", length.second, best.variant,
                          best.time_us, best.fraction, best.limit_kernel);
    }
  }
  return text;
}

std::string problems_found(const std::vector<CsvRow>& results) {
  std::string text;
  for (const CsvRow& row : results) {
    if (row.at("status") == "ok") continue;
    text += fmt::format("{}: {} {}/{}{}/r{} {}{}: {}\n", row.at("status"), row.at("variant"), row.at("dtype"),
                        row.at("operator") == row.at("n") ? "n" : "", row_of(row), row.at("rows"),
                        row.at("mode"), joined(row, {"arrangement", "encoding"}), row.at("message"));
  }
  return text;
}

bool is_noisy(const CsvRow& result) {
  constexpr double kQuiet = 1.2;
  return result.at("status") == "ok" &&
         std::stod(result.at("time_max_us")) > kQuiet * std::stod(result.at("time_min_us"));
}

bool is_throttled(const CsvRow& result) {
  const auto found = result.find("throttle");
  return found != result.end() && !found->second.empty();
}

std::string summary(const std::vector<CsvRow>& results, std::size_t unsupported) {
  const auto count = [&](std::string_view status) {
    return std::count_if(results.begin(), results.end(),
                         [&](const CsvRow& row) { return row.at("status") == status; });
  };
  const auto correct = count("ok"), wrong = count("incorrect"),
             failed = std::ssize(results) - correct - wrong;
  std::string text = fmt::format("{} results correct, {} wrong", correct, wrong);
  text += failed > 0 ? fmt::format(", {} failed\n", failed) : "\n";
  if (const auto noisy = std::count_if(results.begin(), results.end(), is_noisy); noisy > 0) {
    text += fmt::format(
        "{} of them are noisy: their slowest replay took more than 1.2 times the fastest; measure again on "
        "an "
        "idle machine\n",
        noisy);
  }
  if (const auto throttled = std::count_if(results.begin(), results.end(), is_throttled); throttled > 0) {
    text += fmt::format("{} of them were throttled in every measurement: the column throttle says why\n",
                        throttled);
  }
  if (unsupported > 0) {
    text +=
        fmt::format("{} problems are not supported by a variant: unsupported.csv says why\n", unsupported);
  }
  return text;
}

int exit_code(bool all_run, const std::vector<CsvRow>& results) {
  const bool all_ok =
      std::all_of(results.begin(), results.end(), [](const CsvRow& row) { return row.at("status") == "ok"; });
  return all_run && all_ok && !results.empty() ? 0 : 1;
}

}  // namespace fwht::sweep
