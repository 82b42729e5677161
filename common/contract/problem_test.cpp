#include "common/contract/problem.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "common/host/text.hpp"
#include "common/testing/refusal.hpp"

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
  EXPECT_EQ(parse_problem("f32/8t/r1"), parse_problem("f32/n8/r1"));
  for (const char* text :
       {"f16/n4096/r8192", "f16/28x512/r64", "bf16/n4096/r8192/out>e4m3:row",
        "f16/12tx20x64/r3/out/ld20000/ldo15360", "f32/n8/r2/out/to-bf16", "f64/n8/r1", "i32/n8/r1",
        "i64/n65536/r3/out/ld65537", "bf16/4096+signs/r1/out/s1/pdl>nvfp4/f32", "bf16/n128/r8/out/rms",
        "bf16/n128/r64/out/rope64h32>e4m3:row", "bf16/n128/r64/rope64i",
        "bf16/n128/r64/out/rope64/page64x100>e4m3:128,ue8m0,deepseek_v32", "f32/n8/r2/out/sequency",
        "f32/n8/r2/out/from-dyadic/sequency", "i32/n8/r6/inner3", "f64/n8/r6/out/dyadic/inner2/ld20"}) {
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
                                       "f16/n4096/r8/page64x3>e4m3:row",
                                       "f16/n4096/r8/out/dyadic",
                                       "f16/n4096/r8/out/sequency",
                                       "f16/n4096/r8/out/from-dyadic",
                                       "f16/n4096/r8/inner2",
                                       "f16/n4096/r8/inner4"};
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
  EXPECT_NE(bad_request_of([] { validate(Problem{}); }).find("make_problem"), std::string::npos);
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

TEST(Problem, IsNotMadeOfOrdersWhoseProductFitsNoLength) {
  const std::int64_t order = std::int64_t{1} << 40;
  EXPECT_NE(bad_request_of([&] {
              make_problem(Dtype::f32, Operator{{Basis::sylvester, order}, {Basis::sylvester, order}}, 1);
            }).find("n exceeds the limit of"),
            std::string::npos);
}

// A second word of a kind would silently win.
TEST(Problem, NamesEachPartOnce) {
  for (const auto& [text, part] : {std::pair{"f32/n64/n128/r4", "operator"},
                                   {"f32/28x512/n64/r4", "operator"},
                                   {"f32/n64/r4/r5", "rows"},
                                   {"f32/n64/r4/in/out", "placement"},
                                   {"f32/n64/r4/s1/s2", "scale"},
                                   {"f32/n64/r4/ld64/ld70", "row stride"},
                                   {"f32/n64/r4/out/ldo64/ldo70", "row stride of the output"},
                                   {"f32/n64/r4/out/to-f16/to-bf16", "dtype of the output"},
                                   {"f32/n64/r4/dyadic/sequency", "ordering"},
                                   {"f32/n64/r4/from-dyadic/from-sequency", "ordering of the input"},
                                   {"f32/n64/r4/inner2/inner4", "inner dimension"}}) {
    EXPECT_EQ(bad_request_of([&] { parse_problem(text); }),
              concat("problem '", text, "' names its ", part, " twice"));
  }
  EXPECT_THROW(parse_problem("bf16/n128/r4/rms/rope64>e4m3:row"), BadRequest);
}

// Integers are summed and nothing else: every other request is refused with the value that is to blame.
TEST(Problem, IntegersHaveTheScaleOneAndNoEncoding) {
  EXPECT_EQ(make_problem(Dtype::i32, 1024, 2).scale, 1.0);
  EXPECT_EQ(parse_problem("i64/n1024/r2").scale, 1.0);
  const auto refusal = [](const char* text) -> std::string {
    return bad_request_of([&] { parse_problem(text); });
  };
  EXPECT_EQ(refusal("i32/n64/r1/s0.125"),
            "scale=0.125 must be given as 1 for i32 data, whose sums are not rounded");
  EXPECT_NE(refusal("i64/n64/r1/out/to-f64").find("must have one dtype"), std::string::npos);
  EXPECT_NE(refusal("f32/n64/r1/out/to-i32").find("must have one dtype"), std::string::npos);
  EXPECT_NE(refusal("i32/n64/r1>e4m3:row"), "");
}

// What an arrangement leaves no room for, with the value that is to blame.
TEST(Problem, OrderingsAndInnerDimensionsAreRefusedWithTheValue) {
  const auto refusal = [](const char* text) -> std::string {
    return bad_request_of([&] { parse_problem(text); }, "nothing");
  };
  for (const auto& [text, words] : std::vector<std::pair<const char*, const char*>>{
           {"f32/n8/r2/sequency", "sequency ordering of the output permutes a row"},
           {"f32/n8/r2/from-dyadic", "dyadic ordering of the input permutes a row"},
           {"f32/12x2/r2/out/dyadic",
            "dyadic ordering of the output is of H_n with n a power of two, not of 12x2"},
           {"f32/n6/r2/out/dyadic", "is of H_n with n a power of two"},
           {"f32/n8/r3/inner2", "inner=2 must divide rows=3: rows are interleaved in blocks of inner"},
           {"f32/n8/r2/inner0", "inner=0 must be at least 1"},
           {"f32/n8/r2/inner1152921504606846976",
            "inner=1152921504606846976 must be at least 1, and times n=8 below"},
           {"f32/n8/r2/inner2/ld15", "row_stride=15 must be at least n=8 times inner=2"},
           {"bf16/n128/r4/out/sequency>e4m3:row", "rows side by side, in natural order"},
           {"bf16/n128/r4/inner2/out>e4m3:row", "rows side by side, in natural order"},
           {"bf16/n128/r4/inner2/rms", "rows side by side, in natural order"}}) {
    EXPECT_NE(refusal(text).find(words), std::string::npos) << text << ": " << refusal(text);
  }
  EXPECT_EQ(refusal("f16/n32/r268435456/inner67108864"), "nothing") << "four blocks of 4 GiB";
  EXPECT_NE(refusal("f16/n32/r268435456/inner67108864/ld144115188075855873").find("exceeds the limit"),
            std::string::npos);
  Problem problem = make_problem(Dtype::f32, 8, 1, Placement::out_of_place);
  problem.out_ordering = static_cast<Ordering>(3);
  EXPECT_THROW(validate(problem), BadRequest);
}

TEST(Problem, RowsBetweenEachOtherSpanTheirBlocks) {
  const Problem problem = parse_problem("f32/n8/r6/inner3/ld30");
  EXPECT_EQ(problem.span_elements(), 30 + 24);
  EXPECT_FALSE(problem.contiguous());
  EXPECT_TRUE(parse_problem("f32/n8/r6/inner3").contiguous());
  EXPECT_EQ(problem.first_of(problem.in, 5), 30 + 2);
}

// The rows of the matrix in each order, against what defines it: Rademacher products for Paley's, sign
// changes for Walsh's.
TEST(Ordering, IsThatOfPaleyAndOfWalsh) {
  for (int log_n = 0; log_n <= 9; ++log_n) {
    const std::int64_t n = std::int64_t{1} << log_n;
    for (std::int64_t k = 0; k < n; ++k) {
      for (const Ordering ordering : {Ordering::natural, Ordering::dyadic, Ordering::sequency})
        EXPECT_EQ(ordered_place(ordering, natural_place(ordering, k, log_n), log_n), k);
      const std::int64_t dyadic = natural_place(Ordering::dyadic, k, log_n);
      const std::int64_t sequency = natural_place(Ordering::sequency, k, log_n);
      std::int64_t changes = 0;
      for (std::int64_t j = 0; j < n; ++j) {
        // Rademacher function i has the period n / 2^i: its sign is bit log_n - 1 - i of j.
        int sign = 1;
        for (int i = 0; i < log_n; ++i)
          if ((k >> i & 1) != 0 && (j >> (log_n - 1 - i) & 1) != 0) sign = -sign;
        EXPECT_EQ(hadamard_sign(static_cast<std::uint64_t>(dyadic), static_cast<std::uint64_t>(j)), sign);
        const auto entry = [&](std::int64_t at) {
          return hadamard_sign(static_cast<std::uint64_t>(sequency), static_cast<std::uint64_t>(at));
        };
        if (j > 0 && entry(j) != entry(j - 1)) ++changes;
      }
      EXPECT_EQ(changes, k) << "n=" << n;
    }
  }
}

TEST(Problem, InPlaceHasOneDtypeStrideAndNoEncoding) {
  EXPECT_THROW(parse_problem("f16/n8/r2/ld16/ldo8"), BadRequest);
  EXPECT_THROW(parse_problem("f32/n8/r2/to-bf16"), BadRequest);
  EXPECT_THROW(parse_problem("f16/n8/r2/in>e4m3:row"), BadRequest);
}

TEST(Problem, CountsUsefulWork) {
  const Problem problem = make_problem(Dtype::f16, 1024, 3);
  EXPECT_EQ(problem.useful_bytes(), 2 * 2 * 3072);
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
                           "f16/n8589934592/r1/page2147483648x1>int8:row",
                           "f16/n-9223372036854775807/r0/inner576460752303423487",
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
