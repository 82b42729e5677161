// For tests: the rows of a problem on the host, reached by the maps of the kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/contract/problem.hpp"
#include "reference/inputs.hpp"
#include "variants/kit/batch.hpp"
#include "variants/kit/launch.hpp"
#include "variants/kit/on_host/host_lanes.hpp"
#include "variants/kit/row_signs.hpp"

namespace fwht::rows {

using Bits = std::vector<std::uint32_t>;  // contiguous rows, one element each

/// Element of the block's rows, laid end to end, in register e of vector v of a lane at load.
int element_at_load(const Tile& tile, int warp, int lane, int v, int e);

/// The rows of one block: loads, and stores with the last factor and the one rounding; signs on both ways.
class HostRows {
 public:
  HostRows(const Tile& tile, const Factors& factors, const Bits& in, Bits& out, std::int64_t first_row,
           const RowSigns& signs = {})
      : tile_(tile), factors_(factors), in_(in), out_(out), first_(first_row << tile.log_n), signs_(signs) {}

  /// Zeros where rows do not exist.
  void load(int warp, int v, Words (&words)[4]) const;
  /// All lanes, or those of row `row` of the rows in the vector.
  void store(int warp, int v, const Floats* x, int row = -1);
  /// What warp `to` of the row took of vector v of warp `from`.
  void store_piece(int to, int from, int v, const Floats* x);

 private:
  /// Signs of the elements from `column` on, as the kernels take them, spread.
  std::uint32_t spread_at(int column, std::uint32_t mask) const;
  void put(std::int64_t element, const Floats& x, int lane, std::uint32_t spread, int e);

  Tile tile_;
  Factors factors_;
  const Bits& in_;
  Bits& out_;
  std::int64_t first_;
  RowSigns signs_;
};

struct HostRun {
  Bits out;
  int failures = 0;  // warps that left the fast path
};

/// At least three rows, contiguous, orthonormal.
Problem problem_of(Dtype dtype, int log_n, std::int64_t at_least_elements = 1024);
Bits to_bits(const Problem& problem, const std::vector<unsigned char>& storage);
std::vector<unsigned char> to_storage(const Problem& problem, const Bits& bits);
Bits make_input(const Problem& problem, reference::InputClass input_class, std::uint64_t seed);
/// Same number, or NaN both.
bool same_value(Dtype dtype, std::uint32_t a, std::uint32_t b);

/// Integers whose sums are exact, and the rounded results that they must have.
struct ExactCase {
  Bits in, want;
};
ExactCase integers(const Problem& problem);

/// bf16 reaches as far as fp32. A row of the matrix with |x| = 3e38 has one result, sqrt(n) |x|,
/// which is infinite, and zeros; with |x| = 2^127 / sqrt(n) it is finite, although a plain sum of n such
/// numbers is not. Neither changes the row in front of it.
void expect_no_sum_overflows(const Problem& problem, const std::function<Bits(const Bits&)>& run);

std::string describe(const KernelId& id);

}  // namespace fwht::rows
