// mma_split: the end of a kernel that writes rows of the storage type.
#pragma once

#include "variants/mma_split/non_finite_repair.cuh"

namespace fwht::mma_split {

struct StorageRows {
  using Arguments = Batch;
  __device__ static const Batch& batch(const Arguments& arguments) { return arguments; }
  template <Tile tile, Access access>
  using Prologue = NoPrologue<tile, access>;
  template <Tile tile, Access access>
  __device__ static std::uint32_t fetch_arguments(const Arguments&) {
    return 0;  // few, and there already
  }
  template <Tile tile>
  static constexpr std::integral_constant<int, 0> kLogOfFirstStage{};
  static constexpr bool kLanesTalk = false;  // behind the exchange

  /// A warp that holds whole rows.
  template <Tile tile, Access access, Scaling scaling, class Repair>
  __device__ __forceinline__ static void store_rows(const Arguments& batch, const DeviceWarp<tile>& warp,
                                                    const RowAccess<tile, access>& io,
                                                    const Prologue<tile, access>& prologue, int self,
                                                    const float (&x)[tile.vectors][8], bool failed) {
    if (Repair::template stored_rows<tile, access>(batch, warp, prologue, self, failed)) return;
    rows::store_rows<scaling>(batch, io, x);
  }

  /// Behind the exchange: a warp's share of a row.
  template <Tile tile, Access access, Scaling scaling>
  __device__ __forceinline__ static void store_share_of_row(const Arguments& batch,
                                                            const DeviceWarp<tile>& warp,
                                                            const RowAccess<tile, access>& io,
                                                            const Prologue<tile, access>&, int self, bool) {
    rows::store_share_of_row<tile, access, scaling>(batch, warp, io, self);
  }
};

}  // namespace fwht::mma_split
