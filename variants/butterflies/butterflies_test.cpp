// Proves without a GPU what the kernels compute: their own programs executed lane by lane. The maps are in
// variants/kit/rows_test.cpp.
#include "variants/butterflies/butterflies.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/host/bits.hpp"
#include "reference/emulation.hpp"
#include "reference/inputs.hpp"
#include "variants/butterflies/launches.hpp"
#include "variants/butterflies/on_host/host_program.hpp"

namespace fwht::butterflies {
namespace {

using rows::Bits;
using rows::HostRun;
using rows::make_input;
using rows::problem_of;
using rows::same_value;

struct Size {
  Dtype dtype;
  int log_n;
};

std::vector<Size> all_sizes() {
  std::vector<Size> all;
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32}) {
    for (int log_n = 1; log_n <= largest_log_n(dtype); ++log_n)
      all.push_back({dtype, log_n});
  }
  return all;
}

std::string describe(const Size& size) {
  return std::string(name_of(size.dtype)) + "/n" + std::to_string(1 << size.log_n);
}

// Every sum is exact, so one wrong index or sign shows as a wrong number. The rows count up to and beyond
// what one block holds, and the last block is not full.
TEST(ButterfliesProgram, IntegersComeOutExactly) {
  for (const Size& size : all_sizes()) {
    const Problem problem = problem_of(size.dtype, size.log_n, 5 << 9);
    const rows::ExactCase exact = rows::integers(problem);
    const Bits out = run_on_host(problem, exact.in).out;
    for (std::size_t i = 0; i < exact.in.size(); ++i)
      ASSERT_TRUE(same_value(size.dtype, out[i], exact.want[i])) << describe(size) << " element " << i;
  }
}

TEST(ButterfliesProgram, EveryLaunchEqualsThePlainHostLoopBitForBit) {
  for (const Size& size : all_sizes()) {
    const Problem problem = problem_of(size.dtype, size.log_n, 3 << 10);
    ASSERT_EQ(numerics_of(problem).steps.front().sums, Sums::fp32);
    for (const auto input_class : {reference::InputClass::normal, reference::InputClass::subnormal}) {
      const Bits in = make_input(problem, input_class, 7);
      const std::vector<unsigned char> storage = rows::to_storage(problem, in);
      std::vector<unsigned char> out(storage.size());
      reference::emulate(problem, numerics_of(problem), storage.data(), out.data(), 1);
      const Bits want = rows::to_bits(problem, out);
      for (int regime = 0; regime < kRegimes; ++regime) {
        const Bits got = run_on_host(problem, in, static_cast<Regime>(regime)).out;
        for (std::size_t i = 0; i < in.size(); ++i) {
          ASSERT_TRUE(same_value(size.dtype, got[i], want[i]))
              << describe(size) << " regime " << regime << " element " << i;
        }
      }
    }
  }
}

// bf16 reaches as far as fp32. A row along a Walsh function with |x| = 3e38 has one result, sqrt(n) |x|,
// which is infinite, and zeros; with |x| = 2^127 / sqrt(n) it is finite, although a plain sum of n such
// numbers is not.
TEST(ButterfliesExceptionalValues, NoSumOverflowsWhereTheResultIsFinite) {
  for (int log_n = 1; log_n <= kLargestLogN; ++log_n) {
    const Problem problem = problem_of(Dtype::bf16, log_n, 512);
    EXPECT_EQ(numerics_of(problem).promises.intermediate_growth, 1.0);
    const Bits in = make_input(problem, reference::InputClass::normal, 19);
    const HostRun clean = run_on_host(problem, in);
    for (const double size : {3e38, std::ldexp(1.0, 127 - (log_n + 1) / 2)}) {
      const std::int64_t walsh = 0x1555 % problem.n();
      Bits large = in;
      for (std::int64_t j = 0; j < problem.n(); ++j) {
        const int sign = hadamard_sign(static_cast<std::uint64_t>(walsh), static_cast<std::uint64_t>(j));
        large[static_cast<std::size_t>(problem.n() + j)] = encode(Dtype::bf16, sign * size);
      }
      const double x = std::fabs(decode(Dtype::bf16, large[static_cast<std::size_t>(problem.n())]));
      const HostRun run = run_on_host(problem, large);
      for (std::int64_t j = 0; j < problem.n(); ++j) {
        const double result =
            j == walsh ? x * static_cast<double>(problem.n()) * static_cast<float>(problem.scale) : 0.0;
        ASSERT_EQ(decode(Dtype::bf16, run.out[static_cast<std::size_t>(problem.n() + j)]),
                  round_to(Dtype::bf16, result))
            << problem.n() << ' ' << j;
      }
      for (std::int64_t j = 0; j < problem.n(); ++j)
        ASSERT_EQ(run.out[static_cast<std::size_t>(j)], clean.out[static_cast<std::size_t>(j)])
            << problem.n();
    }
  }
}

TEST(ButterfliesExceptionalValues, OnlyBf16IsShrunk) {
  for (const Size& size : all_sizes()) {
    const Problem problem = problem_of(size.dtype, size.log_n);
    EXPECT_EQ(shrink_exponent(problem), size.dtype == Dtype::bf16 ? size.log_n : 0) << describe(size);
  }
  Problem problem = problem_of(Dtype::bf16, 5, 64);
  problem.scale = 1e38;  // leaves no room
  EXPECT_EQ(shrink_exponent(problem), 0);
  EXPECT_EQ(numerics_of(problem).promises.intermediate_growth, 32.0);
}

}  // namespace
}  // namespace fwht::butterflies
