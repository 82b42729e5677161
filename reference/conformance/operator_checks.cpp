// Operators of several factors, or with signs. Matrices, integers, adjoint and inverse are checked with zero
// tolerance: every sum is an integer that fits the storage type, so that only the last rounding is left.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "reference/conformance/checks.hpp"
#include "reference/emulation.hpp"
#include "reference/operators.hpp"

namespace fwht::conformance {
namespace {

using reference::ExactOperator;
using reference::InputClass;
using reference::IntMatrix;

constexpr std::uint64_t kSeed = 1867;

ExactOperator exact_operator(const Operator& op, Dtype dtype) {
  const OperatorData data(op, dtype);
  const Operands operands = data.operands(nullptr, nullptr);
  return ExactOperator(op, dtype, operands.signs, operands.dense);
}

Problem unscaled(Dtype dtype, const Operator& op, std::int64_t rows) {
  return with_scale(make_problem(dtype, op, rows, Placement::out_of_place), 1.0);
}

Bytes store_integers(const Problem& problem, const IntMatrix& values) {
  Bytes bytes = blank(problem);
  reference::store_rows(problem, values.cast<double>(), bytes.data());
  return bytes;
}

IntMatrix load_integers(const Problem& problem, const Bytes& bytes) {
  return reference::load_rows(problem, bytes.data()).array().round().matrix().cast<std::int64_t>();
}

/// Largest magnitude that an entry of the operator has.
std::int64_t largest_entry(const ExactOperator& exact) {
  double product = 1.0;
  for (const reference::FactorStage& stage : exact.stages()) {
    double largest = stage.entries.empty() ? 1.0 : 0.0;
    for (const double entry : stage.entries)
      largest = std::max(largest, std::fabs(entry));
    product *= largest;
  }
  return static_cast<std::int64_t>(product);
}

/// Random integers such that no sum, of any of their terms times entries of the operator, leaves the integers
/// that the storage type holds: in all columns where there is room for that, else +-1 in some.
IntMatrix exact_integers(const ExactOperator& exact, Dtype dtype, std::int64_t rows, std::uint64_t seed) {
  const std::int64_t n = exact.n();
  const std::int64_t room = (std::int64_t{1} << format_of(dtype).precision) / largest_entry(exact);
  std::mt19937_64 random(seed);
  IntMatrix values = IntMatrix::Zero(rows, n);
  for (std::int64_t row = 0; row < rows; ++row) {
    if (room >= n) {
      std::uniform_int_distribution<std::int64_t> any(-std::min<std::int64_t>(room / n, 100),
                                                      std::min<std::int64_t>(room / n, 100));
      for (std::int64_t i = 0; i < n; ++i)
        values(row, i) = any(random);
    } else {
      for (std::int64_t term = 0; term < room; ++term)
        values(row, static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n))) =
            random() % 2 == 0 ? 1 : -1;
    }
  }
  return values;
}

/// What the plan must store for exact sums.
Bytes rounded_sums(const Problem& problem, const Numerics& numerics, const IntMatrix& sums) {
  Bytes want = blank(problem);
  for (std::int64_t row = 0; row < problem.rows; ++row) {
    for (std::int64_t i = 0; i < problem.n(); ++i) {
      store_element(problem.dtype(), row_of(problem, want, row).data(), i,
                    exact_result(numerics, problem, static_cast<double>(sums(row, i))));
    }
  }
  return want;
}

/// All columns of rows up to `all_up_to`; of others the first, the last, those at the ends of blocks, some
/// more.
std::vector<std::int64_t> telling_columns(const Operator& op, std::int64_t all_up_to) {
  const std::int64_t n = op.n();
  std::set<std::int64_t> columns{0, n - 1};
  for (std::int64_t i = 0; n <= all_up_to && i < n; ++i)
    columns.insert(i);
  std::int64_t right = n;
  for (const Factor& factor : op.factors()) {
    right /= factor.order;
    columns.insert({right, n - right, right - 1});
    for (std::int64_t step = right; step < n; step *= 2)
      columns.insert(step);
  }
  for (std::int64_t i = 1; i <= 8; ++i)
    columns.insert((i * 0x9E3779B9 + 12345) % n);
  columns.erase(n);
  return {columns.begin(), columns.end()};
}

/// Scale 1 leaves the integers as they are; the orthonormal one is irrational for most orders, and rounds.
std::vector<Problem> exact_problems(const ConformanceRun& session, const Operator& op, std::int64_t rows) {
  return {unscaled(session.dtype(), op, rows), make_problem(session.dtype(), op, rows)};
}

bool promises_integers(ConformanceRun& session, const Plan& plan) {
  return session.promised(plan.numerics(), &Promises::integer_exact, "exact integers");
}

/// Calls body(op, plan, plan of the transposed operator) for unscaled rows, where integers are exact.
template <class Body>
void for_each_transposed_pair(ConformanceRun& session, std::int64_t rows, const Body& body) {
  for (const Operator& op : session.operators()) {
    const Problem backward = unscaled(session.dtype(), op.transposed(), rows);
    if (const Support support = session.support(backward); !support) {
      session.fail(fmt::format("{} is offered, but not its transpose: {}", to_string(op), support.why_not));
      continue;
    }
    const std::unique_ptr<Plan> plan = session.plan(unscaled(session.dtype(), op, rows)),
                                transposed = session.plan(backward);
    if (promises_integers(session, *plan) && promises_integers(session, *transposed))
      body(op, *plan, *transposed);
  }
}

}  // namespace

// One-hot rows name the entries of the matrix, which are known by its definition alone: without a scale every
// entry of short operators; with it, which rounds the same entries, fewer.
void operator_entries(ConformanceRun& session) {
  constexpr std::int64_t kValues[] = {1, -2, 3, 4, -5, 6, -7, 8};
  for (const Operator& op : session.operators()) {
    const ExactOperator exact = exact_operator(op, session.dtype());
    for (Problem problem : exact_problems(session, op, 1)) {
      const std::vector<std::int64_t> columns = telling_columns(op, problem.scale == 1.0 ? 1024 : 64);
      problem.rows = static_cast<std::int64_t>(columns.size());
      const std::unique_ptr<Plan> plan = session.plan(problem);
      if (!promises_integers(session, *plan)) continue;
      IntMatrix input = IntMatrix::Zero(problem.rows, problem.n()), sums = input;
      for (std::int64_t row = 0; row < problem.rows; ++row) {
        const std::int64_t column = columns[static_cast<std::size_t>(row)], value = kValues[row % 8];
        input(row, column) = value;
        for (std::int64_t i = 0; i < problem.n(); ++i)
          sums(row, i) = value * static_cast<std::int64_t>(exact.entry(i, column));
      }
      session.expect_exact(problem, rounded_sums(problem, plan->numerics(), sums),
                           session.execute(*plan, store_integers(problem, input)), "one-hot rows");
    }
  }
}

// Integer rows, bit for bit.
void operator_integers(ConformanceRun& session) {
  for (const Operator& op : session.operators()) {
    const ExactOperator exact = exact_operator(op, session.dtype());
    for (const Problem& problem : exact_problems(session, op, 5)) {
      const std::unique_ptr<Plan> plan = session.plan(problem);
      if (!promises_integers(session, *plan)) continue;
      const IntMatrix input = exact_integers(exact, session.dtype(), problem.rows, kSeed);
      IntMatrix sums = input;
      exact.apply(sums);
      session.expect_exact(problem, rounded_sums(problem, plan->numerics(), sums),
                           session.execute(*plan, store_integers(problem, input)), "integer rows");
    }
  }
}

// <Op x, u> = <x, Op^T u>, in integers: the plan against that of the transposed operator, no truth between
// them. With a base that is not symmetric a missing transpose shows.
void operator_adjoint(ConformanceRun& session) {
  constexpr std::int64_t kRows = 5;
  for_each_transposed_pair(session, kRows, [&](const Operator& op, const Plan& plan, const Plan& transposed) {
    const Problem &forward = plan.problem(), &backward = transposed.problem();
    const ExactOperator exact = exact_operator(op, session.dtype());
    const IntMatrix x = exact_integers(exact, session.dtype(), kRows, kSeed),
                    u = exact_integers(exact, session.dtype(), kRows, kSeed + 1);
    const IntMatrix y = load_integers(forward, session.execute(plan, store_integers(forward, x)));
    const IntMatrix v = load_integers(backward, session.execute(transposed, store_integers(backward, u)));
    for (std::int64_t row = 0; row < kRows; ++row) {
      const std::int64_t left = y.row(row).cwiseProduct(u.row(row)).sum(),
                         right = x.row(row).cwiseProduct(v.row(row)).sum();
      if (left == right) continue;
      session.fail(fmt::format("{} and {}: row {}: <Op x, u> = {}, but <x, Op^T u> = {}", to_string(forward),
                               to_string(backward), row, left, right));
      break;
    }
  });
}

// Op^T Op x = c x, c = n for factors of +-1: one-hot and two-hot rows, whose results are exact at every step.
void operator_inverse(ConformanceRun& session) {
  constexpr std::int64_t kRows = 8;
  for_each_transposed_pair(session, kRows, [&](const Operator& op, const Plan& plan, const Plan& transposed) {
    const std::int64_t n = op.n();
    IntMatrix x = IntMatrix::Zero(kRows, n);
    for (std::int64_t row = 0; row < kRows; ++row) {
      x(row, (row * 0x9E3779B9 + 5) % n) = row % 2 == 0 ? 1 : -1;
      if (row >= kRows / 2) x(row, (row * 0x85EBCA6B + 1) % n) = 1;
    }
    const auto c = static_cast<std::int64_t>(exact_operator(op, session.dtype()).square_length());
    const Bytes there = session.execute(plan, store_integers(plan.problem(), x));
    session.expect_exact(transposed.problem(),
                         rounded_sums(transposed.problem(), transposed.numerics(), c * x),
                         session.execute(transposed, there),
                         fmt::format("{} behind {} is not {} times the identity", to_string(op.transposed()),
                                     to_string(op), c));
  });
}

// Random rows by the tolerances of the plan's steps, and bit for bit where the steps have an emulation.
void operator_inputs(ConformanceRun& session) {
  for (const Operator& op : session.operators()) {
    const std::int64_t rows = std::clamp<std::int64_t>(16384 / op.n(), 3, 33) | 1;
    const Problem problem = make_problem(session.dtype(), op, rows);
    const std::unique_ptr<Plan> plan = session.plan(problem);
    const OperatorData data(op, session.dtype());
    for (const InputClass input_class : {InputClass::normal, InputClass::outlier_channels,
                                         InputClass::massive_channel, InputClass::constant}) {
      const Bytes input = make_input(problem, input_class, kSeed);
      const std::string what = fmt::format("{} rows with seed {}", reference::name_of(input_class), kSeed);
      const Bytes got = session.execute_and_judge(problem, input_class, input, what);
      if (!reference::has_emulation(plan->numerics())) continue;
      Bytes want = input;
      reference::emulate(problem, plan->numerics(), data.operands(input.data(), want.data()));
      session.expect_exact(problem, want, got, "emulation of " + what);
    }
  }
}

// NaN and infinities follow IEEE 754 on the direct sum in their own row, and reach no other one.
void operator_nonfinite(ConformanceRun& session) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  struct SpecialRow {
    std::int64_t row;
    double first, second;  // at column 0 and at another one; 1 stands for no special value
  };
  constexpr SpecialRow kSpecials[] = {{0, kNan, 1}, {2, kInfinity, 1},  {3, kInfinity, -kInfinity},
                                      {4, 1, kNan}, {2, 1, -kInfinity}, {4, -kInfinity, -kInfinity}};
  for (const Operator& op : session.operators()) {
    const Problem problem = make_problem(session.dtype(), op, 5);
    const std::unique_ptr<Plan> plan = session.plan(problem);
    const Promises promises = plan->numerics().promises;
    if (!promises.row_isolation) {
      session.skip("row isolation is not promised");
      continue;
    }
    const OperatorData data(op, session.dtype());
    const Bytes input = make_input(problem, InputClass::normal, kSeed), clean = session.execute(*plan, input);
    for (const SpecialRow& special : kSpecials) {
      Bytes dirty = input;
      std::byte* row = row_of(problem, dirty, special.row).data();
      if (special.first != 1.0) store_element(session.dtype(), row, 0, special.first);
      if (special.second != 1.0) store_element(session.dtype(), row, (7 * op.n()) / 11, special.second);
      const Bytes got = session.execute(*plan, dirty);
      const std::string what = fmt::format("{} and {} in row {}", special.first, special.second, special.row);
      const reference::Matrix want =
          reference::expected(problem, data.operands(dirty.data(), nullptr), special.row, 1);
      for (std::int64_t i = 0; i < op.n(); ++i) {
        const double have = load_element(session.dtype(), row_of(problem, got, special.row).data(), i);
        const bool right = std::isnan(want(0, i))
                               ? std::isnan(have)
                               : have == want(0, i) || (!promises.infinity_exact && std::isnan(have));
        if (right) continue;
        session.fail(
            fmt::format("{}: {}: column {} is {}, not {}", to_string(problem), what, i, have, want(0, i)));
        break;
      }
      for (std::int64_t other = 0; other < problem.rows; ++other) {
        if (other == special.row) continue;
        session.expect_same_row(problem, clean, other, problem, got, other, what + " reached another row");
      }
    }
  }
}

// Row counts, placements, strides and offsets: every row is the same row.
void operator_shapes(ConformanceRun& session) {
  for (const Operator& op : session.operators()) {
    const JudgedRows few = session.judged_rows(make_problem(session.dtype(), op, 3), kSeed);
    const auto expect_rows = [&](const Problem& problem, const std::string& what, const Execution& how = {}) {
      if (session.offers(problem)) session.expect_repeated(few, problem, what, how);
    };
    for (const std::int64_t count : {1, 2, 7, 32, 65}) {
      if (count * op.n() > std::int64_t{1} << 18) continue;
      expect_rows(make_problem(session.dtype(), op, count), "row count");
      expect_rows(make_problem(session.dtype(), op, count, Placement::out_of_place),
                  "row count out of place");
    }
    // Launches for much data, and for more rows than multiprocessors; processors have none of their own.
    if (session.variant().memory == Memory::device) {
      for (const std::int64_t count :
           {(std::int64_t{1} << 20) / op.n() + 3, std::int64_t{2} * session.device().sm_count + 3}) {
        if (count * op.n() <= std::int64_t{1} << 22)
          expect_rows(make_problem(session.dtype(), op, count), "many rows");
      }
    }
    const Problem seven = make_problem(session.dtype(), op, 7);
    for (const std::int64_t gap : {1, 8, 24}) {
      expect_rows(with_stride(seven, op.n() + gap), "row stride");
      expect_rows(with_stride(out_of_place(seven), op.n() + gap), "row stride out of place");
    }
    const std::size_t alignment = session.plan(seven)->alignment();
    const std::int64_t offset =
        std::max<std::int64_t>(static_cast<std::int64_t>(alignment) / bytes_of(session.dtype()), 1);
    expect_rows(out_of_place(seven), "offsets", {kPoisonByte, offset, 3 * offset});
  }
}

}  // namespace fwht::conformance
