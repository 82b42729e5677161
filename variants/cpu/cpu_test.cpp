// What the conformance suite does not ask of cpu and cpu_f64: f64 data, rows at two distances, threads.
#include "variants/cpu/cpu.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "common/host/bits.hpp"
#include "common/testing/refusal.hpp"

namespace fwht::cpu {
namespace {

const Variant* const kBoth[] = {&variant, &f64_variant};

DeviceInfo host(int threads) {
  DeviceInfo device;
  device.host_threads = threads;
  return device;
}

Problem f64_problem(std::int64_t n, std::int64_t rows) {
  return make_problem(Dtype::f64, n, rows, Placement::out_of_place);
}

std::vector<double> transformed(const Variant& by, const Problem& problem, const std::vector<double>& in) {
  std::vector<double> out(in.size(), std::nan(""));
  plan(by, problem, host(2))->execute(in.data(), out.data());
  return out;
}

template <class Distribution>
std::vector<double> random_numbers(std::int64_t count, Distribution distribution, unsigned seed = 1) {
  std::mt19937_64 random(seed);
  std::vector<double> numbers(static_cast<std::size_t>(count));
  for (double& number : numbers)
    number = static_cast<double>(distribution(random));
  return numbers;
}

/// H x from its definition, one row, in long double (64 bits of significand on x86).
std::vector<long double> truth(const double* x, std::int64_t n) {
  std::vector<long double> y(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      const bool negative = std::popcount(static_cast<std::uint64_t>(i & j)) % 2 != 0;
      y[static_cast<std::size_t>(i)] += negative ? -static_cast<long double>(x[j]) : x[j];
    }
  }
  return y;
}

std::int64_t threads_of(const Problem& problem, int most) {
  const Settings settings = plan(variant, problem, host(most))->settings();
  for (const Setting& setting : settings) {
    if (setting.first == "threads") return std::get<std::int64_t>(setting.second);
  }
  return -1;
}

// Sums of integers up to 2^40 leave no room for fp32 anywhere.
TEST(CpuF64, IsExactOnIntegers) {
  for (const Variant* by : kBoth) {
    for (const std::int64_t n : {2, 8, 64, 1024}) {
      Problem problem = f64_problem(n, 3);
      problem.scale = 1.0;
      const std::vector<double> x = random_numbers(
          3 * n,
          std::uniform_int_distribution<std::int64_t>(-(std::int64_t{1} << 40), std::int64_t{1} << 40));
      const std::vector<double> y = transformed(*by, problem, x);
      for (std::int64_t row = 0; row < 3; ++row) {
        const std::vector<long double> want = truth(x.data() + row * n, n);
        for (std::int64_t i = 0; i < n; ++i) {
          ASSERT_EQ(static_cast<long double>(y[static_cast<std::size_t>(row * n + i)]),
                    want[static_cast<std::size_t>(i)])
              << by->name << " n=" << n << " row " << row << " element " << i;
        }
      }
    }
  }
}

// log2 n additions, the constant and the product with it: |error| <= gamma_(L+2) * scale * sum |x|
// (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, lemma 3.1), whatever the data.
TEST(CpuF64, IsWithinTheBoundOfDoublePrecision) {
  for (const Variant* by : kBoth) {
    for (const std::int64_t n : {2, 4, 32, 256, 2048}) {
      const Problem problem = f64_problem(n, 2);
      const std::vector<double> x = random_numbers(2 * n, std::normal_distribution<double>());
      const std::vector<double> y = transformed(*by, problem, x);
      for (std::int64_t row = 0; row < 2; ++row) {
        const double* from = x.data() + row * n;
        const std::vector<long double> sums = truth(from, n);
        const long double scale = 1.0L / std::sqrt(static_cast<long double>(n));
        const double size = std::accumulate(from, from + n, 0.0,
                                            [](double sum, double value) { return sum + std::fabs(value); });
        const double steps = std::log2(static_cast<double>(n)) + 2;
        const double bound = steps * 0x1p-53 / (1 - steps * 0x1p-53) * static_cast<double>(scale) * size;
        for (std::int64_t i = 0; i < n; ++i) {
          const long double want = scale * sums[static_cast<std::size_t>(i)];
          ASSERT_LE(std::fabs(static_cast<double>(y[static_cast<std::size_t>(row * n + i)] - want)), bound)
              << by->name << " n=" << n << " row " << row << " element " << i;
        }
      }
    }
  }
}

// Sums wrap: what fits is right, though partial sums do not fit.
TEST(Cpu, IntegersWrapAndWhatFitsIsExact) {
  const std::int32_t half = std::int32_t{1} << 30;
  const std::vector<std::int32_t> x{half, half, -half, half, half, half, half, -half};
  std::vector<std::int32_t> y(8);
  const Problem problem = make_problem(Dtype::i32, 8, 1, Placement::out_of_place);
  plan(variant, problem, host(1))->execute(x.data(), y.data());
  for (std::uint64_t i = 0; i < 8; ++i) {
    std::int64_t sum = 0;
    for (std::uint64_t j = 0; j < 8; ++j)
      sum += hadamard_sign(i, j) * std::int64_t{x[j]};
    EXPECT_EQ(y[i], static_cast<std::int32_t>(static_cast<std::uint32_t>(sum))) << i;
  }
  EXPECT_EQ(f64_variant.supports(problem, host(1)).why_not, "i32 data are not offered by this variant");
}

// <H x, y> = <x, H y>, exactly on integers.
TEST(CpuF64, IsItsOwnAdjoint) {
  for (const Variant* by : kBoth) {
    for (const std::int64_t n : {2, 128, 4096}) {
      Problem problem = f64_problem(n, 1);
      problem.scale = 1.0;
      const std::uniform_int_distribution<int> small(-1000, 1000);
      const std::vector<double> x = random_numbers(n, small, 1), y = random_numbers(n, small, 2);
      const std::vector<double> hx = transformed(*by, problem, x), hy = transformed(*by, problem, y);
      const double left = std::inner_product(hx.begin(), hx.end(), y.begin(), 0.0);
      EXPECT_EQ(left, std::inner_product(x.begin(), x.end(), hy.begin(), 0.0)) << by->name << " n=" << n;
      EXPECT_NE(left, 0.0);
    }
  }
}

TEST(CpuF64, BothVariantsSumInDoubleAndGiveTheSameBits) {
  const Problem problem = f64_problem(512, 5);
  const std::vector<double> x = random_numbers(problem.elements(), std::normal_distribution<double>());
  const std::vector<double> a = transformed(variant, problem, x), b = transformed(f64_variant, problem, x);
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(double)), 0);
}

TEST(CpuF64, KeepsWhatOneValueSays) {
  Problem problem = f64_problem(4, 1);
  problem.scale = 1.0;
  const double tiny = 0x1p-1074, infinity = HUGE_VAL;
  EXPECT_EQ(transformed(variant, problem, {tiny, 0, 0, 0}), (std::vector<double>{tiny, tiny, tiny, tiny}));
  EXPECT_EQ(transformed(variant, problem, {0, infinity, 0, 0}),
            (std::vector<double>{infinity, -infinity, infinity, -infinity}));
  const double largest = 0x1.fffffffffffffp1023;
  problem.scale = 0.25;
  EXPECT_EQ(transformed(variant, problem, {largest / 4, largest / 4, largest / 4, largest / 4}),
            (std::vector<double>{largest / 4, 0, 0, 0}))
      << "intermediates have the range of double";
}

TEST(Cpu, TakesRowsAtTwoDistancesAndLeavesTheGapsAlone) {
  for (const Variant* by : kBoth) {
    for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
      Problem problem = make_problem(dtype, 8, 4, Placement::out_of_place);
      problem.scale = 1.0;
      problem.in.row_stride = 11;
      problem.out.row_stride = 9;
      std::vector<double> in_storage(44), out_storage(36);  // large enough for either dtype
      for (int i = 0; i < 44; ++i)
        store_element(dtype, in_storage.data(), i, i % 11 < 8 ? (i * 7) % 13 : std::nan(""));
      for (int i = 0; i < 36; ++i)
        store_element(dtype, out_storage.data(), i, -77.0);
      plan(*by, problem, host(1))->execute(in_storage.data(), out_storage.data());
      for (int row = 0; row < 4; ++row) {
        std::vector<double> x(8);
        for (int j = 0; j < 8; ++j)
          x[static_cast<std::size_t>(j)] = load_element(dtype, in_storage.data(), row * 11 + j);
        const std::vector<long double> want = truth(x.data(), 8);
        for (int i = 0; i < 8; ++i) {
          EXPECT_EQ(load_element(dtype, out_storage.data(), row * 9 + i),
                    static_cast<double>(want[static_cast<std::size_t>(i)]))
              << by->name << " " << name_of(dtype) << " row " << row << " element " << i;
        }
        EXPECT_EQ(load_element(dtype, out_storage.data(), row * 9 + 8), -77.0)
            << "the gap behind row " << row;
      }
    }
  }
}

TEST(Cpu, StartsThreadsForManyElementsOnly) {
  EXPECT_EQ(threads_of(make_problem(Dtype::f32, 64, 1023), 16), 1) << "below 64 Ki elements";
  EXPECT_EQ(threads_of(make_problem(Dtype::f32, 64, 1024), 16), 1) << "64 Ki: one thread's worth";
  EXPECT_EQ(threads_of(make_problem(Dtype::f32, 64, 2048), 16), 2);
  EXPECT_EQ(threads_of(make_problem(Dtype::f32, 64, 1 << 20), 16), 16);
  EXPECT_EQ(threads_of(make_problem(Dtype::f32, 64, 1 << 20), 3), 3) << "the limit of the DeviceInfo";
  EXPECT_EQ(threads_of(make_problem(Dtype::f32, 1 << 20, 2), 16), 2) << "one a row";
  EXPECT_EQ(threads_of(make_problem(Dtype::f32, 64, 0), 16), 1);
  EXPECT_EQ(threads_of(make_problem(Dtype::f32, 64, 1 << 20), 0), 1);
}

TEST(Cpu, GivesTheSameBitsWithAnyNumberOfThreads) {
  const Problem problem = f64_problem(1024, 257);
  const std::vector<double> x = random_numbers(problem.elements(), std::normal_distribution<double>());
  std::vector<double> one(x.size()), four(x.size());
  plan(variant, problem, host(1))->execute(x.data(), one.data());
  ASSERT_EQ(threads_of(problem, 4), 4);
  plan(variant, problem, host(4))->execute(x.data(), four.data());
  EXPECT_EQ(std::memcmp(one.data(), four.data(), one.size() * sizeof(double)), 0);
}

TEST(Cpu, RefusesMixedDtypesAndEncodings) {
  for (const Variant* by : kBoth) {
    for (const char* text : {"f64/n8/r2/out/to-f32", "f32/n8/r2/out/to-f64", "f64/n8/r2>e4m3:row",
                             "f64/28x512/r2/out/to-f32", "f64/8+signs/r1>e4m3:row"}) {
      EXPECT_FALSE(by->supports(parse_problem(text), host(1))) << text;
    }
    for (const char* text : {"f64/n8/r2", "f64/28x512/r2", "f64/8+signs/r1"})
      EXPECT_TRUE(by->supports(parse_problem(text), host(1))) << text;
  }
}

/// Element j of row r of an array, as Problem::inner defines it.
std::size_t place(const Problem& problem, const Array& array, std::int64_t r, std::int64_t j) {
  return static_cast<std::size_t>(r / problem.inner * array.row_stride + j * problem.inner +
                                  r % problem.inner);
}

// By the definition, and nothing written beside the rows.
TEST(Cpu, OrderingsAndInnerDimensions) {
  constexpr Ordering kOrderings[] = {Ordering::natural, Ordering::dyadic, Ordering::sequency};
  int problems = 0;
  for (const char* text : {"f64/n16/r3/out", "f64/n16/r12/out/inner3", "f64/n2/r40/out/inner20",
                           "f64/n16/r6/out/inner3/ld50/ldo49", "f64/n8/r4/inner2", "f64/n8/r4/inner2/ld20",
                           "f64/12x2/r4/out/inner2"}) {
    for (const Ordering from : kOrderings) {
      for (const Ordering to : kOrderings) {
        Problem problem = parse_problem(text);
        problem.in_ordering = from;
        problem.out_ordering = to;
        const bool plain = from == Ordering::natural && to == Ordering::natural;
        if (!plain && (problem.placement == Placement::in_place || !problem.op.is_sylvester())) continue;
        validate(problem);
        const std::int64_t n = problem.n(),
                           most = std::max(problem.in.row_stride, problem.out.row_stride) * problem.rows;
        const std::vector<double> in = random_numbers(most, std::uniform_int_distribution<int>(-99, 99));
        std::vector<double> out =
            problem.placement == Placement::in_place ? in : std::vector<double>(in.size(), 77.0);
        std::vector<double> expected = out;
        Problem alone = make_problem(Dtype::f64, problem.op, 1, Placement::out_of_place);
        alone.scale = problem.scale;
        const int log_n = log2_floor(n);
        for (std::int64_t r = 0; r < problem.rows; ++r) {
          std::vector<double> row(static_cast<std::size_t>(n));
          for (std::int64_t j = 0; j < n; ++j)
            row[static_cast<std::size_t>(natural_place(from, j, log_n))] =
                in[place(problem, problem.in, r, j)];
          const std::vector<double> y = transformed(variant, alone, row);
          for (std::int64_t j = 0; j < n; ++j)
            expected[place(problem, problem.out, r, j)] =
                y[static_cast<std::size_t>(natural_place(to, j, log_n))];
        }
        for (const Variant* by : kBoth) {
          std::vector<double> result = out;
          plan(*by, problem, host(3))
              ->execute(problem.placement == Placement::in_place ? result.data() : in.data(), result.data());
          EXPECT_EQ(result, expected) << by->name << " " << to_string(problem);
          ++problems;
        }
      }
    }
  }
  EXPECT_EQ(problems, 2 * (4 * 9 + 3));
}

TEST(Cpu, EveryDtypeInSequencyAndAlongADimension) {
  for (const Dtype dtype : kEveryDtype) {
    Problem problem = make_problem(dtype, 64, 6, Placement::out_of_place);
    problem.scale = 1.0;
    problem.out_ordering = Ordering::sequency;
    problem.inner = 3;
    problem.set_row_stride(problem.block_elements());
    const auto bytes = static_cast<std::size_t>(problem.span_bytes());
    std::vector<std::uint64_t> in(bytes / 8), out(bytes / 8);
    for (std::int64_t i = 0; i < problem.elements(); ++i)
      store_element(dtype, in.data(), i, static_cast<double>(i * 7 % 11 - 5));
    plan(variant, problem, host(1))->execute(in.data(), out.data());
    for (std::int64_t r = 0; r < problem.rows; ++r) {
      double row[64];
      for (std::int64_t j = 0; j < 64; ++j)
        row[j] = load_element(dtype, in.data(), static_cast<std::int64_t>(place(problem, problem.in, r, j)));
      const std::vector<long double> y = truth(row, 64);
      for (std::int64_t j = 0; j < 64; ++j) {
        EXPECT_EQ(
            load_element(dtype, out.data(), static_cast<std::int64_t>(place(problem, problem.out, r, j))),
            static_cast<double>(y[static_cast<std::size_t>(natural_place(Ordering::sequency, j, 6))]))
            << name_of(dtype);
      }
    }
  }
}

TEST(Cpu, RefusesPositionsInFrontOfTheTable) {
  const Problem problem = parse_problem("f32/n8/r6/out/rope8h2");
  const std::vector<float> rows(48, 1.0F), angles(16, 1.0F);
  std::vector<float> out(48, -7.0F);
  std::vector<std::int64_t> positions{0, 1, 1};
  Operands operands{rows.data(), out.data()};
  operands.prepared.cos_sin = angles.data();
  operands.prepared.positions = positions.data();
  for (const Variant* both : kBoth) {
    const std::unique_ptr<Plan> made = plan(*both, problem, host(2));
    positions[2] = -3;
    EXPECT_EQ(bad_request_of([&] { made->execute(operands); }),
              "positions[2]=-3 must be at least 0, a row of cos_sin");
    EXPECT_EQ(out, std::vector<float>(48, -7.0F)) << "nothing is written";
    positions[2] = 1;
    made->execute(operands);
    EXPECT_NE(out[0], -7.0F);
    out.assign(48, -7.0F);
  }
}

}  // namespace
}  // namespace fwht::cpu
