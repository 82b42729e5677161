#include "experiments/harness/grid.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "common/host/error.hpp"

namespace fwht::harness {
namespace {

std::vector<std::string> names(const Grid& grid) {
  std::vector<std::string> all;
  for (const Case& c : grid.cases)
    all.push_back(to_string(c.problem) + "/" + std::string(name_of(c.mode)));
  return all;
}

std::string refusal(std::string_view text) {
  try {
    parse_grid("g", text);
  } catch (const BadRequest& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Grid, NamesProblemsOneByOne) {
  const Grid grid = parse_grid("g",
                               "[a]\nproblem = f16/n4096/r8 f16/n128/r4/out>e4m3:128,ue8m0 f16/n4096/r8\n"
                               "mode = replay, replay_pdl\n[b]\nproblem = f32/n8/r1\nn = 16\nrows = 2\n"
                               "dtype = f16\nmode = host\n");
  EXPECT_EQ(names(grid),
            (std::vector<std::string>{
                "f16/n4096/r8/replay", "f16/n4096/r8/pdl/replay_pdl", "f16/n128/r4/out>e4m3:128,ue8m0/replay",
                "f16/n128/r4/out/pdl>e4m3:128,ue8m0/replay_pdl", "f16/n16/r2/host", "f32/n8/r1/host"}));
  EXPECT_EQ(refusal("[a]\nproblem = \nmode = host\n"),
            "grid 'g', line 2: the block names nothing behind 'problem ='; f16/n4096/r8 is one");
  EXPECT_EQ(refusal("[a]\nproblem = f16/n8/r1\n"), "grid 'g', line 1: the block names no mode");
  EXPECT_EQ(refusal("[a]\nproblem = f16/n8/r1\nrows = 1\nmode = host\n"),
            "grid 'g', line 1: the block names no n, width or operator");
}

TEST(Grid, IsEveryCombinationOfABlock) {
  const Grid grid = parse_grid("g", R"(
# comment
[first]   # another
n = 8..16, 64
elements = 2^6
rows = 3
dtype = f16
mode = replay
[second]
n = 8
rows = 3, 5
dtype = f16, f32
placement = in, out
mode = host
)");
  EXPECT_EQ(names(grid), (std::vector<std::string>{
                             "f16/n8/r8/replay", "f16/n8/r3/replay", "f16/n16/r4/replay", "f16/n16/r3/replay",
                             "f16/n64/r1/replay", "f16/n64/r3/replay", "f16/n8/r3/host", "f16/n8/r3/out/host",
                             "f16/n8/r5/host", "f16/n8/r5/out/host", "f32/n8/r3/host", "f32/n8/r3/out/host",
                             "f32/n8/r5/host", "f32/n8/r5/out/host"}));
}

TEST(Grid, EncodingsLieBetweenBlanksAndAreOutOfPlace) {
  const Grid grid =
      parse_grid("g", "[a]\nn=128\nrows=64\ndtype=bf16\nencoding = plain e4m3:128,mn  nvfp4\nmode=replay\n");
  EXPECT_EQ(names(grid),
            (std::vector<std::string>{"bf16/n128/r64/replay", "bf16/n128/r64/out>e4m3:128,mn/replay",
                                      "bf16/n128/r64/out>nvfp4/replay"}));
  EXPECT_NE(refusal("[a]\nn=8\nrows=1\ndtype=bf16\nencoding = e5m2\nmode=replay\n").find("the form is"),
            std::string::npos);
  EXPECT_NE(refusal("[a]\nn=12\nrows=1\ndtype=bf16\nencoding = mxfp8\nmode=replay\n").find("must divide"),
            std::string::npos);
}

TEST(Grid, PreparationsLieBetweenBlanks) {
  const std::string block = "[a]\nn = 128\nrows = 2\ndtype = bf16\nmode = replay\n";
  const Grid grid =
      parse_grid("g", block + "encoding = e4m3:row\nprepared = none signs/rope64/page8x2 rms\n");
  EXPECT_EQ(names(grid), (std::vector<std::string>{"bf16/n128/r2/out>e4m3:row/replay",
                                                   "bf16/128+signs/r2/out/rope64/page8x2>e4m3:row/replay",
                                                   "bf16/n128/r2/out/rms>e4m3:row/replay"}));
  EXPECT_NE(refusal(block + "encoding = e4m3:row\nprepared = sign\n").find("unknown word 'sign'"),
            std::string::npos);
  EXPECT_NE(refusal(block + "prepared = rms\n").find("with an encoding, not plain"), std::string::npos);
  EXPECT_NE(refusal("[a]\noperator = signs+128\nrows = 2\ndtype = bf16\nmode = replay\nprepared = signs\n")
                .find("prepared = signs, but the operator signs+128 has signs"),
            std::string::npos);
  EXPECT_EQ(names(parse_grid("g", block + "prepared = none signs\n")),
            (std::vector<std::string>{"bf16/n128/r2/replay", "bf16/128+signs/r2/replay"}));
}

TEST(Grid, OperatorsLieBetweenBlanks) {
  const std::string block = "[a]\nelements = 1000\ndtype = f16\nmode = replay\n";
  EXPECT_EQ(names(parse_grid("g", block + "operator = d28x16 28tx16+signs 64r\nencoding = plain mxfp4\n")),
            (std::vector<std::string>{"f16/d28x16/r2/replay", "f16/d28x16/r2/out>mxfp4/replay",
                                      "f16/28tx16+signs/r2/replay", "f16/28tx16+signs/r2/out>mxfp4/replay",
                                      "f16/64r/r15/replay", "f16/64r/r15/out>mxfp4/replay"}));
  EXPECT_EQ(refusal(block + "operator =\n"),
            "grid 'g', line 5: the block names nothing behind 'operator ='; 28x512 is one");
  EXPECT_NE(refusal(block + "operator = x\n").find("line 5"), std::string::npos);
}

TEST(Grid, OrderedRowsAreOutOfPlace) {
  const std::string block = "[a]\nn = 128\nrows = 4\ndtype = i32\nmode = host\n";
  const Grid grid = parse_grid("g", block + "arrangement = natural inner2 from-dyadic/sequency\n");
  EXPECT_EQ(names(grid), (std::vector<std::string>{"i32/n128/r4/host", "i32/n128/r4/inner2/host",
                                                   "i32/n128/r4/out/from-dyadic/sequency/host"}));
  EXPECT_NE(refusal(block + "arrangement = walsh\n").find("unknown part 'walsh'"), std::string::npos);
  EXPECT_NE(refusal(block + "arrangement = inner3\n").find("must divide rows=4"), std::string::npos);
  EXPECT_NE(refusal(block + "arrangement =\n").find("natural is a word"), std::string::npos);
}

TEST(Grid, LeavesOutLongRowsAndRepetitions) {
  const Grid grid = parse_grid("g", "[a]\nn=8,16\nelements=8\nrows=1\ndtype=f16\nmode=replay,replay\n");
  EXPECT_EQ(names(grid), (std::vector<std::string>{"f16/n8/r1/replay", "f16/n16/r1/replay"}));
}

// A width is a row length with its operator; element counts give whole rows.
TEST(Grid, WidthsAreRowsByTheirOperator) {
  const Grid grid =
      parse_grid("g", "[a]\nwidth = 768, 4096\nelements = 2^13, 512\nrows = 1\ndtype = f16\nmode = replay\n");
  EXPECT_EQ(names(grid), (std::vector<std::string>{"f16/12x64/r10/replay", "f16/12x64/r1/replay",
                                                   "f16/n4096/r2/replay", "f16/n4096/r1/replay"}));
  EXPECT_NE(refusal("[a]\nwidth = 13697\nrows = 1\ndtype = f16\nmode = replay\n").find("13696"),
            std::string::npos);
}

TEST(Grid, RefusalsNameTheLine) {
  EXPECT_EQ(refusal("n = 8\n"),
            "grid 'g', line 1: 'n = 8' is neither [block] nor key = values inside a block");
  EXPECT_EQ(
      refusal("[a]\nn = 8\nrow = 3\n"),
      "grid 'g', line 3: unknown key 'row'; known: n, width, operator, elements, rows, dtype, placement, "
      "arrangement, encoding, prepared, problem, mode");
  EXPECT_EQ(refusal("[a]\nn = 8x\n"), "grid 'g', line 2: n: '8x' is no positive number; write 4096 or 2^12");
  EXPECT_EQ(refusal("[a]\nmode = warm\n"),
            "grid 'g', line 2: unknown mode 'warm'; known: replay, replay_pdl, alternating, cold, host");
  EXPECT_EQ(refusal("[a]\n\nn = 8\nrows = 1\nmode = host\n"), "grid 'g', line 1: the block names no dtype");
  EXPECT_EQ(refusal("[a]\nrows = 1\nn = 8\nrows = 2\n"),
            "grid 'g', line 4: the block names 'rows' twice; one line has all of its values");
  EXPECT_EQ(refusal("[a]\nrows = 1,,2\n"), "grid 'g', line 2: '1,,2' has an empty item between its commas");
  EXPECT_EQ(refusal("[a\nn = 8\n"), "grid 'g', line 1: '[a' lacks its ]");
  EXPECT_EQ(refusal("[a]\nn=12\nelements=40\ndtype=f16\nmode=host\n"),
            "grid 'g', line 1: elements=40 is no multiple of n=12");
  EXPECT_NE(refusal("# nothing\n").find("names no problem"), std::string::npos);
}

TEST(Grid, Counts) {
  EXPECT_EQ(parse_counts("16..64, 2^10,3", "n"), (std::vector<std::int64_t>{16, 32, 64, 1024, 3}));
  EXPECT_EQ(parse_counts("2^9..2^11", "n"), (std::vector<std::int64_t>{512, 1024, 2048}));
  EXPECT_EQ(parse_count("2^0", "n"), 1);
  EXPECT_EQ(parse_count("2^62", "n"), std::int64_t{1} << 62);
  for (const char* text : {"", "0", "-1", "2^63", "2^", "2^x", "1e3", "99999999999999999999"}) {
    EXPECT_THROW(parse_count(text, "n"), BadRequest) << text;
  }
  for (const char* text : {"3..8", "8..12", "16..8"})
    EXPECT_THROW(parse_counts(text, "n"), BadRequest) << text;
}

// Some editors put a byte order mark first.
TEST(Grid, AByteOrderMarkIsNoText) {
  const std::string path = testing::TempDir() + "with_mark.grid",
                    grid = "[a]\nn = 8\nrows = 4\ndtype = f32\nmode = host\n";
  std::ofstream(path) << "\xef\xbb\xbf" << grid;
  const Grid loaded = load_grid(path);
  EXPECT_EQ(loaded.cases.size(), 1U);
  EXPECT_EQ(loaded.text, grid);
}

// What the issue of the sweep promises about the built-in grids.
TEST(Grid, BuiltInGridsCoverWhatTheyPromise) {
  ASSERT_FALSE(built_in_grids().empty());
  for (const BuiltInGrid& grid : built_in_grids()) {
    EXPECT_GT(load_grid(std::string(grid.name)).cases.size(), 10U) << grid.name;
  }
  const auto has = [](const Grid& grid, const char* problem, Mode mode) {
    return std::any_of(grid.cases.begin(), grid.cases.end(),
                       [&](const Case& c) { return c.problem == parse_problem(problem) && c.mode == mode; });
  };
  const Grid quick = load_grid("quick");
  for (std::int64_t n = 16; n <= 32768; n *= 2) {
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
      const auto text = [&](int log2_elements) {
        return to_string(make_problem(dtype, n, (std::int64_t{1} << log2_elements) / n));
      };
      EXPECT_TRUE(has(quick, text(15).c_str(), Mode::replay)) << n;
      EXPECT_TRUE(has(quick, text(23).c_str(), Mode::alternating)) << n;
      EXPECT_TRUE(has(quick, text(26).c_str(), Mode::replay)) << n;
      EXPECT_TRUE(has(quick, text(20).c_str(), Mode::host)) << n;
    }
  }
  EXPECT_TRUE(has(quick, "f16/n4096/r8/pdl", Mode::replay_pdl)) << "the mode asks for the launch";
  EXPECT_FALSE(has(quick, "f16/n4096/r8/pdl", Mode::replay));
  const Grid widths = load_grid("widths");
  for (const std::int64_t n : {768, 2880, 10944, 13696, 53248}) {
    const Operator op = operator_for(n);
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
      EXPECT_TRUE(has(widths, to_string(make_problem(dtype, op, 16)).c_str(), Mode::replay)) << n;
      EXPECT_TRUE(has(widths, to_string(make_problem(dtype, op, (1 << 26) / n)).c_str(), Mode::replay)) << n;
    }
    for (const std::int64_t elements : {1 << 23, 1 << 24})
      EXPECT_TRUE(
          has(widths, to_string(make_problem(Dtype::f16, op, elements / n)).c_str(), Mode::alternating))
          << n;
  }
  EXPECT_TRUE(has(load_grid("tune"), "f16/28x512/r1", Mode::replay))
      << "auto chooses at row lengths of models too";
  const Grid paper = load_grid("paper");
  EXPECT_TRUE(has(paper, "f16/n2/r256", Mode::replay));
  EXPECT_TRUE(has(paper, "bf16/n32768/r8192", Mode::replay));
  EXPECT_FALSE(has(paper, "f16/n1024/r131072", Mode::replay)) << "2^27 is not part of the grid";
  // Judged by the same limits: the 16-bit types and f32 move the same bytes in the quick grid.
  std::set<std::pair<std::int64_t, Mode>> limits;
  for (const Case& c : quick.cases) {
    if (c.mode != Mode::host) limits.emplace(c.problem.useful_bytes(), c.mode);
  }
  EXPECT_EQ(limits.size(), 4U);
}

TEST(Grid, IsLoadedFromAFile) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "one.grid";
  std::ofstream(path) << "[a]\nn = 8\nrows = 1\ndtype = f16\nmode = host\n";
  EXPECT_EQ(names(load_grid(path.string())), (std::vector<std::string>{"f16/n8/r1/host"}));
  try {
    load_grid("no-such-grid");
    FAIL() << "not refused";
  } catch (const BadRequest& error) {
    EXPECT_STREQ(error.what(),
                 "unknown grid 'no-such-grid': no such file, and the built-in grids are smoke, quick, "
                 "paper, tune, host, headline, published, fused, codes, prepared, operands, widths, long, "
                 "arrangements, "
                 "peers");
  }
}

}  // namespace
}  // namespace fwht::harness
