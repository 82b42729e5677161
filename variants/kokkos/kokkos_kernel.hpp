// The kernel: one functor per execution space from one source, chosen by what the space's memory says.
//
// Hierarchy. League: groups of rows (short rows share a team, a long row has one). Team: on a device the
// threads that hold a tile in registers and exchange through team scratch (tile.hpp); on the host one thread,
// whose fp32 row is the team scratch (kit/simd). Vector: on a device the elements of a thread's registers; on
// the host a SIMD pack.
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdint>

#include "variants/kit/simd/rows.hpp"
#include "variants/kokkos/tile.hpp"

namespace fwht::kokkos {

/// Spaces whose memory the host cannot touch hold tiles in registers; the others keep a row in the cache.
template <class Space>
inline constexpr bool kTiled =
    !Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Space::memory_space>::accessible;

template <Dtype dtype>
using Storage = std::conditional_t<dtype == Dtype::f32, float, std::uint16_t>;

/// The caller's array as Kokkos sees it: not owned, not counted.
template <class Space, class Element>
using Unowned = Kokkos::View<Element*, typename Space::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

template <class Space, class Element>
Unowned<Space, Element> unowned(Element* data, std::int64_t elements) {
  return Unowned<Space, Element>(data, static_cast<std::size_t>(elements));
}

/// Storage words to floats and back by Kokkos' half types, which are the device's own instructions.
template <Dtype dtype>
struct KokkosCodec {
  using Half =
      std::conditional_t<dtype == Dtype::f16, Kokkos::Experimental::half_t, Kokkos::Experimental::bhalf_t>;

  KOKKOS_FUNCTION static float decode(std::uint32_t bits) {
    if constexpr (dtype == Dtype::f32) {
      return Kokkos::bit_cast<float>(bits);
    } else if constexpr (dtype == Dtype::bf16) {
      return Kokkos::bit_cast<float>(bits << 16);
    } else {
      using Native = typename Half::impl_type;
      static_assert(sizeof(Native) == 2, "this execution space has no 16-bit floating point");
      return static_cast<float>(Half(Kokkos::bit_cast<Native>(static_cast<std::uint16_t>(bits))));
    }
  }
  KOKKOS_FUNCTION static std::uint32_t encode(float value) {
    if constexpr (dtype == Dtype::f32) {
      return Kokkos::bit_cast<std::uint32_t>(value);
    } else {
      using Native = typename Half::impl_type;
      static_assert(sizeof(Native) == 2, "this execution space has no 16-bit floating point");
      return Kokkos::bit_cast<std::uint16_t>(static_cast<Native>(Half(value)));
    }
  }
  KOKKOS_FUNCTION static void decode2(std::uint32_t word, float& low, float& high) {
    low = decode(word & 0xFFFFU);
    high = decode(word >> 16);
  }
  KOKKOS_FUNCTION static std::uint32_t encode2(float low, float high) {
    return encode(low) | encode(high) << 16;
  }
};

/// A device team and its tiles.
template <class Space, Dtype dtype, class TileShape, bool kVectors>
struct TileKernel {
  using Policy =
      Kokkos::TeamPolicy<Space, Kokkos::LaunchBounds<TileShape::kThreads, TileShape::kBlocksPerSm>>;
  using Member = typename Policy::member_type;

  TileJob job;
  Unowned<Space, const Storage<dtype>> in;
  Unowned<Space, Storage<dtype>> out;

  static constexpr int kScratchBytes = TileShape::kScratchFloats * sizeof(float);

  KOKKOS_FUNCTION void operator()(const Member& team) const {
    const int bytes = kScratchBytes;  // Kokkos takes a reference
    auto* scratch = static_cast<float*>(team.team_scratch(0).get_shmem_aligned(bytes, sizeof(float)));
    TileThread<KokkosCodec<dtype>, TileShape, kVectors> thread(job, in.data(), out.data(), team.team_rank());
    transform_tiles(thread, team.league_rank(), team.league_size(), job.tiles, scratch,
                    [&] { team.team_barrier(); });
  }
};

/// A host thread and its group of rows.
template <class Space, Dtype dtype>
struct RowsKernel {
  using Policy = Kokkos::TeamPolicy<Space>;
  using Member = typename Policy::member_type;

  simd::RowJob job;
  simd::RowKernel kernel;
  std::int64_t rows, rows_per_team;
  int scratch_level;
  Unowned<Space, const Storage<dtype>> in;
  Unowned<Space, Storage<dtype>> out;

  std::size_t scratch_bytes() const { return simd::scratch_floats(job.n) * sizeof(float); }

  void operator()(const Member& team) const {
    const std::int64_t first = team.league_rank() * rows_per_team;
    const std::int64_t count = Kokkos::min(rows_per_team, rows - first);
    auto* scratch =
        static_cast<float*>(team.team_scratch(scratch_level).get_shmem_aligned(scratch_bytes(), 64));
    const std::int64_t offset = first * job.in_stride;
    kernel(job, in.data() + offset, out.data() + offset, count, scratch);
  }
};

}  // namespace fwht::kokkos
