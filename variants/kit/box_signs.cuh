// Signs of elements, flipped where a box lies in shared memory.
#pragma once

#include <cstdint>

#include "common/device/ptx/shared.cuh"
#include "variants/kit/box_signs.hpp"
#include "variants/kit/row_signs.hpp"

namespace fwht::rows {

/// An address, or what addresses come from: from here on the compiler works them out anew, instead of keeping
/// all of them through a loop.
template <class Address>
__device__ Address anew(Address address) {
  static_assert(sizeof address == 4);
  asm volatile("" : "+r"(address));
  return address;
}

/// Eight numbers, by a byte of signs.
__device__ inline void flip_eight(std::uint32_t (&words)[4], std::uint32_t eight) {
  const std::uint32_t spread = spread_signs(eight);
#pragma unroll
  for (int w = 0; w < 4; ++w)
    words[w] ^= pair_of_spread(spread, w);
}

/// The signs of a box as a warp's lanes hold them. All are asked for at once, as soon as the box is known:
/// the loads take longer than all else that is done with them.
template <int columns, int tile_columns, int line, int line_bytes = 16 * 2 * line>
class BoxSigns {
  __device__ static constexpr SignUnits units() { return {columns, tile_columns, line, line_bytes}; }
  static constexpr int kTurns = SignUnits{columns, tile_columns, line}.turns(),
                       kWords = SignUnits{columns, tile_columns, line}.words(),
                       kUnit = SignUnits{columns, tile_columns, line}.unit(), kPieces = kUnit / 8;
  static_assert(kTurns % kWords == 0);

 public:
  /// @param signs  those of the first element of a row of X that the box has
  /// @param first  row of X that the box begins with; there are `order` of them
  __device__ void ask(const std::uint8_t* signs, int first, int order, int lane) {
    lane = anew(lane);
    const int row = first + lane % 16;
#pragma unroll
    for (int w = 0; w < kWords; ++w)
      words_[w] = row < order ? load(signs + (row * columns + units().column(w, lane)) / 8) : 0U;
  }
  /// Multiplies the elements of the box.
  __device__ void flip(std::uint32_t box, int lane) const {
    lane = anew(lane);
    const std::uint32_t first = box + units().byte(lane);
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      if (!units().takes(turn, lane)) continue;
      const auto at = [&](int piece) { return (first ^ units().flip(piece)) + units().offset(turn); };
      std::uint32_t numbers[kPieces][4];
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
        ptx::ld_shared_v4(numbers[piece], at(piece));
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        flip_eight(numbers[piece], words_[units().word(turn)] >> 8 * piece & 0xFFU);
        ptx::st_shared_v4(at(piece), numbers[piece]);
      }
    }
  }

 private:
  __device__ static std::uint32_t load(const std::uint8_t* from) {
    if constexpr (kUnit == 32) return __ldg(reinterpret_cast<const std::uint32_t*>(from));
    if constexpr (kUnit == 16) return __ldg(reinterpret_cast<const std::uint16_t*>(from));
    return __ldg(from);
  }

  std::uint32_t words_[kWords];
};

/// Both, one after the other.
template <int columns, int tile_columns, int line>
__device__ void flip_signs(std::uint32_t box, const std::uint8_t* signs, int first, int order, int lane) {
  BoxSigns<columns, tile_columns, line> of_box;
  of_box.ask(signs, first, order, lane);
  of_box.flip(box, lane);
}

}  // namespace fwht::rows
