// The part of a DeviceWarp that needs no tensor core: lanes and the exchange buffer of the row.
#pragma once

#include <cstdint>

#include "variants/kit/row_access.cuh"
#include "variants/kit/row_signs.hpp"
#include "variants/kit/warp_program.hpp"

namespace fwht::rows {

/// One lane of a warp, see WarpMachine; what is left to the kernel's own DeviceWarp is `widen`.
///
/// @tparam tile    how the row is spread
/// @tparam Buffer  where the exchange keeps its elements, such as ExchangeBuffer
template <Tile tile, class Buffer = ExchangeBuffer>
class DeviceLanes {
 public:
  using Float = float;
  using Word = std::uint32_t;
  static constexpr int kVectorElements = tile.vector_elements();
  static constexpr int kPiece = tile.piece();

  /// `exchange`: the buffer of the row.
  __device__ explicit DeviceLanes(float* exchange) : exchange_(exchange) {}

  __device__ static int lane() { return lane_of_warp(); }
  __device__ static float shuffle(float x, int lane_mask) {
    return __shfl_xor_sync(0xFFFFFFFFU, x, lane_mask);
  }
  __device__ static float lane_sign(int bit) { return (lane() >> bit) & 1 ? -1.0F : 1.0F; }
  __device__ static float fma(float a, float b, float c) { return fmaf(a, b, c); }

  __device__ void put(int from, int v, int quad, const float (&x)[4]) {
    constexpr Buffer buffer{tile};
    *at<float4>(buffer.word(from, v, lane(), 4 * quad)) = {x[0], x[1], x[2], x[3]};
  }
  __device__ void take(int from, int v, int quad, float (&x)[4]) const {
    constexpr Buffer buffer{tile};
    read<4>(buffer.word(from, v, lane(), 4 * quad), x);
  }
  __device__ void get(int from, int v, int part, float (&x)[kPiece]) const {
    constexpr Tile here = tile;  // an object that device code can call
    constexpr Buffer buffer{tile};
    const int element = here.piece_begin(part, lane());
    constexpr int kStep = kPiece < 4 ? kPiece : 4;
#pragma unroll
    for (int i = 0; i < kPiece; i += kStep) {
      float some[kStep];
      read<kStep>(word_of_element(buffer, from, v, element + i), some);
#pragma unroll
      for (int j = 0; j < kStep; ++j)
        x[i + j] = some[j];
    }
  }

 protected:
  template <class Pack>
  __device__ Pack* at(int word) const {
    return reinterpret_cast<Pack*>(exchange_ + word);
  }
  template <int count>
  __device__ void read(int word, float (&x)[count]) const {
    if constexpr (count == 4) {
      const float4 v = *at<const float4>(word);
      x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    } else if constexpr (count == 2) {
      const float2 v = *at<const float2>(word);
      x[0] = v.x, x[1] = v.y;
    } else {
      x[0] = exchange_[word];
    }
  }

  float* exchange_;
};

/// The exchange buffer of the block's row.
__device__ inline float* exchange_of_block() {
  extern __shared__ float4 shared[];
  return reinterpret_cast<float*>(shared);
}

struct AsRounded {
  template <int count>
  __device__ void operator()(int, std::uint32_t (&)[count]) const {}
};

/// After the barrier of an exchange: the warp gathers its share of the row, transforms the warp bits and
/// stores. `self` is its number in the row.
///
/// @param finish  takes the column and the rounded words of consecutive elements, before they are stored
template <Tile tile, Access access, Scaling scaling, WarpMachine Warp, class Finish = AsRounded>
__device__ __forceinline__ void store_share_of_row(const Batch& batch, const Warp& warp,
                                                   const RowAccess<tile, access>& io, int self,
                                                   const Finish& finish = {}) {
  constexpr Tile here = tile;
  constexpr int kWarps = tile.warps_per_row;
  const int first = here.vector_taken(self), part = here.part_taken(self);
#pragma unroll
  for (int v = 0; v < tile.kept(); ++v) {
    float gathered[kWarps][tile.piece()];
    exchange_get(warp, first + v, part, gathered);
    auto* const to = io.piece_of_first_warp(first + v, part);
#pragma unroll
    for (int from = 0; from < kWarps; ++from) {
      std::uint32_t piece[words_of(tile.dtype, tile.piece())];
      round_to_words<tile.dtype, scaling>(batch, gathered[from], piece);
      finish(column_of_piece(here, from, first + v, part, lane_of_warp()), piece);
      io.store_piece(to, from, piece);
    }
  }
}

}  // namespace fwht::rows
