#include "common/contract/operator_data.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>

#include "common/testing/refusal.hpp"

namespace fwht {
namespace {

/// A random orthogonal matrix in FP64, by Gram and Schmidt, done twice.
std::vector<double> random_orthogonal(std::int64_t order, unsigned seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<double> q(static_cast<std::size_t>(order * order));
  for (double& entry : q)
    entry = normal(generator);
  const auto row = [&](std::int64_t i) { return q.data() + i * order; };
  for (std::int64_t i = 0; i < order; ++i) {
    for (std::int64_t k = 0; k < 2 * i; ++k) {
      double product = 0.0;
      for (std::int64_t j = 0; j < order; ++j)
        product += row(i)[j] * row(k % i)[j];
      for (std::int64_t j = 0; j < order; ++j)
        row(i)[j] -= product * row(k % i)[j];
    }
    double length = 0.0;
    for (std::int64_t j = 0; j < order; ++j)
      length = std::hypot(length, row(i)[j]);
    for (std::int64_t j = 0; j < order; ++j)
      row(i)[j] /= length;
  }
  return q;
}

std::vector<std::byte> stored(Dtype dtype, const std::vector<double>& values) {
  std::vector<std::byte> entries(values.size() * static_cast<std::size_t>(bytes_of(dtype)));
  for (std::size_t i = 0; i < values.size(); ++i)
    store_element(dtype, entries.data(), static_cast<std::int64_t>(i), values[i]);
  return entries;
}

TEST(Signs, ArePackedOneBitAnElement) {
  std::vector<double> signs(40, 1.0);
  signs[0] = signs[3] = signs[31] = signs[32] = signs[39] = -1.0;
  const std::vector<std::uint32_t> words = pack_signs(signs);
  EXPECT_EQ(words, (std::vector<std::uint32_t>{0x80000009U, 0x81U}));
  for (std::int64_t i = 0; i < 40; ++i)
    EXPECT_EQ(sign_is_negative(words.data(), i), signs[static_cast<std::size_t>(i)] < 0.0);
  EXPECT_TRUE(pack_signs({}).empty());
}

TEST(Signs, OtherValuesAreRefused) {
  for (const double wrong : {0.0, 0.5, -2.0, std::nan("")}) {
    const std::vector<double> signs{1.0, -1.0, wrong, 1.0};
    EXPECT_EQ(bad_request_of([&] { pack_signs(signs); }).find("sign 2 of 4 is "), 0U) << wrong;
  }
}

TEST(DenseFactor, WhatIsOrthogonalAfterOneRoundingIsTaken) {
  for (const std::int64_t order : {1, 5, 53, 256}) {
    const std::vector<double> q = random_orthogonal(order, 3);
    const Operator op{Factor{Basis::dense, order}};
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32, Dtype::f64}) {
      const std::vector<std::byte> entries = stored(dtype, q);
      EXPECT_LE(orthogonality_error(dtype, entries.data(), order), orthogonality_limit(dtype, order));
      EXPECT_NO_THROW(check_dense(op, dtype, entries.data())) << name_of(dtype) << ' ' << order;
      // Any length of the rows will do.
      std::vector<double> longer = q;
      for (double& entry : longer)
        entry *= 6.0;
      EXPECT_NO_THROW(check_dense(op, dtype, stored(dtype, longer).data()));
    }
  }
}

TEST(DenseFactor, WhatIsNotOrthogonalIsRefusedWithBothNumbers) {
  const Operator op = parse_operator("d4xd53x2");
  const std::vector<double> small = random_orthogonal(4, 1), large = random_orthogonal(53, 2);
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32, Dtype::f64}) {
    std::vector<double> both = small;
    both.insert(both.end(), large.begin(), large.end());
    EXPECT_EQ(dense_entry_count(op), static_cast<std::int64_t>(both.size()));
    EXPECT_EQ(bad_request_of([&] { check_dense(op, dtype, stored(dtype, both).data()); }), "");
    EXPECT_NE(bad_request_of([&] { check_dense(op, dtype, nullptr); }).find("null pointer"),
              std::string::npos);
    // One entry off by enough that the length of its row is off by three times the limit.
    std::vector<double> wrong = both;
    double& entry = wrong[16 + 53 * 7 + 11];
    entry += std::copysign(std::sqrt(3.0 * orthogonality_limit(dtype, 53)) + std::fabs(entry), entry);
    const std::string sentence = bad_request_of([&] { check_dense(op, dtype, stored(dtype, wrong).data()); });
    EXPECT_EQ(sentence.find("operator d4xd53x2: the dense factor of order 53 is not orthogonal"), 0U)
        << sentence;
    EXPECT_NE(sentence.find("the limit for"), std::string::npos);
    for (const double bad : {std::nan(""), HUGE_VAL}) {
      wrong = both;
      wrong[5] = bad;
      EXPECT_NE(
          bad_request_of([&] { check_dense(op, dtype, stored(dtype, wrong).data()); }).find("order 4 is not"),
          std::string::npos);
    }
    EXPECT_NE(bad_request_of(
                  [&] { check_dense(op, dtype, stored(dtype, std::vector<double>(both.size())).data()); }),
              "");
  }
}

TEST(SignMatrixText, ReadsATable) {
  const SignMatrix matrix = parse_sign_matrix("+ + + +\n+ - + -\r\n\n++--\n+--+");
  EXPECT_EQ(matrix, hadamard_matrix(4));
  std::string text;
  const SignMatrix& turyn = hadamard_matrix(116);
  for (int i = 0; i < 116; ++i) {
    for (int j = 0; j < 116; ++j)
      text += turyn(i, j) < 0 ? '-' : '+';
    text += '\n';
  }
  EXPECT_EQ(parse_sign_matrix(text), turyn);
  const std::string path = testing::TempDir() + "fwht_sign_matrix.txt";
  std::ofstream(path) << text;
  EXPECT_EQ(read_sign_matrix(path), turyn);
  const std::vector<std::byte> entries = dense_entries(turyn, Dtype::bf16);
  EXPECT_EQ(orthogonality_error(Dtype::bf16, entries.data(), 116), 0.0);
  EXPECT_EQ(load_element(Dtype::bf16, entries.data(), 116 * 5 + 3), turyn(5, 3));
}

TEST(SignMatrixText, RefusesWhatIsNoHadamardMatrix) {
  EXPECT_EQ(bad_request_of([] { parse_sign_matrix("++\n++"); }),
            "rows 0 and 1 of the matrix of order 2 have the product 2, not 0");
  EXPECT_EQ(bad_request_of([] { parse_sign_matrix("++\n+"); }),
            "row 1 of the matrix has 1 entries, but there are 2 rows");
  EXPECT_EQ(bad_request_of([] { parse_sign_matrix("++\n+0"); }),
            "row 1 of the matrix has the character '0'; + and - are known");
  EXPECT_NE(bad_request_of([] { parse_sign_matrix("\n"); }).find("has 0 rows"), std::string::npos);
  EXPECT_EQ(bad_request_of([] { read_sign_matrix("/no/such/file"); }),
            "the matrix file '/no/such/file': there is no such file");
}

}  // namespace
}  // namespace fwht
