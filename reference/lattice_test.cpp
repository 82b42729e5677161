#include "reference/lattice.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/compare.hpp"
#include "reference/test_support.hpp"

namespace fwht::reference {
namespace {

constexpr double kU = 0x1p-8;

TEST(RoundedLaw, TheInputIsExact) {
  EXPECT_NEAR(RoundedLaw::normal().gain(), 0.0, 1e-9);
  EXPECT_NEAR(RoundedLaw::normal().rel_l2(), 0.0, 1e-5);
}

// Two normal numbers of one deviation, and 181/256: enumerated once more, with other code, over all pairs
// with magnitudes from 2^-10 to 2^4 (10.26e-6 and 0.42530 u). A factor of one: -4.66e-6 and 0.46100 u, not
// the 0.42466 u of a smooth density.
TEST(RoundedLaw, OnePairIsTheEnumeration) {
  const RoundedLaw odd = RoundedLaw::normal().next(181.0 / 256.0);
  EXPECT_NEAR(odd.gain(), 10.26e-6, 0.02e-6);
  EXPECT_NEAR(odd.rel_l2() / kU, 0.42530, 0.0001);
  const RoundedLaw one = RoundedLaw::normal().next(1.0);
  EXPECT_NEAR(one.gain(), -4.66e-6, 0.02e-6);
  EXPECT_NEAR(one.rel_l2() / kU, 0.46100, 0.0001);
}

TEST(RoundedLaw, APowerOfTwoChangesNothing) {
  const RoundedLaw a = RoundedLaw::normal().next(1.0).next(1.0),
                   b = RoundedLaw::normal().next(0.25).next(64.0);
  EXPECT_NEAR(a.gain(), b.gain(), 1e-10);
  EXPECT_NEAR(a.rel_l2(), b.rel_l2(), 1e-9);
}

ErrorStats emulated_stats(const Numerics& model, const Problem& problem) {
  const Storage in(problem, InputClass::normal, 11);
  return compare(problem, expected(problem, in.data()), emulated(model, in).data());
}

// 2^22 elements: the gain of n = 2 spreads by 1.4e-6, and without the lattice it would be 13e-6 lower.
TEST(NormalDataGain, TheLastStageOfTwoPoints) {
  for (const std::int64_t n : {2, 32}) {
    const Problem problem = make_problem(Dtype::bf16, n, (std::int64_t{1} << 22) / n);
    const Numerics model = tensor_blocks(problem);
    const double predicted = normal_data_gain(model, problem), smooth = measured_gain(model, problem);
    EXPECT_NEAR((predicted - smooth) * 1e6, 13.0, 0.1);
    const double spread = n == 2 ? 1.4e-6 : 2.0e-6;
    EXPECT_NEAR(emulated_stats(model, problem).gain, predicted, 3 * spread) << n;
  }
}

// Stored after every stage: the gain falls by 6e-6 a stage, not by 3.2e-6, and the error is that of the law
// exactly, with the ties that are rounded to even and make later ones rarer.
TEST(NormalDataGain, ChainsOfTwoPointStages) {
  double last = 0.0;
  for (const std::int64_t n : {2, 4, 16, 256, 4096}) {
    const Problem problem = make_problem(Dtype::bf16, n, (std::int64_t{1} << 21) / n);
    const Numerics model = stored_levels(problem);
    const double predicted = normal_data_gain(model, problem);
    EXPECT_LT(predicted, last);
    last = predicted;
    const ErrorStats stats = emulated_stats(model, problem);
    const double spread = std::sqrt(3.0) * 0.46 * kU * std::sqrt(std::log2(static_cast<double>(n)) / 0x1p21);
    EXPECT_NEAR(stats.gain, predicted, 3 * spread) << n;
    RoundedLaw law = RoundedLaw::normal();
    for (std::int64_t m = 2; m < n; m *= 2)
      law = law.next(1.0);
    law = law.next(problem.scale);
    EXPECT_NEAR(stats.rel_l2 / law.rel_l2(), 1.0, 3 * 1.153 / std::sqrt(0x1p21)) << n;
  }
  EXPECT_NEAR(last, -69e-6, 2e-6) << "enumerated with other code, as above";
}

TEST(NormalDataGain, OtherStagesAndTypesAreSmooth) {
  for (const Dtype dtype : kAllDtypes) {
    const Problem problem = make_problem(dtype, 256, 1);
    EXPECT_DOUBLE_EQ(normal_data_gain(butterflies(problem), problem),
                     measured_gain(butterflies(problem), problem));
  }
  const Problem half = make_problem(Dtype::f16, 2, 1);
  EXPECT_DOUBLE_EQ(normal_data_gain(tensor_blocks(half), half), measured_gain(tensor_blocks(half), half));
}

}  // namespace
}  // namespace fwht::reference
