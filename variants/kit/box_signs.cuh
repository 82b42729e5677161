// Signs of elements, flipped where a box lies in shared memory.
#pragma once

#include <cstdint>

#include "common/device/ptx/shared.cuh"
#include "variants/kit/matrix_rows.hpp"
#include "variants/kit/signs.hpp"

namespace fwht::rows {

/// Multiplies the elements of a box by their signs where it lies in shared memory, in the order of its bytes.
/// @param signs  those of the first element of a row of X that the box has
/// @param first  row of X that the box begins with
template <int columns, int tile_columns, int line>
__device__ void flip_signs(std::uint32_t box, const std::uint8_t* signs, int first, int order, int lane) {
  constexpr int kPieces = line / 8, kBlock = 16 * kPieces;
#pragma unroll 2
  for (int i = lane; i < 2 * tile_columns; i += 32) {
    const int row = i % kBlock / kPieces, piece = (i % kPieces) ^ swizzle(row, line);
    const int column = (i / kBlock * line + 8 * piece) % columns;
    if (first + row >= order) continue;
    const std::uint32_t eight = __ldg(signs + ((first + row) * columns + column) / 8);
    std::uint32_t words[4];
    ptx::ld_shared_v4(words, box + 16 * i);
#pragma unroll
    for (int w = 0; w < 4; ++w)
      words[w] ^= pair_signs(eight, w);
    ptx::st_shared_v4(box + 16 * i, words);
  }
}

}  // namespace fwht::rows
