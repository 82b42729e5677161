// mma_split: the places in pages that a lane's rows of codes go to.
#pragma once

#include <cstdint>

#include "variants/kit/row_access.cuh"
#include "variants/mma_split/prologue.hpp"

namespace fwht::mma_split {

using rows::Access;
using rows::RowAccess;
using rows::Tile;

/// Slots are read once a row, beside the rows themselves, and divided by the rows of a page there.
template <Tile tile, Access access>
class PlacesOfRows {
 public:
  __device__ PlacesOfRows(const PlacesArguments& pages, const RowAccess<tile, access>& io) : pages_(pages) {
    if (!has_pages()) return;
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const bool exists = io.exists(row * kVectorsOfRow);
      const std::int64_t slot = exists ? pages.slots[io.row_of_batch(row * kVectorsOfRow)] : -1;
      const auto place = static_cast<std::uint32_t>(slot);
      page_[row] = place / pages.tokens;
      token_[row] = slot >= 0 && slot < pages.count ? place - page_[row] * pages.tokens : kNone;
    }
  }

  /// Else rows lie one behind the other.
  __device__ bool has_pages() const {
    return pages_.slots != nullptr;
  }
  /// Whether the row of vector v of the lane has a place.
  __device__ bool exists(int v) const {
    return !has_pages() || token_[v / kVectorsOfRow] != kNone;
  }
  /// With pages, where that is: in bytes, and in scales.
  __device__ std::uint64_t codes_at(int v, std::uint32_t row_bytes) const {
    return page_[v / kVectorsOfRow] * static_cast<std::uint64_t>(pages_.page_bytes) +
           token_[v / kVectorsOfRow] * std::uint64_t{row_bytes};
  }
  __device__ std::int64_t scales_at(int v, std::int64_t scales_of_row) const {
    return page_[v / kVectorsOfRow] * pages_.scales_of_a_page + pages_.first_scale +
           token_[v / kVectorsOfRow] * scales_of_row;
  }

 private:
  static constexpr int kVectorsOfRow = tile.vectors_of_row();
  static constexpr int kRows = tile.vectors / kVectorsOfRow;
  static constexpr std::uint32_t kNone = ~0U;

  const PlacesArguments& pages_;  // in the kernel's argument
  std::uint32_t page_[kRows], token_[kRows];
};

}  // namespace fwht::mma_split
