#include "experiments/harness/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <stdexcept>

#include "common/error.hpp"

namespace fwht::harness {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

std::string csv_line(const std::vector<std::string>& fields) {
  std::string line;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) line += ',';
    const bool quoted = fields[i].find_first_of(",\"\r\n") != std::string::npos;
    if (quoted) line += '"';
    for (const char c : fields[i]) {
      if (c == '"') line += '"';
      line += c == '\n' || c == '\r' ? ' ' : c;
    }
    if (quoted) line += '"';
  }
  return line;
}

std::vector<std::string> parse_csv_line(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += line[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

std::string csv_number(std::optional<double> value) {
  return value && !std::isnan(*value) ? fmt::format("{:.6g}", *value) : "";
}

CsvWriter::CsvWriter(std::filesystem::path path, std::vector<Column> columns)
    : path_(std::move(path)), columns_(std::move(columns)) {
  std::vector<std::string> names;
  for (const Column& column : columns_)
    names.push_back(column.name);
  const std::string header = csv_line(names) + "\n";
  const std::string text = read_text(path_);
  const std::size_t complete = text.find_last_of('\n') + 1;  // 0 when there is no complete line
  if (complete > 0 && !text.starts_with(header)) {
    throw BadRequest(fmt::format("{} has other columns than this program writes", path_.string()));
  }
  if (complete < text.size()) std::filesystem::resize_file(path_, complete);
  file_.open(path_, std::ios::binary | std::ios::app);
  if (complete == 0) file_ << header << std::flush;
  if (!file_) throw BadRequest(fmt::format("{} cannot be written", path_.string()));
}

void CsvWriter::append(const CsvRow& row) {
  std::vector<std::string> fields;
  std::size_t used = 0;
  for (const Column& column : columns_) {
    const auto found = row.find(column.name);
    if (found != row.end()) ++used;
    fields.push_back(found == row.end() ? "" : found->second);
    if (const std::string why = why_no_value(column, fields.back()); !why.empty())
      throw std::logic_error(fmt::format("{}: {}", path_.string(), why));
  }
  if (used != row.size()) {
    for (const auto& [name, value] : row) {
      if (std::none_of(columns_.begin(), columns_.end(), [&](const Column& c) { return c.name == name; }))
        throw std::logic_error(fmt::format("{} has no column {}", path_.string(), name));
    }
  }
  file_ << csv_line(fields) + "\n" << std::flush;
  if (!file_) throw std::runtime_error(fmt::format("{} cannot be written any more", path_.string()));
}

CsvRow part_of(const CsvRow& row, std::string_view table) {
  CsvRow part;
  for (const Column& column : table_schema(table).columns) {
    if (const auto found = row.find(column.name); found != row.end()) part.insert(*found);
  }
  return part;
}

std::vector<CsvRow> read_csv(const std::filesystem::path& path) {
  std::vector<CsvRow> rows;
  std::vector<std::string> columns;
  const std::string text = read_text(path);
  std::size_t start = 0;
  for (std::size_t end; (end = text.find('\n', start)) != std::string::npos; start = end + 1) {
    const std::vector<std::string> fields = parse_csv_line(std::string_view(text).substr(start, end - start));
    if (columns.empty()) {
      columns = fields;
      continue;
    }
    CsvRow row;
    for (std::size_t i = 0; i < columns.size(); ++i)
      row[columns[i]] = i < fields.size() ? fields[i] : "";
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace fwht::harness
