// The matrix that the kernel writes, entry by entry.
#include "variants/matmul/matmul.hpp"

#include <gtest/gtest.h>

#include "common/contract/hadamard_matrices.hpp"

namespace fwht::matmul {
namespace {

/// Entry (i, j) from the last factor to the first, by the digits of i and j.
int entry(const Operator& op, std::int64_t i, std::int64_t j) {
  int product = 1;
  for (std::size_t f = op.factors().size(); f-- > 0;) {
    const Factor& factor = op.factors()[f];
    const auto row = static_cast<int>(i % factor.order), column = static_cast<int>(j % factor.order);
    i /= factor.order, j /= factor.order;
    product *= factor.basis == Basis::sylvester
                   ? hadamard_sign(static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(column))
               : factor.transposed ? named_matrix(factor)(column, row)
                                   : named_matrix(factor)(row, column);
  }
  return product;
}

TEST(Matmul, TheMatrixIsTheProductOfTheFactors) {
  for (const char* text : {"64", "28x16", "116x4", "116tx4", "12x4x20x2", "4x12", "64r"}) {
    const Operator op = parse_operator(text);
    const MatrixSigns signs = matrix_signs(op);
    for (std::int64_t i = 0; i < op.n(); ++i)
      for (std::int64_t j = 0; j < op.n(); ++j)
        ASSERT_EQ(is_negative(signs, i, j), entry(op, i, j) < 0) << text << " " << i << " " << j;
  }
}

TEST(Matmul, SaysWhatItDoesNotTake) {
  const auto refusal = [](const char* text) {
    return variant.supports(parse_problem(text), h200_description()).why_not;
  };
  EXPECT_EQ(refusal("f16/28x512/r5"), "");
  EXPECT_EQ(refusal("f16/12/r5"), "n=12 must be a multiple of 8 up to 16384");
  EXPECT_EQ(refusal("bf16/28x1024/r5"), "n=28672 must be a multiple of 8 up to 16384");
  EXPECT_EQ(refusal("f16/n4096/r5/ld4100"), "row_stride=4100 must be a multiple of 8 elements");
  for (const char* text : {"f16/d28x512/r5", "f16/4096+signs/r5"})
    EXPECT_NE(refusal(text).find("takes factors known by name, without signs"), std::string::npos) << text;
  EXPECT_NE(refusal("f32/28x512/r5").find("f32"), std::string::npos);
}

}  // namespace
}  // namespace fwht::matmul
