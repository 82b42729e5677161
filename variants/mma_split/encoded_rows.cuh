// mma_split: the end of a kernel that writes codes and scales.
#pragma once

#include "variants/encode/storage_encoder.cuh"
#include "variants/mma_split/encoded_kernels.hpp"
#include "variants/mma_split/storage_rows.cuh"

namespace fwht::mma_split {

/// @tparam Form  encoder::Form: element, family of scales, what shares one
template <class Form>
struct EncodedRows {
  using Arguments = EncodedBatch;
  __device__ static const Batch& batch(const Arguments& arguments) { return arguments.rows; }
  /// While the data are on their way: a launch finds none of its arguments in the constant cache, and the epilogue would
  /// wait for each line of them.
  __device__ static void fetch_arguments(const Arguments& arguments) {
    const encoder::Output& out = arguments.out;
    asm volatile("" ::"f"(out.brief.above), "f"(out.last), "r"(out.lanes));
  }

  /// A warp that holds whole rows.
  template <Tile tile, Access access, Scaling scaling, class Repair>
  __device__ __forceinline__ static void store_rows(const Arguments& arguments, const DeviceWarp<tile>& warp,
                                                    const RowAccess<tile, access>& io, int self,
                                                    float (&x)[tile.vectors][8], bool failed) {
    const bool repaired = Repair::template take_rows<tile, access>(arguments.rows, warp, self, x, failed);
    struct {
      const RowAccess<tile, access>& io;
      bool repaired;  // only there may be NaN
      __device__ std::uint32_t row(int v) const { return io.row_of_batch(v); }
      __device__ int column(int v) const { return io.column(v); }
      __device__ std::uint32_t row_step(int v) const { return io.row_step(v); }
      __device__ int column_step(int v) const { return io.column_step(v); }
      __device__ bool exists(int v) const { return io.exists(v); }
      __device__ int lane() const { return rows::lane_of_warp(); }
      __device__ bool leads_row() const { return lane() == 0; }
      __device__ bool asks_for_nan() const { return repaired; }
    } const where{io, repaired};
    encode<tile.dtype, tile.vectors_of_row()>(arguments.out, x, where, [](float maximum) { return maximum; });
    if (arguments.out.pads) [[unlikely]]
      pad<tile>(arguments, self);
  }

  /// Behind the exchange: a warp's share of a row.
  template <Tile tile, Access access, Scaling scaling>
  __device__ __forceinline__ static void store_share_of_row(const Arguments& arguments,
                                                            const DeviceWarp<tile>& warp,
                                                            const RowAccess<tile, access>&, int self) {
    constexpr Tile here = tile;
    constexpr int kWarps = tile.warps_per_row, kKept = tile.kept();
    static_assert(tile.parts() == 1 && tile.rows_per_block() == 1);
    const int first = here.vector_taken(self);
    float x[kKept * kWarps][8];
#pragma unroll
    for (int v = 0; v < kKept; ++v) {
      float gathered[kWarps][8];
      rows::exchange_get(warp, first + v, 0, gathered);
#pragma unroll
      for (int from = 0; from < kWarps; ++from) {
#pragma unroll
        for (int e = 0; e < 8; ++e)
          x[v * kWarps + from][e] = gathered[from][e];
      }
    }
    struct {
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
      __device__ static bool exists(int) { return true; }
      __device__ int lane() const { return rows::lane_of_warp(); }
      __device__ bool leads_row() const { return self == 0 && lane() == 0; }
    } const where{self};
    __shared__ float maxima[kWarps];
    encode<tile.dtype, kKept * kWarps>(arguments.out, x, where, [&](float maximum) {
      if (where.lane() == 0) maxima[self] = maximum;
      __syncthreads();
#pragma unroll
      for (int w = 0; w < kWarps; ++w)
        maximum = fmaxf(maximum, maxima[w]);
      return maximum;
    });
    if (arguments.out.pads) [[unlikely]]
      pad<tile>(arguments, self);
  }

 private:
  template <Dtype dtype, int vectors_of_row, int vectors, class Where, class Meet>
  __device__ __forceinline__ static void encode(const encoder::Output& out, float (&x)[vectors][8],
                                                const Where& where, const Meet& meet) {
    if constexpr (Form::rounded) {
      encoder::encode_rounded<Form, dtype, vectors_of_row>(out, x, where, meet);
    } else {
      encoder::encode<Form, dtype, vectors_of_row>(out, x, where, meet);
    }
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
