#include "common/contract/problem.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "common/host/error.hpp"

namespace fwht {
namespace {

TEST(Problem, TextFormGoesThereAndBack) {
  Problem problem = make_problem(Dtype::bf16, 4096, 17, Placement::out_of_place);
  problem.set_row_stride(4104);
  problem.scale = 0.1;
  EXPECT_EQ(to_string(problem), "bf16/n4096/r17/out/ld4104/s0.1");
  EXPECT_EQ(parse_problem(to_string(problem)), problem);
  problem.programmatic_launch = true;
  EXPECT_EQ(to_string(problem), "bf16/n4096/r17/out/ld4104/s0.1/pdl");
  EXPECT_EQ(parse_problem(to_string(problem)), problem);
  EXPECT_EQ(to_string(parse_problem("fp16/n128/r3")), "f16/n128/r3");
  EXPECT_EQ(parse_problem("f32/n8/r0").rows, 0);
  for (const char* text :
       {"f16/n4096/r8192", "f16/28x512/r64", "bf16/n4096/r8192/out>e4m3:row",
        "f16/12tx20x64/r3/out/ld20000/ldo15360", "f32/n8/r2/out/to-bf16", "f64/n8/r1", "i32/n8/r1",
        "i64/n65536/r3/out/ld65537", "bf16/4096+signs/r1/out/s1/pdl>nvfp4/f32", "bf16/n128/r8/out/rms",
        "bf16/n128/r64/out/rope64h32>e4m3:row", "bf16/n128/r64/rope64i",
        "bf16/n128/r64/out/rope64/page64x100>e4m3:128,ue8m0,deepseek_v32"}) {
    EXPECT_EQ(to_string(parse_problem(text)), text);
  }
  EXPECT_EQ(to_string(parse_problem("bf16/n4096/r8192>e4m3:row")), "bf16/n4096/r8192/out>e4m3:row");
}

// Every part that makes two problems different reaches the hash.
TEST(Problem, HashesAsAValue) {
  std::set<std::size_t> hashes;
  const std::vector<const char*> texts{"f16/n4096/r8",
                                       "bf16/n4096/r8",
                                       "f16/n8192/r8",
                                       "f16/64x64/r8",
                                       "f16/n4096/r9",
                                       "f16/n4096/r8/out",
                                       "f16/n4096/r8/ld8192",
                                       "f16/n4096/r8/out/ldo8192",
                                       "f16/n4096/r8/s1",
                                       "f16/n4096/r8/out/to-bf16",
                                       "f16/n4096/r8/pdl",
                                       "f16/4096+signs/r8",
                                       "f16/signs+4096/r8",
                                       "f16/d64x64/r8",
                                       "f16/d64tx64/r8",
                                       "f16/n4096/r8>e4m3:row",
                                       "f16/n4096/r8>int8:row",
                                       "f16/n4096/r8>e4m3:tensor",
                                       "f16/n4096/r8>int8:32",
                                       "f16/n4096/r8>int8:64",
                                       "f16/n4096/r8>e4m3:row/f32",
                                       "f16/n4096/r8/rms",
                                       "f16/n4096/r8/rope64",
                                       "f16/n4096/r8/rope128",
                                       "f16/n4096/r8/rope64i",
                                       "f16/n4096/r8/rope64h4",
                                       "f16/n4096/r8/page64x2>e4m3:row",
                                       "f16/n4096/r8/page32x2>e4m3:row",
                                       "f16/n4096/r8/page64x3>e4m3:row"};
  for (const char* text : texts) {
    hashes.insert(hash_of(parse_problem(text)));
    EXPECT_EQ(hash_of(parse_problem(text)), hash_of(parse_problem(text)));
  }
  EXPECT_EQ(hashes.size(), texts.size());
  Problem zero = make_problem(Dtype::f16, 8, 1), minus = zero;
  zero.scale = 0.0;
  minus.scale = -0.0;
  EXPECT_EQ(zero, minus);
  EXPECT_EQ(hash_of(zero), hash_of(minus));
}

TEST(Problem, MadeByDefaultSaysWhichHelperToUse) {
  try {
    validate(Problem{});
    FAIL();
  } catch (const BadRequest& error) {
    EXPECT_NE(std::string(error.what()).find("make_problem"), std::string::npos);
  }
}

TEST(Problem, RefusesUnknownEnumeratorsAndScalesBeyondFp32) {
  Problem problem = make_problem(Dtype::f16, 8, 1);
  problem.set_dtype(static_cast<Dtype>(7));
  EXPECT_THROW(validate(problem), BadRequest);
  problem = make_problem(Dtype::f16, 8, 1);
  problem.placement = static_cast<Placement>(9);
  EXPECT_THROW(validate(problem), BadRequest);
  problem = make_problem(Dtype::f16, 8, 1);
  problem.scale = 1e39;
  EXPECT_THROW(validate(problem), BadRequest);
  problem.set_dtype(Dtype::f64);
  EXPECT_NO_THROW(validate(problem));
}

// Integers are summed and nothing else: every other request is refused with the value that is to blame.
TEST(Problem, IntegersHaveTheScaleOneAndNoEncoding) {
  EXPECT_EQ(make_problem(Dtype::i32, 1024, 2).scale, 1.0);
  EXPECT_EQ(parse_problem("i64/n1024/r2").scale, 1.0);
  const auto refusal = [](const char* text) -> std::string {
    try {
      parse_problem(text);
    } catch (const BadRequest& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(refusal("i32/n64/r1/s0.125"), "scale=0.125 must be 1 for i32 data, whose sums are not rounded");
  EXPECT_NE(refusal("i64/n64/r1/out/to-f64").find("stay what they are"), std::string::npos);
  EXPECT_NE(refusal("f32/n64/r1/out/to-i32").find("stay what they are"), std::string::npos);
  EXPECT_NE(refusal("i32/n64/r1>e4m3:row"), "");
}

TEST(Problem, InPlaceHasOneDtypeStrideAndNoEncoding) {
  EXPECT_THROW(parse_problem("f16/n8/r2/ld16/ldo8"), BadRequest);
  EXPECT_THROW(parse_problem("f32/n8/r2/to-bf16"), BadRequest);
  EXPECT_THROW(parse_problem("f16/n8/r2/in>e4m3:row"), BadRequest);
}

TEST(Problem, CountsUsefulWork) {
  const Problem problem = make_problem(Dtype::f16, 1024, 3);
  EXPECT_EQ(problem.useful_bytes(), 2 * 2 * 3072);
  EXPECT_EQ(problem.useful_flops(), 3072 * 10);
  EXPECT_EQ(problem.span_elements(), 3072);
}

TEST(Problem, RowsTimesStrideHasALimit) {
  EXPECT_NO_THROW(parse_problem("f16/n8/r72057594037927935"));  // 8 (2^56 - 1)
  EXPECT_THROW(parse_problem("f16/n8/r72057594037927936"), BadRequest);
}

TEST(Problem, RefusesNonsenseWithValueAndLimit) {
  for (const char* text : {"f16",
                           "f16/n0/r1",
                           "f16/n8/r-1",
                           "f16/n8/r1/ld7",
                           "f16/n8/r1/snan",
                           "f8/n8/r1",
                           "f16/n8/r1/zzz",
                           "f16/n8x/r1",
                           "f16/28x512/r1/rms",
                           "f16/n8/r1/rope",
                           "f16/n8/r1/rope3",
                           "f16/n8/r1/rope16",
                           "f16/n8/r1/rope0",
                           "f16/n8/r1/rope4h0",
                           "f16/n8/r3/rope4h2",
                           "f16/n8/r1/rope4x",
                           "f16/n8/r1/rmsnorm",
                           "f16/n8/r1/page4x4",
                           "f16/n8/r1/page4>e4m3:row",
                           "f16/n8/r1/page0x4>e4m3:row",
                           "f16/n8/r1/page4x0>e4m3:row",
                           "f16/n8/r1/page4x4>e4m3:tensor",
                           "f16/n8/r2/page4x4>e4m3:row,t16",
                           "f16/n4/r2/page4x4>e4m3:row",
                           "f16/n8/r2/page4x4>e4m3:row,mn,ldo16",
                           "f16/r1",
                           "",
                           "f16/n4611686018427387904/r4"}) {
    EXPECT_THROW(parse_problem(text), BadRequest) << text;
  }
  try {
    parse_problem("f16/n8/r1/ld7");
  } catch (const BadRequest& error) {
    EXPECT_STREQ(error.what(), "row_stride=7 must be at least n=8");
  }
}

}  // namespace
}  // namespace fwht
