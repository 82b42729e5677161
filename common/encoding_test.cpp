#include "common/encoding.hpp"

#include <gtest/gtest.h>

#include "common/error.hpp"
#include "common/problem.hpp"

namespace fwht {
namespace {

std::string refusal(std::string_view text, std::int64_t n) {
  try {
    validate(parse_encoding(text), n);
  } catch (const BadRequest& error) {
    return error.what();
  }
  return "";
}

TEST(Encoding, TextFormGoesThereAndBack) {
  for (const char* text :
       {"e4m3:row", "e4m3:tensor", "e4m3:128", "int8:row/f32", "int4:64", "mxfp8", "mxfp4", "nvfp4/f32"}) {
    EXPECT_EQ(to_string(parse_encoding(text)), text);
    EXPECT_EQ(refusal(text, 4096), "");
  }
  EXPECT_EQ(to_string(Encoding{}), "");
}

TEST(Encoding, CountsBytes) {
  const Problem rows = parse_problem("bf16/n4096/r8>e4m3:row");
  EXPECT_EQ(rows.bytes_read(), 2 * 4096 * 8);
  EXPECT_EQ(rows.bytes_written(), 4096 * 8 + 8 * 4);
  EXPECT_EQ(parse_problem("bf16/n4096/r8>nvfp4").bytes_written(), 4096 * 8 / 2 + 4096 * 8 / 16);
  EXPECT_EQ(parse_problem("bf16/n4096/r8>int4:64").bytes_written(), 4096 * 8 / 2 + 4096 * 8 / 64 * 4);
  EXPECT_EQ(parse_problem("bf16/n4096/r8>e4m3:tensor").bytes_written(), 4096 * 8 + 4);
  EXPECT_EQ(parse_problem("bf16/n4096/r8").bytes_written(), 2 * 4096 * 8);
}

TEST(Encoding, RefusesWhatDoesNotFitInOneSentence) {
  EXPECT_EQ(refusal("e4m3:96", 4096), "encoding e4m3:96: group=96 must divide n=4096");
  EXPECT_EQ(refusal("int8:0", 4096), "encoding int8:0: group=0 must be at least 1");
  EXPECT_EQ(refusal("mxfp4:64", 4096), "encoding mxfp4:64: mxfp4 has one scale for 32 elements");
  EXPECT_EQ(refusal("nvfp4:row", 4096), "encoding nvfp4:row: nvfp4 has one scale for 16 elements");
  EXPECT_EQ(refusal("mxfp8", 16), "encoding mxfp8: group=32 must divide n=16");
  EXPECT_EQ(refusal("int4:row", 3), "encoding int4:row: two codes share a byte, so n=3 must be even");
  EXPECT_NE(refusal("e4m3", 4096).find("names no scales"), std::string::npos);
  EXPECT_NE(refusal("e5m2:row", 4096).find("the form is"), std::string::npos);
  EXPECT_NE(refusal("int8:x", 4096).find("is no group size"), std::string::npos);
  EXPECT_NE(refusal("", 4096).find("the form is"), std::string::npos);
}

}  // namespace
}  // namespace fwht
