#include "common/operator.hpp"

#include <gtest/gtest.h>

#include "common/error.hpp"

namespace fwht {
namespace {

std::string refusal(std::string_view text) {
  try {
    parse_operator(text);
  } catch (const BadRequest& error) {
    return error.what();
  }
  return "";
}

TEST(Operator, TextFormGoesThereAndBack) {
  for (const char* text : {"4096", "28x512", "12tx20x64", "d53x256", "28x512+signs", "signs+428tx32", "28"}) {
    const Operator op = parse_operator(text);
    EXPECT_EQ(to_string(op), text);
    EXPECT_EQ(parse_operator(to_string(op)), op);
  }
}

TEST(Operator, KnowsItsLengthAndBases) {
  const Operator op = parse_operator("d12tx28x64");
  EXPECT_EQ(op.n(), 12 * 28 * 64);
  ASSERT_EQ(op.factors().size(), 3U);
  EXPECT_EQ(op.factors()[0], (Factor{Basis::dense, 12, true}));
  EXPECT_EQ(op.factors()[1], (Factor{Basis::hadamard, 28, false}));
  EXPECT_EQ(op.factors()[2], (Factor{Basis::sylvester, 64, false}));
  EXPECT_FALSE(op.is_sylvester());
  EXPECT_TRUE(Operator::sylvester(4096).is_sylvester());
  EXPECT_FALSE(Operator::sylvester(4096).with_signs().is_sylvester());
  EXPECT_EQ(Operator().n(), 0);
}

TEST(Operator, TransposesWhatIsNotSymmetric) {
  const Operator symmetric = parse_operator("28x512");
  EXPECT_TRUE(symmetric.is_symmetric());
  EXPECT_EQ(symmetric.transposed(), symmetric);
  const Operator turyn = parse_operator("428x32");
  EXPECT_FALSE(turyn.is_symmetric());
  EXPECT_EQ(to_string(turyn.transposed()), "428tx32");
  EXPECT_EQ(turyn.transposed().transposed(), turyn);
  EXPECT_EQ(to_string(parse_operator("d53x256").transposed()), "d53tx256");
  // (H D)^T = D H^T: what was multiplied first is multiplied last.
  const Operator randomized = parse_operator("4096+signs");
  EXPECT_FALSE(randomized.is_symmetric());
  EXPECT_EQ(to_string(randomized.transposed()), "signs+4096");
  EXPECT_EQ(randomized.transposed().transposed(), randomized);
}

TEST(Operator, RefusesWhatIsNoMatrixInOneSentence) {
  EXPECT_EQ(
      refusal("6x512"),
      "operator 6x512: no Hadamard matrix of order 6 is known here; known are the multiples of 4 to 256, and "
      "428");
  EXPECT_EQ(refusal("260x2"),
            "operator 260x2: no Hadamard matrix of order 260 is known here; known are the multiples of 4 to "
            "256, and "
            "428");
  EXPECT_NE(refusal("28y512").find("is no factor"), std::string::npos);
  EXPECT_NE(refusal("28x").find("is no factor"), std::string::npos);
  EXPECT_NE(refusal("").find("is no factor"), std::string::npos);
  EXPECT_NE(refusal("d0x4").find("must be at least 1"), std::string::npos);
  EXPECT_NE(refusal("2x2x2x2x2").find("more than 4 factors"), std::string::npos);
  EXPECT_NE(refusal("signs+4+signs").find("twice"), std::string::npos);
  EXPECT_NE(refusal("1099511627776x1099511627776").find("exceeds the limit"), std::string::npos);
  EXPECT_THROW(validate(Operator{{Basis::sylvester, 3}, {Basis::sylvester, 4}}), BadRequest);
  EXPECT_THROW(Operator({Factor{}, Factor{}, Factor{}, Factor{}, Factor{}}), BadRequest);
}

}  // namespace
}  // namespace fwht
