// Proves without a GPU what the kernels compute: their own programs executed lane by lane. The maps are in
// variants/kit/rows_test.cpp.
#include "variants/butterflies/butterflies.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

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

TEST(ButterfliesExceptionalValues, NoSumOverflowsWhereTheResultIsFinite) {
  for (int log_n = 1; log_n <= kLargestLogN; ++log_n) {
    const Problem problem = problem_of(Dtype::bf16, log_n, 512);
    EXPECT_EQ(numerics_of(problem).promises.intermediate_growth, 1.0);
    rows::expect_no_sum_overflows(problem, [&](const Bits& in) { return run_on_host(problem, in).out; });
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
