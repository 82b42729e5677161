#include "experiments/harness/schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

namespace fwht::harness {
namespace {

using Type = Column::Type;
using Range = Column::Range;
using Json = nlohmann::ordered_json;

constexpr std::array<std::pair<const char*, Type>, 6> kTypes = {{{"string", Type::string},
                                                                 {"integer", Type::integer},
                                                                 {"number", Type::number},
                                                                 {"boolean", Type::boolean},
                                                                 {"enum", Type::values},
                                                                 {"json", Type::json}}};
constexpr std::array<std::pair<const char*, Range>, 3> kRanges = {
    {{"", Range::any}, {"positive", Range::positive}, {"not_negative", Range::not_negative}}};

template <class Value, std::size_t count>
Value value_named(const std::array<std::pair<const char*, Value>, count>& names, const std::string& wanted) {
  for (const auto& [name, value] : names) {
    if (wanted == name) return value;
  }
  throw std::logic_error(fmt::format("schema.json: no type or range is named {}", wanted));
}

Column column_of(const Json& entry) {
  return {.name = entry.at("name"),
          .type = value_named(kTypes, entry.at("type").get<std::string>()),
          .unit = entry.value("unit", ""),
          .meaning = entry.at("meaning"),
          .required = entry.value("required", false),
          .key = entry.value("key", false),
          .values = entry.value("values", std::vector<std::string>{}),
          .range = value_named(kRanges, entry.value("range", "")),
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

const char* name_of(Type type) {
  const auto* found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& entry) { return entry.second == type; });
  return found->first;
}

template <class Number>
std::optional<Number> parsed(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value != value) return std::nullopt;
  return value;
}

bool is_of_type(const Column& column, std::string_view text) {
  switch (column.type) {
    case Type::string:
      return std::none_of(text.begin(), text.end(),
                          [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
    case Type::integer:
      return parsed<std::int64_t>(text).has_value();
    case Type::number:
      return parsed<double>(text).has_value();
    case Type::boolean:
      return text == "true" || text == "false";
    case Type::values:
      return std::find(column.values.begin(), column.values.end(), text) != column.values.end();
    case Type::json:
      return nlohmann::json::parse(text, nullptr, false).is_object();
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

std::string why_no_value(const Column& column, std::string_view text) {
  if (text.empty()) return column.required ? fmt::format("column {} must not be empty", column.name) : "";
  if (!is_of_type(column, text)) {
    return fmt::format("column {}: '{}' is no {}", column.name, text,
                       column.values.empty() ? name_of(column.type)
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
