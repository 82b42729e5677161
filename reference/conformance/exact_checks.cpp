// Zero-tolerance checks: integer grids on which every partial sum is exact, bit-for-bit emulation of the
// declared arithmetic, and the symmetries of the transform that rounding to nearest and exact sums preserve
// bit for bit.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>

#include "common/host/bits.hpp"
#include "reference/conformance/checks.hpp"
#include "reference/emulation.hpp"

namespace fwht::conformance {
namespace {

using reference::InputClass;

constexpr std::uint64_t kSeed = 20240701;

/// Orthonormal in place, and, where the variant takes it, unscaled out of place.
std::vector<Problem> exact_problems(const ConformanceRun& session, std::int64_t n, std::int64_t rows) {
  std::vector<Problem> problems{make_problem(session.dtype(), n, rows)};
  const Problem unscaled = with_scale(out_of_place(problems.front()), 1.0);
  if (session.supports(unscaled)) problems.push_back(unscaled);
  return problems;
}

/// 0, 1, 2^b, 2^b - 1, n - 1 and some in between: every index bit alone and every carry chain.
std::vector<std::int64_t> telling_indices(std::int64_t n) {
  std::set<std::int64_t> indices{0, n - 1};
  for (std::int64_t bit = 1; bit < n; bit *= 2)
    indices.insert({bit, bit - 1});
  for (std::int64_t i = 1; i <= 8; ++i)
    indices.insert((i * 0x9E3779B9 + 12345) % n);
  return {indices.begin(), indices.end()};
}

std::vector<std::int64_t> all_indices(std::int64_t n) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    indices[static_cast<std::size_t>(i)] = i;
  return indices;
}

bool integers_are_exact(ConformanceRun& session, const Numerics& numerics) {
  return session.promised(numerics, &Promises::integer_exact, "exact integers");
}

/// Row r holds values[r mod 8] at columns[r]; the result is that column of H, times the constant.
void impulse_rows(ConformanceRun& session, Problem problem, std::span<const std::int64_t> columns) {
  constexpr double kValues[] = {1, -2, 3, 4, -5, 6, -7, 8};
  problem.rows = static_cast<std::int64_t>(columns.size());
  const Dtype dtype = session.dtype();
  const std::unique_ptr<Plan> plan = session.plan(problem);
  const Numerics numerics = plan->numerics();
  if (!integers_are_exact(session, numerics)) return;
  Bytes input(static_cast<std::size_t>(problem.span_bytes())), want = input;
  for (std::int64_t row = 0; row < problem.rows; ++row) {
    const auto column = static_cast<std::uint64_t>(columns[static_cast<std::size_t>(row)]);
    const double value = kValues[row % 8];
    store_element(dtype, row_of(problem, input, row).data(), static_cast<std::int64_t>(column), value);
    const std::uint64_t plus = bits_of(dtype, exact_result(numerics, problem, value)),
                        minus = negated(dtype, plus);
    std::byte* wanted = row_of(problem, want, row).data();
    for (std::int64_t i = 0; i < problem.n(); ++i) {
      set_bits(dtype, wanted, i, parity(static_cast<std::uint64_t>(i) & column) != 0 ? minus : plus);
    }
  }
  session.expect_exact(problem, want, session.execute(*plan, input),
                       fmt::format("one-hot rows from column {} on", columns.front()));
}

/// Largest |partial sum| of the butterflies, over ascending index bits; `row` becomes its transform.
std::int64_t integer_butterflies(std::vector<std::int64_t>& row) {
  std::int64_t largest = 0;
  const std::size_t n = row.size();
  for (std::size_t half = 1; half < n; half *= 2) {
    for (std::size_t i = 0; i < n; ++i) {
      if ((i & half) != 0) continue;
      const std::int64_t a = row[i], b = row[i | half];
      row[i] = a + b;
      row[i | half] = a - b;
      largest = std::max({largest, std::abs(row[i]), std::abs(row[i | half])});
    }
  }
  return largest;
}

void integer_rows_of(ConformanceRun& session, const Problem& problem, InputClass input_class,
                     std::uint64_t seed) {
  const std::unique_ptr<Plan> plan = session.plan(problem);
  const Numerics numerics = plan->numerics();
  if (!integers_are_exact(session, numerics)) return;
  const Dtype dtype = problem.dtype();
  const Bytes input = make_input(problem, input_class, seed);
  Bytes want = blank(problem);
  std::int64_t largest = 0;
  std::vector<std::int64_t> sums(static_cast<std::size_t>(problem.n()));
  for (std::int64_t row = 0; row < problem.rows; ++row) {
    for (std::int64_t i = 0; i < problem.n(); ++i) {
      sums[static_cast<std::size_t>(i)] =
          static_cast<std::int64_t>(load_element(dtype, row_of(problem, input, row).data(), i));
    }
    largest = std::max(largest, integer_butterflies(sums));
    for (std::int64_t i = 0; i < problem.n(); ++i) {
      store_element(dtype, row_of(problem, want, row).data(), i,
                    exact_result(numerics, problem, static_cast<double>(sums[static_cast<std::size_t>(i)])));
    }
  }
  // What passes through storage in between must fit the storage type exactly; what stays in fp32 needs 24
  // bits, and wider types have their own.
  const int stored = format_of(dtype).precision;
  const int exact_bits = numerics.roundings() == 1 ? std::clamp(stored, 24, 62) : stored;
  if (largest > std::int64_t{1} << exact_bits) {
    session.skip(fmt::format("{} rows whose partial sums need more than the {} bits that are exact",
                             reference::name_of(input_class), exact_bits));
    return;
  }
  session.expect_exact(problem, want, session.execute(*plan, input),
                       fmt::format("{} rows with seed {}", reference::name_of(input_class), seed));
}

/// 2^k of the Sylvester factor on the fastest index: XOR shifts and modulation by a < 2^k are symmetries of
/// the operator. 1 where there is no such factor, or where signs come between.
std::int64_t order_of_symmetry(const Operator& op) {
  const bool sylvester =
      !op.factors().empty() && op.factors().back().basis == Basis::sylvester && !op.has_signs();
  return sylvester ? op.factors().back().order : 1;
}

/// Rows: a base row, then the base row under each of `count` maps. Expects map k of the base result in row k
/// + 1.
using RowMap =
    std::function<void(std::int64_t map, std::span<const std::byte> from, std::span<std::byte> to)>;

void symmetry(ConformanceRun& session, std::int64_t n, std::int64_t count, const RowMap& map_input,
              const RowMap& map_output, const std::string& what, double stretch = 1.0) {
  for (const std::uint64_t seed : {kSeed, kSeed + 1}) {
    const Problem problem = make_problem(session.dtype(), n, count + 1);
    Bytes input = blank(problem);
    reference::Matrix base = reference::generate(problem, InputClass::normal, seed, 0, 1);
    if (stretch != 1.0) base = (base * stretch).array().round().matrix();
    reference::store_rows(problem, base, input.data());
    for (std::int64_t k = 0; k < count; ++k)
      map_input(k, row_of(problem, input, 0), row_of(problem, input, k + 1));
    const Bytes got = session.execute(problem, input);
    Bytes want = got;
    for (std::int64_t k = 0; k < count; ++k)
      map_output(k, row_of(problem, got, 0), row_of(problem, want, k + 1));
    session.expect_exact(problem, want, got, fmt::format("{} with seed {}", what, seed));
  }
}

/// to[i] = from[i xor shift], its sign flipped where parity(i & modulation) is odd.
void shift_and_modulate(Dtype dtype, std::int64_t shift, std::int64_t modulation_index,
                        std::span<const std::byte> from, std::span<std::byte> to) {
  const std::int64_t n = static_cast<std::int64_t>(from.size()) / bytes_of(dtype);
  for (std::int64_t i = 0; i < n; ++i) {
    const bool flip = parity(static_cast<std::uint64_t>(i & modulation_index)) != 0;
    const std::uint64_t bits = bits_at(dtype, from.data(), i ^ shift);
    set_bits(dtype, to.data(), i, flip ? negated(dtype, bits) : bits);
  }
}

/// Shifts of the input give modulations of the result, or the other way round.
void symmetry_over_bits(ConformanceRun& session, bool Promises::*promise, bool shifts_input,
                        const std::string& what) {
  for (const std::int64_t n : session.sizes()) {
    const std::unique_ptr<Plan> plan = session.plan(make_problem(session.dtype(), n, 1));
    if (!session.promised(plan->numerics(), promise, "exact " + what)) continue;
    const std::int64_t order = order_of_symmetry(plan->problem().op);
    if (order == 1) {
      session.skip("the operator has no Sylvester factor on its fastest index");
      continue;
    }
    const std::vector<std::int64_t> indices = telling_indices(order);
    const auto map = [&](bool shifts) {
      return [&, shifts](std::int64_t k, std::span<const std::byte> from, std::span<std::byte> to) {
        const std::int64_t index = indices[static_cast<std::size_t>(k)];
        shift_and_modulate(session.dtype(), shifts ? index : 0, shifts ? 0 : index, from, to);
      };
    };
    symmetry(session, n, static_cast<std::int64_t>(indices.size()), map(shifts_input), map(!shifts_input),
             what);
  }
}

}  // namespace

// A1. One-hot rows name every entry of H; all columns up to n = 4096. Values differ from row to row, so that
// rows that change places show. This also tells natural (Hadamard) order from sequency order.
void impulses(ConformanceRun& session) {
  constexpr std::int64_t kElementsAtOnce = std::int64_t{1} << 21;
  for (const std::int64_t n : session.sizes()) {
    bool all_columns = n <= 4096;
    for (const Problem& problem : exact_problems(session, n, 1)) {
      const std::vector<std::int64_t> columns = all_columns ? all_indices(n) : telling_indices(n);
      const auto at_once = static_cast<std::size_t>(std::max<std::int64_t>(kElementsAtOnce / n, 1));
      for (std::size_t first = 0; first < columns.size(); first += at_once) {
        impulse_rows(session, problem,
                     std::span(columns).subspan(first, std::min(at_once, columns.size() - first)));
      }
      all_columns =
          n <= 256;  // once is enough for the long ones; the unscaled problem looks at the telling columns
    }
  }
}

// A2. A row of H gives n times a one-hot row: all cancellation is exact.
void walsh_rows(ConformanceRun& session) {
  const Dtype dtype = session.dtype();
  for (const std::int64_t n : session.sizes()) {
    const std::vector<std::int64_t> indices = n <= 128 ? all_indices(n) : telling_indices(n);
    for (const Problem& problem : exact_problems(session, n, static_cast<std::int64_t>(indices.size()))) {
      const std::unique_ptr<Plan> plan = session.plan(problem);
      const Numerics numerics = plan->numerics();
      if (!integers_are_exact(session, numerics)) continue;
      Bytes input = blank(problem), want(input.size());
      for (std::int64_t row = 0; row < problem.rows; ++row) {
        const std::int64_t index = indices[static_cast<std::size_t>(row)];
        for (std::int64_t j = 0; j < n; ++j) {
          store_element(dtype, row_of(problem, input, row).data(), j,
                        hadamard_sign(static_cast<std::uint64_t>(index), static_cast<std::uint64_t>(j)));
        }
        store_element(dtype, row_of(problem, want, row).data(), index,
                      exact_result(numerics, problem, static_cast<double>(n)));
      }
      session.expect_exact(problem, want, session.execute(*plan, input), "rows of H");
    }
  }
}

// A3, A4, A5, A7. Integers against 64-bit integer arithmetic; for odd log2 n against the plan's constants.
void integer_rows(ConformanceRun& session) {
  for (const std::int64_t n : session.sizes()) {
    for (const Problem& problem : exact_problems(session, n, std::max<std::int64_t>(16384 / n, 2) + 1)) {
      for (const InputClass input_class :
           {InputClass::sign_sparse, InputClass::sign_dense, InputClass::integers, InputClass::one_hot}) {
        integer_rows_of(session, problem, input_class, kSeed);
      }
    }
  }
}

// A6. Nothing comes from nothing: +0 and -0 give zeros.
void zero_rows(ConformanceRun& session) {
  for (const std::int64_t n : session.sizes()) {
    for (const Problem& problem : exact_problems(session, n, 5)) {
      const Bytes input = make_input(problem, InputClass::zero, kSeed);
      session.expect_exact(problem, Bytes(input.size()), session.execute(problem, input), "zero rows");
    }
  }
}

// A8. The declared arithmetic, emulated on the host, reproduces every bit on random data. The strongest check
// there is: it leaves no room for a tolerance.
void emulation(ConformanceRun& session) {
  for (const std::int64_t n : session.sizes()) {
    for (const double scale : {default_scale(session.dtype(), n), 0.3}) {
      if (is_integer(session.dtype()) && scale != 1.0) continue;
      const Problem problem =
          with_scale(make_problem(session.dtype(), n, std::max<std::int64_t>(8192 / n, 2) + 1), scale);
      if (!session.supports(problem)) continue;
      const std::unique_ptr<Plan> plan = session.plan(problem);
      const Numerics numerics = plan->numerics();
      if (!reference::has_emulation(numerics, session.dtype())) {
        session.skip("no emulation of this arithmetic; the statistical checks stand alone");
        continue;
      }
      for (const InputClass input_class :
           {InputClass::normal, InputClass::student3, InputClass::outlier_channels,
            InputClass::massive_channel, InputClass::walsh_noise, InputClass::ties, InputClass::subnormal}) {
        if (input_class == InputClass::subnormal && numerics.promises.flushes_subnormals) continue;
        const Bytes input = make_input(problem, input_class, kSeed);
        Bytes want = input;
        reference::emulate(problem, numerics, input.data(), want.data());
        session.expect_exact(
            problem, want, session.execute(*plan, input),
            fmt::format("emulation of {} rows with seed {}", reference::name_of(input_class), kSeed));
      }
    }
  }
}

// A9. Over the bits of the Sylvester factor: x(j xor a) gives (-1)^<i,a> y(i).
void xor_shift(ConformanceRun& session) {
  symmetry_over_bits(session, &Promises::xor_shift_exact, true, "XOR shift");
}

// A10. Over the same bits: (-1)^<j,a> x(j) gives y(i xor a).
void modulation(ConformanceRun& session) {
  symmetry_over_bits(session, &Promises::modulation_exact, false, "modulation");
}

// A11. Rounding to nearest even, and truncation, are odd functions.
void negation(ConformanceRun& session) {
  const Dtype dtype = session.dtype();
  const RowMap negate = [dtype](std::int64_t, std::span<const std::byte> from, std::span<std::byte> to) {
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(from.size()) / bytes_of(dtype); ++i) {
      set_bits(dtype, to.data(), i, negated(dtype, bits_at(dtype, from.data(), i)));
    }
  };
  for (const std::int64_t n : session.sizes())
    symmetry(session, n, 1, negate, negate, "negation");
}

// A12. Away from the subnormals a power of two changes exponents only. 16-bit data are integers of size 64:
// every intermediate, and every result times 1/8, is then at least 2^-11, whatever the factors of the stages.
void power_of_two_scaling(ConformanceRun& session) {
  const Dtype dtype = session.dtype();
  const RowMap scale = [dtype](std::int64_t k, std::span<const std::byte> from, std::span<std::byte> to) {
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(from.size()) / bytes_of(dtype); ++i) {
      store_element(dtype, to.data(), i, load_element(dtype, from.data(), i) * (k == 0 ? 0.125 : 8.0));
    }
  };
  for (const std::int64_t n : session.sizes()) {
    symmetry(session, n, 2, scale, scale, "scaling by 1/8 and 8",
             dtype == Dtype::f32 || dtype == Dtype::f64 ? 1.0 : 64.0);
  }
}

}  // namespace fwht::conformance
