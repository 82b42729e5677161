#include "experiments/harness/schema.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <stdexcept>

#include "experiments/harness/mode.hpp"
#include "experiments/harness/performer.hpp"
#include "reference/inputs.hpp"

namespace fwht::harness {
namespace {

TEST(Schema, DeclaresEveryColumnOnceWithItsMeaning) {
  std::set<std::string> tables;
  for (const Table& table : all_tables()) {
    SCOPED_TRACE(table.name);
    EXPECT_TRUE(tables.insert(table.name).second);
    EXPECT_FALSE(table.program.empty() || table.meaning.empty());
    std::set<std::string> names;
    for (const Column& column : table.columns) {
      EXPECT_TRUE(names.insert(column.name).second) << column.name;
      EXPECT_FALSE(column.meaning.empty()) << column.name;
      EXPECT_EQ(column.type == Column::Type::values, !column.values.empty()) << column.name;
    }
  }
  EXPECT_EQ(table_schema("limits.csv").name, "limits.csv");
  EXPECT_THROW(table_schema("nope.csv"), std::out_of_range);
}

TEST(Schema, NumbersKeepToTheirRange) {
  Column column{"t", Column::Type::number};
  const auto fits = [&](const char* text) { return why_no_value(column, text).empty(); };
  EXPECT_TRUE(fits("-5") && fits("inf"));
  column.range = Column::Range::not_negative;
  EXPECT_TRUE(fits("0") && fits("inf") && fits("1e-30"));
  EXPECT_EQ(why_no_value(column, "-1e-30"), "column t: -1e-30 must not be below 0");
  column.range = Column::Range::positive;
  EXPECT_TRUE(fits("1e-30") && fits("3"));
  EXPECT_EQ(why_no_value(column, "0"), "column t: 0 must be above 0 and finite");
  EXPECT_FALSE(fits("inf") || fits("-1"));
}

// What takes no sign says so itself: analysis/ reads it from the schema.
TEST(Schema, OnlyErrorsAndAnswersHaveASign) {
  std::set<std::string> with_sign;
  for (const Table& table : all_tables()) {
    for (const Column& column : table.columns) {
      const bool is_number = column.type == Column::Type::integer || column.type == Column::Type::number;
      if (is_number && column.range == Column::Range::any) with_sign.insert(column.name);
    }
  }
  EXPECT_EQ(with_sign, (std::set<std::string>{"gain", "group", "mean_signed_error", "model_value",
                                              "predicted_gain", "value"}));
}

TEST(Schema, FieldsHoldNoControlsAndOnlyUtf8) {
  EXPECT_EQ(field_text("a\x1b[31m\xc2\x85\xe2\x80\xa9z\xff\xc3\xa4"), "a [31m  z?\xc3\xa4");
}

TEST(Schema, RowsThatAreOkHaveTheirTimes) {
  const auto& columns = table_schema("results.csv").columns;
  std::map<std::string, std::string> row = {{"variant", "cpu"},
                                            {"memory", "host"},
                                            {"operator", "64"},
                                            {"dtype", "f16"},
                                            {"n", "64"},
                                            {"rows", "2"},
                                            {"elements", "128"},
                                            {"placement", "in"},
                                            {"row_stride", "64"},
                                            {"mode", "host"},
                                            {"status", "failed"},
                                            {"bytes_read", "256"},
                                            {"bytes_written", "256"},
                                            {"useful_bytes", "512"}};
  EXPECT_EQ(why_no_row(columns, row), "");
  row["status"] = "ok";
  EXPECT_EQ(why_no_row(columns, row), "column time_us must not be empty where status is ok");
  for (const char* column : {"time_us", "time_min_us", "time_max_us", "launches", "replays", "limit_us",
                             "limit_kernel", "fraction_of_limit", "bytes_per_second"}) {
    EXPECT_NE(why_no_row(columns, row), "") << column;
    row[column] = "1";
  }
  EXPECT_EQ(why_no_row(columns, row), "");
}

TEST(Schema, ValuesAreOfTheirColumnsType) {
  using Type = Column::Type;
  const auto fits = [](Type type, const char* text) {
    return why_no_value({"c", type, "", "", false, false, {"a", "b"}}, text).empty();
  };
  EXPECT_TRUE(fits(Type::string, "anything, really"));
  EXPECT_TRUE(fits(Type::integer, "-12"));
  EXPECT_FALSE(fits(Type::integer, "1e3"));
  EXPECT_FALSE(fits(Type::integer, "12 "));
  EXPECT_TRUE(fits(Type::integer, "-123456789012345678"));
  EXPECT_FALSE(fits(Type::integer, "1234567890123456789")) << "19 digits";
  EXPECT_TRUE(fits(Type::string, "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"));
  for (const char* text :
       {"\x1b[31m", "\x7f", "\xc2\x85", "\xe2\x80\xa8", "\xff", "\xc3", "\xed\xa0\x80", "\xc0\xaf"})
    EXPECT_FALSE(fits(Type::string, text)) << text;
  for (const char* text : {"1", "-1.5", "3.7e+12", "inf", "-inf"})
    EXPECT_TRUE(fits(Type::number, text)) << text;
  for (const char* text : {"nan", "1,5", "1.5us", "x"})
    EXPECT_FALSE(fits(Type::number, text)) << text;
  EXPECT_TRUE(fits(Type::boolean, "true"));
  EXPECT_FALSE(fits(Type::boolean, "1"));
  EXPECT_TRUE(fits(Type::values, "b"));
  EXPECT_FALSE(fits(Type::values, "ab"));
  EXPECT_TRUE(fits(Type::json, R"({"tile":3})"));
  EXPECT_FALSE(fits(Type::json, "{"));
  EXPECT_FALSE(fits(Type::json, "3"));
  EXPECT_FALSE(fits(Type::json, ("{\"a\":" + std::string(40, '[') + std::string(40, ']') + "}").c_str()));
  EXPECT_TRUE(fits(Type::integer, "")) << "no value";
  EXPECT_EQ(why_no_value({"c", Type::integer, "", "", true}, ""), "column c must not be empty");
  EXPECT_EQ(why_no_value({"c", Type::values, "", "", false, false, {"a", "b"}}, "x"),
            "column c: 'x' is no value of a, b");
}

template <class Value>
std::set<std::string> names_of(std::initializer_list<Value> values) {
  std::set<std::string> names;
  for (const Value value : values)
    names.emplace(name_of(value));
  return names;
}

// schema.json spells what the code names.
TEST(Schema, EnumsAreThoseOfTheContract) {
  std::set<std::string> inputs;
  for (const reference::InputClass value : reference::all_input_classes())
    inputs.emplace(reference::name_of(value));
  std::set<std::string> sources = names_of({Source::measured, Source::emulated, Source::emulated_a100});
  sources.insert("host");
  const std::map<std::string, std::set<std::string>> wanted = {
      {"dtype", names_of({Dtype::f16, Dtype::bf16, Dtype::f32, Dtype::f64})},
      {"placement", names_of({Placement::in_place, Placement::out_of_place})},
      {"memory", names_of({Memory::host, Memory::device})},
      {"mode", names_of({Mode::replay, Mode::replay_pdl, Mode::alternating, Mode::cold, Mode::host})},
      {"input", inputs},
      {"source", sources}};
  const std::set<std::string> every_dtype = [] {
    std::set<std::string> names;
    for (const Dtype dtype : kEveryDtype)
      names.emplace(name_of(dtype));
    return names;
  }();
  const std::set<std::string> of_transforms = {"results.csv", "unsupported.csv", "launches.csv",
                                               "not_profiled.csv"};
  std::set<std::string> met;
  for (const Table& table : all_tables()) {
    if (table.name == "tensor_parallel_model.csv") continue;  // its source is that of a model
    for (const Column& column : table.columns) {
      if (const auto found = wanted.find(column.name); found != wanted.end()) {
        const bool integers = column.name == "dtype" && of_transforms.contains(table.name);
        EXPECT_EQ(std::set<std::string>(column.values.begin(), column.values.end()),
                  integers ? every_dtype : found->second)
            << table.name << ": " << column.name;
        met.insert(column.name);
      }
    }
  }
  EXPECT_EQ(met.size(), wanted.size());
}

TEST(Schema, IsReadFromItsJson) {
  const Column& replays = table_schema("results.csv").columns.at(17);
  EXPECT_EQ(replays.name, "replays");
  EXPECT_EQ(replays.type, Column::Type::integer);
  EXPECT_EQ(replays.range, Column::Range::positive);
  EXPECT_TRUE(replays.required_if_ok && !replays.required && !replays.key);
  const Table& limits = table_schema("limits.csv");
  EXPECT_TRUE(limits.may_repeat && limits.program == "fwht_sweep");
  EXPECT_EQ(limits.key(), (std::vector<std::string>{"memory", "useful_bytes", "bytes_read", "bytes_written",
                                                    "placement", "mode", "kernel"}));
}

}  // namespace
}  // namespace fwht::harness
