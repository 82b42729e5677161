// mma_split: the pass that finds the scale of a whole tensor: rows are transformed as for their codes, and
// leave their largest |y|, rounded as the codes' numbers are.
//
// Most warps find a larger number in memory already, so that few of them meet in an atomic operation.
#pragma once

#include <type_traits>

#include "variants/mma_split/encoded_instances.cuh"

namespace fwht::mma_split {

/// @tparam prepares  rows are put through a prologue first
template <bool prepares = false>
struct LargestOfTensor {
  using Arguments = CodesBatch<prepares>;
  template <Tile tile, Access access>
  using Prologue = std::conditional_t<prepares, RowPrologue<tile, access>, NoPrologue<tile, access>>;
  __device__ static const Batch& batch(const Arguments& arguments) { return arguments.rows; }
  template <Tile tile, Access access>
  __device__ static std::uint32_t fetch_arguments(const Arguments&) {
    return 0;
  }
  template <Tile tile>
  static constexpr std::integral_constant<int, 0> kLogOfFirstStage{};
  static constexpr bool kLanesTalk = true;  // behind the exchange

  /// A warp that holds whole rows. Where a row does not exist, there are other data of the warp.
  template <Tile tile, Access access, Scaling scaling, class Repair>
  __device__ __forceinline__ static void store_rows(const Arguments& arguments, const DeviceWarp<tile>& warp,
                                                    const RowAccess<tile, access>& io,
                                                    const Prologue<tile, access>& prologue, int self,
                                                    float (&x)[tile.vectors][8], bool failed) {
    Repair::template take_rows<tile, access>(arguments.rows, warp, prologue, self, x, failed);
#pragma unroll
    for (int v = 0; v < tile.vectors; ++v) {
#pragma unroll
      for (int e = 0; e < 8; ++e)
        x[v][e] = io.exists(v) ? x[v][e] : 0.0F;
    }
    leave_largest<tile>(arguments.out, x);
  }

  /// Behind the exchange: a warp's share of a row.
  template <Tile tile, Access access, Scaling scaling>
  __device__ __forceinline__ static void store_share_of_row(const Arguments& arguments,
                                                            const DeviceWarp<tile>& warp,
                                                            const RowAccess<tile, access>&,
                                                            const Prologue<tile, access>&, int self, bool) {
    float x[tile.kept() * tile.warps_per_row][8];
    take_share_of_row<tile>(warp, self, x);
    leave_largest<tile>(arguments.out, x);
  }

 private:
  template <Tile tile, int vectors>
  __device__ __forceinline__ static void leave_largest(const encoder::Output& out,
                                                       const float (&x)[vectors][8]) {
    float largest = 0.0F;  // what fmaxf makes of NaN
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
#pragma unroll
      for (int e = 0; e < 8; ++e)
        largest = fmaxf(largest, fabsf(x[v][e]));
    }
    largest = encoder::rounded_maximum<tile.dtype>(out, largest);
    const std::uint32_t bits = __reduce_max_sync(0xFFFFFFFFU, __float_as_uint(largest));
    if (rows::lane_of_warp() == 0 && bits > *out.largest) atomicMax(out.largest, bits);
  }
};

/// For the kernels that do not round first, which are those of scales of the tensor.
template <Dtype dtype, bool prepares>
CodesKernel<prepares> find_largest(const KernelId& id) {
  using Kernels = Table<KernelId, CodesKernel<prepares>>;
  using Writer = LargestOfTensor<prepares>;
  static const auto kTable =
      table_of<Kernels, kSmallestLogN, kLargestLogN, 1>([](Kernels& kernels, auto log_n, auto) {
        constexpr KernelId here = encoded_kernel(dtype, log_n(), true, log_n() > 8, false);
        kernels.add(here, kernel_of<Writer, dtype, log_n(), rows::code_of(here.launch), here.access,
                                    here.trigger, here.scaling>());
      });
  return kTable.find(id);
}

}  // namespace fwht::mma_split
