// Tensor copies: boxes of a tensor that a map describes (PTX ISA, "Data Movement and Conversion Instructions:
// cp.async.bulk.tensor"). One instruction, one function. Needs sm_90. What a box holds beyond the bounds of
// the tensor is zero when it is loaded, and is not written when it is stored.
#pragma once

#include <cstdint>

namespace fwht::ptx {

/// prefetch.tensormap: the map of a __grid_constant__ parameter, before its first copy.
__device__ inline void prefetch_tensormap(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// cp.async.bulk.tensor.2d and 3d, global to shared; see the 4d form.
__device__ inline void tensor_copy_global_to_shared_2d(std::uint32_t to, const void* map, int c0, int c1,
                                                       std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"(c0), "r"(c1), "r"(barrier)
      : "memory");
}
__device__ inline void tensor_copy_global_to_shared_3d(std::uint32_t to, const void* map, int c0, int c1,
                                                       int c2, std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(barrier)
      : "memory");
}

/// cp.async.bulk.tensor.4d, global to shared: the box that begins at (c0, c1, c2, c3), first coordinate
/// fastest. Completes the bytes of the whole box on the mbarrier. `map`: address of a CUtensorMap that is a
/// __grid_constant__ parameter or lies in global memory.
__device__ inline void tensor_copy_global_to_shared_4d(std::uint32_t to, const void* map, int c0, int c1,
                                                       int c2, int c3, std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
      "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(barrier)
      : "memory");
}

/// cp.async.bulk.tensor.4d, shared to global, tracked by the calling thread's bulk groups.
__device__ inline void tensor_copy_shared_to_global_4d(const void* map, int c0, int c1, int c2, int c3,
                                                       std::uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(map),
      "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(from)
      : "memory");
}

}  // namespace fwht::ptx
