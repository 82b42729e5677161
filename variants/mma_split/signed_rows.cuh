// mma_split: rows of the storage type, multiplied by signs first or last: y = H (s x) or y = s (H x).
//
// A sign is the upper bit of a 16-bit number, so two are one XOR of a word, after the loads or before the
// stores. Both sides are there in every kernel, each with a mask: a branch between the loads and the tensor
// cores would let the compiler schedule one vector after the other.
//
// Bit card: that of the kernel. Eight elements b0-b2 of a vector are one byte of signs; behind the exchange a
// lane has 2, 4 or 8 elements side by side, bits of one byte.
#pragma once

#include "variants/kit/row_signs.hpp"
#include "variants/mma_split/non_finite_repair.cuh"

namespace fwht::mma_split {

/// The signs of one side, to the words of consecutive elements from `column` on.
template <int count>
__device__ __forceinline__ void flip(const rows::RowSigns& signs, std::uint32_t mask, int column,
                                     std::uint32_t (&words)[count]) {
  const std::uint32_t eight = __ldg(signs.bits + column / 8) & mask;
  const std::uint32_t spread = rows::spread_signs(eight >> column % 8);
#pragma unroll
  for (int w = 0; w < count; ++w)
    words[w] ^= rows::pair_of_spread(spread, w);
}

/// Signs between the loads and the first stage, and those between rounding and store.
template <Tile tile, Access access>
class SignPrologue {
 public:
  __device__ SignPrologue(const rows::SignedBatch& asked, const RowAccess<tile, access>&, int)
      : signs_(asked.signs) {}

  __device__ void apply(const RowAccess<tile, access>& io, std::uint32_t (&words)[tile.vectors][4]) const {
#pragma unroll
    for (int v = 0; v < tile.vectors; ++v)
      flip(signs_, signs_.first, io.column(v), words[v]);
  }
  __device__ void load(const RowAccess<tile, access>& io, int v, std::uint32_t (&words)[4]) const {
    io.load(v, words);
    flip(signs_, signs_.first, io.column(v), words);
  }
  __device__ void finish(const RowAccess<tile, access>& io, int v, std::uint32_t (&words)[4]) const {
    flip(signs_, signs_.last, io.column(v), words);
  }

 private:
  const rows::RowSigns& signs_;  // in the kernel's argument
};

/// The exact path of a warp that holds whole rows, see NonFiniteRepair::stored_rows.
template <Tile tile, Access access>
__device__ __noinline__ void store_signed_rows_alone(const rows::SignedBatch& asked,
                                                     SignPrologue<tile, access> prologue, int warp_of_block) {
  transform_rows_alone<tile, access>(
      asked.rows, prologue, warp_of_block,
      [&](const RowAccess<tile, access>& io, int v, const float(&x)[8], bool mine) {
        std::uint32_t words[4];
        rows::round_to_words<tile.dtype>(asked.rows, x, words);
        prologue.finish(io, v, words);
        if (mine) io.store(v, words);
      });
}

struct SignedRows {
  using Arguments = rows::SignedBatch;
  __device__ static const Batch& batch(const Arguments& arguments) { return arguments.rows; }
  template <Tile tile, Access access>
  using Prologue = SignPrologue<tile, access>;
  template <Tile tile, Access access>
  __device__ static std::uint32_t fetch_arguments(const Arguments&) {
    return 0;
  }
  template <Tile tile>
  static constexpr std::integral_constant<int, 0> kLogOfFirstStage{};
  static constexpr bool kLanesTalk = false;  // behind the exchange

  /// A warp that holds whole rows.
  template <Tile tile, Access access, Scaling scaling, class Repair>
  __device__ __forceinline__ static void store_rows(const Arguments& arguments, const DeviceWarp<tile>& warp,
                                                    const RowAccess<tile, access>& io,
                                                    const Prologue<tile, access>& prologue, int self,
                                                    const float (&x)[tile.vectors][8], bool failed) {
    if (warp.any(failed)) [[unlikely]]
      return store_signed_rows_alone<tile, access>(arguments, prologue, self);
#pragma unroll
    for (int v = 0; v < tile.vectors; ++v) {
      std::uint32_t words[4];
      rows::round_to_words<tile.dtype, scaling>(arguments.rows, x[v], words);
      prologue.finish(io, v, words);
      io.store(v, words);
    }
  }

  /// Behind the exchange: a warp's share of a row.
  template <Tile tile, Access access, Scaling scaling>
  __device__ __forceinline__ static void store_share_of_row(const Arguments& arguments,
                                                            const DeviceWarp<tile>& warp,
                                                            const RowAccess<tile, access>& io,
                                                            const Prologue<tile, access>&, int self, bool) {
    rows::store_share_of_row<tile, access, scaling>(
        arguments.rows, warp, io, self,
        [&](int column, auto& words) { flip(arguments.signs, arguments.signs.last, column, words); });
  }
};

}  // namespace fwht::mma_split
