// A dense factor as operands A of stage 1, shared by `kronecker` and `mma_kronecker`. It comes with each
// call, so a small kernel expands it ahead.
#pragma once

#include <cstdint>

#include "common/contract/operator.hpp"
#include "common/contract/variant.hpp"
#include "common/device/ptx/fragments.hpp"
#include "common/host/bits.hpp"

namespace fwht::rows {

/// F (x) S_(order / m), F dense.
struct DenseFactor {
  const std::uint16_t* entries;  ///< m x m numbers, row-major
  int m, order;
  bool transposed;
};

/// The fragments: index of register 0 of a lane.
constexpr int fragment_index(int k_steps, int block, int step, int lane) {
  return ((block * k_steps + step) * 32 + lane) * 4;
}

/// Word number `index` of them; entries beyond the order are zero.
constexpr std::uint32_t fragment_word(const DenseFactor& factor, int k_steps, int index) {
  const int r = index % 4, lane = index / 4 % 32, step = index / 128 % k_steps, block = index / 128 / k_steps;
  const int inner = factor.order / factor.m;
  std::uint32_t word = 0;
  for (int half = 0; half < 2; ++half) {
    const int row = 16 * block + ptx::a_row(lane, r), column = 16 * step + ptx::a_column(lane, r, half);
    if (row >= factor.order || column >= factor.order) continue;
    const int i = row / inner, j = column / inner;
    std::uint32_t entry = factor.entries[factor.transposed ? j * factor.m + i : i * factor.m + j];
    if (parity(static_cast<unsigned>(row % inner & column % inner)) != 0) entry ^= 0x8000U;
    word |= entry << (16 * half);
  }
  return word;
}

/// All `words` of them on the device, by one thread a word.
void expand_dense(const DenseFactor& factor, int k_steps, int words, std::uint32_t* fragments, Stream stream);

}  // namespace fwht::rows
