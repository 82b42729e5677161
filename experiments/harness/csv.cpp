#include "experiments/harness/csv.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <stdexcept>
#include <system_error>

#include "common/host/error.hpp"
#include "common/host/text_file.hpp"

namespace fwht::harness {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  return fs::exists(fs::symlink_status(path)) ? read_text_file(path, path.string()) : std::string();
}

std::string header_of(const std::vector<Column>& columns) {
  std::vector<std::string> names;
  for (const Column& column : columns)
    names.push_back(column.name);
  return csv_line(names);
}

std::string reason() {
  return std::error_code(errno, std::generic_category()).message();
}

CsvRow parse_row(std::string_view line, const std::vector<Column>& columns) {
  const std::vector<std::string> fields = parse_csv_line(line);
  if (fields.size() != columns.size())
    throw BadRequest(fmt::format("{} fields, not {}", fields.size(), columns.size()));
  // Quotes and controls that no program writes may read otherwise elsewhere.
  if (csv_line(fields) != line) throw BadRequest("the line is not as a program writes it");
  CsvRow row;
  for (std::size_t i = 0; i < columns.size(); ++i)
    row[columns[i].name] = fields[i];
  if (const std::string why = why_no_row(columns, row); !why.empty()) throw BadRequest(why);
  return row;
}

}  // namespace

std::string csv_line(const std::vector<std::string>& fields) {
  std::string line;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) line += ',';
    const bool quoted = fields[i].find_first_of(",\"") != std::string::npos;
    if (quoted) line += '"';
    for (const char c : fields[i]) {
      if (c == '"') line += '"';
      line += c;
    }
    if (quoted) line += '"';
  }
  return field_text(line);
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

void cut_half_line(const fs::path& path) {
  const std::string text = text_of(path);
  const std::size_t complete = text.find_last_of('\n') + 1;  // 0 when there is no complete line
  if (complete == text.size()) return;
  std::error_code error;
  fs::resize_file(path, complete, error);
  if (error) throw BadRequest(fmt::format("{} cannot be written: {}", path.string(), error.message()));
}

CsvWriter::CsvWriter(fs::path path, std::vector<Column> columns)
    : path_(std::move(path)), columns_(std::move(columns)) {
  const std::string header = header_of(columns_) + "\n", text = text_of(path_);
  if (text.find('\n') != std::string::npos && !text.starts_with(header))
    throw BadRequest(fmt::format("{} has other columns than this program writes", path_.string()));
  cut_half_line(path_);
  file_ = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0) throw BadRequest(fmt::format("{} cannot be written: {}", path_.string(), reason()));
  size_ = lseek(file_, 0, SEEK_END);
  if (size_ == 0) write_line(header);
}

CsvWriter::~CsvWriter() {
  if (file_ >= 0) close(file_);
}

void CsvWriter::write_line(const std::string& line) {
  for (std::size_t written = 0; written < line.size();) {
    const ssize_t count = write(file_, line.data() + written, line.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const std::string why = reason();
      [[maybe_unused]] const int cut = ftruncate(file_, size_);
      throw DiskFull(fmt::format("{} cannot be written any more: {}", path_.string(), why));
    }
    written += static_cast<std::size_t>(count);
  }
  size_ += static_cast<std::int64_t>(line.size());
}

void CsvWriter::append(const CsvRow& row) {
  CsvRow complete;
  for (const Column& column : columns_)
    complete[column.name];
  for (const auto& [name, value] : row) {
    const auto field = complete.find(name);
    if (field == complete.end())
      throw std::logic_error(fmt::format("{} has no column {}", path_.string(), name));
    field->second = field_text(value);
  }
  if (const std::string why = why_no_row(columns_, complete); !why.empty())
    throw std::logic_error(fmt::format("{}: {}", path_.string(), why));
  std::vector<std::string> fields;
  for (const Column& column : columns_)
    fields.push_back(complete[column.name]);
  write_line(csv_line(fields) + "\n");
}

CsvRow part_of(const CsvRow& row, std::string_view table) {
  CsvRow part;
  for (const Column& column : table_schema(table).columns) {
    if (const auto found = row.find(column.name); found != row.end()) part.insert(*found);
  }
  return part;
}

std::vector<CsvRow> read_csv(const fs::path& path, const std::vector<Column>& columns) {
  std::vector<CsvRow> rows;
  const std::string text = text_of(path), header = header_of(columns);
  std::size_t start = 0, number = 1;
  for (std::size_t end; (end = text.find('\n', start)) != std::string::npos; start = end + 1, ++number) {
    const std::string_view line = std::string_view(text).substr(start, end - start);
    if (number == 1) {
      if (line != header)
        throw BadRequest(fmt::format("{} has other columns than this program writes", path.string()));
      continue;
    }
    try {
      rows.push_back(parse_row(line, columns));
    } catch (const BadRequest& error) {
      throw BadRequest(fmt::format("{}, line {}: {}", path.string(), number, error.what()));
    }
  }
  return rows;
}

}  // namespace fwht::harness
