// mma_split: how kernels that write codes are launched. One shape for few rows and one for many, measured on an
// H200; rows may lie any distance apart, so that no dense form is needed beside it.
#pragma once

#include <array>
#include <cstddef>

#include "common/encoding.hpp"
#include "variants/encode/scales.hpp"
#include "variants/mma_split/launches.hpp"

namespace fwht::mma_split {

/// Every warp keeps whole vectors behind the exchange (Tile::parts() = 1), so that groups lie in them.
constexpr Launch encoded_launch(int log_n, bool few_rows) {
  switch (log_n) {
    case 11:
      return kTwoWarpsOfFour;
    case 12:
      return kFourWarpsOfFour;
    case 13:
      return rows::across_warps(8, 4);
    case 14:
      return rows::across_warps(16, 4, 3);
    case 10:
      return kFourVectorsSmallBlocks;
    case 9:
      return few_rows ? kTwoVectorsSmallBlocks : kFourVectorsSmallBlocks;
    default:
      return few_rows ? kOneVector : kFourVectorsSmallBlocks;
  }
}

constexpr KernelId encoded_kernel(Dtype dtype, int log_n, bool few_rows) {
  return {dtype,           log_n, encoded_launch(log_n, few_rows), Access::vectors, Trigger::behind_loads,
          Scaling::results};
}

/// Whether warps must find the maximum of a row together: otherwise whatever shares a scale lies in one vector of
/// a warp, 256 elements.
constexpr bool joins_vectors(const Encoding& encoding, std::int64_t n) {
  return encoding.scales.kind != ScaleGranularity::Kind::group && n > 256;
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
