#include <gtest/gtest.h>
#include "common/contract/linear/problem.hpp"
#include "common/host/error.hpp"

namespace fwht {
namespace {

TEST(LinearProblem, TextFormGoesThereAndBack) {
  for (const char* text : {"f16/m16/n8192/k4096/w4g128", "bf16/m0/n8/k64/w4g32/v2",
                           "f16/m1/n4096/k4096/w4g-1/sym/act/rot/pdl", "f16/m3/n24/k256/w4g64/rot128",
                           "f16/m3/n24/k768/w4g64/act/rot12tx64/pdl", "f16/m3/n24/k1792/w4g64/rotsigns+28x32",
                           "bf16/m3/n24/k640/w4g64/rotd20tx32+signs", "f16/m3/n24/k96/w4g32/rot12"}) {
    EXPECT_EQ(to_string(parse_linear_problem(text)), text);
  }
  const LinearProblem problem = parse_linear_problem("f16/m16/n4096/k8192/w4g128/act");
  EXPECT_EQ(problem.m, 16);
  EXPECT_EQ(problem.k, 8192);
  EXPECT_TRUE(problem.act_order);
  EXPECT_EQ(problem.zero_points, ZeroPoints::v1);
}

TEST(LinearProblem, CountsBytes) {
  // By hand, n = k = 4096, m = 16, groups of 128: 8388608 of weights, 262144 of scales, 65536 of zero points.
  LinearProblem problem = parse_linear_problem("f16/m16/n4096/k4096/w4g128");
  EXPECT_EQ(problem.weight_bytes(), 8388608 + 262144 + 65536);
  EXPECT_EQ(problem.bytes_read(), problem.weight_bytes() + 131072);
  EXPECT_EQ(problem.bytes_written(), 131072);
  problem.zero_points = ZeroPoints::symmetric;
  EXPECT_EQ(problem.weight_bytes(), 8388608 + 262144);
  problem.act_order = true;
  EXPECT_EQ(problem.weight_bytes(), 8388608 + 262144 + 16384);
  problem.rotation = parse_operator("d4x96+signs");  // 384 signs, 16 numbers
  EXPECT_EQ(problem.weight_bytes(), 8388608 + 262144 + 16384 + 48 + 32);
}

TEST(LinearProblem, RefusesWithTheValueAndTheLimit) {
  const auto refused = [](const char* text, const char* part) {
    try {
      (void)parse_linear_problem(text);
      ADD_FAILURE() << text << " is accepted";
    } catch (const BadRequest& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refused("f16/m1/n12/k64/w4g32", "n = 12");
  refused("f16/m1/n0/k64/w4g32", "n = 0");
  refused("f16/m-1/n8/k64/w4g32", "m = -1");
  refused("f16/m1073741824/n1073741824/k1073741824/w4g32", "m (n + k) = 2305843009213693952 elements");
  refused("f16/m1/n8/k96/w4g64", "k = 96 is no multiple of the group of 64");
  refused("f16/m1/n8/k100/w4g-1", "k = 100");
  refused("f16/m1/n8/k64/w4g16", "group 16");
  refused("f32/m1/n8/k64/w4g32", "f32");
  refused("f16/m1/n8/k96/w4g32/rot", "order 96");
  refused("f16/m1/n8/k96/w4g32/rot64", "order 64");
  refused("f16/m1/n8/k96/w4g32/rot1", "rot1");
  LinearProblem unknown = parse_linear_problem("f16/m1/n8/k96/w4g32");
  unknown.zero_points = static_cast<ZeroPoints>(9);
  EXPECT_THROW(validate(unknown), BadRequest);
  for (const char* of_one : {"1x1", "1+signs", "d1"}) {  // which no text form stands for
    LinearProblem problem = parse_linear_problem("f16/m1/n8/k96/w4g32");
    problem.rotation = parse_operator(of_one);
    EXPECT_THROW(validate(problem), BadRequest) << of_one;
  }
  refused("f16/m1/n8/k96/w4g32/rot12x16", "order 192");
  refused("f16/m1/n8/k96/w4g32/rot6x16", "6");
  refused("f16/m1/n8/k96/w4g32/rotsigns", "signs");
  refused("f16/m1/n8/k64", "'f16/m1/n8/k64'");
  refused("f16/m1/n8/k64/w4g32/wide", "wide");
  refused("f16/m1x/n8/k64/w4g32", "m1x");
}

}  // namespace
}  // namespace fwht
