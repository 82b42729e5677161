// CSV tables that survive being killed: every row is on disk as soon as it is known. Own code: the writer
// needs to know how much of a row is on disk, the reader a half line from a whole one, and a record on one
// line is parsed in ten lines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/harness/schema.hpp"

namespace fwht::harness {

/// The disk takes no more: what is measured from now on could not be kept.
class DiskFull : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

using CsvRow = std::map<std::string, std::string>;  // column name to text

/// Appends rows to a file. Throws BadRequest when the file cannot be written or has another header.
class CsvWriter {
 public:
  /// Starts the file with its header, or continues one: a last line without an end, as a killed run leaves
  /// it, is cut off.
  CsvWriter(std::filesystem::path path, std::vector<Column> columns);
  ~CsvWriter();
  CsvWriter(const CsvWriter&) = delete;
  CsvWriter& operator=(const CsvWriter&) = delete;

  /// Columns that the row does not name stay empty. Throws std::logic_error for a column that the file does
  /// not have and for what is no value of its column, DiskFull when the disk takes no more: the file then
  /// ends with the last whole row.
  void append(const CsvRow& row);

 private:
  void write_line(const std::string& line);

  std::filesystem::path path_;
  std::vector<Column> columns_;
  int file_ = -1;          // a descriptor: a stream would not say how much of a row a full disk has taken
  std::int64_t size_ = 0;  // up to the last whole row
};

/// Those columns of the row that the table has.
CsvRow part_of(const CsvRow& row, std::string_view table);

/// All complete rows; empty when there is no file. Throws BadRequest with file, line, column and value for a
/// header other than `columns`, a row with another number of fields or quoted otherwise than csv_line does,
/// and what is no value of its column.
std::vector<CsvRow> read_csv(const std::filesystem::path& path, const std::vector<Column>& columns);

/// Cuts off a last line without an end.
void cut_half_line(const std::filesystem::path& path);

/// One record as a line without its end: fields with commas or quotes are quoted; control characters become
/// blanks.
std::string csv_line(const std::vector<std::string>& fields);
std::vector<std::string> parse_csv_line(std::string_view line);

/// Six significant digits, enough for any measurement; empty for no value and for NaN.
std::string csv_number(std::optional<double> value);

}  // namespace fwht::harness
