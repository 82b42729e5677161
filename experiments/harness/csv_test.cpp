#include "experiments/harness/csv.hpp"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <sstream>

#include "common/host/error.hpp"

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
  EXPECT_EQ(csv_line({"two\nlines\x1b[31m"}), "two lines [31m") << "control characters become blanks";
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
  EXPECT_EQ(read_csv(path, {{"a"}, {"b"}}).size(), 1U);
  CsvWriter(path, {{"a"}, {"b"}}).append({{"a", "5"}, {"b", "6"}});
  EXPECT_EQ(text_of(path), "a,b\n1,2\n5,6\n");
  const std::vector<CsvRow> rows = read_csv(path, {{"a"}, {"b"}});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].at("b"), "6");
  EXPECT_TRUE(read_csv(fresh_file("absent.csv"), {{"a"}}).empty());
}

std::string refusal(const std::string& text) {
  const fs::path path = fresh_file("refused.csv");
  std::ofstream(path, std::ios::binary) << text;
  try {
    read_csv(path, {{"n", Column::Type::integer, "", "", true}, {"x"}});
  } catch (const BadRequest& error) {
    return std::string(error.what()).substr(path.string().size());
  }
  return "accepted";
}

TEST(Csv, ReadsOnlyWhatTheSchemaAllows) {
  EXPECT_EQ(refusal("n,x\n1,a\n"), "accepted");
  EXPECT_EQ(refusal(""), "accepted");
  EXPECT_EQ(refusal("n,y\n1,a\n"), " has other columns than this program writes");
  EXPECT_EQ(refusal("n,x,y\n1,a,b\n"), " has other columns than this program writes");
  EXPECT_EQ(refusal("n,x\n1,a\n2\n"), ", line 3: 1 fields, not 2");
  EXPECT_EQ(refusal("n,x\n1,a,b\n"), ", line 2: 3 fields, not 2");
  EXPECT_EQ(refusal("n,x\n1.5,a\n"), ", line 2: column n: '1.5' is no integer");
  EXPECT_EQ(refusal("n,x\n,a\n"), ", line 2: column n must not be empty");
  EXPECT_EQ(refusal("n,x\n1,\"a,b\"\"\"\n"), "accepted");
  for (const char* line : {"1,\x01", "1,\xff", "1,\"a\"", "1,a\"b,\"", "\"1\",a", "1,a\r"})
    EXPECT_EQ(refusal("n,x\n" + std::string(line) + "\n"), ", line 2: the line is not as a program writes it")
        << line;
  for (const char* line : {"1", "1,", "1,a"})  // without its end: a killed run
    EXPECT_EQ(refusal("n,x\n" + std::string(line)), "accepted") << line;
}

// A disk that takes only a part of a row: the file ends with the last whole one, and the writer says so.
TEST(Csv, KeepsWholeRowsOnAFullDisk) {
  const fs::path path = fresh_file("full.csv");
  CsvWriter writer(path, {{"a"}, {"b"}});
  writer.append({{"a", "1"}, {"b", "2"}});
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto kept = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{10, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(writer.append({{"a", "long"}, {"b", "longer"}}), std::runtime_error);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, kept);
  EXPECT_EQ(text_of(path), "a,b\n1,2\n");
  writer.append({{"a", "3"}});
  EXPECT_EQ(text_of(path), "a,b\n1,2\n3,\n") << "goes on where there is room again";
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
