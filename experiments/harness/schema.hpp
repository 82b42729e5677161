// The tables of a results folder, each declared once, in schema.json: columns with type, unit and meaning.
// The programs hold that file as text, write by it, and put it into the folder, by which analysis/ reads.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fwht::harness {

struct Column {
  enum class Type {
    string,
    integer,
    number,   ///< decimal; also "inf" and "-inf"
    boolean,  ///< "true" or "false"
    values,   ///< one of `values`; "enum" in schema.json
    json      ///< a JSON object
  };
  std::string name;
  Type type = Type::string;
  std::string unit = {};  ///< "us", "bytes", "elements" ...; empty for a plain number and for text
  std::string meaning = {};
  bool required = false;  ///< never empty; an empty field says that there is no value
  bool key = false;       ///< one of the columns that tell the rows of the table apart
  std::vector<std::string> values = {};
  enum class Range {
    any,
    positive,     ///< above 0 and finite
    not_negative  ///< 0 or above
  };
  Range range = Range::any;     ///< of integers and numbers
  bool required_if_ok = false;  ///< never empty in a row whose status is ok
};

/// `text` as a field holds it: control characters and separators of lines become blanks, and what is no UTF-8
/// becomes '?'.
std::string field_text(std::string_view text);

/// Empty when `text` is a value of the column, else one sentence.
std::string why_no_value(const Column& column, std::string_view text);

/// Empty when every field is a value of its column and a row whose status is ok has all that it must, else
/// one sentence. A column that `row` does not name is empty.
std::string why_no_row(const std::vector<Column>& columns, const std::map<std::string, std::string>& row);

struct Table {
  std::string name;     ///< of the file: "results.csv"
  std::string program;  ///< that writes it
  std::string meaning;
  std::vector<Column> columns;  ///< in the order of the file
  bool may_repeat = false;      ///< rows of the same key may stand in it

  std::vector<std::string> column_names() const;
  std::vector<std::string> key() const;
};

/// Every table that a program writes.
std::span<const Table> all_tables();

/// Throws std::out_of_range for a table that no program writes.
const Table& table_schema(std::string_view name);

/// The text of schema.json, compiled in; docs/measuring.md describes the format.
std::string_view schema_json();

}  // namespace fwht::harness
