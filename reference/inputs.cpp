#include "reference/inputs.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "common/host/bits.hpp"
#include "common/host/names.hpp"
#include "common/host/parallel_for.hpp"
#include "reference/rounding.hpp"

namespace fwht::reference {
namespace {

constexpr Names<InputClass, kInputClassCount> kNames{"input class",
                                                     {{InputClass::normal, "normal"},
                                                      {InputClass::uniform, "uniform"},
                                                      {InputClass::laplace, "laplace"},
                                                      {InputClass::student3, "student3"},
                                                      {InputClass::fa3_mixture, "fa3_mixture"},
                                                      {InputClass::outlier_channels, "outlier_channels"},
                                                      {InputClass::subnormal, "subnormal"},
                                                      {InputClass::near_overflow, "near_overflow"},
                                                      {InputClass::massive_channel, "massive_channel"},
                                                      {InputClass::constant, "constant"},
                                                      {InputClass::ramp, "ramp"},
                                                      {InputClass::walsh_noise, "walsh_noise"},
                                                      {InputClass::block_constant, "block_constant"},
                                                      {InputClass::two_hot, "two_hot"},
                                                      {InputClass::alternating_max, "alternating_max"},
                                                      {InputClass::ties, "ties"},
                                                      {InputClass::one_hot, "one_hot"},
                                                      {InputClass::sign_sparse, "sign_sparse"},
                                                      {InputClass::integers, "integers"},
                                                      {InputClass::zero, "zero"},
                                                      {InputClass::sign_dense, "sign_dense"}}};

using Words = std::array<std::uint32_t, 4>;

/// The random words of one place: a pure function of (class, seed, row, index).
Words words_at(InputClass input, std::uint64_t seed, std::int64_t row, std::int64_t index) {
  const auto r = static_cast<std::uint64_t>(row), i = static_cast<std::uint64_t>(index);
  const std::uint64_t high = (static_cast<std::uint64_t>(input) << 24) | (i >> 32);
  return philox4x32({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(high),
                     static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(r >> 32)},
                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

// Row- and column-independent choices draw from indices that no element reaches.
constexpr std::int64_t kRowChoice = std::int64_t{1} << 50;
constexpr std::int64_t kAllRows = -1;

Words row_words(InputClass input, std::uint64_t seed, std::int64_t row) {
  return words_at(input, seed, row, kRowChoice);
}

/// Uniform in (0, 1): never 0, never 1.
double unit(std::uint32_t word) {
  return (static_cast<double>(word) + 0.5) * 0x1p-32;
}

/// Box-Muller: four independent N(0, 1) from four words.
std::array<double, 4> normals(const Words& w) {
  std::array<double, 4> z;
  for (int pair = 0; pair < 2; ++pair) {
    const double radius = std::sqrt(-2.0 * std::log(unit(w[2 * pair])));
    const double angle = 2.0 * std::numbers::pi * unit(w[2 * pair + 1]);
    z[2 * pair] = radius * std::cos(angle);
    z[2 * pair + 1] = radius * std::sin(angle);
  }
  return z;
}

/// Uniform in {0 .. bound-1}, bound <= 2^32.
std::int64_t below(std::uint32_t word, std::int64_t bound) {
  return static_cast<std::int64_t>((std::uint64_t{word} * static_cast<std::uint64_t>(bound)) >> 32);
}

double sign_of(std::uint32_t bit) {
  return bit & 1U ? -1.0 : 1.0;
}

/// Everything that the elements of one row share.
struct RowMaker {
  const Problem& problem;
  InputClass input;
  std::uint64_t seed;
  std::int64_t row;
  std::int64_t n = problem.n();
  Format format = format_of(problem.dtype());

  Words words(std::int64_t index) const { return words_at(input, seed, row, index); }
  Words choice() const { return row_words(input, seed, row); }
  Words choice_of_all_rows() const { return row_words(input, seed, kAllRows); }

  /// Four elements from one draw: element(words, k) for k = 0..3.
  template <class Element>
  void by_fours(double* out, const Element& element) const {
    for (std::int64_t i = 0; i < n; i += 4) {
      const auto four = element(words(i / 4));
      for (std::int64_t k = 0; k < std::min<std::int64_t>(4, n - i); ++k)
        out[i + k] = four[static_cast<std::size_t>(k)];
    }
  }

  /// One draw an element.
  template <class Element>
  void one_by_one(double* out, const Element& element) const {
    for (std::int64_t i = 0; i < n; ++i)
      out[i] = element(i, words(i));
  }

  void scaled_normals(double* out, double factor) const {
    by_fours(out, normals);
    for (std::int64_t i = 0; i < n; ++i)
      out[i] *= factor;
  }

  /// +-1 from the bits of a draw: 128 elements each.
  void signs(double* out) const {
    for (std::int64_t i = 0; i < n; i += 128) {
      const Words w = words(i / 128);
      for (std::int64_t k = 0; k < std::min<std::int64_t>(128, n - i); ++k) {
        out[i + k] = sign_of(w[static_cast<std::size_t>(k / 32)] >> (k % 32));
      }
    }
  }

  std::int64_t exact_sum() const { return std::int64_t{1} << std::min(format.precision, 62); }

  /// Exactly `count` columns of the row (n a power of two): an odd multiplier permutes the columns.
  template <class Body>
  void chosen_columns(std::int64_t count, const Body& body) const {
    const Words w = choice();
    const std::int64_t multiplier = is_power_of_two(n) ? std::int64_t{w[0] | 1U} : 1;
    for (std::int64_t k = 0; k < count; ++k)
      body((k * multiplier + w[1]) % n);
  }

  void outlier_channels(double* out) const {
    by_fours(out, normals);
    const std::int64_t count = std::min<std::int64_t>({8, std::max<std::int64_t>(1, n / 16), n});
    const std::int64_t first = below(choice_of_all_rows()[0], n);
    for (std::int64_t k = 0; k < count; ++k)
      out[(first + k * (n / count)) % n] *= 50.0;
  }

  void massive_channel(double* out) const {
    by_fours(out, normals);
    out[below(choice_of_all_rows()[0], n)] = 1000.0 * sign_of(choice()[0]);
  }

  /// Largest rms (12 sigma inside the range): of inputs, of the fp32 sums of bf16 and f32 data, of results.
  /// Storage of radix-2 stages grows by another sqrt2 on the way and still keeps 8 sigma.
  double near_overflow_rms() const {
    const double root = std::sqrt(static_cast<double>(n));
    const double sums = problem.dtype() == Dtype::f16 ? 1.0 : root;
    return format.max_finite / 12.0 / std::max({1.0, sums, root * std::fabs(problem.scale)});
  }

  /// The row is `amplitude` times Walsh row 1, the largest result n * amplitude * scale.
  double alternating_amplitude() const {
    const double order = static_cast<double>(n);
    const double sums = problem.dtype() == Dtype::f16 ? 1.0 : order;
    return 0.99 * format.max_finite / std::max({1.0, sums, order * std::fabs(problem.scale)});
  }

  void two_hot(double* out) const {
    std::fill_n(out, n, 0.0);
    const Words w = choice();
    const std::int64_t first = below(w[0], n);
    const std::int64_t second = (first + 1 + below(w[1], std::max<std::int64_t>(1, n - 1))) % n;
    out[first] = sign_of(w[2]) * (1.0 + unit(w[3]));
    const double size = row % 2 == 0 ? std::fabs(out[first]) : unit(w[3] ^ w[2]);
    if (second != first) out[second] = sign_of(w[2] >> 1) * size;
  }

  void walsh_noise(double* out) const {
    const auto walsh = static_cast<std::uint64_t>(below(choice()[0], n));
    const double step = 2.0 * format.unit_roundoff();
    one_by_one(out, [&](std::int64_t i, const Words& w) {
      return hadamard_sign(walsh, static_cast<std::uint64_t>(i)) *
             (1.0 + step * static_cast<double>(below(w[0], 3) - 1));
    });
  }

  /// 1 + 2 u k with k even in even and odd in odd columns: two neighbours add up to an odd multiple of half
  /// the spacing of [2, 4).
  void ties(double* out) const {
    const double step = 2.0 * format.unit_roundoff();
    const std::int64_t steps = std::min(exact_sum() / 8, std::int64_t{1} << 32);
    one_by_one(out, [&](std::int64_t i, const Words& w) {
      return 1.0 + step * static_cast<double>(2 * below(w[0], steps) + i % 2);
    });
  }

  void integers(double* out) const {
    if (n <= exact_sum()) {
      const std::int64_t largest = std::min<std::int64_t>(exact_sum() / n, 128);
      one_by_one(out, [&](std::int64_t, const Words& w) {
        return static_cast<double>(below(w[0], 2 * largest + 1) - largest);
      });
      return;
    }
    std::fill_n(out, n, 0.0);
    chosen_columns(exact_sum() / 4,
                   [&](std::int64_t i) { out[i] = static_cast<double>(below(words(i)[0], 9) - 4); });
  }

  void sparse_signs(double* out) const {
    std::fill_n(out, n, 0.0);
    chosen_columns(std::min(std::max<std::int64_t>(1, n / 2), exact_sum()),
                   [&](std::int64_t i) { out[i] = sign_of(words(i)[0]); });
  }

  void make(double* out) const;
  /// Integers are as large as their type allows, so that sums wrap; what is too large wraps as they do.
  void spread_over_integers(double* out) const {
    const double size = std::ldexp(1.0, format.precision - 3), range = std::ldexp(1.0, format.precision + 1);
    for (std::int64_t i = 0; i < n; ++i) {
      const double wrapped = std::remainder(std::nearbyint(out[i] * size), range);
      out[i] = wrapped == 0.5 * range ? -wrapped : wrapped;
    }
  }

  void make_and_round(double* out) const {
    make(out);
    if (is_integer(problem.dtype()) && !is_exact_integer(input)) spread_over_integers(out);
    for (std::int64_t i = 0; i < n; ++i)
      out[i] = round_fast(format, out[i]);
  }
};

double laplace(std::uint32_t word) {
  const double u = unit(word);
  return u < 0.5 ? std::log(2.0 * u) : -std::log(2.0 * (1.0 - u));
}

double student3(const Words& w) {
  const auto z = normals(w);
  return z[0] / std::sqrt((z[1] * z[1] + z[2] * z[2] + z[3] * z[3]) / 3.0);
}

double fa3_mixture(const Words& w) {
  const auto z = normals(w);
  // w[3] has no part in z[0] and z[1].
  return unit(w[3]) < 0.001 ? z[0] + 10.0 * z[1] : z[0];
}

void RowMaker::make(double* out) const {
  const auto draw = [&](auto function) {
    by_fours(out, [&](const Words& w) {
      return std::array{function(w[0]), function(w[1]), function(w[2]), function(w[3])};
    });
  };
  switch (input) {
    case InputClass::normal:
      return by_fours(out, normals);
    case InputClass::uniform:
      return draw([](std::uint32_t w) { return 2.0 * unit(w) - 1.0; });
    case InputClass::laplace:
      return draw(laplace);
    case InputClass::student3:
      return one_by_one(out, [](std::int64_t, const Words& w) { return student3(w); });
    case InputClass::fa3_mixture:
      return one_by_one(out, [](std::int64_t, const Words& w) { return fa3_mixture(w); });
    case InputClass::outlier_channels:
      return outlier_channels(out);
    case InputClass::subnormal:
      return scaled_normals(out, std::ldexp(1.0, format.min_exponent - 2));
    case InputClass::near_overflow:
      return scaled_normals(out, near_overflow_rms());
    case InputClass::massive_channel:
      return massive_channel(out);
    case InputClass::constant:
      return void(std::fill_n(out, n, 0.5 + 1.5 * unit(choice()[0])));
    case InputClass::ramp:
      for (std::int64_t i = 0; i < n; ++i)
        out[i] = static_cast<double>(i + 1) / static_cast<double>(n);
      return;
    case InputClass::walsh_noise:
      return walsh_noise(out);
    case InputClass::block_constant:
      std::fill_n(out, n, 0.0);
      std::fill_n(out, std::min<std::int64_t>(16, n), 0.5 + 1.5 * unit(choice()[0]));
      return;
    case InputClass::two_hot:
      return two_hot(out);
    case InputClass::alternating_max:
      for (std::int64_t i = 0; i < n; ++i)
        out[i] = (i % 2 == 0 ? 1.0 : -1.0) * alternating_amplitude();
      return;
    case InputClass::ties:
      return ties(out);
    case InputClass::one_hot: {
      std::fill_n(out, n, 0.0);
      const OneHot hot = one_hot_at(seed, row, n);
      out[hot.column] = hot.value;
      return;
    }
    case InputClass::sign_sparse:
      return sparse_signs(out);
    case InputClass::integers:
      return integers(out);
    case InputClass::zero:
      signs(out);
      for (std::int64_t i = 0; i < n; ++i)
        out[i] = std::copysign(0.0, out[i]);
      return;
    case InputClass::sign_dense:
      return signs(out);
  }
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0],
                        b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;  // golden ratio
    key[1] += 0xBB67AE85;  // sqrt(3) - 1
  }
  return counter;
}

std::span<const InputClass> all_input_classes() {
  static const std::array<InputClass, kInputClassCount> classes = [] {
    std::array<InputClass, kInputClassCount> list{};
    for (int i = 0; i < kInputClassCount; ++i)
      list[static_cast<std::size_t>(i)] = static_cast<InputClass>(i);
    return list;
  }();
  return classes;
}

std::string_view name_of(InputClass input) {
  return kNames.of(input);
}

InputClass parse_input_class(std::string_view text) {
  return kNames.parse(text);
}

bool is_smooth(InputClass input) {
  return input <= InputClass::near_overflow;
}

bool is_exact_integer(InputClass input) {
  return input >= InputClass::one_hot && input <= InputClass::zero;
}

OneHot one_hot_at(std::uint64_t seed, std::int64_t row, std::int64_t n) {
  const Words w = row_words(InputClass::one_hot, seed, row);
  return {below(w[0], n), static_cast<double>(1 + below(w[1], 8))};
}

Matrix generate(const Problem& problem, InputClass input, std::uint64_t seed, std::int64_t first_row,
                std::int64_t count, int threads) {
  const std::int64_t rows = count < 0 ? problem.rows - first_row : count;
  Matrix values(rows, problem.n());
  parallel_for(rows, threads_or_default(threads), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      RowMaker{problem, input, seed, first_row + r}.make_and_round(values.row(r).data());
    }
  });
  return values;
}

void write_input(const Problem& problem, InputClass input, std::uint64_t seed, void* data, int threads) {
  parallel_for(problem.rows, threads_or_default(threads), [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> row(static_cast<std::size_t>(problem.n()));
    for (std::int64_t r = begin; r < end; ++r) {
      RowMaker{problem, input, seed, r}.make_and_round(row.data());
      for (std::int64_t i = 0; i < problem.n(); ++i) {
        store_exact(problem.dtype(), data, r * problem.row_stride() + i, row[static_cast<std::size_t>(i)]);
      }
    }
  });
}

}  // namespace fwht::reference
