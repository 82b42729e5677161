#include "experiments/harness/schema.hpp"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

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
  EXPECT_TRUE(fits(Type::integer, "")) << "no value";
  EXPECT_EQ(why_no_value({"c", Type::integer, "", "", true}, ""), "column c must not be empty");
  EXPECT_EQ(why_no_value({"c", Type::values, "", "", false, false, {"a", "b"}}, "x"),
            "column c: 'x' is no value of a, b");
}

TEST(Schema, IsWrittenAsJson) {
  const auto schema = nlohmann::json::parse(schema_json());
  EXPECT_EQ(schema["schema_version"], 1);
  ASSERT_EQ(schema["tables"].size(), all_tables().size());
  const auto& limits = schema["tables"]["limits.csv"];
  EXPECT_EQ(limits["program"], "fwht_sweep");
  ASSERT_EQ(limits["columns"].size(), table_schema("limits.csv").columns.size());
  EXPECT_EQ(limits["columns"][0], (nlohmann::json{{"name", "memory"},
                                                  {"type", "enum"},
                                                  {"values", {"host", "device"}},
                                                  {"unit", ""},
                                                  {"required", true},
                                                  {"key", true},
                                                  {"meaning", "where the data are"}}));
}

}  // namespace
}  // namespace fwht::harness
