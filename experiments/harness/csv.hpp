// CSV tables that survive being killed: every row is on disk as soon as it is known.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/harness/schema.hpp"

namespace fwht::harness {

using CsvRow = std::map<std::string, std::string>;  // column name to text

/// Appends rows to a file. Throws BadRequest when the file cannot be written or has another header.
class CsvWriter {
 public:
  /// Starts the file with its header, or continues one: a last line without an end, as a killed run leaves
  /// it, is cut off.
  CsvWriter(std::filesystem::path path, std::vector<Column> columns);

  /// Columns that the row does not name stay empty. Throws std::logic_error for a column that the file does
  /// not have and for what is no value of its column, std::runtime_error when the disk takes no more.
  void append(const CsvRow& row);

 private:
  std::filesystem::path path_;
  std::vector<Column> columns_;
  std::ofstream file_;
};

/// Those columns of the row that the table has.
CsvRow part_of(const CsvRow& row, std::string_view table);

/// All complete rows; empty when there is no file.
std::vector<CsvRow> read_csv(const std::filesystem::path& path);

/// One record as a line without its end: fields with commas or quotes are quoted; line breaks become blanks.
std::string csv_line(const std::vector<std::string>& fields);
std::vector<std::string> parse_csv_line(std::string_view line);

/// Six significant digits, enough for any measurement; empty for no value and for NaN.
std::string csv_number(std::optional<double> value);

}  // namespace fwht::harness
