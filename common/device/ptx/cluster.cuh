// Blocks of a cluster (PTX ISA, "Special Registers: %cluster_ctarank, %clusterid" and "barrier.cluster").
// Needs sm_90.
#pragma once

#include <cstdint>

namespace fwht::ptx {

/// %cluster_ctarank: this block's rank in its cluster.
__device__ inline std::uint32_t cluster_ctarank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// %cluster_nctarank: how many blocks the cluster has; 1 where none was asked for.
__device__ inline std::uint32_t cluster_nctarank() {
  std::uint32_t blocks = 0;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return blocks;
}

/// %clusterid.x: this cluster's number in a grid of one dimension.
__device__ inline std::uint32_t clusterid() {
  std::uint32_t id;
  asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(id));
  return id;
}

/// barrier.cluster.arrive.release.aligned: all threads of the block together.
__device__ inline void barrier_cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

/// barrier.cluster.arrive.relaxed.aligned: the same for blocks of which nothing is read behind the barrier.
/// To release takes a fence of the whole device, hundreds of cycles.
__device__ inline void barrier_cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

/// barrier.cluster.wait.acquire.aligned: until every thread of the cluster has arrived.
__device__ inline void barrier_cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// mapa.shared::cluster: where block `rank` of the cluster has what this block has at `address`.
__device__ inline std::uint32_t mapa(std::uint32_t address, int rank) {
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

/// ld.shared::cluster.v2.f32: two numbers of the block that `address` belongs to, see mapa; 8-byte aligned.
__device__ inline float2 ld_shared_cluster_v2(std::uint32_t address) {
  float2 pair;
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
               : "=f"(pair.x), "=f"(pair.y)
               : "r"(address)
               : "memory");
  return pair;
}

/// ld.shared::cluster.v4.f32: four numbers, 16-byte aligned.
__device__ inline float4 ld_shared_cluster_v4(std::uint32_t address) {
  float4 four;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
               : "r"(address)
               : "memory");
  return four;
}

/// st.async (PTX ISA, "Data Movement and Conversion Instructions: st.async"): a word into the block that
/// `address` belongs to, see mapa, and 4 bytes on a barrier of that block.
__device__ inline void st_async_shared_cluster(std::uint32_t address, std::uint32_t word,
                                               std::uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(address),
               "r"(word), "r"(barrier)
               : "memory");
}

/// The same of eight bytes, 8-byte aligned.
__device__ inline void st_async_shared_cluster(std::uint32_t address, std::uint64_t word,
                                               std::uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(address),
               "l"(word), "r"(barrier)
               : "memory");
}

/// st.shared::cluster.v2.b32: 8 bytes into the block that `address` belongs to, see mapa; 8-byte aligned.
__device__ inline void st_shared_cluster_v2(std::uint32_t address, uint2 words) {
  asm volatile("st.shared::cluster.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(words.x), "r"(words.y)
               : "memory");
}

}  // namespace fwht::ptx
