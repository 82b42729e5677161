#include "experiments/harness/schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "common/host/names.hpp"
#include "experiments/harness/strict_json.hpp"

namespace fwht::harness {
namespace {

using Type = Column::Type;
using Range = Column::Range;
using Json = nlohmann::ordered_json;

constexpr Names<Type, 6> kTypes{"type of a column",
                                {{Type::string, "string"},
                                 {Type::integer, "integer"},
                                 {Type::number, "number"},
                                 {Type::boolean, "boolean"},
                                 {Type::values, "enum"},
                                 {Type::json, "json"}}};
constexpr Names<Range, 3> kRanges{
    "range", {{Range::any, ""}, {Range::positive, "positive"}, {Range::not_negative, "not_negative"}}};

Column column_of(const Json& entry) {
  return {.name = entry.at("name"),
          .type = kTypes.parse(entry.at("type").get<std::string>()),
          .unit = entry.value("unit", ""),
          .meaning = entry.at("meaning"),
          .required = entry.value("required", false),
          .key = entry.value("key", false),
          .values = entry.value("values", std::vector<std::string>{}),
          .range = kRanges.parse(entry.value("range", "")),
          .required_if_ok = entry.value("required_if_ok", false)};
}

std::vector<Table> tables_of(const Json& schema) {
  std::vector<Table> tables;
  for (const auto& [name, entry] : schema.at("tables").items()) {
    std::vector<Column> columns;
    for (const Json& column : entry.at("columns"))
      columns.push_back(column_of(column));
    tables.push_back({.name = name,
                      .program = entry.at("program"),
                      .meaning = entry.at("meaning"),
                      .columns = std::move(columns),
                      .may_repeat = entry.value("may_repeat", false)});
  }
  return tables;
}

template <class Number>
std::optional<Number> parsed(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value != value) return std::nullopt;
  return value;
}

/// The code point that `text` begins with, and its bytes; no bytes where that is no UTF-8.
std::pair<std::uint32_t, std::size_t> code_point(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return {0, 0};
  std::uint32_t value = lead & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0) != 0x80) return {0, 0};
    value = value << 6 | (next & 0x3FU);
  }
  const bool is_short = value >= (length == 4 ? 0x10000U : length == 3 ? 0x800U : 0x80U);
  const bool is_half = value >= 0xD800 && value < 0xE000;
  return is_short && !is_half && value < 0x110000 ? std::pair{value, length} : std::pair{0U, std::size_t{0}};
}

bool is_control(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029;
}

bool is_of_type(const Column& column, std::string_view text) {
  switch (column.type) {
    case Type::string:
      return field_text(text) == text;
    case Type::integer:  // 18 digits: what every reader holds exactly
      return parsed<std::int64_t>(text).has_value() && text.size() - (text.front() == '-' ? 1 : 0) <= 18;
    case Type::number:
      return parsed<double>(text).has_value();
    case Type::boolean:
      return text == "true" || text == "false";
    case Type::values:
      return std::find(column.values.begin(), column.values.end(), text) != column.values.end();
    case Type::json:
      return parse_json(text).is_object();
  }
  return false;
}

bool is_in_range(const Column& column, std::string_view text) {
  if (column.range == Column::Range::any) return true;
  const double value = parsed<double>(text).value_or(0.0);
  return column.range == Column::Range::positive ? value > 0.0 && std::isfinite(value) : value >= 0.0;
}

const char* in_words(Column::Range range) {
  return range == Column::Range::positive ? "must be above 0 and finite" : "must not be below 0";
}

}  // namespace

std::string field_text(std::string_view text) {
  std::string field;
  while (!text.empty()) {
    const auto [code, bytes] = code_point(text);
    if (bytes == 0) {
      field += '?';
    } else if (is_control(code)) {
      field += ' ';
    } else {
      field += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return field;
}

std::string why_no_value(const Column& column, std::string_view text) {
  if (text.empty()) return column.required ? fmt::format("column {} must not be empty", column.name) : "";
  if (!is_of_type(column, text)) {
    return fmt::format("column {}: '{}' is no {}", column.name, text,
                       column.values.empty() ? std::string(kTypes.of(column.type))
                                             : fmt::format("value of {}", fmt::join(column.values, ", ")));
  }
  if (!is_in_range(column, text))
    return fmt::format("column {}: {} {}", column.name, text, in_words(column.range));
  return "";
}

std::string why_no_row(const std::vector<Column>& columns, const std::map<std::string, std::string>& row) {
  const auto value = [&](const std::string& name) {
    const auto found = row.find(name);
    return found == row.end() ? std::string_view() : std::string_view(found->second);
  };
  const bool ok = value("status") == "ok";
  for (const Column& column : columns) {
    if (ok && column.required_if_ok && value(column.name).empty())
      return fmt::format("column {} must not be empty where status is ok", column.name);
    if (std::string why = why_no_value(column, value(column.name)); !why.empty()) return why;
  }
  return "";
}

std::vector<std::string> Table::column_names() const {
  std::vector<std::string> names;
  for (const Column& c : columns)
    names.push_back(c.name);
  return names;
}

std::vector<std::string> Table::key() const {
  std::vector<std::string> names;
  for (const Column& c : columns) {
    if (c.key) names.push_back(c.name);
  }
  return names;
}

std::span<const Table> all_tables() {
  static const std::vector<Table> tables = tables_of(Json::parse(schema_json()));
  return tables;
}

const Table& table_schema(std::string_view name) {
  for (const Table& table : all_tables()) {
    if (table.name == name) return table;
  }
  throw std::out_of_range(fmt::format("no program writes a table {}", name));
}

}  // namespace fwht::harness
