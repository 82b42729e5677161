// Proves without a GPU what the kernels compute: their own program (split_program.hpp) executed lane by lane,
// with the tensor core's arithmetic emulated. variants/kit/rows_test.cpp has the maps.
#include "variants/mma_split/mma_split.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/contract/hadamard_matrices.hpp"
#include "common/device/ptx/fragments.hpp"
#include "reference/emulation.hpp"
#include "reference/hadamard.hpp"
#include "reference/inputs.hpp"
#include "reference/operators.hpp"
#include "variants/kit/signs.hpp"
#include "variants/mma_split/encoded_launches.hpp"
#include "variants/mma_split/launches.hpp"
#include "variants/mma_split/on_host/host_program.hpp"
#include "variants/mma_split/prologue.hpp"
#include "variants/mma_split/roped_kernels.hpp"
#include "variants/mma_split/signed_kernels.hpp"
#include "variants/mma_split/split_program.hpp"
#include "variants/mma_split/streamed_shape.hpp"

namespace fwht::mma_split {
namespace {

using rows::Bits;
using rows::HostRun;
using rows::make_input;
using rows::problem_of;
using rows::same_value;
using rows::to_storage;

struct Size {
  Dtype dtype;
  int log_n;
  bool regular = false;

  Problem problem(std::int64_t at_least_elements = 1024) const {
    Problem rows = problem_of(dtype, log_n, at_least_elements);
    if (regular) rows.op = Operator{{Basis::regular, rows.n()}};
    return rows;
  }
};

std::vector<Size> all_sizes() {
  std::vector<Size> all;
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    for (int log_n = kSmallestLogN; log_n <= kLargestLogN; ++log_n)
      all.push_back({dtype, log_n});
  }
  return all;
}

std::string describe(const Size& size) {
  return std::string(name_of(size.dtype)) + "/n" + std::to_string(1 << size.log_n) +
         (size.regular ? "r" : "");
}

/// Those of Sylvester's matrix, and of the regular one.
std::vector<Size> sizes_of_both() {
  std::vector<Size> all = all_sizes();
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    for (int log_n = kSmallestLogN; log_n <= kLargestLogN; ++log_n)
      if (takes_regular(log_n)) all.push_back({dtype, log_n, true});
  }
  return all;
}

// ---- fragments

TEST(MmaSplitFragments, TheMatrixIsSylvesterOverTheTransformedBitsAndTheIdentityElsewhere) {
  for (const std::uint32_t one : {0x3C00U, 0x3F80U, 0x3980U}) {
    for (const unsigned transformed : {9U, 11U, 15U}) {
      for (int lane = 0; lane < 32; ++lane) {
        for (int r = 0; r < 4; ++r) {
          for (int half = 0; half < 2; ++half) {
            const auto m = static_cast<unsigned>(ptx::a_row(lane, r)),
                       k = static_cast<unsigned>(ptx::a_column(lane, r, half));
            const std::uint32_t bits = (matrix_fragment(lane, r, transformed, one) >> (16 * half)) & 0xFFFFU;
            const bool same_block = ((m ^ k) & ~transformed) == 0;
            const bool negative = hadamard_sign(m & transformed, k & transformed) < 0;
            EXPECT_EQ(bits, same_block ? (negative ? one | 0x8000U : one) : 0U) << m << ' ' << k;
          }
        }
      }
    }
  }
}

// Stage by stage, with the bits of a row that Tile::place_of_lane puts behind k, this is the regular matrix.
TEST(MmaSplitFragments, TheRegularMatrixHasBothBitsOfADigitInOneStage) {
  const SignMatrix four = regular_matrix(4);
  const auto digit = [](unsigned k, int low, int high) { return (k >> low & 1) | (k >> high & 1) << 1; };
  for (const unsigned transformed : {9U, 15U}) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int r = 0; r < 4; ++r) {
        for (int half = 0; half < 2; ++half) {
          const auto m = static_cast<unsigned>(ptx::a_row(lane, r)),
                     k = static_cast<unsigned>(ptx::a_column(lane, r, half));
          int entry = 1;
          for (const auto& [low, high] : {std::pair{0, 3}, {1, 2}}) {
            const unsigned a = digit(m, low, high), b = digit(k, low, high);
            const bool in_row = (transformed >> low & 1) != 0;
            entry *= in_row ? four(static_cast<int>(a), static_cast<int>(b)) : static_cast<int>(a == b);
          }
          const std::uint32_t bits =
              (regular_fragment(lane, r, transformed, 0x3F80) >> (16 * half)) & 0xFFFFU;
          EXPECT_EQ(bits, entry == 0 ? 0U : entry > 0 ? 0x3F80U : 0xBF80U) << m << ' ' << k;
        }
      }
    }
  }
  for (const auto& [log_n, second] : {std::pair{6, 9U}, {8, 15U}}) {
    EXPECT_TRUE(takes_regular(log_n));
    EXPECT_EQ(transformed_bits(kFirstStageBits, log_n), 15U);
    EXPECT_EQ(transformed_bits(kSecondStageBits, log_n), second);
  }
  const Tile tile{Dtype::bf16, 8, 1, 1, 32, true};
  std::array<int, 8> bit{0, 1, 2};  // index bit of e0 .. e2, l0 .. l4
  for (int l = 0; l < 5; ++l)
    bit[static_cast<std::size_t>(3 + l)] = log2_floor(tile.column_of_vector(tile.first_vector(0, 1 << l)));
  EXPECT_EQ(bit, (std::array{0, 1, 2, 4, 5, 3, 6, 7}));
}

TEST(MmaSplitSupports, TheRegularMatrixOfRowsOf64And256AndNoCodesOfIt) {
  const auto why_not = [](const char* text) {
    return variant.supports(parse_problem(text), h200_description()).why_not;
  };
  for (const char* text : {"bf16/256r/r7", "f16/64r/r7/out", "f16/256r/r7/ld259", "bf16/256r/r7/pdl"})
    EXPECT_EQ(why_not(text), "") << text;
  for (const char* text :
       {"bf16/16r/r7", "bf16/1024r/r7", "bf16/256r+signs/r7", "f32/256r/r7", "bf16/256r/r7>int8:row"})
    EXPECT_NE(why_not(text), "") << text;
}

TEST(MmaSplitFragments, TheTwoStagesTransformTheLowEightBitsOnceAndAlwaysBitThreeOfK) {
  std::set<int> bits(kFirstStageBits, kFirstStageBits + 4);
  bits.insert(kSecondStageBits, kSecondStageBits + 4);
  EXPECT_EQ(bits, (std::set<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  for (int log_n = kSmallestLogN; log_n <= kLargestLogN; ++log_n) {
    const unsigned first = transformed_bits(kFirstStageBits, log_n);
    const unsigned second = transformed_bits(kSecondStageBits, log_n);
    EXPECT_EQ(first, 15U);
    EXPECT_EQ(second & 8U, 8U);  // matrix_fragment relies on it
    EXPECT_EQ(__builtin_popcount(first) + __builtin_popcount(second), std::min(log_n, 8));
  }
}

// ---- the program

// Every sum is exact, so one wrong index, sign or swapped register shows as a wrong number. The rows count up
// to and beyond what one block holds, and the last block is not full.
TEST(MmaSplitProgram, IntegersComeOutExactly) {
  for (const Size& size : sizes_of_both()) {
    const Problem problem = size.problem(5 << 9);
    const rows::ExactCase exact = rows::integers(problem);
    const HostRun run = run_on_host(problem, exact.in);
    EXPECT_EQ(run.failures, 0) << describe(size);
    for (std::size_t i = 0; i < exact.in.size(); ++i)
      ASSERT_TRUE(same_value(size.dtype, run.out[i], exact.want[i])) << describe(size) << " element " << i;
  }
}

// What a launch table may choose between: the bits do not depend on it. A bad row among good ones too, which
// takes them through the exact paths.
TEST(MmaSplitProgram, EveryLaunchOfASizeGivesTheSameBits) {
  for (const Size& size : sizes_of_both()) {
    const Problem problem = size.problem(3 << 10);
    Bits in = make_input(problem, reference::InputClass::normal, 23);
    for (const bool with_infinity : {false, true}) {
      if (with_infinity) in[static_cast<std::size_t>(problem.n() + 1)] = encode(size.dtype, HUGE_VAL);
      const Bits want = run_on_host(problem, in).out;
      for (int regime = 0; regime < kRegimes; ++regime) {
        const LaunchRow launches = launches_for(size.dtype, size.log_n);
        if (launches.in(static_cast<Regime>(regime)) == launches.dram) continue;
        const Bits got =
            run_on_host(problem, in, reference::kHopperTensorCore, static_cast<Regime>(regime)).out;
        for (std::size_t i = 0; i < in.size(); ++i) {
          ASSERT_TRUE(same_value(size.dtype, got[i], want[i]))
              << describe(size) << " regime " << regime << " element " << i;
        }
      }
    }
  }
}

struct Errors {
  double ours = 0.0, ideal = 0.0, norm = 0.0;
};

Errors errors_of(const Problem& problem, const Bits& in, const Bits& out) {
  const std::vector<unsigned char> storage = to_storage(problem, in);
  const reference::Matrix truth = reference::expected(problem, storage.data(), 0, -1, 1);
  Errors errors;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double y =
        truth(static_cast<std::int64_t>(i) / problem.n(), static_cast<std::int64_t>(i) % problem.n());
    errors.ours += std::pow(decode(problem.dtype(), out[i]) - y, 2);
    errors.ideal += std::pow(round_to(problem.dtype(), y) - y, 2);
    errors.norm += y * y;
  }
  return errors;
}

// The error of one rounding, on the smallest numbers too: a pair of bf16 halves keeps 16 bits or every bit
// above 2^-133. Sampling: both errors come from the same outputs, so their ratio is known far better than
// either.
TEST(MmaSplitProgram, TheErrorIsThatOfOneRounding) {
  for (const Size& size : sizes_of_both()) {
    const Problem problem = size.problem(1 << 13);
    for (const auto input_class : {reference::InputClass::normal, reference::InputClass::subnormal,
                                   reference::InputClass::fa3_mixture}) {
      for (const auto& core : {reference::kHopperTensorCore, reference::kAmpereTensorCore}) {
        const Bits in = make_input(problem, input_class, 11);
        const HostRun run = run_on_host(problem, in, core);
        EXPECT_EQ(run.failures, 0) << describe(size);
        const Errors errors = errors_of(problem, in, run.out);
        const double ratio = std::sqrt(errors.ours / errors.ideal);
        EXPECT_GT(ratio, 0.9999) << describe(size) << ' ' << reference::name_of(input_class);
        EXPECT_LT(ratio, 1.002) << describe(size) << ' ' << reference::name_of(input_class);
      }
    }
  }
}

// The model's share of the split in the error, measured where nothing else is: f32 results of the same
// arithmetic.
TEST(MmaSplitProgram, TheModelBoundsTheErrorBeforeTheLastRounding) {
  for (int log_n = kSmallestLogN; log_n <= 10; ++log_n) {
    const Problem problem = problem_of(Dtype::f16, log_n, 1 << 14);
    const Numerics numerics = numerics_of(problem, 90);
    const Bits in = make_input(problem, reference::InputClass::normal, 5);
    const Errors errors = errors_of(problem, in, run_on_host(problem, in).out);
    const double u = format_of(Dtype::f16).unit_roundoff();
    const double modelled = std::hypot(numerics.steps.front().rounding_rms * u, numerics.sum_rms() * 0x1p-24);
    EXPECT_NEAR(std::sqrt(errors.ours / errors.norm) / modelled, 1.0, 0.03) << log_n;
  }
}

// ---- what the model says about symmetries

Bits shifted(const Problem& problem, const Bits& in, std::int64_t a) {
  Bits out(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    const auto element = static_cast<std::int64_t>(i);
    out[static_cast<std::size_t>(element / problem.n() * problem.n() + ((element % problem.n()) ^ a))] =
        in[i];
  }
  return out;
}

Bits modulated(const Problem& problem, const Bits& in, std::int64_t a) {
  Bits out = in;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const auto column = static_cast<std::uint64_t>(static_cast<std::int64_t>(i) % problem.n());
    if (parity(column & static_cast<std::uint64_t>(a))) out[i] ^= 0x8000U;
  }
  return out;
}

TEST(MmaSplitProgram, SymmetriesAreExactWhereTheModelSaysSo) {
  for (const Size& size : all_sizes()) {
    const Problem problem = problem_of(size.dtype, size.log_n);
    const Bits in = make_input(problem, reference::InputClass::normal, 3);
    for (const int compute_capability : {80, 90}) {
      const auto& core =
          compute_capability == 80 ? reference::kAmpereTensorCore : reference::kHopperTensorCore;
      const Promises promises = numerics_of(problem, compute_capability).promises;
      EXPECT_TRUE(promises.modulation_exact);
      const Bits out = run_on_host(problem, in, core).out;
      for (const std::int64_t a :
           {std::int64_t{1}, problem.n() / 2, problem.n() - 1, std::int64_t{0x2A} % problem.n()}) {
        const Bits from_modulated = run_on_host(problem, modulated(problem, in, a), core).out;
        const Bits want = shifted(problem, out, a);
        for (std::size_t i = 0; i < in.size(); ++i)
          ASSERT_TRUE(same_value(size.dtype, from_modulated[i], want[i]))
              << describe(size) << " modulation " << a;
        if (!promises.xor_shift_exact) continue;
        const Bits from_shifted = run_on_host(problem, shifted(problem, in, a), core).out;
        const Bits signs = modulated(problem, out, a);
        for (std::size_t i = 0; i < in.size(); ++i)
          ASSERT_TRUE(same_value(size.dtype, from_shifted[i], signs[i])) << describe(size) << " shift " << a;
      }
    }
  }
}

// ---- rows of 32768 and 65536

struct StreamedCase {
  Dtype dtype;
  int log_n;

  Problem problem(std::int64_t rows) const { return make_problem(dtype, std::int64_t{1} << log_n, rows); }
};

std::vector<StreamedCase> streamed_cases() {
  std::vector<StreamedCase> all;
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16})
    for (int log_n = StreamedShape::kSmallestLogN; log_n <= StreamedShape::kLargestLogN; ++log_n)
      all.push_back({dtype, log_n});
  return all;
}

TEST(MmaSplitStreamed, EveryVectorHasOnePlaceAndEveryQuadOfARoundToo) {
  for (const int log_n : {15, 16}) {
    for (const int rounds : {2, 4}) {
      const StreamedShape shape{log_n, rounds};
      std::set<int> vectors, quads;
      for (int warp = 0; warp < StreamedShape::kWarps; ++warp) {
        for (int lane = 0; lane < 32; ++lane) {
          for (int half = 0; half < shape.halves(); ++half)
            for (int v = 0; v < StreamedShape::kVectors; ++v)
              vectors.insert(StreamedShape::vector(half, warp, v, lane));
          for (int to = 0; to < StreamedShape::kWarps; ++to)
            for (int q = 0; q < shape.quads_at_once(); ++q)
              quads.insert(shape.exchange_quad(warp, to, q, lane));
        }
      }
      EXPECT_EQ(vectors.size(), std::size_t{1} << (log_n - 3));
      EXPECT_EQ(*vectors.rbegin(), (1 << (log_n - 3)) - 1);
      EXPECT_EQ(16 * static_cast<int>(quads.size()), shape.exchange_bytes());
      EXPECT_EQ(16 * *quads.rbegin(), shape.exchange_bytes() - 16);
    }
  }
  // 99, 163 and 227 KB a block.
  EXPECT_EQ(streamed_shape(15, 99 << 10).shared_bytes(), 96 << 10);
  EXPECT_EQ(streamed_shape(15, 163 << 10).shared_bytes(), 128 << 10);
  EXPECT_EQ(streamed_shape(16, 163 << 10).shared_bytes(), 160 << 10);
  EXPECT_EQ(streamed_shape(16, 227 << 10).shared_bytes(), 192 << 10);
}

TEST(MmaSplitStreamed, IntegersComeOutExactlyInTwoRoundsAndInFour) {
  for (const StreamedCase& c : streamed_cases()) {
    const Problem problem = c.problem(2);
    const rows::ExactCase exact = rows::integers(problem);
    for (const int rounds : {2, 4}) {
      const HostRun run = run_streamed(problem, exact.in, reference::kHopperTensorCore, rounds);
      for (std::size_t i = 0; i < exact.in.size(); ++i)
        ASSERT_TRUE(same_value(c.dtype, run.out[i], exact.want[i])) << to_string(problem) << " element " << i;
    }
  }
}

TEST(MmaSplitStreamed, TheErrorIsThatOfOneRoundingAndTheBitsAreThoseOfAnyRounds) {
  for (const StreamedCase& c : streamed_cases()) {
    const Problem problem = c.problem(1);
    for (const auto& core : {reference::kHopperTensorCore, reference::kAmpereTensorCore}) {
      const Bits in = make_input(problem, reference::InputClass::normal, 11);
      const HostRun run = run_streamed(problem, in, core, 2);
      const Errors errors = errors_of(problem, in, run.out);
      const double ratio = std::sqrt(errors.ours / errors.ideal);
      EXPECT_GT(ratio, 0.9999) << to_string(problem);
      EXPECT_LT(ratio, 1.002) << to_string(problem);
      EXPECT_EQ(run_streamed(problem, in, core, 4).out, run.out) << to_string(problem);
    }
  }
}

TEST(MmaSplitStreamed, SymmetriesAreExactWhereTheModelSaysSo) {
  for (const StreamedCase& c : streamed_cases()) {
    const Problem problem = c.problem(1);
    const Promises promises = numerics_of(problem, 90).promises;
    EXPECT_TRUE(promises.modulation_exact);
    EXPECT_EQ(promises.xor_shift_exact, c.log_n == 15);
    const Bits in = make_input(problem, reference::InputClass::normal, 3), out = run_on_host(problem, in).out;
    const Bits by_ampere = run_streamed(problem, in, reference::kAmpereTensorCore).out;
    for (const std::int64_t a : {problem.n() / 2, problem.n() - 0x2B}) {
      const Bits changed = modulated(problem, in, a);
      EXPECT_EQ(run_on_host(problem, changed).out, shifted(problem, out, a))
          << to_string(problem) << " modulation " << a;
      EXPECT_EQ(run_streamed(problem, changed, reference::kAmpereTensorCore).out,
                shifted(problem, by_ampere, a))
          << to_string(problem) << " modulation " << a << " before Hopper";
      if (promises.xor_shift_exact) {
        EXPECT_EQ(run_on_host(problem, shifted(problem, in, a)).out, modulated(problem, out, a))
            << to_string(problem) << " shift " << a;
      }
    }
  }
}

// bf16 alone may leave fp32 in a sum of the first stage, of 16 numbers or of 32.
TEST(MmaSplitStreamed, SumsStayFiniteWithinTheGrowthThatTheModelSaysAndOverflowWithinTheirRow) {
  for (const int log_n : {15, 16}) {
    const Problem problem = StreamedCase{Dtype::bf16, log_n}.problem(2);
    const double growth = numerics_of(problem, 80).promises.intermediate_growth;
    EXPECT_EQ(growth, log_n == 15 ? 16 : 32);
    EXPECT_EQ(numerics_of(StreamedCase{Dtype::f16, log_n}.problem(2), 80).promises.intermediate_growth,
              log_n == 15 ? 16 : 256)
        << "f16 of 65536 has its scale, 2^-8, in the constants of the second stage";
    const auto n = static_cast<std::size_t>(problem.n());
    Bits in = make_input(problem, reference::InputClass::normal, 7);
    const Bits clean = run_on_host(problem, in).out;
    // All numbers of a row alike: the first result is their sum times the scale, the others are zero.
    std::fill(in.begin() + static_cast<std::ptrdiff_t>(n), in.end(), encode(Dtype::bf16, 0x1p127 / growth));
    const Bits within = run_on_host(problem, in).out;
    EXPECT_EQ(within[n], encode(Dtype::bf16, std::sqrt(static_cast<double>(n)) * 0x1p127 / growth));
    EXPECT_TRUE(std::all_of(within.begin() + static_cast<std::ptrdiff_t>(n) + 1, within.end(),
                            [](std::uint32_t bits) { return decode(Dtype::bf16, bits) == 0.0; }));
    std::fill(in.begin() + static_cast<std::ptrdiff_t>(n), in.end(), encode(Dtype::bf16, 0x1p128 / growth));
    const Bits beyond = run_on_host(problem, in).out;
    EXPECT_TRUE(std::isnan(decode(Dtype::bf16, beyond[n])));
    EXPECT_GE(std::count_if(beyond.begin() + static_cast<std::ptrdiff_t>(n), beyond.end(),
                            [](std::uint32_t bits) { return std::isnan(decode(Dtype::bf16, bits)); }),
              2048)
        << "one row of sixteen of the first stage, in one pass at least";
    EXPECT_TRUE(std::equal(clean.begin(), clean.begin() + static_cast<std::ptrdiff_t>(n), beyond.begin()));
  }
}

// 2^-16 times the smallest number is the last that fp32 has.
TEST(MmaSplitStreamed, SubnormalsKeepEveryBit) {
  Problem problem = StreamedCase{Dtype::bf16, 16}.problem(1);
  problem.scale = 1.0;
  Bits in(static_cast<std::size_t>(problem.n()), 0U);
  in[5] = in[40000] = 1U;  // 2^-133 each
  const Bits out = run_on_host(problem, in).out;
  for (std::int64_t i = 0; i < problem.n(); ++i) {
    const double want = (hadamard_sign(static_cast<std::uint64_t>(i), 5) +
                         hadamard_sign(static_cast<std::uint64_t>(i), 40000)) *
                        0x1p-133;
    ASSERT_EQ(decode(Dtype::bf16, out[static_cast<std::size_t>(i)]), want) << i;
  }
}

TEST(MmaSplitStreamed, AnInfinityMakesItsRowNaNAsTheModelSaysAndNoOther) {
  for (const StreamedCase& c : streamed_cases()) {
    const Problem problem = c.problem(2);
    EXPECT_FALSE(numerics_of(problem, 80).promises.infinity_exact);
    const Bits in = make_input(problem, reference::InputClass::normal, 7);
    const Bits clean = run_on_host(problem, in).out;
    for (const auto& [place, value] : {std::pair{2 * problem.n() - 5, HUGE_VAL}, {problem.n() + 3, NAN}}) {
      Bits bad = in;
      bad[static_cast<std::size_t>(place)] = encode(c.dtype, value);
      const Bits out = run_on_host(problem, bad).out;
      for (std::size_t i = 0; i < in.size(); ++i) {
        if (static_cast<std::int64_t>(i) < problem.n()) {
          ASSERT_EQ(out[i], clean[i]) << to_string(problem) << " element " << i;
        } else {
          ASSERT_TRUE(std::isnan(decode(c.dtype, out[i]))) << to_string(problem) << " element " << i;
        }
      }
    }
  }
}

TEST(MmaSplitSupports, PlainRowsTo65536OnThe16ByteGridAsFarAsABlockHoldsThem) {
  const auto why_not = [](const char* text, const DeviceInfo& device) {
    return variant.supports(parse_problem(text), device).why_not;
  };
  DeviceInfo l40s = a100_description();
  l40s.shared_bytes_per_block = 99 << 10;
  for (const char* text :
       {"bf16/n32768/r7", "f16/n65536/r7/out", "bf16/n32768/r7/ld32776", "f16/n65536/r1/pdl"})
    EXPECT_EQ(why_not(text, h200_description()), "") << text;
  EXPECT_EQ(why_not("f16/n65536/r9", a100_description()), "");
  EXPECT_EQ(why_not("bf16/n32768/r9", l40s), "");
  EXPECT_EQ(why_not("bf16/n65536/r9", l40s),
            "n=65536 needs 163840 bytes of shared memory per block, this device allows 101376");
  EXPECT_EQ(why_not("f16/n32768/r7/ld32769", h200_description()),
            "row_stride=32769 must be a multiple of 8 elements: rows are copied in units of 16 bytes");
  for (const char* text :
       {"bf16/n131072/r7", "bf16/32768+signs/r7", "bf16/n32768/r7>int8:row", "f32/n32768/r7"})
    EXPECT_NE(why_not(text, h200_description()), "") << text;
}

// ---- exceptional values

/// The row's results as the direct sum gives them, up to overflow of the storage type.
std::vector<double> truth_of_row(const Problem& problem, const Bits& in, std::int64_t row) {
  reference::Matrix x(1, problem.n());
  for (std::int64_t j = 0; j < problem.n(); ++j)
    x(0, j) = decode(problem.dtype(), in[static_cast<std::size_t>(row * problem.n() + j)]);
  reference::ExactOperator(problem.op).apply(x, problem.scale, 1);
  return {x.data(), x.data() + problem.n()};
}

std::int64_t place_of_row(const Problem& problem, std::int64_t row) {
  return row * problem.n();
}

/// Runs `in`, whose row `row` holds infinities or NaN, against `clean`, the same without them.
void expect_contained(const Problem& problem, const Bits& in, const HostRun& clean, std::int64_t row,
                      const std::string& what) {
  const HostRun run = run_on_host(problem, in);
  ASSERT_GT(run.failures, 0) << what << ": the fast path did not notice";
  const std::vector<double> truth = truth_of_row(problem, in, row);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const auto element = static_cast<std::int64_t>(i);
    if (element / problem.n() != row) {
      ASSERT_EQ(run.out[i], clean.out[i]) << what << " changed row " << element / problem.n();
      continue;
    }
    const double got = decode(problem.dtype(), run.out[i]),
                 want = truth[static_cast<std::size_t>(element - place_of_row(problem, row))];
    ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
        << what << " column " << element % problem.n() << ": got " << got << ", want " << want;
  }
}

TEST(MmaSplitExceptionalValues, OneInAnyColumnIsNoticedAndStaysInItsRow) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Size& size : sizes_of_both()) {
    const Problem problem = size.problem(512);
    const Bits in = make_input(problem, reference::InputClass::normal, 13);
    const HostRun clean = run_on_host(problem, in);
    EXPECT_EQ(clean.failures, 0) << describe(size);
    const std::int64_t step = problem.n() <= 64 ? 1 : problem.n() / 48 + 1;
    for (std::int64_t column = 0; column < problem.n(); column += step) {
      const std::int64_t row = column % problem.rows;
      const double value =
          std::array{infinity, -infinity, std::nan("")}[static_cast<std::size_t>(column / step % 3)];
      Bits bad = in;
      bad[static_cast<std::size_t>(row * problem.n() + column)] = encode(size.dtype, value);
      expect_contained(problem, bad, clean, row,
                       describe(size) + " " + std::to_string(value) + " in column " + std::to_string(column));
      if (HasFatalFailure()) return;
    }
  }
}

// Signs agree: infinite; they do not: NaN. In every warp of the row, and with a second bad row beside it.
TEST(MmaSplitExceptionalValues, SeveralInOneRowAndABadNeighbour) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Size& size : sizes_of_both()) {
    const Problem problem = size.problem(512);
    const Bits in = make_input(problem, reference::InputClass::normal, 17);
    Bits bad = in;
    const auto set = [&](std::int64_t row, std::int64_t column, double value) {
      bad[static_cast<std::size_t>(row * problem.n() + column)] = encode(size.dtype, value);
    };
    for (std::int64_t column = 0; column < problem.n(); column += problem.n() / 8)
      set(1, column + 5, infinity);
    const HostRun clean = run_on_host(problem, in);
    expect_contained(problem, bad, clean, 1, describe(size));
    set(2, 1, -infinity);
    set(2, problem.n() - 1, infinity);
    const HostRun run = run_on_host(problem, bad);
    for (const std::int64_t row : {1, 2}) {
      const std::vector<double> truth = truth_of_row(problem, bad, row);
      for (std::int64_t j = 0; j < problem.n(); ++j) {
        const double got = decode(size.dtype, run.out[static_cast<std::size_t>(row * problem.n() + j)]),
                     want = truth[static_cast<std::size_t>(j)];
        ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
            << describe(size) << ' ' << row << ' ' << j;
      }
    }
    for (std::int64_t j = 0; j < problem.n(); ++j)
      ASSERT_EQ(run.out[static_cast<std::size_t>(j)], clean.out[static_cast<std::size_t>(j)])
          << describe(size);
  }
}

TEST(MmaSplitExceptionalValues, NoSumOverflowsWhereTheResultIsFinite) {
  for (const Size& of : sizes_of_both()) {
    if (of.dtype != Dtype::bf16) continue;
    const Problem problem = of.problem(512);
    EXPECT_EQ(numerics_of(problem, 90).promises.intermediate_growth, 1.0);
    rows::expect_no_sum_overflows(problem, [&](const Bits& in) { return run_on_host(problem, in).out; });
  }
}

TEST(MmaSplitNumerics, AScaleThatIsAPowerOfTwoLeavesNothingToMultiplyByInHalfPrecision) {
  for (int log_n = kSmallestLogN; log_n <= StreamedShape::kLargestLogN; ++log_n) {
    const bool even = log_n % 2 == 0;  // the orthonormal scale is a power of two
    const Problem half = problem_of(Dtype::f16, log_n), wide = problem_of(Dtype::bf16, log_n);
    EXPECT_EQ(shrink_exponent(half), even ? log_n / 2 : log_n);
    EXPECT_EQ(factors(half).last == 1.0F, even);
    EXPECT_EQ(shrink_exponent(wide), log_n);  // where a sum of n numbers could overflow
    for (const double scale : {1.0, 0x1p-64, 0x1p64}) {
      Problem other = half;
      other.scale = scale;
      EXPECT_EQ(factors(other).last, 1.0F) << scale;
      EXPECT_EQ(std::ldexp(1.0, -shrink_exponent(other)), scale);
    }
    for (const double scale : {0.3, -0.5, 0x1p-65, 0x1p65}) {
      Problem other = half;
      other.scale = scale;
      EXPECT_EQ(shrink_exponent(other), log_n) << scale;
    }
  }
}

TEST(MmaSplitExceptionalValues, AScaleThatLeavesNoRoomIsUsedAsItIs) {
  Problem problem = problem_of(Dtype::bf16, 6, 64);
  EXPECT_EQ(shrink_exponent(problem), 6);
  problem.scale = 1e38;
  EXPECT_EQ(shrink_exponent(problem), 0);
  EXPECT_EQ(numerics_of(problem, 90).promises.intermediate_growth, 64.0);
  Bits in(static_cast<std::size_t>(problem.elements()), 0);
  in[0] = encode(Dtype::bf16, 1.5);
  const Bits out = run_on_host(problem, in).out;
  EXPECT_EQ(decode(Dtype::bf16, out[63]), round_to(Dtype::bf16, 1.5 * static_cast<double>(1e38F)));
}

// ---- signs

TEST(MmaSplitSigned, ASpreadByteHasTheSignsOfEachPair) {
  for (std::uint32_t eight = 0; eight < 256; ++eight) {
    for (int w = 0; w < 4; ++w)
      EXPECT_EQ(rows::pair_of_spread(rows::spread_signs(eight), w), rows::pair_signs(eight, w)) << eight;
  }
}

// Each kernel that a plan may ask for: vectors begin at whole bytes of signs, and the pieces behind the
// exchange, every column in one of them, do not reach into a second byte.
TEST(MmaSplitSigned, VectorsAndPiecesHaveTheirSignsInOneByte) {
  for (const Size& size : all_sizes()) {
    for (const KernelId& id : signed_kernels_of_size(size.dtype, size.log_n)) {
      const Tile tile = id.tile();
      ASSERT_TRUE(rows::fits(size.dtype, size.log_n, id.launch)) << rows::describe(id);
      EXPECT_EQ(rows::element_at_load(tile, 1 % tile.warps(), 3, tile.vectors - 1, 0) % 8, 0);
      if (tile.warps_per_row == 1) continue;
      std::set<int> columns;
      for (int self = 0; self < tile.warps_per_row; ++self) {
        for (int v = tile.vector_taken(self); v < tile.vector_taken(self) + tile.kept(); ++v) {
          for (int from = 0; from < tile.warps_per_row; ++from) {
            for (int lane = 0; lane < 32; ++lane) {
              const int column = rows::column_of_piece(tile, from, v, tile.part_taken(self), lane);
              EXPECT_EQ(column / 8, (column + tile.piece() - 1) / 8) << rows::describe(id);
              for (int e = 0; e < tile.piece(); ++e)
                EXPECT_TRUE(columns.insert(column + e).second) << rows::describe(id);
            }
          }
        }
      }
      EXPECT_EQ(columns.size(), std::size_t{1} << size.log_n) << rows::describe(id);
      EXPECT_EQ(*columns.rbegin(), (1 << size.log_n) - 1) << rows::describe(id);
    }
  }
}

// Rows with signs are plain rows of s x, or s times plain rows, bit for bit; the exact paths too.
TEST(MmaSplitSigned, RowsAreThoseOfTheSignedInputOrOutput) {
  for (const Size& size : all_sizes()) {
    const Problem plain = size.problem();
    Bits signs((static_cast<std::size_t>(plain.n()) + 31) / 32);
    std::uint32_t state = 77 + static_cast<std::uint32_t>(size.log_n);
    for (std::uint32_t& word : signs)
      word = state = state * 1664525U + 1013904223U;
    const auto flipped = [&](Bits words) {
      for (std::size_t i = 0; i < words.size(); ++i) {
        const std::size_t column = i % static_cast<std::size_t>(plain.n());
        words[i] ^= (signs[column / 32] >> column % 32 & 1U) << 15;
      }
      return words;
    };
    Bits in = make_input(plain, reference::InputClass::normal, 29);
    for (const bool with_infinity : {false, true}) {
      if (with_infinity) in[static_cast<std::size_t>(plain.n() + 1)] = encode(size.dtype, HUGE_VAL);
      for (const bool last : {false, true}) {
        Problem problem = plain;
        problem.op = last ? plain.op.with_signs().transposed() : plain.op.with_signs();
        const HostRun rows = run_on_host(plain, last ? in : flipped(in));
        const Bits want = last ? flipped(rows.out) : rows.out;
        EXPECT_NE(want, run_on_host(plain, in).out) << describe(size) << ": the signs do nothing";
        for (const Regime regime : {Regime::small, Regime::dram}) {
          const HostRun got = run_on_host(problem, in, reference::kHopperTensorCore, regime, signs.data());
          EXPECT_EQ(got.failures > 0, with_infinity) << describe(size);
          for (std::size_t i = 0; i < in.size(); ++i) {
            ASSERT_TRUE(same_value(size.dtype, got.out[i], want[i]))
                << describe(size) << ' ' << to_string(problem.op) << " element " << i;
          }
        }
      }
    }
  }
}

TEST(MmaSplitSigned, OneSylvesterFactorWithSignsOnEitherSideInRowsAndFirstInCodes) {
  const auto why_not = [](const char* text) {
    return variant.supports(parse_problem(text), a100_description()).why_not;
  };
  for (const char* text : {"bf16/64+signs/r5", "f16/signs+128/r5/out", "bf16/4096+signs/r5/ld4097",
                           "bf16/signs+16384/r5/ld16392"})
    EXPECT_EQ(why_not(text), "") << text;
  EXPECT_TRUE(variant.supports(parse_problem("f16/16384+signs/r5/pdl"), h200_description()));
  for (const char* text : {"bf16/32+signs/r5", "f16/32768+signs/r5", "f32/128+signs/r5", "bf16/256r+signs/r5",
                           "bf16/28x64+signs/r5", "bf16/64x64+signs/r5", "bf16/signs+4096/r5>e4m3:row"})
    EXPECT_NE(why_not(text), "") << text;
  EXPECT_EQ(why_not("bf16/32+signs/r5"), "n=32 must be a power of two between 64 and 16384");
}

// ---- codes

TEST(MmaSplitEncoded, LanesKeepWholeVectorsBehindTheExchange) {
  for (const Size& size : all_sizes()) {
    for (int which = 0; which < 8; ++which) {
      const KernelId id =
          encoded_kernel(size.dtype, size.log_n, (which & 1) != 0, (which & 2) != 0, (which & 4) != 0);
      const Tile tile = id.tile();
      ASSERT_TRUE(rows::fits(size.dtype, size.log_n, id.launch)) << describe(size);
      EXPECT_EQ(tile.parts(), 1) << describe(size);
      EXPECT_LE(4 * tile.exchange_words(), 227 * 1024) << describe(size);
      if (id.launch.form != rows::Form::across_warps) continue;
      std::set<int> columns;  // of vectors: all of the row, each once, those of a group of 256 in one warp
      for (int self = 0; self < tile.warps_per_row; ++self) {
        for (int i = 0; i < tile.kept() * tile.warps_per_row; ++i) {
          const int first = column_behind_exchange(tile, self, i, 0);
          EXPECT_EQ(first % 256, 0) << describe(size);
          for (int lane = 0; lane < 32; ++lane) {
            const int column = column_behind_exchange(tile, self, i, lane);
            EXPECT_EQ(column, first + 8 * lane) << describe(size);
            EXPECT_EQ(column - column_behind_exchange(tile, self, 0, lane),
                      column_behind_exchange(tile, 0, i, 0));
            EXPECT_TRUE(columns.insert(column).second) << describe(size);
          }
        }
      }
      EXPECT_EQ(columns.size(), std::size_t{1} << (size.log_n - 3)) << describe(size);
    }
  }
}

TEST(MmaSplitEncoded, ScalesOfRowsAreJoinedWhereAWarpHasThemInSeveralVectors) {
  const auto joined = [](const char* encoding, std::int64_t n) {
    return joins_vectors(parse_encoding(encoding), n);
  };
  EXPECT_TRUE(joined("e4m3:row", 512));
  EXPECT_FALSE(joined("e4m3:row", 256));
  EXPECT_FALSE(joined("e4m3:256", 4096));
  EXPECT_EQ(encoder::group_in_row(parse_encoding("e4m3:row"), 128), 128);
  EXPECT_EQ(encoder::group_in_row(parse_encoding("mxfp4"), 128), 32);
}

TEST(MmaSplitEncoded, EveryKernelIsCompiledInOnePart) {
  for (const CodeFormat format : {CodeFormat::e4m3, CodeFormat::int8, CodeFormat::int4, CodeFormat::mxfp8,
                                  CodeFormat::mxfp4, CodeFormat::nvfp4}) {
    const auto parts_with = [](std::span<const ObjectPart> parts, int log_n, int kind) {
      return std::count_if(parts.begin(), parts.end(),
                           [&](const ObjectPart& part) { return part.has(log_n, kind); });
    };
    for (const bool prepares : {false, true}) {
      if (prepares && !is_prepared(format)) continue;
      for (int log_n = kSmallestLogN; log_n <= kLargestLogN; ++log_n) {
        for (int kind = 0; kind < kKinds; ++kind) {
          SCOPED_TRACE(testing::Message() << log_n << " " << kind << " " << prepares);
          const bool exists = kind % 2 == 0 || may_join(format, log_n);
          if (!exists) continue;
          const bool compiled = is_compiled(Dtype::bf16, format, log_n, kind, prepares);
          EXPECT_TRUE(!compiled || parts_with(encoded_parts(format, prepares), log_n, kind) == 1);
          // What a plan asks for is compiled, by its own number or as that of few rows.
          const KernelId id = kernel_of_kind(Dtype::bf16, log_n, kind, prepares);
          EXPECT_TRUE(compiled || (is_compiled(Dtype::bf16, format, log_n, kind - 2, prepares) &&
                                   id == kernel_of_kind(Dtype::bf16, log_n, kind - 2, prepares)));
        }
      }
    }
  }
}

TEST(MmaSplitEncoded, TheFirstStageTakesOverWhatIsLeftOfAnOrthonormalTransform) {
  for (int log_n = kSmallestLogN; log_n <= kLargestLogN; log_n += 2) {
    const Problem problem = make_problem(Dtype::bf16, std::int64_t{1} << log_n, 1);
    EXPECT_EQ(factors(problem).last, std::ldexp(1.0F, log_of_first_stage(Dtype::bf16, log_n, true))) << log_n;
  }
  EXPECT_EQ(log_of_first_stage(Dtype::bf16, 7, true), 0) << "the root of two stays";
  EXPECT_EQ(log_of_first_stage(Dtype::f16, 10, true), 0) << "its matrix has the scale already";
  EXPECT_EQ(log_of_first_stage(Dtype::bf16, 10, false), 0);
}

TEST(MmaSplitEncoded, ShortGroupsOfFp32ScalesTakeTheKernelsForAnyNumbers) {
  const auto rounded = [](const char* encoding, std::int64_t n) {
    return is_rounded_first(parse_encoding(encoding), n);
  };
  for (const char* encoding : {"e4m3:row", "int8:128", "mxfp8", "mxfp4", "nvfp4"}) {
    EXPECT_TRUE(rounded(encoding, 128)) << encoding;
    EXPECT_TRUE(rounded(encoding, 4096)) << encoding;
  }
  EXPECT_TRUE(rounded("e4m3:row", 64));
  EXPECT_TRUE(rounded("e4m3:64", 2048));
  EXPECT_FALSE(rounded("e4m3:64", 4096)) << "a lane has sixteen groups of 64, which have eight lanes";
  EXPECT_FALSE(rounded("int4:32", 128));
  EXPECT_FALSE(rounded("e4m3:128/f32", 128));
}

TEST(MmaSplitEncoded, PagesHoldCodesAndThenScales) {
  const std::array<std::int64_t, 8> slots{};
  Operands operands;
  operands.prepared.slots = slots.data();
  // The key cache of DeepSeek-V3.2's indexer: 132 bytes per token, fp32 scales; and its form in four bits, 68
  // bytes.
  const PlacesArguments keys =
      places_of(parse_problem("bf16/n128/r8/page64x3>e4m3:128,ue8m0,deepseek_v32"), operands);
  EXPECT_EQ(keys.page_bytes, 64 * 132);
  EXPECT_EQ(keys.count, 192);
  EXPECT_EQ(keys.first_scale, 64 * 128 / 4);
  EXPECT_EQ(keys.scales_of_a_page, 64 * 132 / 4);
  const PlacesArguments short_keys = places_of(parse_problem("bf16/n128/r8/page64x3>mxfp4"), operands);
  EXPECT_EQ(short_keys.page_bytes, 64 * 68);
  EXPECT_EQ(short_keys.first_scale, 64 * 64);
  EXPECT_EQ(short_keys.scales_of_a_page, 64 * 68);
  EXPECT_EQ(places_of(parse_problem("bf16/n128/r8>mxfp4"), operands).slots, nullptr) << "row after row";
}

TEST(MmaSplitEncoded, PrologueArgumentsAreThoseOfTheProblem) {
  const Problem rope = parse_problem("bf16/n128/r64/rope64ih32>e4m3:row");
  Operands operands;
  const std::array<std::int64_t, 2> positions{};
  operands.prepared.positions = positions.data();
  const PrologueArguments asked = prologue_of(rope, operands);
  EXPECT_EQ(asked.kind, Prologue::Kind::rope);
  EXPECT_EQ(asked.width, 64);
  EXPECT_EQ(asked.heads, 32U);
  EXPECT_TRUE(asked.interleaved);
  EXPECT_EQ(asked.positions, positions.data());
  EXPECT_EQ(asked.signs, nullptr);
  EXPECT_TRUE(has_prologue(rope));
  EXPECT_TRUE(has_prologue(parse_problem("bf16/128+signs/r64>e4m3:row")));
  EXPECT_TRUE(has_prologue(parse_problem("bf16/n128/r8/page64x3>mxfp4")));
  EXPECT_FALSE(has_prologue(parse_problem("bf16/n128/r64>e4m3:row")));
}

TEST(MmaSplitEncoded, HeadsOfATokenTakeKernelsThatLoadTheirAnglesOnce) {
  const auto roped = [](const char* text) { return is_roped(parse_problem(text)); };
  for (const char* text :
       {"bf16/n128/r64/rope128h32>e4m3:tensor,vllm_static", "bf16/n128/r64/rope64h8>e4m3:row",
        "f16/n64/r64/rope64h16>mxfp4", "bf16/n256/r64/rope128h4>e4m3:128,ue8m0,deepseek_v32"})
    EXPECT_TRUE(roped(text)) << text;
  for (const char* text :
       {"bf16/n128/r64/rope64h4>e4m3:row",        // a warp has eight rows, of two tokens
        "bf16/n128/r64/rope64ih32>e4m3:row",      // interleaved
        "bf16/128+signs/r64/rope64h32>e4m3:row",  // signs behind it
        "bf16/n512/r64/rope64h32>e4m3:row",       // a row is not in one vector
        "bf16/n128/r64/rope64h32>e4m3:32",        // short groups
        "bf16/n128/r64/rope64h32>e4m3:tensor",    // two passes
        "bf16/n128/r64/rope64h32>mxfp4:128x4",    // padding
        "bf16/n128/r64/rope64h32/page64x3>e4m3:row", "bf16/n128/r64/rms>e4m3:row", "bf16/n128/r64>e4m3:row"})
    EXPECT_FALSE(roped(text)) << text;
  Problem apart = parse_problem("bf16/n128/r64/rope64h32>e4m3:row");
  apart.set_row_stride(136);
  EXPECT_FALSE(is_roped(apart));
  EXPECT_TRUE(shares_positions(16, 7, true));
  EXPECT_FALSE(shares_positions(8, 7, true)) << "sixteen rows of a warp";
}

TEST(MmaSplitEncoded, TakesSignsInFrontAndWidthsThatLieInWholeVectors) {
  const auto why = [](const char* text) {
    return variant.supports(parse_problem(text), h200_description()).why_not;
  };
  EXPECT_EQ(why("bf16/4096+signs/r5>e4m3:row"), "");
  EXPECT_EQ(why("f16/128+signs/r8/rope64>mxfp4"), "");
  EXPECT_NE(why("bf16/signs+4096/r5>e4m3:row").find("the operator signs+4096 is not offered"),
            std::string::npos);
  EXPECT_NE(why("bf16/n128/r8/rope48>e4m3:row").find("width=48 must be a power of two from 16 to 256"),
            std::string::npos);
  EXPECT_NE(why("bf16/n128/r8/rope8>e4m3:row").find("width=8"), std::string::npos);
  EXPECT_NE(why("bf16/n1024/r8/rope512>e4m3:row").find("width=512"), std::string::npos);
  EXPECT_EQ(why("bf16/n128/r8/page64x3>e4m3:row"), "");
  EXPECT_EQ(
      why("bf16/n128/r8/page64x3>int8:row"),
      "pages of 64 with the encoding int8:row is not offered by this variant: formats e4m3 and mxfp4 are");
  EXPECT_EQ(
      why("bf16/n128/r8/rms>nvfp4"),
      "the prologue rms with the encoding nvfp4 is not offered by this variant: formats e4m3 and mxfp4 are");
  for (const char* text :
       {"bf16/4096+signs/r5>int4:row", "bf16/4096+signs/r5>mxfp8", "f16/n128/r8/rope64>int8:128"})
    EXPECT_NE(why(text).find("formats e4m3 and mxfp4 are"), std::string::npos) << text;
  EXPECT_EQ(why("bf16/n64/r8/page1x3>e4m3:row"),
            "pages of 1 rows have 68 bytes, which must be a multiple of 8 for this variant");
}

}  // namespace
}  // namespace fwht::mma_split
