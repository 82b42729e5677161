// Spectra, convolutions, rounds and sketches against their definitions.
#include "variants/library/walsh.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "common/contract/hadamard_matrices.hpp"
#include "common/contract/operator_data.hpp"
#include "common/device/device_info.hpp"
#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "common/host/text.hpp"
#include "common/testing/refusal.hpp"
#include "variants/cpu/cpu.hpp"
#include "variants/library/convolved_rows.hpp"
#include "variants/library/function_rows.hpp"
#include "variants/library/rounded_codes_check.hpp"
#include "variants/library/rounded_rows.hpp"
#include "variants/library/sketched_rows.hpp"
#include "variants/passes/schedule.hpp"

namespace {
std::atomic<int> threads_started = 0;
}  // namespace

// In front of the C library's, to count.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                              void* argument) noexcept {
  ++threads_started;
  static const auto start = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return start(thread, attributes, body, argument);
}

namespace fwht::walsh {
namespace {

std::vector<std::int8_t> random_bits(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int8_t> bits(static_cast<std::size_t>(count));
  for (std::int8_t& bit : bits)
    bit = static_cast<std::int8_t>(random() >> 31);
  return bits;
}

std::int64_t walsh_coefficient(const std::int8_t* f, std::int64_t n, std::int64_t a) {
  std::int64_t sum = 0;
  for (std::int64_t x = 0; x < n; ++x)
    sum += (hadamard_sign(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(x)) < 0) == (f[x] != 0)
               ? 1
               : -1;
  return sum;
}

template <class Call>
std::string refusal(const Call& call) {
  return bad_request_of([&] { call(); }, "nothing");
}

TEST(Walsh, SpectraOfEveryFormAreTheDefinition) {
  for (int k = 1; k <= 8; ++k) {
    const std::int64_t n = std::int64_t{1} << k;
    const std::vector<std::int8_t> bits = random_bits(3 * n, static_cast<unsigned>(k));
    std::vector<std::int8_t> signs;
    std::vector<std::uint8_t> packed(bits.size() / 8 + 1);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      signs.push_back(static_cast<std::int8_t>(1 - 2 * bits[i]));
      packed[i / 8] |= static_cast<std::uint8_t>(bits[i] << i % 8);
    }
    std::vector<std::int32_t> expected;
    for (std::int64_t i = 0; i < 3 * n; ++i)
      expected.push_back(static_cast<std::int32_t>(walsh_coefficient(bits.data() + i / n * n, n, i % n)));
    std::vector<std::int32_t> found(expected.size());
    spectrum(FunctionForm::bits, bits.data(), k, 3, found.data());
    EXPECT_EQ(found, expected);
    spectrum(FunctionForm::signs, signs.data(), k, 3, found.data(), 1);
    EXPECT_EQ(found, expected);
    if (k < 3) continue;
    spectrum(FunctionForm::packed, packed.data(), k, 3, found.data(), 2);
    EXPECT_EQ(found, expected);
  }
}

TEST(Walsh, ABentFunctionOfTwentyVariablesIsFlat) {
  constexpr int kVariables = 20;
  std::vector<std::uint8_t> bits(std::size_t{1} << kVariables);
  for (std::size_t x = 0; x < bits.size(); ++x)
    bits[x] = static_cast<std::uint8_t>(parity(x >> 10 & x & 1023));
  std::vector<std::int32_t> w(bits.size());
  spectrum(FunctionForm::bits, bits.data(), kVariables, 1, w.data());
  for (const std::int32_t each : w)
    ASSERT_EQ(std::abs(each), 1 << 10);
  const SpectrumSummary summary = summarize(w.data(), kVariables);
  EXPECT_EQ(summary.largest, 1 << 10);
  EXPECT_EQ(summary.place, 0);
  EXPECT_EQ(summary.nonlinearity, (1 << 19) - (1 << 9));
  EXPECT_EQ(summary.sum_of_squares, std::uint64_t{1} << 40);
}

TEST(Walsh, SummaryAndLargest) {
  const std::vector<std::int32_t> w{2, -6, 6, 0, -2, 6, -2, -2};
  const SpectrumSummary summary = summarize(w.data(), 3);
  EXPECT_EQ(summary.largest, 6);
  EXPECT_EQ(summary.place, 1);
  EXPECT_EQ(summary.nonlinearity, 1);
  EXPECT_EQ(summary.sum_of_squares, 124U);
  EXPECT_EQ(largest(w.data(), 3, 4), (std::vector<Coefficient>{{1, -6}, {2, 6}, {5, 6}, {0, 2}}));
  EXPECT_EQ(largest(w.data(), 3, 8).back(), (Coefficient{3, 0}));
  std::mt19937 random(3);
  std::vector<std::int32_t> many(1 << 12);
  for (std::int32_t& each : many)
    each = static_cast<std::int32_t>(random() % 101) - 50;
  std::vector<Coefficient> all;
  for (std::size_t i = 0; i < many.size(); ++i)
    all.push_back({static_cast<std::int64_t>(i), many[i]});
  std::stable_sort(all.begin(), all.end(), [](const Coefficient& a, const Coefficient& b) {
    return std::abs(a.value) > std::abs(b.value);
  });
  all.resize(100);
  EXPECT_EQ(largest(many.data(), 12, 100), all);
}

TEST(Walsh, RefusesValuesThatAreNotOfTheForm) {
  std::vector<std::int8_t> values{0, 1, 0, 1};
  std::int32_t w[4];
  const auto call = [&](FunctionForm form, int variables) {
    return refusal([&] { spectrum(form, values.data(), variables, 1, w, 1); });
  };
  EXPECT_EQ(call(FunctionForm::signs, 2),
            "element 0 is 0, but the form signs has 1 and -1; 0 and 1 are the form bits");
  values = {0, 1, -1, 1};
  EXPECT_EQ(call(FunctionForm::bits, 2),
            "element 2 is 255, but the form bits has 0 and 1; 1 and -1 are the form signs");
  EXPECT_EQ(call(FunctionForm::packed, 2), "variables=2 must be between 3 and 30");
  EXPECT_EQ(call(FunctionForm::bits, 31), "variables=31 must be between 1 and 30");
  EXPECT_NE(call(static_cast<FunctionForm>(3), 2).find("form 3 is unknown"), std::string::npos);
  EXPECT_EQ(refusal([&] { spectrum(FunctionForm::bits, nullptr, 2, 1, w); }), "values is a null pointer");
  const void* const odd = values.data() + 1 - reinterpret_cast<std::uintptr_t>(values.data()) % 2;
  EXPECT_NE(
      refusal([&] { dyadic_convolution(Dtype::f64, 2, 1, odd, odd, w); }).find("must be aligned to 8 bytes"),
      std::string::npos);
  EXPECT_EQ(refusal([&] { largest(w, 2, 5); }), "count=5 must be between 1 and 4");
}

TEST(Walsh, CountsSumsThatDoNotFit) {
  std::mt19937_64 random(1);
  for (const Dtype dtype : {Dtype::i32, Dtype::i64}) {
    const Problem problem = make_problem(dtype, 8, 20);
    std::vector<std::int64_t> wide(160);
    std::vector<std::int32_t> narrow(160);
    for (std::size_t i = 0; i < 160; ++i) {
      wide[i] = static_cast<std::int64_t>(random()) >> 2;
      narrow[i] = static_cast<std::int32_t>(wide[i] >> 32);
    }
    wide[0] = std::numeric_limits<std::int64_t>::min();
    narrow[0] = std::numeric_limits<std::int32_t>::min();
    std::fill_n(wide.begin() + 1, 7, 0);
    std::fill_n(narrow.begin() + 1, 7, 0);
    __extension__ using Wide = __int128;
    std::int64_t expected = 0;
    for (std::size_t r = 0; r < 20; ++r) {
      for (std::uint64_t i = 0; i < 8; ++i) {
        Wide sum = 0;
        for (std::uint64_t j = 0; j < 8; ++j)
          sum += Wide{hadamard_sign(i, j)} * (dtype == Dtype::i32 ? narrow[8 * r + j] : wide[8 * r + j]);
        const Wide limit = Wide{1} << (dtype == Dtype::i32 ? 31 : 63);
        expected += sum < -limit || sum >= limit ? 1 : 0;
      }
    }
    const void* data = dtype == Dtype::i32 ? static_cast<const void*>(narrow.data()) : wide.data();
    EXPECT_EQ(overflows(problem, data), expected);
    EXPECT_GT(expected, 0);
    EXPECT_LT(expected, 152);
  }
  EXPECT_NE(refusal([] { overflows(make_problem(Dtype::f32, 8, 1), nullptr); }).find("i32 or i64"),
            std::string::npos);
}

TEST(Walsh, ConvolutionIsTheSumOverXor) {
  constexpr std::int64_t kN = 64, kRows = 2;
  std::mt19937 random(5);
  std::vector<std::int64_t> a(kN * kRows), b(a.size()), c(a.size());
  std::vector<double> x(a.size()), y(a.size()), z(a.size());
  std::vector<float> p(a.size()), q(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    x[i] = static_cast<double>(a[i] = static_cast<std::int64_t>(random() % 199) - 99);
    y[i] = static_cast<double>(b[i] = static_cast<std::int64_t>(random() % 199) - 99);
    p[i] = static_cast<float>(a[i]);
    q[i] = static_cast<float>(b[i]);
  }
  dyadic_convolution(Dtype::i64, kN, kRows, a.data(), b.data(), c.data());
  dyadic_convolution(Dtype::f64, kN, kRows, x.data(), y.data(), z.data());
  dyadic_convolution(Dtype::f32, kN, kRows, p.data(), q.data(), q.data());  // in place of b
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t i = 0; i < kN; ++i) {
      std::int64_t sum = 0, sizes = 0;
      for (std::int64_t j = 0; j < kN; ++j) {
        const std::int64_t term =
            a[static_cast<std::size_t>(r * kN + j)] * b[static_cast<std::size_t>(r * kN + (i ^ j))];
        sum += term;
        sizes += std::abs(term);
      }
      const auto at = static_cast<std::size_t>(r * kN + i);
      EXPECT_EQ(c[at], sum);
      EXPECT_EQ(z[at], static_cast<double>(sum));  // all sums fit 53 bits
      // Three transforms of six levels and a product, on sums of at most 64 |a| |b|.
      EXPECT_LE(std::abs(q[at] - static_cast<double>(sum)), 20 * 0x1p-24 * 64.0 * 99 * 99);
      EXPECT_LE(std::abs(sum), sizes);
    }
  }
  a.assign(a.size(), std::int64_t{1} << 26);
  EXPECT_NE(refusal([&] {
              dyadic_convolution(Dtype::i64, kN, 1, a.data(), a.data(), c.data());
            }).find("must be below 2^63"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              dyadic_convolution(Dtype::bf16, kN, 1, a.data(), a.data(), c.data());
            }).find("dtype bf16 must be"),
            std::string::npos);
  std::vector<std::int32_t> narrow(kN, 99), sums(kN);
  dyadic_convolution(Dtype::i32, kN, 1, narrow.data(), narrow.data(), sums.data());
  EXPECT_EQ(sums, std::vector<std::int32_t>(kN, kN * 99 * 99));
  narrow.assign(kN, 1 << 10);
  EXPECT_NE(refusal([&] {
              dyadic_convolution(Dtype::i32, kN, 1, narrow.data(), narrow.data(), sums.data());
            }).find("must be below 2^31"),
            std::string::npos);
  std::vector<std::int32_t> in_place(2 * kN, 1);
  std::fill(in_place.begin() + kN, in_place.end(), 1 << 10);
  const std::vector<std::int32_t> before = in_place;
  EXPECT_TRUE(refusal([&] {
                dyadic_convolution(Dtype::i32, kN, 2, in_place.data(), in_place.data(), in_place.data());
              }).starts_with("row 1: "));
  EXPECT_EQ(in_place, before) << "row 0 was convolved, and is lost";
}

// A product of spectra is up to n times as large as what the convolution may have, and their sum n^2 times.
TEST(Walsh, ConvolutionsAreInRangeWhereTheirResultsAre) {
  constexpr std::size_t kN = 4096;
  std::vector<float> a(kN), b(kN), c(kN);
  const auto convolve = [&](float first_of_a, float first_of_b, float others) {
    a.assign(kN, others), b.assign(kN, others);
    a[0] = first_of_a, b[0] = first_of_b;
    dyadic_convolution(Dtype::f32, kN, 1, a.data(), b.data(), c.data());
  };
  for (const float size : {1e19F, -1e19F}) {
    convolve(size, 1e19F, 0);
    EXPECT_FLOAT_EQ(c[0], size * 1e19F);
    convolve(size, size, 0);
    EXPECT_FLOAT_EQ(c[0], 1e38F);
  }
  convolve(1e16F, 1e16F, 1e16F);
  for (const float sum : c)
    ASSERT_FLOAT_EQ(sum, 4096 * 1e32F);
  for (const auto& [x, y] : {std::pair{1e-37F, 1e37F}, std::pair{1e37F, -1e-37F}}) {  // no bit is lost either
    convolve(x, y, 0);
    EXPECT_EQ(c[0], x * y);
  }
}

constexpr passes::Word kWords[] = {passes::Word::fp32, passes::Word::int32, passes::Word::eight_bytes};

TEST(Walsh, ConvolutionsOnADevicePutEachBitIntoOnePass) {
  for (const passes::Word word : kWords) {
    for (const std::int64_t shared : {std::int64_t{101376}, std::int64_t{232448}}) {
      const int largest = largest_convolved_log_n(word, shared);
      EXPECT_LE(2 * passes::row_tile(word, largest, false).shared_bytes(), shared);
      EXPECT_TRUE(passes::is_one_pass(word, largest, shared));
      for (int log_n = 1; log_n <= 30; ++log_n) {
        const ConvolutionPasses found = convolution_passes(word, log_n, shared);
        EXPECT_EQ(found.row_bits + found.above, log_n);
        EXPECT_GE(found.row_bits, 1);
        EXPECT_LE(found.row_bits, largest);
        EXPECT_EQ(found.above == 0, log_n <= largest);
        if (found.above == 0) continue;
        EXPECT_GE(found.above, passes::kFewestAxisBits);
        EXPECT_GE(found.row_bits, passes::axis_log_columns(word)) << "a line of neighbours";
        EXPECT_EQ(passes::axis_passes(word, found.above).count, log_n - largest <= 10 ? 1 : 2);
      }
    }
  }
}

/// The machine of convolve_in_passes on the host.
struct HostConvolution {
  Dtype dtype;
  ConvolutionPasses split;

  void columns(const std::byte* in, std::byte* out, std::int64_t vectors) const {
    Problem problem = make_problem(dtype, std::int64_t{1} << split.above, vectors << split.row_bits);
    problem.inner = std::int64_t{1} << split.row_bits;
    problem.set_row_stride(problem.block_elements());
    problem.scale = 1;
    problem.placement = in == out ? Placement::in_place : Placement::out_of_place;
    plan(cpu::variant, problem, this_device())->execute({in, out});
  }
  void columns_back(std::byte* data, std::int64_t vectors) const {
    columns(data, data, vectors);
    if (!is_integer(dtype)) return;
    auto* const values = reinterpret_cast<std::int64_t*>(data);
    std::int64_t remainders = 0;
    for (std::int64_t i = 0; i < vectors << (split.row_bits + split.above); ++i) {
      remainders |= values[i] & ((std::int64_t{1} << split.above) - 1);
      values[i] >>= split.above;
    }
    EXPECT_EQ(remainders, 0);
  }
  void rows(const std::byte* a, const std::byte* b, std::byte* out, std::int64_t count) const {
    dyadic_convolution(dtype, std::int64_t{1} << split.row_bits, count, a, b == nullptr ? a : b, out);
    if (is_integer(dtype)) return;
    auto* const values = reinterpret_cast<double*>(out);
    std::for_each_n(values, count << split.row_bits, [&](double& x) { x = std::ldexp(x, -split.above); });
  }
};

// Several vectors together and the rest of them, into another buffer, into a, and into b.
TEST(Walsh, ConvolutionsByRowsOfTransformedColumnsAreConvolutions) {
  constexpr int kLogN = 17;
  constexpr std::int64_t kVectors = 19, kElements = kVectors << kLogN;
  ASSERT_EQ(convolved_together(Dtype::i64, kLogN, kVectors), 16);
  ASSERT_EQ(convolved_together(Dtype::i64, kLogN, 3), 3);
  ASSERT_EQ(convolved_together(Dtype::f32, 30, 2), 1);
  std::mt19937 random(11);
  std::vector<std::int64_t> a(static_cast<std::size_t>(kElements)), b(a.size()), want(a.size()),
      own(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<std::int64_t>(random() % 19) - 9;
    b[i] = static_cast<std::int64_t>(random() % 19) - 9;
  }
  dyadic_convolution(Dtype::i64, 1 << kLogN, kVectors, a.data(), b.data(), want.data());
  dyadic_convolution(Dtype::i64, 1 << kLogN, kVectors, a.data(), a.data(), own.data());
  for (const ConvolutionPasses split : {ConvolutionPasses{12, 5}, ConvolutionPasses{3, 14}}) {
    HostConvolution machine{Dtype::i64, split};
    for (const int into : {0, 1, 2, 3}) {
      std::vector<std::int64_t> x = a, y = b, z(a.size()), workspace(std::size_t{16} << kLogN);
      std::vector<std::int64_t>& out = into == 1 ? x : into == 2 ? y : z;
      convolve_in_passes(split, Dtype::i64, kVectors, reinterpret_cast<const std::byte*>(x.data()),
                         into == 3 ? nullptr : reinterpret_cast<const std::byte*>(y.data()),
                         reinterpret_cast<std::byte*>(out.data()),
                         reinterpret_cast<std::byte*>(workspace.data()), machine);
      EXPECT_TRUE(out == (into == 3 ? own : want)) << split.row_bits << " bits of rows, into " << into;
    }
  }
  std::vector<double> p(1 << kLogN), q(p.size()), r(p.size()), workspace(p.size());
  std::copy_n(a.begin(), p.size(), p.begin());
  std::copy_n(b.begin(), q.size(), q.begin());
  HostConvolution machine{Dtype::f64, {12, 5}};
  convolve_in_passes(machine.split, Dtype::f64, 1, reinterpret_cast<const std::byte*>(p.data()),
                     reinterpret_cast<const std::byte*>(q.data()), reinterpret_cast<std::byte*>(r.data()),
                     reinterpret_cast<std::byte*>(workspace.data()), machine);
  EXPECT_TRUE(std::equal(r.begin(), r.end(), want.begin())) << "all sums fit 53 bits";
}

/// What the kernel of rows does, thread after thread between barriers, by the functions that it uses.
class ConvolvedTile {
 public:
  ConvolvedTile(passes::Word word, int log_n)
      : tile_(passes::row_tile(word, log_n, false)),
        log_n_(log_n),
        x_(static_cast<std::size_t>(tile_.threads())) {}

  std::vector<std::int64_t> of(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
    Words first = loaded(a), second = loaded(b);
    const int last = tile_.rounds() - 1;
    transform(first);
    move(last, true, first);
    transform(second);
    each(last, [&](std::int64_t& x, std::size_t word) { x *= first.at(word); });
    if (last == 2) butterflies(tile_.upper().first_new_bit(1), 5);
    move(last, true, second);
    move(0, false, second);
    butterflies(0, log_n_);
    move(0, true, second);
    move(1, false, second);
    butterflies(0, log_n_ - 5);
    std::vector<std::int64_t> result(a.size());
    for (int thread = 0; thread < tile_.threads(); ++thread) {
      for (int k = 0; k < 32; ++k) {
        const int element = tile_.element(1, thread, 0) + tile_.element(1, 0, k);
        result.at(static_cast<std::size_t>(element)) =
            x_[static_cast<std::size_t>(thread)][static_cast<std::size_t>(k)] >> log_n_;
      }
    }
    return result;
  }

 private:
  using Words = std::vector<std::int64_t>;

  Words loaded(const std::vector<std::int64_t>& from) const {
    Words words(from.size());
    for (std::size_t i = 0; i < from.size(); ++i)
      words.at(static_cast<std::size_t>(tile_.word(static_cast<int>(i)))) = from[i];
    return words;
  }
  template <class Body>
  void each(int round, const Body& body) {
    for (int thread = 0; thread < tile_.threads(); ++thread) {
      for (int k = 0; k < 32; ++k) {
        body(x_[static_cast<std::size_t>(thread)][static_cast<std::size_t>(k)],
             static_cast<std::size_t>(tile_.word(tile_.element(round, thread, 0)) ^
                                      tile_.word(tile_.element(round, 0, k))));
      }
    }
  }
  void move(int round, bool stores, Words& shared) {
    each(round, [&](std::int64_t& x, std::size_t word) {
      (stores ? shared.at(word) : x) = stores ? x : shared.at(word);
    });
  }
  void butterflies(int first, int end) {
    for (auto& of_thread : x_) {
      for (int bit = first; bit < std::min(end, 5); ++bit) {
        for (std::size_t k = 0; k < 32; ++k) {
          if ((k >> bit & 1) != 0) continue;
          const std::int64_t a = of_thread[k], b = of_thread[k | std::size_t{1} << bit];
          of_thread[k] = a + b, of_thread[k | std::size_t{1} << bit] = a - b;
        }
      }
    }
  }
  void transform(Words& shared) {
    move(0, false, shared);
    butterflies(0, log_n_);
    move(0, true, shared);
    move(1, false, shared);
    butterflies(0, log_n_ - 5);
    if (tile_.rounds() == 2) return;
    move(1, true, shared);
    move(2, false, shared);
    butterflies(tile_.upper().first_new_bit(1), 5);
  }

  passes::RowTile tile_;
  int log_n_;
  std::vector<std::array<std::int64_t, 32>> x_;
};

TEST(Walsh, TheRoundsOfAConvolvedTileAreConvolutions) {
  std::mt19937 random(12);
  for (const passes::Word word : {passes::Word::fp32, passes::Word::eight_bytes}) {
    for (int log_n = 1; log_n <= largest_convolved_log_n(word, 232448); ++log_n) {
      const int elements = std::max(log_n, passes::kSmallestRowTile);
      std::vector<std::int64_t> a(std::size_t{1} << elements), b(a.size()), want(a.size());
      for (std::size_t i = 0; i < a.size(); ++i) {
        a[i] = static_cast<std::int64_t>(random() % 19) - 9;
        b[i] = static_cast<std::int64_t>(random() % 19) - 9;
      }
      dyadic_convolution(Dtype::i64, std::int64_t{1} << log_n, std::int64_t{1} << (elements - log_n),
                         a.data(), b.data(), want.data());
      EXPECT_TRUE(ConvolvedTile(word, log_n).of(a, b) == want) << "2^" << log_n;
    }
  }
}

TEST(Walsh, RandomSignsAreThoseOfPython) {
  EXPECT_EQ(random_signs(32, 0), (std::vector<std::uint32_t>{0x6627e8d5}));  // Philox4x32-10 of zeros
  EXPECT_EQ(random_signs(5, 0), (std::vector<std::uint32_t>{0x6627e8d5 & 31}));
  EXPECT_EQ(random_signs(1000, 7).size(), 32U);
  EXPECT_NE(random_signs(1000, 7), random_signs(1000, 8));
}

TEST(Walsh, RandomRowsAreDistinctAndEvenlySpread) {
  std::vector<int> hits(16);
  constexpr int kSeeds = 4000;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::vector<std::int64_t> rows = random_rows(16, 4, seed);
    ASSERT_TRUE(std::is_sorted(rows.begin(), rows.end()));
    ASSERT_EQ(std::adjacent_find(rows.begin(), rows.end()), rows.end());
    for (const std::int64_t row : rows)
      ++hits[static_cast<std::size_t>(row)];
  }
  // A row is among them with probability 1/4: a deviation of 6 sigma has odds of 2e-9.
  for (const int count : hits)
    EXPECT_NEAR(count, kSeeds * 0.25, 6 * std::sqrt(kSeeds * 3.0 / 16));
  std::vector<std::int64_t> all(16);
  for (std::size_t i = 0; i < 16; ++i)
    all[i] = static_cast<std::int64_t>(i);
  EXPECT_EQ(random_rows(16, 16, 1), all);
  // Draws of another implementation: few of all rows, then a large share.
  EXPECT_EQ(random_rows(64, 5, 7), (std::vector<std::int64_t>{2, 10, 31, 43, 54}));
  EXPECT_EQ(random_rows(20, 9, 7), (std::vector<std::int64_t>{3, 6, 8, 9, 11, 13, 14, 17, 19}));
  EXPECT_EQ(random_rows(std::int64_t{1} << 40, 2, 7),
            (std::vector<std::int64_t>{188825055102, 934407487715}));
  EXPECT_EQ(refusal([] { random_rows(16, 17, 1); }), "count=17 must be between 0 and n=16");
  EXPECT_EQ(refusal([] { random_rows(-16, 0, 1); }), "n=-16 must not be negative");
}

TEST(Walsh, RoundsAndSketchesAreTheirMatrices) {
  constexpr std::int64_t kN = 64;
  const std::vector<std::uint32_t> signs[3] = {random_signs(kN, 1), random_signs(kN, 2), random_signs(kN, 3)};
  const void* const all[3] = {signs[0].data(), signs[1].data(), signs[2].data()};
  std::mt19937 random(9);
  std::vector<double> x(2 * kN), y(x.size());
  for (double& each : x)
    each = static_cast<double>(random() % 199) - 99.0;
  rounds(Dtype::f64, kN, 2, all, x.data(), y.data());
  std::vector<double> expected = x;
  const auto times_matrix = [&](const std::vector<std::uint32_t>& by) {
    std::vector<double> next(expected.size());
    for (std::size_t i = 0; i < next.size(); ++i) {
      for (std::uint64_t j = 0; j < kN; ++j) {
        const double sign = sign_is_negative(by.data(), static_cast<std::int64_t>(j)) ? -1.0 : 1.0;
        next[i] += hadamard_sign(i % kN, j) * sign * expected[i / kN * kN + j] / 8;
      }
    }
    expected = next;
  };
  for (const auto& each : signs)
    times_matrix(each);
  for (std::size_t i = 0; i < y.size(); ++i)
    EXPECT_NEAR(y[i], expected[i], 1e-11);

  constexpr std::int64_t kLength = 50, kRows = 20;
  const Sketch asked{kLength, kRows, 4};
  EXPECT_EQ(asked.padded(), kN);
  std::vector<double> sketched(2 * kRows);
  sketch(asked, Dtype::f64, 2, x.data(), sketched.data());
  expected.assign(2 * kN, 0.0);
  for (std::size_t i = 0; i < 2 * kLength; ++i)
    expected[i / kLength * kN + i % kLength] = x[i];
  times_matrix(random_signs(kN, 4));
  const std::vector<std::int64_t> rows = random_rows(kN, kRows, 4);
  for (std::size_t i = 0; i < sketched.size(); ++i)
    EXPECT_NEAR(sketched[i],
                std::sqrt(64.0 / 20) * expected[i / kRows * kN + static_cast<std::size_t>(rows[i % kRows])],
                1e-11);
  EXPECT_NE(refusal([&] {
              sketch({50, 65, 1}, Dtype::f64, 1, x.data(), y.data());
            }).find("rows=65 must be between 1 and 64"),
            std::string::npos);
  EXPECT_THROW(sketch({50, 20, 1}, Dtype::bf16, 1, x.data(), y.data()), BadRequest);
  EXPECT_THROW(rounds(Dtype::f64, kN, 1, {}, x.data(), y.data()), BadRequest);
  for (const Dtype integer : {Dtype::i32, Dtype::i64})
    EXPECT_EQ(refusal([&] { rounds(integer, kN, 1, all, x.data(), y.data()); }),
              concat("dtype ", name_of(integer), " must be f32, f64, f16 or bf16 for rounds"));
}

TEST(Walsh, NoRoundIsDoneBeforeTheSignsOfAllAreFound) {
  std::array<float, 64> x;
  x.fill(1.0F);
  const std::array<float, 64> before = x;
  const std::vector<std::uint32_t> good = random_signs(64, 1);
  const std::vector<float> y(64);
  const auto said = [&](const void* second) {
    const void* const signs[] = {good.data(), second};
    return refusal([&] { rounds(Dtype::f32, 64, 1, signs, x.data(), x.data()); });
  };
  EXPECT_EQ(said(nullptr), "signs[1] is a null pointer");
  EXPECT_TRUE(said(x.data() + 63).ends_with("overlap"));
  EXPECT_EQ(x, before);
  EXPECT_EQ(said(y.data()), "nothing");

  alignas(16) std::array<float, 8> scales{};
  std::array<std::uint8_t, 64> codes{};
  for (const int bits : {1, 8}) {
    for (const void* const place :
         {static_cast<const void*>(scales.data()), static_cast<const void*>(codes.data())}) {
      const void* const signs[] = {place, good.data()};
      EXPECT_TRUE(refusal([&] {
                    rounds_to_codes(64, 1, signs, x.data(), bits, codes.data(), scales.data());
                  }).ends_with("overlap"));
    }
  }
}

TEST(Walsh, StartsNoMoreThreadsThanTheLimitAndTheWork) {
  const auto threads_started_by = [](const auto& call) {
    const int before = threads_started;
    call();
    return threads_started - before;
  };
  ASSERT_EQ(threads_started_by([] { std::thread([] {}).join(); }), 1) << "threads are not counted here";
  set_host_threads(1);
  const std::int64_t n = 64, rows = 1 << 12;
  const std::vector<float> x(static_cast<std::size_t>(n * rows), 1.0F);
  std::vector<std::uint8_t> codes(x.size() / 8);
  struct alignas(16) Scale4 {
    float of[4];
  };
  std::vector<Scale4> scales(static_cast<std::size_t>(rows / 4));
  const std::vector<std::uint32_t> signs = random_signs(n, 1);
  const void* const of_round[] = {signs.data()};
  EXPECT_EQ(threads_started_by(
                [&] { rounds_to_codes(n, rows, of_round, x.data(), 1, codes.data(), scales.front().of, 8); }),
            0);
  set_host_threads(0);
  EXPECT_EQ(threads_started_by(
                [&] { rounds_to_codes(n, 64, of_round, x.data(), 1, codes.data(), scales.front().of, 8); }),
            0)
      << "of 4096 elements";
}

constexpr std::int64_t kSharedOfBlocks[] = {101376, 232448};

TEST(Walsh, SketchesOnADevicePutEachBitIntoOnePass) {
  for (const passes::Word word : {passes::Word::fp32, passes::Word::eight_bytes}) {
    const int number = word == passes::Word::eight_bytes ? 8 : 4;
    for (const std::int64_t shared : kSharedOfBlocks) {
      for (int log_n = 1; log_n <= 30; ++log_n) {
        SCOPED_TRACE(concat("2^", log_n, " of ", number, " bytes"));
        const SketchPasses found = sketch_passes(word, log_n, shared);
        EXPECT_EQ(found.row + found.middle + found.last, log_n);
        EXPECT_EQ(found.last == 0, log_n <= 14 && passes::is_one_pass(word, log_n, shared));
        if (found.last == 0) continue;
        EXPECT_TRUE(std::set<int>({9, 10, 12, 13}).contains(found.row)) << "the kernels there are";
        if (found.row == 9) {
          EXPECT_EQ(number, 8);
        }
        EXPECT_EQ(found.middle == 0, log_n <= 22);
        const passes::PassTile source = sketch_source_tile(word, found.row);
        EXPECT_EQ(source.levels(), found.row);
        EXPECT_EQ(source.width(), 1);
        const int threads = sketch_source_threads(source), tiles = threads / source.threads();
        EXPECT_LE(threads, 1024);
        EXPECT_EQ((std::int64_t{1} << (log_n - found.row)) % tiles, 0) << "blocks are full";
        EXPECT_LE(tiles * source.shared_bytes(), shared);
        for (const int bits : {found.middle, found.last}) {
          if (bits == 0) continue;
          EXPECT_GE(bits, passes::kFewestAxisBits);
          EXPECT_LE(bits, kMostSketchedBits);
          const passes::PassTile sink = sketch_sink_tile(word, bits);
          EXPECT_LE(sink.threads(), 1024);
          EXPECT_EQ(sink.width(), 1);
          EXPECT_LE(sink.shared_bytes(), shared);
          EXPECT_GE(log_n, sink.log_elements());
        }
      }
    }
  }
}

TEST(Walsh, TheTableOfASketchTellsSignsAndPlaces) {
  for (const std::int64_t length : {1, 2, 3, 31, 33, 1000, 4096}) {
    const Sketch whole{length, 1, 9};
    const std::int64_t n = whole.padded();
    for (const std::int64_t rows : {std::int64_t{1}, (n + 1) / 2, n}) {
      const std::vector<std::uint32_t> words = sketch_table({length, rows, 9});
      ASSERT_EQ(static_cast<std::int64_t>(words.size()), 3 * sketch_words(n));
      const SketchTable table = sketch_table_at(words.data(), n);
      const std::vector<std::uint32_t> signs = random_signs(n, 9);
      EXPECT_TRUE(std::equal(signs.begin(), signs.end(), table.signs));
      const ChosenElements<const float> side{nullptr, static_cast<int>(rows), table};
      std::vector<std::int64_t> chosen;
      for (int j = 0; j < n; ++j) {
        const SketchPlace place = side.place(side.word(j), j);
        if (!place.exists) continue;
        EXPECT_EQ(place.offset, static_cast<int>(chosen.size()));
        chosen.push_back(j);
      }
      EXPECT_EQ(chosen, random_rows(n, rows, 9));
    }
  }
}

/// What the kernels of sketches do, thread after thread between barriers, by the functions that they use.
template <class Number>
class HostSketch {
 public:
  HostSketch(passes::Word word, SketchPasses split) : word_(word), split_(split) {}

  void whole(const SketchedVectors& work) {
    with_sides(work, [&](const auto& source, const auto& sink) { whole(work, source, sink); });
  }
  void source(const SketchedVectors& work, int row_bits, void* sums) {
    with_sides(work, [&](const auto& source, const auto&) {
      const passes::PassTile tile = sketch_source_tile(word_, row_bits);
      for (std::int64_t index = 0; index < work.vectors << (work.log_n - row_bits); ++index) {
        const std::int64_t vector = index >> (work.log_n - row_bits);
        const auto element = [&](int round, int thread, int k) {
          return sketch_source_element(tile, index, work.log_n, round, thread, k);
        };
        rounds_of(
            tile,
            [&](int thread, int k) {
              const int j = element(0, thread, k);
              const auto word = source.word(j);
              const SketchPlace place = source.place(word, j);
              return place.exists ? source.with_sign(word, j, vector_of(source, vector)[place.offset])
                                  : Number(0);
            },
            [&](int round, int thread, int k, Number x) {
              static_cast<Number*>(sums)[(vector << work.log_n) + element(round, thread, k)] = x;
            });
      }
    });
  }
  void middle(std::int64_t vectors, void* sums) {
    columns_passed_ = true;
    Problem problem = make_problem(sizeof(Number) == 8 ? Dtype::f64 : Dtype::f32,
                                   std::int64_t{1} << split_.middle, vectors << (split_.row + split_.last));
    problem.inner = std::int64_t{1} << split_.row;
    problem.set_row_stride(problem.block_elements());
    problem.scale = 1.0;
    plan(cpu::variant, problem, this_device())->execute({sums, sums});
  }
  void sink(const SketchedVectors& work, int bits, const void* sums) {
    with_sides(work, [&](const auto&, const auto& sink) {
      const passes::PassTile tile = sketch_sink_tile(word_, bits);
      const int log_tiles = work.log_n - tile.log_elements();
      for (std::int64_t index = 0; index < work.vectors << log_tiles; ++index) {
        const std::int64_t vector = index >> log_tiles;
        const auto element = [&](int round, int thread, int k) {
          return sketch_sink_element(tile, index, work.log_n, round, thread, k);
        };
        rounds_of(
            tile,
            [&](int thread, int k) {
              return static_cast<const Number*>(sums)[(vector << work.log_n) + element(0, thread, k)];
            },
            [&](int round, int thread, int k, Number x) {
              store_padded(sink, vector, element(round, thread, k), x * static_cast<Number>(work.scale));
            });
      }
    });
  }
  bool columns_passed() const { return columns_passed_; }

 private:
  template <class Do>
  static void with_sides(const SketchedVectors& work, const Do& act) {
    const auto* const in = static_cast<const Number*>(work.in);
    auto* const out = static_cast<Number*>(work.out);
    if (work.transposed) {
      act(ChosenElements<const Number>{in, static_cast<int>(work.rows), work.table},
          SignedElements<Number>{out, static_cast<int>(work.length), work.table});
    } else {
      act(SignedElements<const Number>{in, static_cast<int>(work.length), work.table},
          ChosenElements<Number>{out, static_cast<int>(work.rows), work.table});
    }
  }

  template <class Sink>
  static void store_padded(const Sink& sink, std::int64_t vector, int j, Number x) {
    const auto word = sink.word(j);
    const SketchPlace place = sink.place(word, j);
    if (place.exists) vector_of(sink, vector)[place.offset] = sink.with_sign(word, j, x);
  }

  using Registers = std::vector<std::array<Number, 32>>;

  static void butterflies(Registers& x, int registers, int first_bit, int end = 31) {
    for (auto& of_thread : x) {
      for (int bit = first_bit; 1 << bit < registers && bit < end; ++bit) {
        for (int k = 0; k < registers; ++k) {
          if ((k >> bit & 1) != 0) continue;
          Number& low = of_thread[static_cast<std::size_t>(k)];
          Number& high = of_thread[static_cast<std::size_t>(k | 1 << bit)];
          const Number a = low, b = high;
          low = a + b, high = a - b;
        }
      }
    }
  }

  /// transform_loaded between loads and stores.
  template <class Load, class Store>
  static void rounds_of(const passes::PassTile& tile, const Load& load, const Store& store) {
    const int registers = tile.registers();
    Registers x(static_cast<std::size_t>(tile.threads()));
    const auto each = [&](const auto& act) {
      for (int thread = 0; thread < tile.threads(); ++thread) {
        for (int k = 0; k < registers; ++k)
          act(thread, k, x[static_cast<std::size_t>(thread)][static_cast<std::size_t>(k)]);
      }
    };
    each([&](int thread, int k, Number& of) { of = load(thread, k); });
    for (int bit = 0; tile.whole_row && bit < tile.log_columns; ++bit) {
      const Registers before = x;
      each([&](int thread, int k, Number& of) {
        const Number other = before[static_cast<std::size_t>(thread ^ 1 << bit)][static_cast<std::size_t>(k)];
        of = (thread >> bit & 1) != 0 ? other - of : of + other;
      });
    }
    butterflies(x, registers, tile.first_new_bit(0));
    for (int round = 1; round < tile.rounds(); ++round) {
      std::vector<Number> shared(static_cast<std::size_t>(tile.shared_words()));
      const auto word = [&](int of_round, int thread, int k) {
        return static_cast<std::size_t>(tile.word(
            tile.first_row(of_round, thread) + (k << tile.low_bit(of_round)), tile.column_of(thread)));
      };
      each([&](int thread, int k, Number& of) { shared[word(round - 1, thread, k)] = of; });
      each([&](int thread, int k, Number& of) { of = shared[word(round, thread, k)]; });
      butterflies(x, registers, tile.first_new_bit(round));
    }
    each([&](int thread, int k, Number& of) { store(tile.rounds() - 1, thread, k, of); });
  }

  /// The kernel sketched_rows.
  template <class Source, class Sink>
  void whole(const SketchedVectors& work, const Source& source, const Sink& sink) const {
    const passes::RowTile tile = passes::row_tile(word_, work.log_n, false);
    const int log_n = work.log_n, in_vector = (1 << log_n) - 1, last = tile.rounds() - 1;
    const std::int64_t of_block = std::int64_t{1} << (tile.log_elements - log_n);
    for (std::int64_t first = 0; first < work.vectors; first += of_block) {
      std::vector<Number> shared(std::size_t{1} << tile.log_elements,
                                 std::numeric_limits<Number>::quiet_NaN());
      Registers x(static_cast<std::size_t>(tile.threads()));
      const auto each = [&](const auto& act) {
        for (int thread = 0; thread < tile.threads(); ++thread) {
          for (int k = 0; k < 32; ++k)
            act(thread, k, x[static_cast<std::size_t>(thread)][static_cast<std::size_t>(k)]);
        }
      };
      const auto at = [&](int round, int thread, int k) -> Number& {
        return shared[static_cast<std::size_t>(tile.word(tile.element(round, thread, k)))];
      };
      each([&](int thread, int i, Number&) {
        const int element = tile.loaded(thread, i, 0);
        const std::int64_t vector = first + (element >> log_n);
        const int j = element & in_vector;
        const SketchPlace place = source.place(source.word(j), j);
        shared[static_cast<std::size_t>(tile.word(element))] =
            place.exists && vector < work.vectors ? vector_of(source, vector)[place.offset] : Number(0);
      });
      each([&](int thread, int k, Number& of) {
        of = source.with_sign(source.word(thread << 5 & in_vector), k & in_vector, at(0, thread, k));
      });
      butterflies(x, 32, 0, log_n);
      for (int round = 1; round <= last; ++round) {
        each([&](int thread, int k, Number& of) { at(round - 1, thread, k) = of; });
        each([&](int thread, int k, Number& of) { of = at(round, thread, k); });
        if (round == 1) {
          butterflies(x, 32, 0, log_n - 5);
        } else {
          butterflies(x, 32, tile.upper().first_new_bit(1));
        }
      }
      each([&](int thread, int k, Number& of) {
        const int element = tile.element(last, thread, k);
        const std::int64_t vector = first + (element >> log_n);
        if (vector < work.vectors)
          store_padded(sink, vector, element & in_vector, of * static_cast<Number>(work.scale));
      });
    }
  }

  passes::Word word_;
  SketchPasses split_;
  bool columns_passed_ = false;
};

/// The chain that a sketch, or its transpose, replaces: copies, an exact transform, copies.
template <class Number>
std::vector<Number> sketched_by_copies(const Sketch& asked, bool transposed, std::int64_t vectors,
                                       const std::vector<Number>& x) {
  const std::int64_t n = asked.padded();
  const std::vector<std::uint32_t> signs = random_signs(n, asked.seed);
  const std::vector<std::int64_t> rows = random_rows(n, asked.rows, asked.seed);
  const auto sign = [&](std::int64_t j) { return sign_is_negative(signs.data(), j) ? -1 : 1; };
  std::vector<std::int64_t> padded(static_cast<std::size_t>(vectors * n));
  auto from = x.begin();
  for (std::int64_t v = 0; v < vectors; ++v) {
    for (std::int64_t i = 0; i < (transposed ? asked.rows : asked.length); ++i) {
      const std::int64_t j = transposed ? rows[static_cast<std::size_t>(i)] : i;
      padded[static_cast<std::size_t>(v * n + j)] =
          static_cast<std::int64_t>(*from++) * (transposed ? 1 : sign(j));
    }
  }
  Problem problem = make_problem(Dtype::i64, n, vectors);
  problem.scale = 1.0;
  plan(cpu::variant, problem, this_device())->execute({padded.data(), padded.data()});
  std::vector<Number> y;
  for (std::int64_t v = 0; v < vectors; ++v) {
    for (std::int64_t i = 0; i < (transposed ? asked.length : asked.rows); ++i) {
      const std::int64_t j = transposed ? i : rows[static_cast<std::size_t>(i)];
      y.push_back(
          static_cast<Number>(padded[static_cast<std::size_t>(v * n + j)] * (transposed ? sign(j) : 1)));
    }
  }
  return y;
}

/// Integers of at most 3, whose sums are exact in both types up to 2^22.
template <class Number>
void expect_the_chain(passes::Word word, const Sketch& asked, const SketchPasses& split, std::int64_t vectors,
                      unsigned seed) {
  const std::int64_t n = asked.padded();
  const std::vector<std::uint32_t> words = sketch_table(asked);
  std::mt19937 random(seed);
  for (const bool transposed : {false, true}) {
    std::vector<Number> x(static_cast<std::size_t>(vectors * (transposed ? asked.rows : asked.length)));
    for (Number& each : x)
      each = static_cast<Number>(static_cast<int>(random() % 7) - 3);
    // Behind the results nothing may be written.
    const auto count = static_cast<std::size_t>(vectors * (transposed ? asked.length : asked.rows));
    std::vector<Number> y(count + 7, std::numeric_limits<Number>::quiet_NaN());
    const Dtype dtype = sizeof(Number) == 8 ? Dtype::f64 : Dtype::f32;
    std::vector<Number> sums;
    if (split.last > 0)
      sums.assign(static_cast<std::size_t>(n * convolved_together(dtype, log2_floor(n), vectors)),
                  std::numeric_limits<Number>::quiet_NaN());
    const SketchedVectors work{.dtype = dtype,
                               .log_n = log2_floor(n),
                               .length = asked.length,
                               .rows = asked.rows,
                               .vectors = vectors,
                               .transposed = transposed,
                               .table = sketch_table_at(words.data(), n),
                               .in = x.data(),
                               .out = y.data(),
                               .scale = 0.5};
    HostSketch<Number> machine(word, split);
    sketch_in_passes(split, work, sums.data(), machine);
    EXPECT_EQ(machine.columns_passed(), split.middle > 0);
    std::vector<Number> want = sketched_by_copies(asked, transposed, vectors, x);
    for (Number& each : want)
      each *= Number(0.5);
    ASSERT_EQ(want.size(), count);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), y.begin()))
        << vectors << " of " << asked.length << " in 2^" << log2_floor(n) << ", " << asked.rows << " rows, "
        << sizeof(Number) << " bytes, by rows of 2^" << split.row << (transposed ? ", transposed" : "");
    EXPECT_TRUE(std::all_of(y.begin() + static_cast<std::ptrdiff_t>(count), y.end(),
                            [](Number each) { return std::isnan(each); }));
  }
}

TEST(Walsh, SketchesByTheTilesOfADeviceAreTheChain) {
  const auto check = [](std::int64_t length, std::int64_t rows, std::int64_t vectors) {
    const Sketch asked{length, rows, static_cast<std::uint64_t>(length + 3 * rows)};
    const int log_n = log2_floor(asked.padded());
    SketchPasses known[2]{};
    for (int i = 0; i < 2; ++i) {
      const SketchPasses narrow = sketch_passes(passes::Word::fp32, log_n, kSharedOfBlocks[i]);
      const SketchPasses wide = sketch_passes(passes::Word::eight_bytes, log_n, kSharedOfBlocks[i]);
      if (i == 0 || narrow != known[0])
        expect_the_chain<float>(passes::Word::fp32, asked, narrow, vectors, static_cast<unsigned>(rows));
      if (i == 0 || wide != known[1])
        expect_the_chain<double>(passes::Word::eight_bytes, asked, wide, vectors,
                                 static_cast<unsigned>(rows));
      known[0] = narrow, known[1] = wide;
    }
  };
  for (int log_n = 1; log_n <= 20; ++log_n) {
    const std::int64_t n = std::int64_t{1} << log_n;
    const std::int64_t vectors = log_n <= 11   ? (std::int64_t{1} << std::max(10 - log_n, 0)) + 1
                                 : log_n <= 16 ? 2
                                               : 1;
    // A length of up to n / 2 has another padded length, but for 1, whose is 2.
    std::set<std::int64_t> lengths{n / 2 + 1, n - 1, n};
    if (log_n == 1) lengths = {1, 2};
    std::erase_if(lengths, [&](std::int64_t length) { return Sketch{length, 1, 0}.padded() != n; });
    for (const std::int64_t length : lengths) {
      for (const std::int64_t rows : std::set<std::int64_t>{1, std::min<std::int64_t>(n, 37), n}) {
        if (log_n > 16 && length != n - 1 && rows != 37) continue;
        check(length, rows, vectors);
      }
    }
  }
  // More vectors than go through the passes together, and three passes as vectors of 2^23 have them.
  ASSERT_EQ(convolved_together(Dtype::f32, 16, 70), 64);
  expect_the_chain<float>(passes::Word::fp32, {65000, 500, 3}, {10, 0, 6}, 70, 5);
  expect_the_chain<float>(passes::Word::fp32, {(1 << 20) - 5, 5000, 3}, {10, 5, 5}, 2, 6);
  expect_the_chain<double>(passes::Word::eight_bytes, {(1 << 20) - 5, 5000, 3}, {10, 5, 5}, 2, 7);
}

TEST(Walsh, SketchesOnADeviceRefuseWhatTheyCannotUse) {
  alignas(16) float x[64] = {};
  const auto said = [&](const Sketch& asked, Dtype dtype, std::int64_t vectors, const void* table,
                        const void* in, void* out) {
    return refusal(
        [&] { sketch_on_device(asked, false, dtype, vectors, table, in, out, nullptr, 0, nullptr, 0); });
  };
  EXPECT_EQ(said({0, 1, 1}, Dtype::f32, 1, x, x, x), "length=0 must be between 1 and 1073741824");
  EXPECT_EQ(said({5, 9, 1}, Dtype::f32, 1, x, x, x), "rows=9 must be between 1 and 8, the padded length");
  EXPECT_EQ(said({5, 0, 1}, Dtype::f32, 1, x, x, x), "rows=0 must be between 1 and 8, the padded length");
  EXPECT_EQ(said({5, 2, 1}, Dtype::f16, 1, x, x, x), "dtype f16 must be f32 or f64 for sketches");
  EXPECT_NE(said({5, 2, 1}, Dtype::f32, -1, x, x, x).find("vectors=-1 must be at least 0"),
            std::string::npos);
  EXPECT_EQ(said({5, 2, 1}, Dtype::f32, 1, nullptr, x, x), "table is a null pointer");
  EXPECT_NE(said({5, 2, 1}, Dtype::f32, 1, x + 1, x, x).find("must be aligned to 8 bytes"),
            std::string::npos);
  EXPECT_EQ(said({5, 2, 1}, Dtype::f32, 1, x, nullptr, x), "in is a null pointer");
  EXPECT_EQ(said({5, 2, 1}, Dtype::f32, 1, x, x, nullptr), "out is a null pointer");
  EXPECT_EQ(said({5, 2, 1}, Dtype::f32, 0, nullptr, nullptr, nullptr), "nothing");
  EXPECT_NE(refusal([&] { sketch_table({5, 9, 1}); }).find("rows=9"), std::string::npos);
}

// The tiles are those of the lowest passes of `passes`, whose test transforms them.
TEST(Walsh, OnADeviceALaneLoadsTheWordOfTheRegisterThatAllLanesNeed) {
  for (int variables = kFewestVariablesInPasses; variables <= kMostVariables; ++variables) {
    const passes::PassTile tile = function_tile(function_row_bits(variables));
    const int above = variables - function_row_bits(variables);
    ASSERT_EQ(tile.levels(), function_row_bits(variables));
    ASSERT_EQ(tile.low_bit(0), 0);
    for (int thread = 0; thread < tile.threads(); ++thread) {
      const int warp = thread & ~31;
      EXPECT_EQ(tile.column_of(thread), thread & 31) << "a row is a word, and a lane its bit";
      for (int k = 0; k < 32; ++k)
        EXPECT_EQ(tile.first_row(0, warp + k) + k, tile.first_row(0, thread) + k);
    }
    const passes::AxisPasses rest = passes::axis_passes(passes::Word::int32, above);
    int bits = 0;
    for (int i = 0; i < rest.count; ++i) {
      const int of_pass = rest.tiles[static_cast<std::size_t>(i)].bits;
      EXPECT_TRUE(of_pass >= passes::kFewestAxisBits && of_pass <= passes::kMostAxisBits) << variables;
      bits += of_pass;
    }
    EXPECT_EQ(bits, above);
    EXPECT_LE(rest.count, 2);
    EXPECT_LE(tile.shared_bytes(), 48 * 1024) << "without asking";
    const int tiles = std::max(tile.threads(), 128) / tile.threads();
    EXPECT_EQ((std::int64_t{1} << above) % tiles, 0) << "whole blocks";
  }
}

TEST(Walsh, SummariesOfFunctionsAreThoseOfTheirSpectra) {
  for (const int k : {1, 3, 5, 7, 12, 16}) {
    const std::int64_t n = std::int64_t{1} << k, functions = (std::int64_t{1} << 20) / n + 3;
    std::vector<std::int8_t> bits = random_bits(functions * n, static_cast<unsigned>(k));
    std::vector<std::int32_t> w(bits.size());
    spectrum(FunctionForm::bits, bits.data(), k, functions, w.data());
    std::vector<SpectrumSummary> found(static_cast<std::size_t>(functions));
    summarize(FunctionForm::bits, bits.data(), k, functions, found.data());
    for (std::int64_t i = 0; i < functions; ++i) {
      const SpectrumSummary want = summarize(w.data() + i * n, k), &got = found[static_cast<std::size_t>(i)];
      ASSERT_EQ(std::tuple(got.largest, got.place, got.nonlinearity, got.sum_of_squares),
                std::tuple(want.largest, want.place, want.nonlinearity, want.sum_of_squares));
      ASSERT_EQ(got.sum_of_squares, static_cast<std::uint64_t>(n * n));
    }
    bits[static_cast<std::size_t>(functions * n - 1)] = 5;
    EXPECT_EQ(refusal([&] { summarize(FunctionForm::bits, bits.data(), k, functions, found.data()); }),
              concat("element ", functions * n - 1,
                     " is 5, but the form bits has 0 and 1; 1 and -1 are the form signs"));
  }
}

TEST(Walsh, LargestOfAFunctionAreThoseOfItsSpectrum) {
  const std::vector<std::int8_t> bits = random_bits(1 << 10, 4);
  std::vector<std::int32_t> w(bits.size());
  spectrum(FunctionForm::bits, bits.data(), 10, 1, w.data());
  EXPECT_EQ(largest(FunctionForm::bits, bits.data(), 10, 50), largest(w.data(), 10, 50));
  EXPECT_EQ(refusal([&] { largest(FunctionForm::bits, bits.data(), 10, 1025); }),
            "count=1025 must be between 1 and 1024");
  for (int variables = 8; variables <= kMostVariables; ++variables) {
    const std::int64_t bytes = largest_workspace_bytes(variables, kMostLargest),
                       spectrum = std::int64_t{4} << variables;
    EXPECT_GE(bytes, spectrum);
    EXPECT_LE(bytes, spectrum + spectrum / (variables < kFewestVariablesInPasses ? 0.5 : 512) + (1 << 20));
    // A tile has as many as may be asked for, and its number follows from a place in it.
    if (variables < kFewestVariablesInPasses) continue;
    const int last = summary_passes(variables).last, shift = variables - last;
    const passes::PassTile tile = summed_tile(last);
    EXPECT_GE(1 << tile.log_elements(), kMostLargest);
    for (std::int64_t index = 0; index < largest_numbers(variables); index += 1 + index / 3) {
      const std::int64_t place =
          tile.first_element(index, shift) + tile.columns() - 1 + (std::int64_t{3} << shift);
      EXPECT_EQ((place & ((std::int64_t{1} << shift) - 1)) >> tile.log_columns, index);
    }
  }
  EXPECT_EQ(refusal([&] { largest_workspace_bytes(20, 257); }), "count=257 must be between 1 and 256");
}

// What short_functions relies on: in the first round a thread has neighbours, which are a word of packed
// values; of up to 5 variables whole functions. In the last one of 2^10 values lanes are the lowest bits, and
// a function's registers follow each other. A thread's places ascend, so that it keeps the first of equal
// ones.
TEST(Walsh, OnADeviceAShortFunctionIsARowThatABlockHolds) {
  for (int variables = 1; variables < kFewestVariablesInPasses; ++variables) {
    const passes::RowTile tile = passes::row_tile(passes::Word::int32, variables, false);
    const int last = tile.rounds() - 1;
    std::set<int> seen;
    for (int thread = 0; thread < tile.threads(); ++thread) {
      for (int k = 0; k < 32; ++k) {
        EXPECT_EQ(tile.element(0, thread, k), 32 * thread + k);
        const int element = tile.element(last, thread, 0) + tile.element(last, 0, k);
        seen.insert(element);
        if (last == 1) {
          EXPECT_EQ(element, k << 5 | thread);
        }
        if (k > 0) {
          EXPECT_GT(tile.element(last, 0, k), tile.element(last, 0, k - 1));
        }
      }
    }
    EXPECT_EQ(seen.size(), std::size_t{1} << tile.log_elements);
    EXPECT_EQ(last == 1, variables <= passes::kSmallestRowTile);
  }
}

TEST(Walsh, TheLastPassOfASummaryHasTheHighestBits) {
  for (int variables = kFewestVariablesInPasses; variables <= kMostVariables; ++variables) {
    const SummaryPasses above = summary_passes(variables);
    EXPECT_EQ(function_row_bits(variables) + above.middle + above.last, variables);
    EXPECT_TRUE(above.middle == 0 || above.middle >= passes::kFewestAxisBits);
    EXPECT_TRUE(above.last >= passes::kFewestAxisBits && above.last <= passes::kMostAxisBits);
    const passes::PassTile tile = summed_tile(above.last);
    const int last = tile.rounds() - 1;
    for (int k = 1; k < 32; ++k)
      EXPECT_GT(k << tile.low_bit(last), (k - 1) << tile.low_bit(last)) << "places ascend";
    EXPECT_EQ(summary_workspace_bytes(variables, 1), std::int64_t{4} << variables);
    EXPECT_EQ(summary_workspace_bytes(variables, 1 << 20), std::int64_t{4} << std::max(variables, 22));
  }
  EXPECT_EQ(summary_workspace_bytes(14, 1000), 0);
}

// The steps of the kernel rounded_rows, on the registers of 32 lanes, in fp64.
void expect_rounds_of_tile(const RoundsTile& tile) {
  constexpr int kCount = 3;
  const std::int64_t n = tile.n(), rows = tile.rows();
  std::vector<std::uint32_t> signs;
  const void* of_round[kCount];
  for (int round = 0; round < kCount; ++round) {
    const std::vector<std::uint32_t> more = random_signs(n, static_cast<std::uint64_t>(round));
    signs.insert(signs.end(), more.begin(), more.end());
  }
  for (int round = 0; round < kCount; ++round)
    of_round[round] = signs.data() + round * n / 32;
  std::mt19937 random(static_cast<unsigned>(n));
  std::vector<double> data(static_cast<std::size_t>(rows * n)), want(data.size()), got(data.size(), 77);
  for (double& each : data)
    each = std::uniform_real_distribution<>(-1, 1)(random);
  rounds(Dtype::f64, n, rows, of_round, data.data(), want.data());

  const int registers = tile.registers(), columns = 1 << tile.register_bits;
  ASSERT_EQ(registers * 32, rows * n);
  std::vector<double> x(data.size());
  const auto at = [&](int lane, int k) -> double& {
    return x[static_cast<std::size_t>(lane * registers + k)];
  };
  const auto each = [&](const auto& act) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int k = 0; k < registers; ++k)
        act(lane, k);
    }
  };
  const auto element = [&](int lane, int k) {
    return static_cast<std::size_t>(tile.row(lane, k) * n + tile.place(lane, k));
  };
  each([&](int lane, int k) {
    at(lane, k) = data[element(lane, k)];
    const int first = k & -(1 << tile.vector_bits);
    EXPECT_EQ(element(lane, first) % (std::size_t{1} << tile.vector_bits), 0U);
    EXPECT_EQ(element(lane, k), element(lane, first) + static_cast<std::size_t>(k - first)) << "one vector";
    EXPECT_EQ(tile.row(lane, k), tile.row(lane, k / tile.registers_of_row() * tile.registers_of_row()));
  });
  for (int round = 0; round < kCount; ++round) {
    each([&](int lane, int k) {
      const std::uint32_t word = tile.sign_word(signs.data() + round * n / 32, k / 32, lane);
      at(lane, k) *= ((word >> k % 32 & 1) != 0 ? -1 : 1) / std::sqrt(static_cast<double>(n));
    });
    const auto butterflies = [&](int lanes, int half) {
      each([&](int lane, int k) {
        if ((lane & lanes) != 0 || (k & half) != 0) return;
        double &a = at(lane, k), &b = at(lane | lanes, k | half);
        const double sum = a + b;
        b = a - b, a = sum;
      });
    };
    for (int bit = 0; bit < tile.register_bits; ++bit)
      butterflies(0, 1 << bit);
    for (int bit = 0; bit < tile.lane_bits; ++bit)
      butterflies(1 << bit, 0);
    if (tile.order == 1) continue;
    for (int lane = 0; lane < 32; ++lane) {
      for (int c = 0; c < columns; ++c) {
        std::vector<double> p, q;
        for (int i = 0; i < tile.order; i += 2) {
          const double even = at(lane, i * columns + c), odd = at(lane, (i + 1) * columns + c);
          p.push_back(even + odd), q.push_back(even - odd);
        }
        for (std::size_t i = 0; i < p.size(); ++i) {
          double upper = q[i], lower = -p[i];
          for (std::size_t j = 0; j < p.size(); ++j) {
            const int entry = conference_entry(tile.order / 2, static_cast<int>(i), static_cast<int>(j));
            upper += entry * p[j], lower += entry * q[j];
          }
          at(lane, 2 * static_cast<int>(i) * columns + c) = upper;
          at(lane, (2 * static_cast<int>(i) + 1) * columns + c) = lower;
        }
      }
    }
  }
  each([&](int lane, int k) { got[element(lane, k)] = at(lane, k); });
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 1e-12) << n << ", " << (1 << tile.vector_bits) << " a vector, element " << i;
}

TEST(Walsh, TheRoundsOfATileAreThoseOfItsRows) {
  int tiles = 0;
  for (std::int64_t n = 1; n <= 5000; ++n) {
    const std::optional<RoundsTile> tile = find_rounds_tile(Dtype::f32, n);
    EXPECT_EQ(tile.has_value(), find_rounds_tile(Dtype::bf16, n).has_value());
    if (!tile) continue;
    ++tiles;
    EXPECT_EQ(tile->n(), n);
    const Operator op = operator_for(n);
    EXPECT_EQ(op.factors().front().order, tile->order == 1 ? n : tile->order);
    EXPECT_FALSE(op.factors().front().transposed);
    expect_rounds_of_tile(*tile);
    expect_rounds_of_tile(*find_rounds_tile(Dtype::bf16, n));
  }
  EXPECT_EQ(tiles, 7 + 6 + 5 + 5 + 4);  // of the orders 1, 12, 20, 28 and 36
}

TEST(Walsh, ConferenceMatricesMakeTheHadamardMatricesOfRounds) {
  for (const int order : kRoundedOrders) {
    EXPECT_TRUE(has_symmetric_hadamard_matrix(order)) << "transposed rounds take the same kernel";
    for (int i = 0; i < order; ++i) {
      for (int j = 0; j < order; ++j) {
        const int entry = conference_entry(order / 2, i / 2, j / 2);
        const int of_block = entry != 0           ? entry * (i % 2 * (j % 2) != 0 ? -1 : 1)
                             : i % 2 + j % 2 == 0 ? 1
                                                  : -1;
        EXPECT_EQ(of_block, hadamard_entry(order, i, j)) << order << ": " << i << ", " << j;
      }
    }
  }
}

TEST(Walsh, CodesOfRoundsFollowTheirDefinition) {
  for (const std::int64_t n : {8, 64, 96, 100, 1536}) {
    for (const int count : {1, 3}) {
      const std::int64_t rows = 5;
      const auto size = static_cast<std::size_t>(rows * n);
      std::vector<std::vector<std::uint32_t>> signs;
      std::vector<const void*> of_round;
      for (int round = 0; round < count; ++round)
        signs.push_back(random_signs(n, static_cast<std::uint64_t>(round)));
      for (const auto& each : signs)
        of_round.push_back(each.data());
      std::mt19937 random(static_cast<unsigned>(n));
      std::vector<float> x(size), y(size);
      for (std::size_t i = 0; i < size; ++i)
        x[i] = i / static_cast<std::size_t>(n) == 2 ? 0.0F : std::normal_distribution<float>()(random);
      rounds(Dtype::f32, n, rows, of_round, x.data(), y.data());
      for (const int bits : {1, 4, 8}) {
        if (n * bits % 8 != 0) continue;
        std::vector<std::uint8_t> codes(size * static_cast<std::size_t>(bits) / 8, 0xA5);
        alignas(16) float scales[5];
        rounds_to_codes(n, rows, of_round, x.data(), bits, codes.data(), scales);
        expect_codes(y.data(), n, rows, bits, codes.data(), scales);
        std::vector<std::uint8_t> shifted(codes.size() + 1);
        const std::string said =
            refusal([&] { rounds_to_codes(n, rows, of_round, x.data(), bits, shifted.data() + 1, scales); });
        if (bits == 1) {
          EXPECT_TRUE(std::equal(codes.begin(), codes.end(), shifted.begin() + 1));
        } else {
          EXPECT_TRUE(said.starts_with("codes=") && said.find(" must be aligned to 4 bytes") != said.npos)
              << said;
        }
      }
      if (n == 100) {
        EXPECT_EQ(refusal([&] { rounds_to_codes(n, rows, of_round, x.data(), 1, y.data(), y.data()); }),
                  "n=100 must be a multiple of 8: codes of 1 bits fill bytes");
      }
      EXPECT_EQ(refusal([&] { rounds_to_codes(n, rows, of_round, x.data(), 2, y.data(), y.data()); }),
                "bits=2 must be 1, 4 or 8");
    }
  }
}

TEST(Walsh, RoundsOnADeviceRefuseBeforeAnyLaunch) {
  alignas(16) std::byte x[512], y[512];
  alignas(16) std::uint32_t signs[4]{};
  const auto said = [&](Dtype dtype, std::int64_t n, std::int64_t rows, int count, const void* of_rounds,
                        const void* in, void* out) {
    return refusal([&] { rounds_on_device(dtype, n, rows, false, count, of_rounds, in, out, nullptr, 0); });
  };
  for (const std::int64_t n : {0, 32, 80, 4608, 8192}) {
    EXPECT_EQ(
        said(Dtype::f32, n, 1, 1, signs, x, y),
        concat("n=", n,
               " must be m 2^k between 64 and 4096 for rounds on a device, m 1, or 12, 20, 28 or 36 and k "
               "at least 3"));
  }
  EXPECT_EQ(said(Dtype::f64, 64, 1, 1, signs, x, y),
            "dtype f64 must be f32, f16 or bf16 for rounds on a device");
  EXPECT_TRUE(said(Dtype::f32, 64, -1, 1, signs, x, y).starts_with("rows=-1 must be at least 0"));
  EXPECT_EQ(said(Dtype::f32, 64, 1, 0, signs, x, y), "count=0 must be at least 1");
  EXPECT_EQ(said(Dtype::f32, 64, 1, 9, signs, x, y), "count=9 must be at most 8");
  EXPECT_EQ(said(Dtype::f32, 64, 1, 1, nullptr, x, y), "signs is a null pointer");
  EXPECT_EQ(said(Dtype::f32, 64, 1, 1, signs, nullptr, y), "in is a null pointer");
  EXPECT_EQ(said(Dtype::f32, 64, 1, 1, signs, x, nullptr), "out is a null pointer");
  EXPECT_TRUE(said(Dtype::f16, 64, 1, 1, signs, x + 8, y).ends_with("must be aligned to 16 bytes"));
  EXPECT_TRUE(said(Dtype::f16, 64, 1, 1, signs, x, x + 16).ends_with("overlap"));
  EXPECT_TRUE(said(Dtype::f16, 64, 1, 1, x + 16, y, x).ends_with("overlap"));
  const auto said_of_codes = [&](int bits, const void* in, void* codes, void* scales) {
    return refusal([&] {
      rounds_to_codes_on_device(64, 1, 1, signs, in, bits, codes, static_cast<float*>(scales), nullptr, 0);
    });
  };
  EXPECT_EQ(said_of_codes(2, x, y, y + 64), "bits=2 must be 1, 4 or 8");
  EXPECT_EQ(said_of_codes(8, x, y, nullptr), "scales is a null pointer");
  EXPECT_TRUE(said_of_codes(8, x, y, y + 72).ends_with("must be aligned to 16 bytes"));
  EXPECT_TRUE(said_of_codes(8, x, y, y + 48).ends_with("overlap"));
  EXPECT_TRUE(said_of_codes(4, x, x + 16, y).ends_with("overlap"));
}

TEST(Walsh, OnADeviceRefusesBeforeAnyLaunch) {
  alignas(4) std::uint8_t values[8]{};
  std::int32_t sums[1]{};
  const auto said = [&](FunctionForm form, const void* in, int variables, std::int32_t* out) {
    return refusal([&] { spectrum_on_device(form, in, variables, 1, out, nullptr, 0); });
  };
  EXPECT_EQ(said(FunctionForm::packed, values, 2, sums), "variables=2 must be between 3 and 30");
  EXPECT_EQ(said(FunctionForm::bits, values, 31, sums), "variables=31 must be between 1 and 30");
  EXPECT_EQ(said(FunctionForm::packed, nullptr, 16, sums), "values is a null pointer");
  EXPECT_EQ(said(FunctionForm::bits, values, 16, nullptr), "spectra is a null pointer");
  EXPECT_TRUE(said(FunctionForm::packed, values + 1, 16, sums).ends_with("must be aligned to 4 bytes"));
  EXPECT_TRUE(said(static_cast<FunctionForm>(7), values, 16, sums).starts_with("form 7 is unknown"));
  EXPECT_TRUE(
      said(FunctionForm::bits, values, 1, reinterpret_cast<std::int32_t*>(values)).ends_with("overlap"));
  alignas(256) std::byte room[4096]{};
  auto* const summaries = reinterpret_cast<SpectrumSummary*>(room);
  EXPECT_TRUE(refusal([&] {
                summarize_on_device(FunctionForm::bits, room, 3, 1, summaries, nullptr, 0, nullptr, 0);
              }).ends_with("overlap"));
  const std::int64_t needed = largest_workspace_bytes(3, 2);
  ASSERT_LE(needed, 4096);
  EXPECT_TRUE(refusal([&] {
                largest_on_device(FunctionForm::bits, values, 3, 2, reinterpret_cast<std::int64_t*>(room),
                                  sums, room, needed, nullptr, 0);
              }).ends_with("overlap"));
}

// A host function that wrote over what it has not read yet would be wrong without a word.
TEST(Walsh, OnTheHostRefusesOperandsThatOverlap) {
  alignas(16) std::array<float, 512> x{};
  auto* const bytes = reinterpret_cast<std::uint8_t*>(x.data());
  const auto overlaps = [](const auto& call) { return refusal(call).ends_with("overlap"); };
  const Sketch nine{.length = 9, .rows = 16};
  EXPECT_TRUE(overlaps([&] { sketch(nine, Dtype::f32, 8, x.data(), x.data()); }));
  EXPECT_TRUE(overlaps([&] { sketch(nine, Dtype::f32, 8, x.data(), x.data() + 71); }));
  EXPECT_EQ(refusal([&] { sketch(nine, Dtype::f32, 8, x.data(), x.data() + 72); }), "nothing");
  EXPECT_TRUE(overlaps([&] { dyadic_convolution(Dtype::f32, 16, 8, x.data(), x.data(), x.data() + 20); }));
  EXPECT_EQ(refusal([&] { dyadic_convolution(Dtype::f32, 16, 8, x.data(), x.data(), x.data()); }), "nothing");
  EXPECT_TRUE(overlaps(
      [&] { spectrum(FunctionForm::packed, bytes, 8, 1, reinterpret_cast<std::int32_t*>(bytes + 28)); }));
  EXPECT_TRUE(overlaps(
      [&] { summarize(FunctionForm::packed, bytes, 8, 1, reinterpret_cast<SpectrumSummary*>(bytes + 24)); }));
  const void* signs[] = {bytes + 1024};
  EXPECT_TRUE(overlaps([&] { rounds_to_codes(64, 2, signs, x.data(), 1, bytes + 500, x.data() + 400); }));
  EXPECT_TRUE(overlaps([&] { rounds_to_codes(64, 2, signs, x.data(), 8, bytes + 600, x.data() + 152); }));
}

TEST(Walsh, NoWorkspaceIsAskedForADeviceThatDoesNotExist) {
  constexpr int kNone = 4096;
  const std::string none = this_device(kNone).why_no_cuda;
  EXPECT_FALSE(none.empty());
  EXPECT_EQ(refusal([] { convolution_workspace_bytes(Dtype::f32, 1 << 20, 1, false, kNone); }), none);
  EXPECT_EQ(refusal([] { sketch_workspace_bytes({1 << 20, 64}, Dtype::f32, 1, kNone); }), none);
}

}  // namespace
}  // namespace fwht::walsh
