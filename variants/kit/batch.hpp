// The argument of the kernels on rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/contract/problem.hpp"
#include "common/host/bits.hpp"
#include "variants/kit/tile.hpp"

namespace fwht::rows {

/// Exact factors around the transform: data are multiplied by `shrink` = 2^-k, results by `last` = scale 2^k.
struct Factors {
  float last = 1.0F, shrink = 1.0F;
};

inline Factors factors_of(const Problem& problem, int shrink_exponent) {
  return {std::ldexp(static_cast<float>(problem.scale), shrink_exponent), std::ldexp(1.0F, -shrink_exponent)};
}
/// What sums reach of shrunken data, against the largest of them.
inline double growth_of_shrunken(const Problem& problem, int shrink_exponent) {
  return std::max(1.0, std::ldexp(static_cast<double>(problem.n()), -shrink_exponent));
}

/// The rows of one launch.
struct Batch {
  const void* in;
  void* out;
  std::int64_t row_stride, block_stride;  // elements between rows, between the first rows of blocks
  unsigned last_block;
  int rows_of_last_block;
  Factors factors;
  unsigned multiprocessors;
  std::uint32_t zero = 0;  // a zero that the compiler does not know
};

inline Batch batch_of(const Problem& p, const Tile& tile, const Factors& factors, int multiprocessors,
                      const void* in, void* out) {
  const std::int64_t last_block = ceil_div(p.rows, tile.rows_per_block()) - 1;
  return {in,
          out,
          p.row_stride(),
          tile.rows_per_block() * p.row_stride(),
          static_cast<unsigned>(last_block),
          static_cast<int>(p.rows - last_block * tile.rows_per_block()),
          factors,
          static_cast<unsigned>(multiprocessors)};
}

}  // namespace fwht::rows
