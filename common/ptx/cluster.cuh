// Blocks of a cluster (PTX ISA, "Special Registers: %cluster_ctarank, %clusterid" and "barrier.cluster"). Needs
// sm_90.
#pragma once

#include <cstdint>

namespace fwht::ptx {

/// %cluster_ctarank: this block's rank in its cluster.
__device__ inline std::uint32_t cluster_ctarank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
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

}  // namespace fwht::ptx
