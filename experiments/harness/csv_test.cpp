#include "experiments/harness/csv.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "common/error.hpp"

namespace fwht::harness {
namespace {

namespace fs = std::filesystem;

fs::path fresh_file(const char* name) {
  const fs::path path = fs::path(testing::TempDir()) / name;
  fs::remove(path);
  return path;
}

std::string text_of(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Csv, LinesGoThereAndBack) {
  const std::vector<std::string> fields = {"a", "", "b,c", R"({"x": "y"})", "d"};
  EXPECT_EQ(csv_line(fields), R"(a,,"b,c","{""x"": ""y""}",d)");
  EXPECT_EQ(parse_csv_line(csv_line(fields)), fields);
  EXPECT_EQ(csv_line({"two\nlines"}), "\"two lines\"");
}

TEST(Csv, NumbersHaveSixDigitsAndNoNaN) {
  EXPECT_EQ(csv_number(1.0 / 3.0), "0.333333");
  EXPECT_EQ(csv_number(3.7e12), "3.7e+12");
  EXPECT_EQ(csv_number(std::nan("")), "");
  EXPECT_EQ(csv_number(std::nullopt), "");
}

TEST(Csv, RowsAreOnDiskAtOnce) {
  const fs::path path = fresh_file("at_once.csv");
  CsvWriter writer(path, {{"a"}, {"b"}});
  EXPECT_EQ(text_of(path), "a,b\n");
  writer.append({{"b", "2"}});
  EXPECT_EQ(text_of(path), "a,b\n,2\n");
  EXPECT_THROW(writer.append({{"c", "3"}}), std::logic_error);
  EXPECT_EQ(text_of(path), "a,b\n,2\n");
}

TEST(Csv, TakesNoValueThatItsColumnDoesNotHave) {
  const fs::path path = fresh_file("typed.csv");
  CsvWriter writer(path, {{"n", Column::Type::integer, "", "", true}, {"x"}});
  EXPECT_THROW(writer.append({{"n", "1.5"}}), std::logic_error);
  EXPECT_THROW(writer.append({{"x", "3"}}), std::logic_error) << "n is required";
  writer.append({{"n", "1"}});
  EXPECT_EQ(text_of(path), "n,x\n1,\n");
}

TEST(Csv, ContinuesAfterAKilledRun) {
  const fs::path path = fresh_file("killed.csv");
  std::ofstream(path) << "a,b\n1,2\n3,";  // killed while it wrote the second row
  EXPECT_EQ(read_csv(path).size(), 1U);
  CsvWriter(path, {{"a"}, {"b"}}).append({{"a", "5"}, {"b", "6"}});
  EXPECT_EQ(text_of(path), "a,b\n1,2\n5,6\n");
  const std::vector<CsvRow> rows = read_csv(path);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].at("b"), "6");
  EXPECT_TRUE(read_csv(fresh_file("absent.csv")).empty());
}

TEST(Csv, RefusesOtherColumnsAndLeavesTheFileAlone) {
  const fs::path path = fresh_file("other.csv");
  std::ofstream(path) << "a,c\n1,2\n";
  EXPECT_THROW(CsvWriter(path, {{"a"}, {"b"}}), BadRequest);
  EXPECT_EQ(text_of(path), "a,c\n1,2\n");
  EXPECT_THROW(CsvWriter("/no/such/folder/x.csv", {Column{"a"}}), BadRequest);
}

}  // namespace
}  // namespace fwht::harness
