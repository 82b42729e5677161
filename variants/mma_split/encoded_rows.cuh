// mma_split: the end of a kernel that writes codes and scales.
#pragma once

#include <type_traits>

#include "variants/kit/encode/storage_encoder.cuh"
#include "variants/mma_split/encoded_kernels.hpp"
#include "variants/mma_split/storage_rows.cuh"

namespace fwht::mma_split {

/// Behind the exchange: the whole vectors that a warp takes of each warp of the row.
template <Tile tile>
__device__ __forceinline__ void take_share_of_row(const DeviceWarp<tile>& warp, int self,
                                                  float (&x)[tile.kept() * tile.warps_per_row][8]) {
  constexpr Tile here = tile;
  constexpr int kWarps = tile.warps_per_row;
  static_assert(tile.parts() == 1 && tile.rows_per_block() == 1);
  const int first = here.vector_taken(self);
#pragma unroll
  for (int v = 0; v < tile.kept(); ++v) {
    float gathered[kWarps][8];
    rows::exchange_get(warp, first + v, 0, gathered);
#pragma unroll
    for (int from = 0; from < kWarps; ++from) {
#pragma unroll
      for (int e = 0; e < 8; ++e)
        x[v * kWarps + from][e] = gathered[from][e];
    }
  }
}

/// @tparam Form      encoder::Form: element, family of scales, what shares one
/// @tparam prepares  rows are put through a prologue first
template <class Form, bool prepares = false>
struct EncodedRows {
  using Arguments = CodesBatch<prepares>;
  template <Tile tile, Access access>
  using Prologue = std::conditional_t<prepares, RowPrologue<tile, access>, NoPrologue<tile, access>>;
  __device__ static const Batch& batch(const Arguments& arguments) { return arguments.rows; }
  static constexpr bool kLanesTalk = true;  // behind the exchange: about maxima and scales
  template <Tile tile>
  static constexpr std::integral_constant<int, log_of_first_stage(tile.dtype, tile.log_n, Form::rounded)>
      kLogOfFirstStage{};
  /// Touches one word of every cache line of the arguments while the data load. A launch finds its arguments
  /// in no cache of constants, and the epilogue would wait for one line after the other. The index hides a
  /// zero, so the compiler cannot hoist the reads; the result is 0 and is XORed into the data to keep them
  /// alive. With few vectors the data arrive too soon for the reads to hide.
  template <Tile tile, Access access>
  __device__ static std::uint32_t fetch_arguments(const Arguments& arguments) {
    if constexpr (access == Access::dense || tile.vectors < 4) return 0;
    constexpr int kWords = sizeof(encoder::Output) / 4, kLine = 16;
    static_assert(offsetof(EncodedBatch, out) == 56, "on sm_90 parameters start 16 bytes into a line");
    const std::uint32_t first = threadIdx.x & arguments.rows.zero;
    const auto* const words = reinterpret_cast<const std::uint32_t*>(&arguments.out) + first;
    std::uint32_t seen = words[0];
#pragma unroll
    for (int i = kLine - 2; i < kWords; i += kLine)  // the first line begins two words before
      seen |= words[i];
    return seen & arguments.rows.zero;
  }

  /// A warp that holds whole rows.
  template <Tile tile, Access access, Scaling scaling, class Repair>
  __device__ __forceinline__ static void store_rows(const Arguments& arguments, const DeviceWarp<tile>& warp,
                                                    const RowAccess<tile, access>& io,
                                                    const Prologue<tile, access>& prologue, int self,
                                                    float (&x)[tile.vectors][8], bool failed) {
    const auto none_to_meet = [](float maximum) { return maximum; };
    if constexpr (Form::rounded) {
      const RowsOfWarp<tile, access> where{arguments, io, prologue, false};
      encoder::encode_rounded<Form, tile.dtype, tile.vectors_of_row(), true>(
          arguments.out, x, where, !failed, none_to_meet,
          [&] { store_rows_alone<tile, access>(arguments, prologue, self); });
    } else {
      const bool repaired =
          Repair::template take_rows<tile, access>(arguments.rows, warp, prologue, self, x, failed);
      const RowsOfWarp<tile, access> where{arguments, io, prologue, repaired};
      encoder::encode<Form, tile.dtype, tile.vectors_of_row()>(arguments.out, x, where, none_to_meet);
    }
    if (arguments.out.pads) [[unlikely]]
      pad<tile>(arguments, self);
  }

  /// Behind the exchange: a warp's share of a row.
  template <Tile tile, Access access, Scaling scaling>
  __device__ __forceinline__ static void store_share_of_row(const Arguments& arguments,
                                                            const DeviceWarp<tile>& warp,
                                                            const RowAccess<tile, access>&,
                                                            const Prologue<tile, access>& prologue, int self,
                                                            bool failed) {
    constexpr int kVectors = tile.kept() * tile.warps_per_row;
    constexpr bool kAgain = Form::whole_row && (kVectors > 4);
    constexpr bool kTakesFailed = kLogOfFirstStage<tile>.value != 0;
    if constexpr (kTakesFailed && !kAgain) {
      if (failed) [[unlikely]] {
        store_row_again<tile, access>(arguments, prologue, self);
        if (arguments.out.pads) pad<tile>(arguments, self);
        return;
      }
    }
    float x[kVectors][8];
    take_share_of_row<tile>(warp, self, x);
    const ShareOfRow<tile, access> where{arguments, prologue, self};
    __shared__ float maxima[2][tile.warps_per_row];
    const Meeting<tile> meet{maxima, self};
    if constexpr (Form::rounded) {
      // What has one scale is short in all warps or in none.
      encoder::encode_rounded<Form, tile.dtype, kVectors, kAgain>(
          arguments.out, x, where, !(kTakesFailed && failed), meet,
          [&] { store_row_again<tile, access>(arguments, prologue, self); });
    } else {
      encoder::encode<Form, tile.dtype, kVectors>(arguments.out, x, where, meet);
    }
    if (arguments.out.pads) [[unlikely]]
      pad<tile>(arguments, self);
  }

 private:
  /// Where vector v of a lane goes: to a page, or where its row and column say.
  template <Tile tile, Access access>
  __device__ static std::uint64_t code_offset(const Arguments& arguments,
                                              const Prologue<tile, access>& prologue, int v,
                                              std::uint32_t row, int column) {
    const std::uint32_t row_bytes = arguments.out.row_bytes;
    return (prologue.places().has_pages() ? prologue.places().codes_at(v, row_bytes)
                                          : row * std::uint64_t{row_bytes}) +
           static_cast<std::uint64_t>(column * Form::bits / 8);
  }
  template <Tile tile, Access access>
  __device__ static std::int64_t scale_position(const Arguments& arguments,
                                                const Prologue<tile, access>& prologue, int v,
                                                std::uint32_t row, std::uint32_t column) {
    if (!prologue.places().has_pages()) return encoder::position_of(arguments.out, row, column);
    return prologue.places().scales_at(v, arguments.out.scale_columns) + column;
  }

  /// Where a warp's vectors go that holds whole rows.
  template <Tile tile, Access access>
  struct RowsOfWarp {
    const Arguments& arguments;
    const RowAccess<tile, access>& io;
    const Prologue<tile, access>& prologue;
    bool repaired;  // only there may be NaN

    __device__ std::uint32_t row(int v) const { return io.row_of_batch(v); }
    __device__ int column(int v) const { return io.column(v); }
    __device__ std::uint32_t row_step(int v) const { return io.row_step(v); }
    __device__ int column_step(int v) const { return io.column_step(v); }
    __device__ bool exists(int v) const {
      if constexpr (prepares) return io.exists(v) && prologue.places().exists(v);
      return io.exists(v);
    }
    __device__ static constexpr bool has_places() { return prepares; }
    __device__ std::uint64_t code_offset(int v) const {
      if constexpr (prepares)
        return EncodedRows::code_offset<tile, access>(arguments, prologue, v, row(v), column(v));
      return 0;
    }
    __device__ std::int64_t scale_position(int v, std::uint32_t at) const {
      if constexpr (prepares)
        return EncodedRows::scale_position<tile, access>(arguments, prologue, v, row(v), at);
      return 0;
    }
    __device__ int lane() const { return rows::lane_of_warp(); }
    __device__ bool leads_rows() const { return true; }
    __device__ bool asks_for_nan() const { return repaired; }
  };

  /// Where the vectors go that a warp has of a row behind the exchange.
  template <Tile tile, Access access>
  struct ShareOfRow {
    const Arguments& arguments;
    const Prologue<tile, access>& prologue;
    int self;

    __device__ std::uint32_t row(int) const { return blockIdx.x; }
    __device__ int column(int i) const {
      constexpr Tile row = tile;
      return column_behind_exchange(row, self, i, lane());
    }
    __device__ static std::uint32_t row_step(int) { return 0; }
    __device__ static int column_step(int i) {
      constexpr Tile row = tile;
      return column_behind_exchange(row, 0, i, 0);
    }
    __device__ static bool asks_for_nan() { return true; }
    __device__ bool exists(int) const {
      if constexpr (prepares) return prologue.places().exists(0);
      return true;
    }
    __device__ static constexpr bool has_places() { return prepares; }
    __device__ std::uint64_t code_offset(int v) const {
      if constexpr (prepares)
        return EncodedRows::code_offset<tile, access>(arguments, prologue, 0, blockIdx.x, column(v));
      return 0;
    }
    __device__ std::int64_t scale_position(int, std::uint32_t at) const {
      if constexpr (prepares)
        return EncodedRows::scale_position<tile, access>(arguments, prologue, 0, blockIdx.x, at);
      return 0;
    }
    __device__ int lane() const { return rows::lane_of_warp(); }
    __device__ bool leads_rows() const { return self == 0; }
  };

  /// The largest of what the warps of a row bring. They may meet again, in the other half of the words.
  template <Tile tile>
  struct Meeting {
    float (&maxima)[2][tile.warps_per_row];
    int self;
    mutable int turn = 0;

    __device__ float operator()(float maximum) const {
      float(&of_warps)[tile.warps_per_row] = maxima[turn];
      turn ^= 1;
      if (rows::lane_of_warp() == 0) of_warps[self] = maximum;
      __syncthreads();
#pragma unroll
      for (int w = 0; w < tile.warps_per_row; ++w)
        maximum = fmaxf(maximum, of_warps[w]);
      return maximum;
    }
  };

  /// All of a warp's rows again, from memory, each alone, to exact codes: where tensor cores failed, or the
  /// short arithmetic is not exact. On its way nothing comes back, so that the normal way keeps no registers
  /// for it.
  template <Tile tile, Access access>
  __device__ __noinline__ static void store_rows_alone(const Arguments& arguments,
                                                       Prologue<tile, access> prologue, int self) {
    float x[tile.vectors][8];
    take_rows_alone<tile, access>(arguments.rows, prologue, self, x);
    const RowAccess<tile, access> io(arguments.rows, self);
    const RowsOfWarp<tile, access> where{arguments, io, prologue, true};
    encoder::encode_exactly<Form, tile.dtype, tile.vectors_of_row()>(arguments.out, x, where,
                                                                     [](float maximum) { return maximum; });
  }

  /// The same for a row that all warps of the block come here with.
  template <Tile tile, Access access>
  __device__ __noinline__ static void store_row_again(const Arguments& arguments,
                                                      Prologue<tile, access> prologue, int self) {
    constexpr int kVectors = tile.kept() * tile.warps_per_row;
    float* const exchange = rows::exchange_of_block();
    __syncthreads();  // they have taken what they were to take
    put_again<tile, access>(arguments.rows, prologue, exchange, self);
    __syncthreads();
    float x[kVectors][8];
    take_share_of_row<tile>(DeviceWarp<tile>(arguments.rows, exchange), self, x);
    __shared__ float maxima[2][tile.warps_per_row];
    encoder::encode_exactly<Form, tile.dtype, kVectors>(
        arguments.out, x, ShareOfRow<tile, access>{arguments, prologue, self}, Meeting<tile>{maxima, self});
  }

  /// Zeros behind the scales of the warp's rows and, by the first warp of the last block, behind all of them.
  template <Tile tile>
  __device__ __noinline__ static void pad(const Arguments& arguments, int self) {
    const encoder::Output& out = arguments.out;
    const int lane = rows::lane_of_warp();
    for (int i = lane; i < tile.rows_per_warp(); i += 32) {
      if (tile.warps_per_row > 1 && self > 0) break;
      const std::int64_t row =
          std::int64_t{blockIdx.x} * tile.rows_per_block() + self * tile.rows_per_warp() + i;
      if (row % out.rows_per_token == 0 && row / out.rows_per_token < out.scale_rows)
        encoder::pad_columns(out, row / out.rows_per_token);
    }
    if (blockIdx.x != arguments.rows.last_block) return;
    if constexpr (tile.warps_per_row > 1) {
      encoder::pad_rows(out, static_cast<int>(threadIdx.x), tile.threads);
    } else if (self == 0) {
      encoder::pad_rows(out, lane, 32);
    }
  }
};

}  // namespace fwht::mma_split
