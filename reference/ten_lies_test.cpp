// Ten ways in which a check lies, each replayed against this project's own checker.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "common/host/error.hpp"
#include "common/host/run_main.hpp"
#include "reference/test_support.hpp"

namespace fwht::reference {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Patient {
  Storage in, out;
  Numerics model;
  InputClass input;

  Patient(const Problem& problem, InputClass input_class, std::uint64_t seed = 1)
      : in(problem, input_class, seed), out(problem), model(butterflies(problem)), input(input_class) {
    emulate(problem, model, in.data(), out.data(), 1);
  }
  Checked checked() const { return check(in.problem, model, input, in.data(), out.data(), 1); }
};

// 1. NaN compares false, so `if (error > tolerance) fail` lets it pass.
TEST(TenLies, Lie01NanComparesFalse) {
  for (Dtype dtype : kAllDtypes) {
    for (InputClass input : all_input_classes()) {
      Patient run(make_problem(dtype, 64, 20), input);
      ASSERT_TRUE(run.checked().verdict) << run.checked().verdict.message;
      run.out.set(13, 5, kNan);
      EXPECT_FALSE(run.checked().verdict) << name_of(input);
      poison(run.out);
      const Checked all = run.checked();
      EXPECT_FALSE(all.verdict) << name_of(input);
      EXPECT_EQ(all.stats.unexpected_nan, all.stats.elements);
    }
  }
  // A bound that is itself NaN permits nothing, and no window contains NaN.
  Patient run(make_problem(Dtype::f32, 4, 1), InputClass::normal);
  ErrorLimits limits;
  limits.elementwise = Matrix::Constant(1, 4, kNan);
  EXPECT_FALSE(
      judge_elements(compare(run.in.problem, expected(run.in.problem, run.in.data()), run.out.data(), limits),
                     run.in.problem));
  EXPECT_FALSE((Window{-kInf, kInf}.contains(kNan)));
}

// 2. A loop overwrites its verdict, and only the last element counts.
TEST(TenLies, Lie02OnlyTheLastElementCounts) {
  for (Dtype dtype : kAllDtypes) {
    Problem problem = make_problem(dtype, 16, 5);
    problem.set_row_stride(19);
    const Patient clean(problem, InputClass::normal);
    for (std::int64_t r = 0; r < 5; ++r) {
      for (std::int64_t i = 0; i < 16; ++i) {
        Patient run = clean;
        run.out.set(r, i, run.out.get(r, i) + 0.5);
        const Checked checked = run.checked();
        ASSERT_FALSE(checked.verdict) << r << ' ' << i;
        EXPECT_EQ(checked.stats.first_wrong.row, r);
        EXPECT_EQ(checked.stats.first_wrong.column, i);
        EXPECT_EQ(checked.stats.worst.row, r);
        EXPECT_EQ(checked.stats.worst.column, i);
        ASSERT_FALSE(compare_exact(problem, clean.out.data(), run.out.data()));
      }
    }
  }
}

// 3. Failures are counted and printed, and the program exits with 0. Every program runs in run_main; that
// wrong results reach its exit code is replayed where that is decided (variants/conformance_test,
// sweep/session_test).
TEST(TenLiesDeathTest, Lie03FailuresCountedButExitCodeZero) {
  EXPECT_EXIT(std::exit(run_main("check", [] { return 1; })), testing::ExitedWithCode(1), "");
  EXPECT_EXIT(std::exit(run_main("check", []() -> int { throw std::runtime_error("launch failed"); })),
              testing::ExitedWithCode(1), "check: failed: launch failed");
  EXPECT_EXIT(std::exit(run_main("check", []() -> int { throw BadRequest("n=3 must be a power of two"); })),
              testing::ExitedWithCode(2), "check: n=3 must be");
}

// 4. The kernel writes nothing, and the buffer still holds the previous result.
TEST(TenLies, Lie04StaleOutputLooksRight) {
  Patient run(make_problem(Dtype::bf16, 128, 40), InputClass::uniform);
  EXPECT_TRUE(run.checked().verdict) << "the stale buffer by itself looks right: this is the trap";
  poison(run.out);
  // ... the kernel under test runs here and writes all rows but one
  Storage fresh = emulated(run.model, run.in);
  const auto row_bytes =
      static_cast<std::size_t>(run.in.problem.row_stride() * bytes_of(run.in.problem.dtype()));
  for (std::size_t r = 0; r < 40; ++r) {
    if (r == 39) continue;
    std::memcpy(static_cast<char*>(run.out.data()) + r * row_bytes,
                static_cast<char*>(fresh.data()) + r * row_bytes, row_bytes);
  }
  const Checked checked = run.checked();
  EXPECT_FALSE(checked.verdict);
  EXPECT_EQ(checked.stats.first_wrong.row, 39);
  EXPECT_EQ(checked.stats.unexpected_nan, 128);
}

// 5. An absolute tolerance larger than the data: zeros pass.
TEST(TenLies, Lie05AbsoluteToleranceLargerThanTheData) {
  for (Dtype dtype : kAllDtypes) {
    for (int exponent : {-13, -7, 0, 8}) {
      Problem problem = make_problem(dtype, 64, 32);
      problem.scale *= std::ldexp(1.0, exponent);
      Patient run(problem, InputClass::normal);
      EXPECT_TRUE(run.checked().verdict) << run.checked().verdict.message;
      run.out = Storage(problem);
      EXPECT_FALSE(run.checked().verdict) << "all zero at 2^" << exponent;
    }
    if (dtype == Dtype::f32) continue;
    Patient tiny(make_problem(dtype, 64, 32), InputClass::subnormal);
    tiny.out = Storage(tiny.in.problem);
    EXPECT_FALSE(tiny.checked().verdict) << "all zero in the subnormal range";
  }
}

// 6. The reference is a peer with the same fault, or no better than what it judges.
TEST(TenLies, Lie06ReferenceIsAPeerOrOfTheSamePrecision) {
  const Problem problem = make_problem(Dtype::f32, 2048, 4);
  const Storage in(problem, InputClass::student3, 3);
  const Matrix truth = expected(problem, in.data());
  double worst = 0.0, peer = 0.0, size = 0.0;
  const Storage fp32 = emulated(butterflies(problem), in);
  for (std::int64_t r = 0; r < problem.rows; ++r) {
    for (std::int64_t i = 0; i < problem.n(); i += 37) {
      long double sum = 0.0L;  // 64 significand bits, by the definition
      for (std::int64_t j = 0; j < problem.n(); ++j) {
        sum += static_cast<long double>(in.get(r, j)) *
               hadamard_sign(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j));
      }
      const auto exact = static_cast<double>(sum * static_cast<long double>(problem.scale));
      worst = std::max(worst, std::fabs(truth(r, i) - exact));
      peer = std::max(peer, std::fabs(fp32.get(r, i) - exact));
      size = std::max(size, std::fabs(exact));
    }
  }
  EXPECT_LT(worst, 1e-14 * size);
  EXPECT_GT(peer, 1e3 * worst) << "fp32 must be visibly worse than the truth";
  // Two kernels that share the constant 181/256 agree with each other bit for bit; the truth tells.
  const Storage data(make_problem(Dtype::f16, 512, 256), InputClass::normal, 1);
  const Numerics blocks = tensor_blocks(data.problem);
  const Storage one = emulated(blocks, data), two = emulated(blocks, data);
  EXPECT_TRUE(compare_exact(data.problem, one.data(), two.data()));
  Numerics claim = blocks;
  claim.steps.back().constant = std::sqrt(0.5);
  EXPECT_FALSE(check(data.problem, claim, InputClass::normal, data.data(), one.data()).verdict);
}

// 7. Elements whose expected value is not finite are skipped.
TEST(TenLies, Lie07NonfiniteExpectedValuesSkipped) {
  for (Dtype dtype : kAllDtypes) {
    Storage in(make_problem(dtype, 64, 20), InputClass::normal, 1);
    in.set(4, 7, kInf);
    in.set(11, 3, kNan);
    const Numerics model = butterflies(in.problem);
    const Storage right = emulated(model, in);
    const auto verdict = [&](std::int64_t row, std::int64_t column, double value) {
      Storage out = right;
      out.set(row, column, value);
      return check(in.problem, model, InputClass::normal, in.data(), out.data());
    };
    EXPECT_TRUE(check(in.problem, model, InputClass::normal, in.data(), right.data()).verdict);
    EXPECT_EQ(verdict(4, 0, 1.0).stats.missing_nonfinite, 1);
    EXPECT_FALSE(verdict(4, 0, 1.0).verdict);
    EXPECT_FALSE(verdict(4, 0, -right.get(4, 0)).verdict) << "the wrong infinity";
    EXPECT_FALSE(verdict(4, 0, kNan).verdict) << "NaN for an infinity";
    EXPECT_FALSE(verdict(11, 63, 0.0).verdict);
    EXPECT_FALSE(verdict(11, 63, kInf).verdict) << "an infinity for NaN";
    EXPECT_FALSE(verdict(12, 63, kInf).verdict);
  }
}

// 8. An argument is silently replaced: what was tested is not what was asked for.
TEST(TenLies, Lie08ArgumentSilentlyReplaced) {
  Problem asked = make_problem(Dtype::f16, 64, 16);
  asked.set_row_stride(72);
  asked.scale = 0.5;
  const Storage in(asked, InputClass::normal, 1);
  const auto answer = [&](Problem used) {
    Storage out(asked);
    poison(out);
    emulate(used, butterflies(used), in.data(), out.data());
    return check(asked, butterflies(asked), InputClass::normal, in.data(), out.data()).verdict;
  };
  EXPECT_TRUE(answer(asked));
  Problem used = asked;
  used.scale = orthonormal_scale(64);
  EXPECT_FALSE(answer(used)) << "the default scale";
  used = asked;
  used.op = Operator::sylvester(32);
  EXPECT_FALSE(answer(used)) << "half the row";
  used = asked;
  used.rows = 8;
  EXPECT_FALSE(answer(used)) << "half the rows";
  used = asked;
  used.set_row_stride(64);
  EXPECT_FALSE(answer(used)) << "contiguous rows";
  used = asked;
  used.set_dtype(Dtype::bf16);
  EXPECT_FALSE(answer(used)) << "the other 16-bit type";
  EXPECT_THROW(parse_input_class("Normal"), BadRequest);
  EXPECT_THROW(expected(make_problem(Dtype::f16, 48, 1), in.data()), BadRequest) << "no padding to 64";
  EXPECT_NE(generate(asked, InputClass::normal, 1), generate(asked, InputClass::normal, (1ULL << 32) + 1))
      << "64-bit seeds";
}

// 9. Everything is skipped, and the run is green. What a check of nothing says; what a suite and a sweep of
// nothing say is replayed in variants/conformance_test and sweep/session_test.
TEST(TenLies, Lie09EverythingSkippedAndGreen) {
  EXPECT_FALSE(Verdict{}) << "what was never judged has not passed";
  EXPECT_FALSE(Checked{}.verdict);
  const Problem problem = make_problem(Dtype::f16, 64, 16);
  EXPECT_FALSE(judge_elements(ErrorStats{}, problem)) << "nothing was compared";
  EXPECT_FALSE(judge(Comparison(problem).stats(), butterflies(problem), problem, InputClass::normal));
  const Patient run(problem, InputClass::normal);
  Comparison half(problem);
  half.add(0, expected(problem, run.in.data(), 0, 8), run.out.data());
  EXPECT_FALSE(judge_elements(half.stats(), problem)) << "half was compared";
}

// 10, a speed is printed for a wrong result, is the sweep's to tell: sweep/session_test replays it.

}  // namespace
}  // namespace fwht::reference
