// Signs of plain rows: y = H (s x) or y = s (H x), in kernels on rows of 16-bit numbers.
#pragma once

#include <cstdint>

#include "common/contract/operator.hpp"
#include "variants/kit/batch.hpp"

namespace fwht::rows {

/// Signs of eight elements as pair_signs() takes them, spread out once for all words: two instructions a word
/// instead of five.
constexpr std::uint32_t spread_signs(std::uint32_t eight) {
  return eight | eight << 15;
}
/// Those of the two numbers of word `word`, on their sign bits.
constexpr std::uint32_t pair_of_spread(std::uint32_t spread, int word) {
  return spread << (15 - 2 * word) & 0x80008000U;
}

/// The same signs for every row, on the way in or out.
struct RowSigns {
  const std::uint8_t* bits = nullptr;  // one an element
  std::uint32_t first = 0, last = 0;   // masks of a byte of them: all ones on the side where they belong

  static RowSigns of(const Operator& op, const void* bits) {
    if (!op.has_signs()) return {};
    const bool last = op.signs_come_last();
    return {static_cast<const std::uint8_t*>(bits), last ? 0 : 0xFFU, last ? 0xFFU : 0};
  }
};

/// The argument of kernels that multiply by signs. The others take its front.
struct SignedBatch {
  Batch rows;
  RowSigns signs;
};
using SignedKernel = void (*)(SignedBatch);

/// Column of the first element that a lane takes of part `part` of vector `v` of warp `from` in the exchange.
constexpr int column_of_piece(const Tile& tile, int from, int v, int part, int lane) {
  return ((from * tile.vectors + v) * 32 << tile.log_vector()) + tile.piece_begin(part, lane);
}

}  // namespace fwht::rows
