#include "common/contract/operator.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

#include "common/host/error.hpp"
#include "common/host/text.hpp"
#include "common/testing/refusal.hpp"

namespace fwht {
namespace {

std::string refusal(std::string_view text) {
  return bad_request_of([&] { parse_operator(text); });
}

TEST(Operator, TextFormGoesThereAndBack) {
  for (const char* text : {"4096", "28x512", "12tx20x64", "d53x256", "28x512+signs", "signs+428tx32", "28",
                           "signs+12tx20x64", "256r", "28x64r", "4rx28x16r", "signs+16r", "65536r"}) {
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
  const Operator said_transposed = parse_operator("12tx20x64");
  EXPECT_TRUE(said_transposed.is_symmetric());
  EXPECT_EQ(said_transposed.transposed(), said_transposed);
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

TEST(Operator, APowerOfTwoIsSylvesterWhateverItsBasis) {
  EXPECT_EQ((Operator{{Basis::hadamard, 28}, {Basis::hadamard, 16}}), parse_operator("28x16"));
  EXPECT_EQ(parse_operator("16t+signs"), parse_operator("16+signs"));
  EXPECT_EQ(parse_operator("28x16t"), parse_operator("28x16"));
}

TEST(Operator, RegularMatricesAreHeldByFactorsThatKernelsMultiplyBy) {
  const Operator op = parse_operator("256r");
  ASSERT_EQ(op.factors().size(), 2U);
  for (const Factor& factor : op.factors())
    EXPECT_EQ(factor, (Factor{Basis::regular, 16, false}));
  EXPECT_EQ(parse_operator("64r").factors()[0].order, 4) << "what is left stands in front";
  for (const char* same : {"16rx16r", "4rx64r", "64rx4r", "4rx4rx4rx4r", "256rt"})
    EXPECT_EQ(parse_operator(same), op) << same;
  EXPECT_EQ(parse_operator("1024r").n(), 1024);
  EXPECT_TRUE(op.is_regular());
  EXPECT_TRUE(op.is_symmetric());
  EXPECT_EQ(op.transposed(), op);
  for (const char* other : {"256", "256r+signs", "16rx28", "256rx2"})
    EXPECT_FALSE(parse_operator(other).is_regular()) << other;
  EXPECT_FALSE(Operator().is_regular());
}

// The row lengths of current models, and shards of them: what these operators are is part of the contract.
TEST(OperatorFor, NamesTheFactorsOfEveryKnownWidth) {
  const std::pair<std::int64_t, const char*> kWanted[] = {
      {1, "1"},
      {2, "2"},
      {4096, "4096"},
      {12, "12"},
      {56, "28x2"},
      {768, "12x64"},
      {896, "28x32"},
      {1408, "44x32"},
      {1536, "12x128"},
      {1792, "28x64"},
      {2304, "36x64"},
      {2560, "20x128"},
      {2880, "180x16"},
      {3072, "12x256"},
      {3200, "100x32"},
      {3584, "28x128"},
      {3712, "116x32"},
      {4864, "76x64"},
      {5120, "20x256"},
      {5376, "84x64"},
      {6144, "12x512"},
      {7168, "28x256"},
      {8960, "140x64"},
      {9216, "36x256"},
      {9728, "76x128"},
      {10944, "76x2x36x2"},
      {11008, "172x64"},
      {12288, "12x1024"},
      {13440, "60x4x28x2"},
      {13696, "428x32"},
      {13824, "108x128"},
      {14336, "28x512"},
      {17408, "68x256"},
      {17920, "140x128"},
      {18432, "36x512"},
      {18944, "148x128"},
      {20480, "20x1024"},
      {21504, "84x256"},
      {22016, "172x128"},
      {25600, "100x256"},
      {27648, "108x256"},
      {28672, "28x1024"},
      {29568, "132x4x28x2"},
      {36864, "36x1024"},
      {53248, "52x1024"},
  };
  for (const auto& [n, text] : kWanted) {
    const Operator op = operator_for(n);
    EXPECT_EQ(to_string(op), text);
    EXPECT_EQ(op.n(), n);
    EXPECT_NO_THROW(validate(op));
    EXPECT_EQ(parse_operator(to_string(op)), op);
    EXPECT_EQ(op.is_symmetric(), n != 3712 && n != 13696) << n;
  }
}

// A shard of a row split over 2, 4 or 8 GPUs has the same base.
TEST(OperatorFor, ShardsHaveTheSameBase) {
  for (const std::int64_t n : {14336, 28672, 18432, 25600, 53248}) {
    for (const std::int64_t shards : {2, 4, 8})
      EXPECT_EQ(operator_for(n / shards).factors()[0], operator_for(n).factors()[0]) << n << " / " << shards;
  }
}

TEST(OperatorFor, RefusesOtherLengthsAndNamesTheNearest) {
  const auto refused = [](std::int64_t n) -> std::string { return bad_request_of([&] { operator_for(n); }); };
  EXPECT_EQ(refused(6),
            "n=6 is no power of two times one or two known Hadamard orders; the nearest n that is: 4");
  EXPECT_EQ(
      refused(13697),
      "n=13697 is no power of two times one or two known Hadamard orders; the nearest n that is: 13696");
  EXPECT_NE(refused(0).find("n=0 must be between 1 and"), std::string::npos);
  EXPECT_NE(refused((std::int64_t{1} << 40) + 1).find("must be between"), std::string::npos);
  EXPECT_NE(refused((std::int64_t{1} << 40) - 1).find("nearest"), std::string::npos);
  // What is named is right: nothing nearer has an operator, by trying all.
  for (const std::int64_t n : {90, 1000, 11111, 29570}) {
    const std::string sentence = refused(n);
    ASSERT_NE(sentence, "") << n;
    const std::int64_t nearest = std::stoll(sentence.substr(sentence.rfind(' ')));
    EXPECT_EQ(refused(nearest), "");
    for (std::int64_t other = n; std::abs(other - n) < std::abs(nearest - n);
         other = n - (other - n) + (other <= n))
      EXPECT_NE(refused(other), "") << other << " is nearer to " << n << " than " << nearest;
  }
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
  EXPECT_EQ(refusal("32r"), "operator 32r: order 32 of a regular matrix must be a power of four, 4 at least");
  EXPECT_NE(refusal("1r").find("order 1 of a regular matrix"), std::string::npos);
  // Whatever stands beside it: 5 times 4 is no regular matrix of 16, and nothing is none of 4.
  for (const char* order : {"5", "0", "-4", "-9223372036854775808"}) {
    EXPECT_NE(refusal(concat(order, "rx4r")).find(concat("order ", order)), std::string::npos) << order;
    EXPECT_NE(refusal(concat("4rx", order, "r")).find(concat("order ", order)), std::string::npos) << order;
  }
  EXPECT_NE(refusal("4611686018427387905rx4r").find("exceeds the limit"), std::string::npos);
  EXPECT_NE(refusal("262144r").find("at most 4 factors"), std::string::npos);
  EXPECT_NE(refusal("d16r").find("is no factor"), std::string::npos);
  EXPECT_NE(refusal("r16").find("is no factor"), std::string::npos);
  EXPECT_NE(refusal("28y512").find("is no factor"), std::string::npos);
  EXPECT_NE(refusal("28x").find("is no factor"), std::string::npos);
  EXPECT_NE(refusal("").find("is no factor"), std::string::npos);
  EXPECT_NE(refusal("d0x4").find("must be at least 1"), std::string::npos);
  EXPECT_NE(refusal("2x2x2x2x2").find("more than 4 factors"), std::string::npos);
  EXPECT_NE(refusal("signs+4+signs").find("twice"), std::string::npos);
  EXPECT_NE(refusal("1099511627776x1099511627776").find("exceeds the limit"), std::string::npos);
  EXPECT_NE(refusal("d4294967296").find("dense factor of order 4294967296 exceeds the limit of 1048576"),
            std::string::npos);
  EXPECT_THROW(validate(Operator{{static_cast<Basis>(9), 4}}), BadRequest);
  EXPECT_THROW(validate(Operator{{Basis::sylvester, 3}, {Basis::sylvester, 4}}), BadRequest);
  EXPECT_THROW(Operator({Factor{}, Factor{}, Factor{}, Factor{}, Factor{}}), BadRequest);
}

}  // namespace
}  // namespace fwht
