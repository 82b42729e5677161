// Truth: the Sylvester matrix and the Walsh-Hadamard transform in FP64 and in exact integers, and what a
// problem asks for. Other operators: reference/operators.
//
// For f16 data with sum |x_j| <= 2^29 the FP64 transform is exact, not only accurate: every partial sum is a
// multiple of 2^-24 and fits 53 bits. The same holds for any data on a grid of 2^g with sum |x_j| <=
// 2^(53+g).
#pragma once

#include <Eigen/Core>
#include <cstdint>

#include "common/contract/problem.hpp"
#include "common/contract/variant.hpp"

namespace fwht::reference {

/// rows x n, one transform row after the other, as the variants store them.
using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using IntMatrix = Eigen::Matrix<std::int64_t, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Threads that the functions of reference/ use when asked for 0: usable_threads (common/device_info).
int default_threads();
inline int threads_or_default(int threads) {
  return threads > 0 ? threads : default_threads();
}

/// body(a, b) on every pair of a row's n elements whose places are `half`, a power of two, apart in one bit.
template <class Number, class Body>
void for_each_pair(Number* row, std::int64_t n, std::int64_t half, const Body& body) {
  for (std::int64_t block = 0; block < n; block += 2 * half) {
    Number* low = row + block;
    Number* high = low + half;
    for (std::int64_t i = 0; i < half; ++i)
      body(low[i], high[i]);
  }
}

/// a + b and a - b in their places.
template <class Number>
void butterfly(Number* row, std::int64_t n, std::int64_t half) {
  for_each_pair(row, n, half, [](Number& low, Number& high) {
    const Number a = low, b = high;
    low = a + b;
    high = a - b;
  });
}

/// The +-1 Sylvester matrix of order n in natural (Hadamard) order, n x n: H[i][j] = (-1)^popcount(i & j).
/// Built by its definition H_2n = [H_n H_n; H_n -H_n], so that it checks the bit formula and the fast
/// transforms. Throws BadRequest unless n is a power of two up to 2^13 (the matrix would exceed half a
/// gigabyte).
Eigen::MatrixXd sylvester_matrix(std::int64_t n);

enum class StageOrder { ascending, descending };

/// In place y[r,:] = scale * H_n x[r,:] for every row of `rows` (rows x n), by butterflies in FP64 over index
/// bits in the given order; the scale is applied once at the end. NaN and infinities propagate as in the
/// direct sum. Throws BadRequest unless n is a power of two.
void transform(Matrix& rows, double scale = 1.0, StageOrder order = StageOrder::ascending, int threads = 0);

/// The same on integers, unnormalised and exact. Throws BadRequest unless n is a power of two and n max|x| <
/// 2^63.
void transform(IntMatrix& rows, StageOrder order = StageOrder::ascending, int threads = 0);

/// Rows [first_row, first_row + count) of raw storage as FP64 values (exact). `data` points at row 0; rows
/// lie row_stride elements apart. count < 0 means up to the last row.
Matrix load_rows(const Problem& problem, const void* data, std::int64_t first_row = 0,
                 std::int64_t count = -1, int threads = 0);

/// Writes the values, each rounded once to the storage type (nearest even), to rows first_row... of raw
/// storage. Elements between n and row_stride are left untouched. `values` is count x n.
void store_rows(const Problem& problem, const Matrix& values, void* data, std::int64_t first_row = 0,
                int threads = 0);

/// The truth: problem.scale (as a double) times problem.op times the input rows, in FP64, not rounded to the
/// storage type. count x n. Of the operands `in`, and `signs` and `dense` where the operator has them. Throws
/// BadRequest where one of those is missing, and for a Sylvester operator unless n is a power of two.
Matrix expected(const Problem& problem, const Operands& operands, std::int64_t first_row = 0,
                std::int64_t count = -1, int threads = 0);
/// The same for operators without signs and dense factors.
Matrix expected(const Problem& problem, const void* input, std::int64_t first_row = 0,
                std::int64_t count = -1, int threads = 0);

}  // namespace fwht::reference
