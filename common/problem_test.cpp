#include "common/problem.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/error.hpp"

namespace fwht {
namespace {

TEST(Problem, TextFormGoesThereAndBack) {
  Problem problem = make_problem(Dtype::bf16, 4096, 17, Placement::out_of_place);
  problem.row_stride = 4104;
  problem.scale = 0.1;
  EXPECT_EQ(to_string(problem), "bf16/n4096/r17/out/ld4104/s0.1");
  EXPECT_EQ(parse_problem(to_string(problem)), problem);
  problem.programmatic_launch = true;
  EXPECT_EQ(to_string(problem), "bf16/n4096/r17/out/ld4104/s0.1/pdl");
  EXPECT_EQ(parse_problem(to_string(problem)), problem);
  EXPECT_EQ(to_string(parse_problem("fp16/n128/r3")), "f16/n128/r3");
  EXPECT_EQ(parse_problem("f32/n8/r0").rows, 0);
}

TEST(Problem, CountsUsefulWork) {
  const Problem problem = make_problem(Dtype::f16, 1024, 3);
  EXPECT_EQ(problem.useful_bytes(), 2 * 2 * 3072);
  EXPECT_EQ(problem.useful_flops(), 3072 * 10);
  EXPECT_EQ(problem.span_elements(), 3072);
}

TEST(Problem, RefusesNonsenseWithValueAndLimit) {
  for (const char* text : {"f16", "f16/n0/r1", "f16/n8/r-1", "f16/n8/r1/ld7", "f16/n8/r1/snan", "f8/n8/r1",
                           "f16/n8/r1/zzz", "f16/n8x/r1", "f16/r1", "", "f16/n4611686018427387904/r4"}) {
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
