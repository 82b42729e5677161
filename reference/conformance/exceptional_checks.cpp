// NaN, infinities, overflow and subnormals: what IEEE 754 says about the direct sum, row by row, or the
// deviation that the plan declares, and then exactly that.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/host/bits.hpp"
#include "reference/conformance/checks.hpp"
#include "reference/emulation.hpp"

namespace fwht::conformance {
namespace {

using reference::InputClass;

constexpr std::uint64_t kSeed = 7;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Special {
  std::int64_t column;
  std::uint32_t bits;
};

/// Quiet, negative, signalling, all ones.
std::vector<std::uint32_t> nan_patterns(Dtype dtype) {
  const std::uint32_t infinity = encode(dtype, kInfinity);
  const std::uint32_t quiet = infinity | (1U << (format_of(dtype).precision - 2));
  return {quiet, quiet | sign_bit(dtype), infinity | 1U, sign_bit(dtype) | (sign_bit(dtype) - 1U)};
}

/// Enough rows that the blocks of 256 elements of a plan without row isolation hold whole rows on both sides.
std::int64_t rows_around(std::int64_t n) {
  return std::clamp<std::int64_t>(2048 / n, 7, 515) | 1;
}

/// Random rows, one of which gets exceptional values; the run without them is the reference for the others.
class Exceptional {
 public:
  Exceptional(ConformanceRun& session, std::int64_t n)
      : session_(session),
        problem_(make_problem(session.dtype(), n, rows_around(n))),
        plan_(session.plan(problem_)),
        numerics_(plan_->numerics()),
        input_(make_input(problem_, InputClass::normal, kSeed)),
        clean_(session.execute(*plan_, input_)) {}

  const Numerics& numerics() const { return numerics_; }

  /// Puts the values into the row, runs, and checks both that row and all others.
  void run(std::int64_t row, const std::vector<Special>& specials, const std::string& what) {
    Bytes dirty = input_;
    for (const Special& special : specials) {
      set_bits(problem_.dtype(), row_of(problem_, dirty, row).data(), special.column, special.bits);
    }
    const Bytes got = session_.execute(*plan_, dirty);
    expect_own_row(row, dirty, got, what);
    if (numerics_.promises.row_isolation) {
      for (std::int64_t other = 0; other < problem_.rows; ++other) {
        if (other == row) continue;
        session_.expect_same_row(problem_, clean_, other, problem_, got, other,
                                 fmt::format("{} in row {} reached another row", what, row));
      }
    } else {
      expect_declared_contamination(row, specials, got, what);
    }
    if (reference::has_emulation(numerics_)) {
      Bytes want = dirty;
      reference::emulate(problem_, numerics_, dirty.data(), want.data());
      session_.expect_exact(problem_, want, got, fmt::format("emulation with {} in row {}", what, row));
    }
  }

  std::int64_t rows() const { return problem_.rows; }

 private:
  // IEEE 754 on the direct sum, which the FP64 reference follows: NaN beats all, infinities of both signs
  // give NaN.
  void expect_own_row(std::int64_t row, const Bytes& dirty, const Bytes& got, const std::string& what) {
    const reference::Matrix expected = reference::expected(problem_, dirty.data(), row, 1);
    for (std::int64_t i = 0; i < problem_.n(); ++i) {
      const double want = expected(0, i),
                   have = load_element(problem_.dtype(), row_of(problem_, got, row).data(), i);
      const bool right = std::isnan(want)
                             ? std::isnan(have)
                             : have == want || (!numerics_.promises.infinity_exact && std::isnan(have));
      if (right) continue;
      return session_.fail(fmt::format("{}: {} in row {}: column {} is {}, not {}", to_string(problem_), what,
                                       row, i, have, want));
    }
  }

  // Without row isolation the exceptional value must reach other rows inside its block, and none outside.
  void expect_declared_contamination(std::int64_t row, const std::vector<Special>& specials, const Bytes& got,
                                     const std::string& what) {
    const std::int64_t span = numerics_.promises.isolation_span;
    std::int64_t contaminated = 0, exposed = 0;
    for (std::int64_t other = 0; other < problem_.rows; ++other) {
      if (other == row) continue;
      const bool in_block = std::any_of(specials.begin(), specials.end(), [&](const Special& special) {
        return (row * problem_.n() + special.column) / span == other * problem_.n() / span;
      });
      const std::span<const std::byte> found = row_of(problem_, got, other),
                                       clean = row_of(problem_, clean_, other);
      const bool same = std::equal(found.begin(), found.end(), clean.begin());
      exposed += in_block;
      contaminated += in_block && !same;
      if (!in_block && !same) {
        session_.expect_same_row(problem_, clean_, other, problem_, got, other,
                                 fmt::format("{} in row {} left its block of {} elements", what, row, span));
      }
    }
    if (exposed > 0 && contaminated == 0) {
      session_.fail(
          fmt::format("{}: {} in row {} reached none of the {} rows that share its block of {} elements, "
                      "although the plan declares row_isolation=false",
                      to_string(problem_), what, row, exposed, span));
    }
  }

  ConformanceRun& session_;
  Problem problem_;
  std::unique_ptr<Plan> plan_;
  Numerics numerics_;
  Bytes input_, clean_;
};

/// Judges the values as the storage type holds them, unless an intermediate leaves its declared range.
void judge_in_range(ConformanceRun& session, const Plan& plan, InputClass input_class,
                    const reference::Matrix& values, const std::string& what) {
  const Problem& problem = plan.problem();
  Bytes input = blank(problem);
  reference::store_rows(problem, values, input.data());
  if (!reference::intermediates_fit(plan.numerics(), problem, reference::load_rows(problem, input.data())))
    return session.skip("rows whose intermediates leave their range, as the plan declares");
  session.execute_and_judge(problem, input_class, input, what);
}

/// Rows +-amplitude times rows of H: every partial sum of every order is as large as it can be.
void walsh_amplitude_rows(ConformanceRun& session, std::int64_t n, double amplitude,
                          const std::string& what) {
  Problem problem = make_problem(session.dtype(), n, std::clamp<std::int64_t>(4096 / n, 3, 33));
  const std::unique_ptr<Plan> plan = session.plan(problem);
  reference::Matrix values(problem.rows, n);
  for (std::int64_t row = 0; row < problem.rows; ++row) {
    const auto index = static_cast<std::uint64_t>((5 * row + row * row) % n);
    for (std::int64_t j = 0; j < n; ++j) {
      values(row, j) =
          (row % 2 == 0 ? amplitude : -amplitude) * hadamard_sign(index, static_cast<std::uint64_t>(j));
    }
  }
  judge_in_range(session, *plan, InputClass::constant, values, what);
}

/// Sixteen equal leading values: sums of 16 are 16 times as large, whatever the scale does later.
void leading_sixteen(ConformanceRun& session, std::int64_t n, double value) {
  const Problem problem = make_problem(session.dtype(), n, 3);
  const std::unique_ptr<Plan> plan = session.plan(problem);
  reference::Matrix values = reference::Matrix::Zero(problem.rows, n);
  values.leftCols(std::min<std::int64_t>(n, 16)).setConstant(value);
  judge_in_range(session, *plan, InputClass::block_constant, values,
                 fmt::format("16 leading values of {}", value));
}

}  // namespace

// C1, C4, C5: one NaN makes its whole row NaN, whatever its payload, and touches no other row.
void nan_in_a_row(ConformanceRun& session) {
  for (const std::int64_t n : session.sizes()) {
    Exceptional exceptional(session, n);
    const std::int64_t rows[] = {1, exceptional.rows() / 2, 0, exceptional.rows() - 1};
    const std::int64_t columns[] = {0, n - 1, n / 2, (7 * n) / 11};
    const std::vector<std::uint32_t> patterns = nan_patterns(session.dtype());
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      exceptional.run(rows[i], {{columns[i], patterns[i]}},
                      fmt::format("NaN {:#x} at column {}", patterns[i], columns[i]));
    }
  }
}

// C2, C3: infinities travel with the signs of H; where they meet with both signs, NaN.
void infinities_in_a_row(ConformanceRun& session) {
  const std::uint32_t plus = encode(session.dtype(), kInfinity), minus = plus | sign_bit(session.dtype());
  for (const std::int64_t n : session.sizes()) {
    Exceptional exceptional(session, n);
    const std::int64_t middle = exceptional.rows() / 2, last = exceptional.rows() - 1, far = (7 * n) / 11;
    exceptional.run(middle, {{far, plus}}, "one +Inf");
    exceptional.run(1, {{0, minus}}, "one -Inf");
    exceptional.run(last, {{n - 1, plus}}, "one +Inf");
    exceptional.run(middle, {{0, plus}, {n - 1, plus}}, "two +Inf");
    exceptional.run(0, {{0, plus}, {n / 2, minus}}, "+Inf and -Inf");
    exceptional.run(middle, {{0, minus}, {n - 1, nan_patterns(session.dtype())[0]}}, "-Inf and NaN");
  }
}

// C6: rows behind the last one do not take part: 0 * NaN from a masked tail would show here.
void behind_the_last_row(ConformanceRun& session) {
  constexpr std::int64_t kBehind = 17;
  const Dtype dtype = session.dtype();
  for (const std::int64_t n : session.sizes()) {
    for (const std::int64_t rows : {1, 3, 6, 21}) {
      for (const Placement placement : {Placement::in_place, Placement::out_of_place}) {
        const Problem problem = make_problem(dtype, n, rows, placement);
        const Bytes input = make_input(problem, InputClass::normal, kSeed);
        Bytes first;
        for (const std::uint32_t filler : {0U, nan_patterns(dtype)[0], encode(dtype, kInfinity)}) {
          Bytes extended = blank(problem, kBehind);
          std::copy(input.begin(), input.end(), extended.begin());
          for (std::int64_t i = problem.elements(); i < problem.elements() + kBehind * n; ++i) {
            set_bits(dtype, extended.data(), i, filler);
          }
          const Bytes got = session.execute(problem, extended);
          if (first.empty()) first = got;
          session.expect_same_rows(problem, first, problem, got,
                                   fmt::format("with {:#x} behind the last row", filler));
        }
      }
    }
  }
}

// C7, C8: results beyond the range become infinities of the right sign, and nothing else does.
void overflow(ConformanceRun& session) {
  const double largest = format_of(session.dtype()).max_finite;
  for (const std::int64_t n : session.sizes()) {
    const double growth = orthonormal_scale(n) * static_cast<double>(n);  // of the result over the amplitude
    for (const double part : {0.5, 0.9, 0.98, 1.0, 1.02, 1.1, 1.3}) {
      walsh_amplitude_rows(session, n, round_to(session.dtype(), part * (largest / growth)),
                           fmt::format("results of {} times the largest finite number", part));
    }
    if (session.dtype() != Dtype::f16) continue;
    for (const double value : {4000.0, 16000.0, 16400.0, 32000.0})
      leading_sixteen(session, n, value);
  }
}

// C9: up to the declared growth of the intermediates every result is finite and right.
void near_the_range_limit(ConformanceRun& session) {
  const double largest = format_of(session.dtype()).max_finite;
  for (const std::int64_t n : session.sizes()) {
    const Problem problem = make_problem(session.dtype(), n, 1);
    const Promises promises = session.plan(problem)->numerics().promises;
    const double by_intermediates = promises.intermediate_limit / std::max(1.0, promises.intermediate_growth);
    const double by_result = largest / std::max(1.0, static_cast<double>(n) * problem.scale);
    const double amplitude = round_to(session.dtype(), 0.96 * std::min(by_intermediates, by_result));
    walsh_amplitude_rows(session, n, amplitude, "rows of H just inside the declared range");
  }
}

// C10, C11: subnormal inputs and results are kept, unless the plan declares that they are flushed to zero.
void subnormals(ConformanceRun& session) {
  const Dtype dtype = session.dtype();
  const double quantum = std::ldexp(1.0, format_of(dtype).min_exponent + 1 - format_of(dtype).precision);
  for (const std::int64_t n : session.sizes()) {
    const int log_n = log2_floor(n);
    for (const double scale : {orthonormal_scale(n), 1.0}) {
      const Problem problem = with_scale(make_problem(dtype, n, 9), scale);
      if (!session.supports(problem)) continue;
      const std::unique_ptr<Plan> plan = session.plan(problem);
      const Numerics numerics = plan->numerics();
      // Exact only where the scale is a power of two that no stored intermediate undershoots.
      if (scale == 1.0 ? numerics.roundings() > 1 : log_n % 2 != 0) continue;
      Bytes input(static_cast<std::size_t>(problem.span_bytes())), want = input;
      for (std::int64_t row = 0; row < problem.rows; ++row) {
        const double result = quantum * static_cast<double>(row % 2 == 0 ? row + 1 : -row - 1);
        const auto column = static_cast<std::uint64_t>((row * 0x9E3779B9) % n);
        store_element(dtype, row_of(problem, input, row).data(), static_cast<std::int64_t>(column),
                      result / scale);
        for (std::int64_t i = 0; i < n; ++i) {
          store_element(dtype, row_of(problem, want, row).data(), i,
                        result * hadamard_sign(static_cast<std::uint64_t>(i), column));
        }
      }
      const Bytes got = session.execute(*plan, input);
      if (!numerics.promises.flushes_subnormals) {
        session.expect_exact(problem, want, got, "one-hot rows with subnormal results");
        continue;
      }
      for (std::int64_t i = 0; i < problem.elements(); ++i) {
        const double have = load_element(dtype, got.data(), i);
        if (have == 0.0 || have == load_element(dtype, want.data(), i)) continue;
        session.fail(
            fmt::format("{}: element {} is {}, neither exact nor flushed", to_string(problem), i, have));
      }
    }
  }
}

}  // namespace fwht::conformance
