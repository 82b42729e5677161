#include "common/contract/hadamard_matrices.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <set>
#include <thread>

#include "common/host/bits.hpp"
#include "common/host/error.hpp"

namespace fwht {
namespace {

/// FNV-1a over the entries, row by row, as the characters + and -.
std::uint64_t fingerprint(const SignMatrix& matrix) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (int i = 0; i < matrix.order(); ++i) {
    for (int j = 0; j < matrix.order(); ++j)
      hash = (hash ^ static_cast<std::uint64_t>(matrix.is_negative(i, j) ? '-' : '+')) * 0x100000001b3;
  }
  return hash;
}

TEST(HadamardMatrices, AreAllThere) {
  std::set<int> orders;
  for (const NamedHadamard& named : named_hadamard_matrices())
    orders.insert(named.order);
  EXPECT_EQ(orders.size(), named_hadamard_matrices().size());
  std::set<int> wanted{1, 2, 428};
  for (int order = 4; order <= 256; order += 4)
    wanted.insert(order);
  EXPECT_EQ(orders, wanted);
}

// H H^T = m I in integers, and symmetric where the table says so and nowhere else.
TEST(HadamardMatrices, AreHadamardMatricesOfTheSymmetryThatIsSaid) {
  std::set<int> not_symmetric;
  for (const NamedHadamard& named : named_hadamard_matrices()) {
    const SignMatrix& h = hadamard_matrix(named.order);
    ASSERT_EQ(h.order(), named.order) << named.name;
    for (int i = 0; i < named.order; ++i) {
      for (int j = 0; j < named.order; ++j)
        ASSERT_EQ(row_product(h, i, j), i == j ? named.order : 0) << named.name << " rows " << i << ", " << j;
    }
    EXPECT_EQ(h == h.transposed(), named.symmetric) << named.name;
    if (!named.symmetric) not_symmetric.insert(named.order);
  }
  EXPECT_EQ(not_symmetric, (std::set<int>{116, 188, 232, 236, 428}));
}

// By entries, not by bits: the words are laid out as they are described.
TEST(HadamardMatrices, BitsAndEntriesAgree) {
  const SignMatrix& h = hadamard_matrix(44);
  ASSERT_EQ(h.words_per_row(), 2);
  ASSERT_EQ(h.words().size(), 88U);
  for (int i = 0; i < 44; ++i) {
    std::int64_t sum = 0;
    for (int j = 0; j < 44; ++j) {
      EXPECT_EQ(h(i, j),
                (h.words()[static_cast<std::size_t>(2 * i + j / 32)] >> (j % 32) & 1U) != 0 ? -1 : 1);
      EXPECT_EQ(hadamard_entry(44, i, j), h(i, j));
      sum += h(i, j) * h(7, j);
    }
    EXPECT_EQ(sum, row_product(h, i, 7));
    EXPECT_EQ(h.words()[static_cast<std::size_t>(2 * i + 1)] >> 12, 0U) << "bits behind the last column";
  }
}

// What a checkpoint was rotated with must never change: fingerprints of an independent construction in
// Python.
TEST(HadamardMatrices, NeverChange) {
  const struct {
    int order;
    std::uint64_t hash;
  } kWanted[] = {{4, 0x65ba477d4430297d},   {8, 0x013943f938f8bd35},   {12, 0x6d27d4ef16d47d75},
                 {16, 0x9d20a981e8469845},  {20, 0x91f5df8511c86bb5},  {24, 0xe564b82057371165},
                 {28, 0xea6ac9cd6d518d75},  {32, 0x974b849f3b4b5a65},  {36, 0xf9370b3c0056e215},
                 {40, 0x87f369d6476f27a5},  {44, 0x6f952700030f9aed},  {48, 0xefe73155fbb72a35},
                 {52, 0x58b3da7942a85875},  {56, 0x396ffccfb2f49105},  {60, 0x59f1348c7dd43435},
                 {64, 0x5374e3f4690f0ca5},  {68, 0xf173225e52557c3d},  {72, 0x36daa9a197b204c5},
                 {76, 0x48d9018d0770a4b5},  {80, 0x4143151939497fa5},  {84, 0xa756da32db19ec55},
                 {88, 0x223b8345416f2855},  {92, 0x60c0682fa72571a5},  {96, 0x12bdab58b626cc65},
                 {100, 0x9a0e89a42e4d41d5}, {104, 0x1f5614e53b2cf7a5}, {108, 0x43497c44deb9eb75},
                 {112, 0x27889a71ef4a66e5}, {116, 0x3773c0389b3a255d}, {120, 0xf0e2b7c0b832a085},
                 {124, 0x6960a9228d4e20b5}, {128, 0xc0a9a941a596ca25}, {132, 0x30caefce3d35321d},
                 {136, 0x9b6c8e13517477b5}, {140, 0xa111a589b150803d}, {144, 0xd473740384e72ac5},
                 {148, 0x7de6c989ebe498d5}, {152, 0x0f180f4f1f85af05}, {156, 0x0dcfadbf7cea217d},
                 {160, 0x302f52886c9ebba5}, {164, 0x9bdd2668f4595615}, {168, 0x6a40a66312bd05e5},
                 {172, 0x7a258f6c8658b65d}, {176, 0x3012a7c5db127705}, {180, 0xcaf905a925427295},
                 {184, 0x2b1ca29f0705af65}, {188, 0xf87eaba497864c2d}, {192, 0x73630b8f823e9f15},
                 {196, 0x6c5d16b4b326a995}, {200, 0xab1cab03406e0ed5}, {204, 0x8f311d3b8b2e11b5},
                 {208, 0x6c1bb9d89952a805}, {212, 0x7b8b405786d270fd}, {216, 0x6fd2b83e0ff57245},
                 {220, 0x3a2b38ca7ba88e35}, {224, 0x7f3cbe3294d6c5a5}, {228, 0x5031e03a71637a95},
                 {232, 0x0cda79d33ac272e5}, {236, 0xea8fa13b11068a4d}, {240, 0x29c6f2125cd29a85},
                 {244, 0x2f865896112c7af5}, {248, 0x446c351d393b5985}, {252, 0x4a91d7bd2a2d4f15},
                 {256, 0x8d65fddb065ec125}, {428, 0x03f8cea49011433d}};
  for (const auto& [order, hash] : kWanted)
    EXPECT_EQ(fingerprint(hadamard_matrix(order)), hash) << find_hadamard_matrix(order)->name;
  EXPECT_EQ(std::size(kWanted) + 2, named_hadamard_matrices().size());
}

TEST(HadamardMatrices, SylvesterOrdersAreInNaturalOrder) {
  for (const int order : {1, 2, 4, 32, 256}) {
    for (int i = 0; i < order; ++i) {
      for (int j = 0; j < order; ++j)
        ASSERT_EQ(hadamard_entry(order, i, j),
                  hadamard_sign(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j)));
    }
  }
}

TEST(HadamardMatrices, KroneckerPutsTheFirstFactorOnTheSlowIndex) {
  const SignMatrix product = kronecker_product(hadamard_matrix(12), hadamard_matrix(2));
  for (int i = 0; i < 24; ++i) {
    for (int j = 0; j < 24; ++j)
      ASSERT_EQ(product(i, j), hadamard_entry(12, i / 2, j / 2) * hadamard_entry(2, i % 2, j % 2));
  }
  EXPECT_EQ(hadamard_matrix(56), kronecker_product(hadamard_matrix(28), hadamard_matrix(2)));
}

// R_(4^k) as ConvRot (arXiv 2512.03673) has it, R_4 = J - 2 antidiag. It is Sylvester's matrix signed and
// permuted, D H P D: P swaps the bits of base-4 digits. D has -1 for an odd number of digits 3.
TEST(HadamardMatrices, TheRegularMatrixIsSylvestersSignedAndPermuted) {
  for (const int order : {4, 16, 64, 256}) {
    const SignMatrix regular = regular_matrix(order);
    const int row_sum = 1 << (log2_floor(order) / 2);
    int wrong = 0;
    for (int i = 0; i < order; ++i) {
      int sum = 0;
      for (int j = 0; j < order; ++j) {
        const auto u = static_cast<std::uint64_t>(i), v = static_cast<std::uint64_t>(j);
        const std::uint64_t swapped = (v & 0x55) << 1 | (v >> 1 & 0x55);
        const int threes = std::popcount(u & u >> 1 & 0x55U) + std::popcount(v & v >> 1 & 0x55U);
        int product = 1;
        for (int digit = order; digit > 1; digit /= 4)
          product *= i % digit / (digit / 4) + j % digit / (digit / 4) == 3 ? -1 : 1;
        wrong += regular(i, j) != product;
        wrong += regular(i, j) != hadamard_sign(u, swapped) * (threes % 2 == 0 ? 1 : -1);
        sum += regular(i, j);
        EXPECT_EQ(row_product(regular, i, j), i == j ? order : 0);
      }
      EXPECT_EQ(sum, row_sum);
    }
    EXPECT_EQ(wrong, 0) << order;
  }
  EXPECT_EQ(named_matrix({Basis::regular, 16}), regular_matrix(16));
  EXPECT_EQ(named_matrix({Basis::regular, 4}), regular_matrix(4));
  EXPECT_EQ(named_matrix({Basis::hadamard, 28}), hadamard_matrix(28));
}

TEST(HadamardMatrices, OtherOrdersAreRefused) {
  for (const std::int64_t order : {-4L, 0L, 3L, 6L, 30L, 260L, 424L, 428L + (1L << 32)}) {
    EXPECT_EQ(find_hadamard_matrix(order), nullptr) << order;
    EXPECT_THROW(hadamard_matrix(order), BadRequest) << order;
  }
}

TEST(HadamardMatrices, RegularOnesAreOfPowersOfFour) {
  for (const int order : {-4, 0, 2, 5, 8, 32})
    EXPECT_THROW(regular_matrix(order), BadRequest) << order;
  for (const std::int64_t order : {5, 64, 256})
    EXPECT_THROW(named_matrix({Basis::regular, order}), BadRequest) << order;
}

TEST(HadamardMatrices, AreTheSameForEveryThread) {
  const SignMatrix* seen[4] = {};
  std::vector<std::thread> threads;
  for (const SignMatrix*& one : seen)
    threads.emplace_back([&one] { one = &hadamard_matrix(204); });
  for (std::thread& thread : threads)
    thread.join();
  for (const SignMatrix* one : seen)
    EXPECT_EQ(one, seen[0]);
}

}  // namespace
}  // namespace fwht
