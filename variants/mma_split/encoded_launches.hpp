// mma_split: how kernels that write codes are launched. Measured on an H200.
#pragma once

#include <array>
#include <cstddef>

#include "common/encoding.hpp"
#include "variants/encode/scales.hpp"
#include "variants/mma_split/launches.hpp"

namespace fwht::mma_split {

/// For many contiguous rows, or for few and any others. Every warp keeps whole vectors behind the exchange
/// (Tile::parts() = 1), so that groups lie in them. Registers are limited where the compiler would take more than it
/// needs, and warps would be missed.
///
/// @param joins  see joins_vectors()
constexpr Launch encoded_launch(int log_n, bool many_dense, bool joins) {
  switch (log_n) {
    case 9:
      return many_dense ? kFourVectorsSmallBlocks : kTwoVectorsSmallBlocks;
    case 10:
      return kFourVectorsSmallBlocks;
    case 11:
      return many_dense ? rows::in_warps(8, 64, 10) : rows::across_warps(4, 2, 16);
    case 12:
      return rows::across_warps(4, 4, 8);
    case 13:
      return rows::across_warps(8, 4, 5);
    case 14:
      return joins ? kThreeLongRowsApart : rows::across_warps(8, 8, 3);
    default:
      return many_dense ? kFourVectorsSmallBlocks : kOneVector;
  }
}

/// Kernels for numbers that are not rounded first have the launches of many rows alone.
constexpr KernelId encoded_kernel(Dtype dtype, int log_n, bool many_dense, bool joins, bool rounded) {
  const Launch launch = encoded_launch(log_n, many_dense || !rounded, joins);
  // Addresses of a block's only row cost little.
  const bool dense = rounded && many_dense && launch.form == rows::Form::in_warps;
  const bool turns = rounded && many_dense;
  return {dtype,
          log_n,
          launch,
          dense ? Access::dense : Access::vectors,
          turns ? Trigger::at_end : Trigger::behind_loads,
          Scaling::results};
}

/// Whether a warp takes several tiles, or a block several rows, one after the other.
constexpr bool takes_turns(const KernelId& id) {
  return id.trigger == Trigger::at_end;
}
/// Tiles of a warp that have their own place in shared memory, the one it works on included. A warp that shares its row
/// copies the next one when it has the last one in registers; where that would cost resident rows, to its part of the
/// exchange buffer, when all have their share.
constexpr int tiles_in_shared(const KernelId& id) {
  if (!takes_turns(id)) return 0;
  if (id.launch.form == rows::Form::in_warps) return 2;
  return id.log_n <= 12 ? 1 : 0;
}
constexpr int encoded_shared_bytes(const KernelId& id) {
  return 4 * id.tile().exchange_words() + tiles_in_shared(id) * 16 * id.launch.vectors * id.launch.threads;
}

/// Whether warps must find the maximum of a row together: otherwise whatever shares a scale lies in one vector of
/// a warp, 256 elements.
constexpr bool joins_vectors(const Encoding& encoding, std::int64_t n) {
  return encoding.scales.kind != ScaleGranularity::Kind::group && n > 256;
}

/// Whether the kernels of storage_encoder.cuh take the encoding.
constexpr bool is_rounded_first(const Encoding& encoding) {
  const bool finds_scale_of_tensor =
      encoding.scales.kind == ScaleGranularity::Kind::tensor && writes_scales(encoding);
  return encoding.intermediate == Intermediate::storage && encoding.recipe != Recipe::quarot &&
         !finds_scale_of_tensor;
}

/// Elements of a group as the kernel sees it.
constexpr std::int64_t group_in_row(const Encoding& encoding, std::int64_t n) {
  return encoding.scales.kind == ScaleGranularity::Kind::group ? encoding.scales.group : n;
}

/// Behind the exchange: column of the first of the eight elements that a lane of warp `self` has in its vector
/// number i, of kept() from each warp of the row.
constexpr int column_behind_exchange(const Tile& tile, int self, int i, int lane) {
  const int from = i % tile.warps_per_row, v = tile.vector_taken(self) + i / tile.warps_per_row;
  return tile.column_of_vector(tile.first_vector(from, lane) + 32 * v);
}

}  // namespace fwht::mma_split
