#include "reference/hadamard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "common/device/device_info.hpp"
#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "common/host/parallel_for.hpp"
#include "reference/operators.hpp"
#include "reference/rounding.hpp"

namespace fwht::reference {
namespace {

void require_power_of_two(std::int64_t n) {
  if (!is_power_of_two(n)) throw BadRequest(fmt::format("the reference needs n = 2^L, not n={}", n));
}

template <class Number>
void transform_row(Number* row, std::int64_t n, StageOrder order) {
  const int levels = log2_floor(n);
  for (int level = 0; level < levels; ++level) {
    butterfly(row, n, std::int64_t{1} << (order == StageOrder::ascending ? level : levels - 1 - level));
  }
}

std::int64_t rows_or_rest(const Problem& problem, std::int64_t first_row, std::int64_t count) {
  const std::int64_t rows = count < 0 ? problem.rows - first_row : count;
  if (first_row < 0 || rows < 0 || first_row + rows > problem.rows) {
    throw BadRequest(fmt::format("rows [{}, {}) lie outside the problem's {} rows", first_row,
                                 first_row + rows, problem.rows));
  }
  return rows;
}

}  // namespace

int default_threads() {
  return usable_threads();
}

Eigen::MatrixXd sylvester_matrix(std::int64_t n) {
  require_power_of_two(n);
  constexpr std::int64_t kLargest = 1 << 13;
  if (n > kLargest)
    throw BadRequest(fmt::format("the dense matrix of order n={} exceeds the limit {}", n, kLargest));
  Eigen::MatrixXd h = Eigen::MatrixXd::Ones(1, 1);
  while (h.rows() < n) {
    const Eigen::Index m = h.rows();
    Eigen::MatrixXd twice(2 * m, 2 * m);
    twice << h, h, h, -h;
    h.swap(twice);
  }
  return h;
}

void transform(Matrix& rows, double scale, StageOrder order, int threads) {
  const std::int64_t n = rows.cols();
  require_power_of_two(n);
  parallel_for(rows.rows(), threads_or_default(threads), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      transform_row(rows.row(r).data(), n, order);
      if (scale != 1.0) rows.row(r) *= scale;
    }
  });
}

void transform(IntMatrix& rows, StageOrder order, int threads) {
  const std::int64_t n = rows.cols();
  require_power_of_two(n);
  const std::int64_t limit = std::numeric_limits<std::int64_t>::max() / n;
  if (rows.size() > 0 && (rows.maxCoeff() > limit || rows.minCoeff() < -limit)) {
    throw BadRequest(
        fmt::format("max|x|={} times n={} leaves 63 bits", std::max(rows.maxCoeff(), -rows.minCoeff()), n));
  }
  parallel_for(rows.rows(), threads_or_default(threads), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      transform_row(rows.row(r).data(), n, order);
  });
}

Matrix load_rows(const Problem& problem, const void* data, std::int64_t first_row, std::int64_t count,
                 int threads) {
  const std::int64_t rows = rows_or_rest(problem, first_row, count);
  Matrix values(rows, problem.n());
  parallel_for(rows, threads_or_default(threads), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t offset = problem.first_of(problem.in, first_row + r);
      double* row = values.row(r).data();
      for (std::int64_t i = 0; i < problem.n(); ++i)
        row[i] = load_element(problem.dtype(), data, offset + i * problem.inner);
    }
  });
  return values;
}

void store_rows(const Problem& problem, const Matrix& values, void* data, std::int64_t first_row,
                int threads) {
  const std::int64_t rows = rows_or_rest(problem, first_row, values.rows());
  if (values.cols() != problem.n())
    throw BadRequest(fmt::format("{} columns for n={}", values.cols(), problem.n()));
  const Format format = format_of(problem.dtype());
  parallel_for(rows, threads_or_default(threads), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t offset = problem.first_of(problem.in, first_row + r);
      for (std::int64_t i = 0; i < problem.n(); ++i) {
        store_exact(problem.dtype(), data, offset + i * problem.inner, round_fast(format, values(r, i)));
      }
    }
  });
}

namespace {

/// Element `from(i)` of each row to its place i.
template <class From>
void permute(Matrix& rows, const From& from) {
  Eigen::RowVectorXd row(rows.cols());
  for (std::int64_t r = 0; r < rows.rows(); ++r) {
    for (std::int64_t i = 0; i < rows.cols(); ++i)
      row[i] = rows(r, from(i));
    rows.row(r) = row;
  }
}

}  // namespace

Matrix expected(const Problem& problem, const Operands& operands, std::int64_t first_row, std::int64_t count,
                int threads) {
  Matrix values = load_rows(problem, operands.in, first_row, count, threads);
  if (problem.op.is_sylvester()) {
    require_power_of_two(problem.n());
    const int log_n = log2_floor(problem.n());
    if (problem.in_ordering != Ordering::natural)
      permute(values, [&](std::int64_t i) { return ordered_place(problem.in_ordering, i, log_n); });
    transform(values, problem.scale, StageOrder::ascending, threads);
    if (problem.out_ordering != Ordering::natural)
      permute(values, [&](std::int64_t i) { return natural_place(problem.out_ordering, i, log_n); });
  } else {
    ExactOperator(problem.op, problem.dtype(), operands.signs, operands.dense)
        .apply(values, problem.scale, threads);
  }
  return values;
}

Matrix expected(const Problem& problem, const void* input, std::int64_t first_row, std::int64_t count,
                int threads) {
  return expected(problem, Operands{input}, first_row, count, threads);
}

}  // namespace fwht::reference
