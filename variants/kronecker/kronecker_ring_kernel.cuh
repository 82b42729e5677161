// The kernel of kronecker for long rows and second matrices; kronecker.cu opens with the idea and the bit
// card.
//
// All warpgroups of a block share one ring of boxes, and each makes 64 rows of the product of a tile at a
// time: work is dealt out in such parts, one after the other. So no warpgroup waits for the others of a tile,
// a place is filled again as soon as all parts of its tile have been read, and the ring holds tiles and
// fractions of tiles.
#pragma once

#include "variants/kronecker/kronecker_kernels.hpp"

namespace fwht::kronecker {

/// The ring. Place p holds box p of the first tile, and so on around. Tiles are counted in the order in which
/// the block makes them; their numbers in the problem are drawn from a counter.
template <Launch launch>
class BoxRing {
  static constexpr int kPlaces = launch.places, kSteps = launch.shape.k_steps(),
                       kBoxBytes = launch.shape.box_bytes();

 public:
  static constexpr int kFirst = ring_first_tiles(kPlaces, kSteps);  ///< tiles that no draw decides
  static_assert(kPlaces >= kSteps && 2 * kFirst <= kRingTiles);

  /// `memory`: ring_barrier_bytes of shared memory; `boxes`: shared address of place 0; `in`: the input, of
  /// which the launch makes `tiles`.
  __device__ BoxRing(std::byte* memory, std::uint32_t boxes, const CUtensorMap& in, int tiles)
      : full_(ptx::shared_address(memory)),
        read_(full_ + 8 * kPlaces),
        numbers_(reinterpret_cast<int*>(memory + 8 * (kPlaces + kRingTiles))),
        boxes_(boxes),
        in_(in),
        tiles_(tiles) {}

  __device__ void init() const {
    for (int p = 0; p < kPlaces; ++p)
      ptx::mbarrier_init(full_ + 8 * p, 1);
    for (int t = 0; t < kRingTiles; ++t)
      ptx::mbarrier_init(read_ + 8 * t, launch.threads() / 32);
    ptx::fence_mbarrier_init();
  }
  __device__ void set_first_numbers() const {
    for (int tile = 0; tile < kFirst; ++tile)
      set_number(tile, static_cast<int>(blockIdx.x + tile * gridDim.x));
  }
  /// The first contents of places `from` to `end`.
  __device__ void fill(int from, int end) const {
#pragma unroll 1
    for (int p = from; p < end; ++p)
      load(p, number(p / kSteps), p % kSteps);
  }

  // Of the tile at hand.
  /// Its number in the problem, for all of a warp, once its first box is there; false where there is none any
  /// more.
  __device__ bool take(int& tile, int lane) const {
    wait_full(0);
    tile = __shfl_sync(0xFFFFFFFFU, lane == 0 ? number(at_.tile) : 0, 0);
    return tile < tiles_;
  }
  __device__ std::uint32_t box(int step) const {
    return boxes_ + at_.place(step) * kBoxBytes;
  }
  __device__ void wait_full(int step) const {
    ptx::mbarrier_wait_parity(full_ + 8 * at_.place(step), at_.parity(step));
  }
  __device__ void wait_for_all() const {
#pragma unroll 1
    for (int step = 0; step < kSteps; ++step)
      wait_full(step);
  }
  __device__ void release() const {
    ptx::mbarrier_arrive(read_ + 8 * (at_.tile % kRingTiles));
  }
  /// The number of the tile whose first box comes into a place of this one.
  __device__ void set_next(int number) const {
    set_number(at_.tile + kFirst, number);
  }
  /// By a warpgroup: asks for what comes into the places of this tile, when all have read it.
  __device__ void refill(int warp, int lane) const {
    if (lane == 0) {
      ptx::mbarrier_wait_parity(read_ + 8 * (at_.tile % kRingTiles), at_.tile / kRingTiles & 1);
#pragma unroll 1
      for (int step = warp; step < kSteps; step += 4)
        load(at_.place(step), number(at_.next_tile(step)), at_.next_step(step));
    }
    __syncwarp();
  }
  __device__ void advance() {
    at_.advance();
  }

 private:
  __device__ int number(int tile) const {
    return static_cast<volatile int*>(numbers_)[tile % kRingTiles];
  }
  __device__ void set_number(int tile, int number) const {
    static_cast<volatile int*>(numbers_)[tile % kRingTiles] = number;
  }
  /// There is nothing to ask for behind the last tile.
  __device__ void load(int place, int number, int step) const {
    const std::uint32_t barrier = full_ + 8 * place;
    if (number >= tiles_) return ptx::mbarrier_arrive(barrier);
    ptx::mbarrier_arrive_expect_tx(barrier, static_cast<std::uint32_t>(kBoxBytes));
    ptx::tensor_copy_global_to_shared_4d(boxes_ + place * kBoxBytes, &in_, 0, 16 * step, 0, number, barrier);
  }

  std::uint32_t full_, read_;
  int* numbers_;
  std::uint32_t boxes_;
  const CUtensorMap& in_;
  int tiles_;
  RingPosition at_{kPlaces, kSteps};
};

/// Tiles behind a block's first ones. A thread draws one ahead, while its warpgroup makes the last part of a
/// tile, and tells the ring when its warp releases the tile after that.
template <Launch launch>
struct RingTickets {
  rows::CountedWork work;
  bool holds = threadIdx.x == 0;
  unsigned drawn = holds ? draw() : 0;

  __device__ unsigned draw() const { return static_cast<unsigned>(work.tile_of(work.draw())); }
  /// By a warpgroup.
  __device__ void draw_ahead() {
    if (threadIdx.x % 128 == 0) {
      drawn = draw();
      holds = true;
    }
  }
  /// By all warps of the block, when they have read the tile at hand.
  __device__ void release(const BoxRing<launch>& ring, int lane) {
    if (holds) ring.set_next(static_cast<int>(drawn));
    holds = false;
    if (lane == 0) ring.release();
  }
};

/// Stage 1 from the ring: the signs of `together` k steps are expanded, then multiplied.
template <Dtype dtype, int columns, int line, int k_steps, int together, class Ring>
__device__ void exact_stage(float (&d)[columns / 2], const SignedMatrix<dtype, k_steps>& matrix,
                            const Ring& ring) {
#pragma unroll
  for (int first = 0; first < k_steps; first += together) {
    std::uint32_t step[together][4];
#pragma unroll
    for (int i = 0; i < 4 * together && first + i / 4 < k_steps; ++i) {
      step[i / 4][i % 4] =
          signed_ones(two_ones<dtype>(), matrix.words[(first + i / 4) / 4], first + i / 4, i % 4);
      asm volatile("" : "+r"(step[i / 4][i % 4]));
    }
#pragma unroll
    for (int s = first; s < k_steps && s < first + together; ++s) {
      if ((s - first) % 4 == 0) {
#pragma unroll
        for (int full = s; full < k_steps && full < s + 4; ++full)
          ring.wait_full(full);
        ptx::wgmma_fence();
      }
      ptx::wgmma_m64k16<dtype, columns>(d, step[s - first], box_descriptor(ring.box(s), line), s > 0);
    }
    ptx::wgmma_commit_group();
    if (first + together < k_steps) ptx::wgmma_wait_group<0>();  // the registers of the signs are free
  }
}

/// A group of `second` columns times the second matrix by wgmma. Its operands B lie at shared address
/// `table`; the group is operand A, a column tile's hi and lo side by side in k.
template <int second>
__device__ void multiply_by_second(float (&sums)[second / 2], const std::uint32_t (&halves)[second / 8][4],
                                   std::uint32_t table) {
#pragma unroll
  for (int from = 0; from < second / 8; ++from) {
    const std::uint64_t b = second_descriptor(table + from * 4 * second_step_words(second), second);
    ptx::wgmma_m64k16_b_k_major<Dtype::bf16, second>(sums, halves[from], b, from > 0);
  }
}

/// The end of stage 2 with a second matrix, two groups of columns after the other: they are whole pairs of
/// column tiles.
template <Dtype dtype, int second, int groups, int line, int registers>
__device__ void finish_by_wgmma(const float (&d)[registers], std::uint32_t table,
                                const Stage2Constants& constants, float scale, const BoxWriter<line>& writer,
                                bool has_rows) {
  constexpr int kTiles = second / 8;
  static_assert(registers / 4 % (2 * kTiles) == 0);
#pragma unroll
  for (int first = 0; first < registers / 4; first += 2 * kTiles) {
    float sums[2][second / 2];
#pragma unroll
    for (int g = 0; g < 2; g += groups) {
      std::uint32_t halves[groups][kTiles][4];
#pragma unroll
      for (int i = 0; i < groups; ++i) {
        float x[kTiles][4];
#pragma unroll
        for (int j = 0; j < 4 * kTiles; ++j)
          x[j / 4][j % 4] = d[4 * (first + (g + i) * kTiles) + j];
        rows::split(halves[i], x, constants.minus_identity);
      }
#pragma unroll
      for (int i = 0; i < 4 * kTiles * groups; ++i)
        asm volatile("" : "+r"(halves[i / 4 / kTiles][i / 4 % kTiles][i % 4]));
      ptx::wgmma_fence();
#pragma unroll
      for (int i = 0; i < groups; ++i)
        multiply_by_second<second>(sums[g + i], halves[i], table);
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<0>();
#pragma unroll
      for (int i = 0; i < groups; ++i)
        ptx::pin_accumulators(sums[g + i]);
    }
    if (!has_rows) continue;
#pragma unroll
    for (int tile = 0; tile < 2 * kTiles; tile += 2) {
      float x[2][4];
#pragma unroll
      for (int i = 0; i < 8; ++i)
        x[i / 4][i % 4] = sums[(tile + i / 4) / kTiles][4 * ((tile + i / 4) % kTiles) + i % 4];
      put<dtype>(writer, first + tile, x[0], x[1], scale);
    }
  }
}

/// Two column tiles into the box staged at `staging`, as BoxWriter::put, from a tile on that is known at run
/// time; the same one twice where `tiles` is 1.
template <Dtype dtype, int line>
__device__ void put_at(std::uint32_t staging, int tile, int tiles, const float (&x)[4], const float (&y)[4],
                       float scale, int lane) {
  const int row = (lane & 7) + (lane >> 3 & 1) * 8, of_lane = tile + (tiles == 2 ? lane >> 4 : 0);
  const std::uint32_t words[4] = {
      rounded_pair<dtype>(x[0] * scale, x[1] * scale), rounded_pair<dtype>(x[2] * scale, x[3] * scale),
      rounded_pair<dtype>(y[0] * scale, y[1] * scale), rounded_pair<dtype>(y[2] * scale, y[3] * scale)};
  ptx::stmatrix_x4(staging + box_byte(row, of_lane, line), words);
}

/// All of stage 2 where the four warps of a warpgroup have the same 16 rows: each ends a quarter of their
/// columns, or one group of `second` columns. The box is that of the first warp.
template <Dtype dtype, int second, int line, int registers>
__device__ void finish_share(const float (&d)[registers], int warp, std::uint32_t table,
                             const Stage2Constants& constants, float scale, const BoxWriter<line>& writer,
                             int lane) {
  constexpr int kShares = second == 1 ? 4 : 2 * registers / second, kShare = registers / kShares;
  static_assert(kShares == 2 || kShares == 4);
  // The butterflies between shares.
  const float low = (warp & 1) != 0 ? -1.0F : 1.0F, high = (warp & 2) != 0 ? -1.0F : 1.0F;
  float x[kShare];
#pragma unroll
  for (int i = 0; i < kShare; ++i) {
    x[i] = fmaf(low, d[i + kShare], d[i]);
    if constexpr (kShares == 4) x[i] = fmaf(high, fmaf(low, d[i + 3 * kShare], d[i + 2 * kShare]), x[i]);
  }
  if constexpr (second == 1) {
    static_assert(8 * kShare / 4 % line == 0, "whole lines");
    rows::register_butterflies<4, kShare>(x);
    const BoxWriter<line> own(writer.staging() + warp * (8 * kShare / 4 / line) * (16 * 2 * line), lane);
    finish<dtype>(x, constants, scale, own);
  } else {
    constexpr int kTiles = second / 8;
    std::uint32_t halves[kTiles][4];
    rows::split(halves, reinterpret_cast<float(&)[kTiles][4]>(x), constants.minus_identity);
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i)
      asm volatile("" : "+r"(halves[i / 4][i % 4]));
    float sums[second / 2];
    ptx::wgmma_fence();
    multiply_by_second<second>(sums, halves, table);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    ptx::pin_accumulators(sums);
    if (warp >= kShares) return;
#pragma unroll
    for (int tile = 0; tile < kTiles; tile += 2) {
      constexpr auto kLast = kTiles - 1;
      const int other = tile < kLast ? tile + 1 : tile;
      put_at<dtype, line>(writer.staging(), warp * kTiles + tile, other - tile + 1,
                          reinterpret_cast<float(&)[4]>(sums[4 * tile]),
                          reinterpret_cast<float(&)[4]>(sums[4 * other]), scale, lane);
    }
  }
}

/// Stage 2 of 16 rows that a warp has alone.
template <Dtype dtype, Launch launch, class Writer, int registers>
__device__ void finish_own(float (&d)[registers], bool has_rows, std::uint32_t table,
                           const Stage2Constants& constants, float scale, const Writer& writer) {
  constexpr int second = launch.shape.second;
  if (has_rows) rows::register_butterflies<second == 1 ? 4 : second / 2, launch.shape.columns / 2>(d);
  if constexpr (second > 1) {
    finish_by_wgmma<dtype, second, launch.groups_together(), launch.shape.line()>(d, table, constants, scale,
                                                                                  writer, has_rows);
  } else if (has_rows) {
    finish<dtype>(d, constants, scale, writer);
  }
}

/// @tparam launch  one with places, of whole k steps, see whole_steps
template <Dtype dtype, Launch launch>
__global__ void __launch_bounds__(launch.threads(), 1)
    transform_rows_of_ring(const __grid_constant__ Maps maps, const __grid_constant__ Work work) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Shape shape = launch.shape;
  constexpr int k_steps = shape.k_steps(), columns = shape.columns, second = shape.second,
                teams = launch.teams, places = launch.places;
  constexpr int kLine = shape.line(), kParts = shape.warpgroups();
  static_assert(launch.shares_last_part());
  using Matrix = SignedMatrix<dtype, k_steps>;
  extern __shared__ __align__(1024) std::byte shared[];

  const int lane = static_cast<int>(threadIdx.x & 31U);
  const int warp_of_block = rows::uniform_warp();
  const int team = warp_of_block / 4, warp = warp_of_block % 4;

  std::byte* const staging = shared + launch.slot_bytes();
  std::byte* const table = staging + launch.staging_bytes();
  BoxRing<launch> ring(table + launch.second_bytes(), ptx::shared_address(shared), maps.in, work.tiles);
  if (threadIdx.x == 0) {
    ring.init();
    ptx::griddepcontrol_wait();
    ring.set_first_numbers();
    ring.fill(0, k_steps);
    ptx::griddepcontrol_launch_dependents();
  }
  if constexpr (second > 1) {
    rows::load_table<second_words(launch)>(work.second, ptx::shared_address(table),
                                           static_cast<int>(threadIdx.x), launch.threads());
    ptx::fence_proxy_async_shared();
  }
  const std::uint32_t table_address = ptx::shared_address(table);
  const Stage2Constants constants(lane);
  DeferredWriter<kLine> writer(maps.out, ptx::shared_address(staging) + warp_of_block * shape.box_bytes(), 0,
                               lane);
  RingTickets<launch> tickets{
      {work.counter, work.tiles, static_cast<int>(gridDim.x), ring.kFirst * gridDim.x}};
  const auto own_block = [&](int part) {
    const int of_tile = part % kParts;
    return 4 * of_tile + (of_tile == kParts - 1 ? 0 : warp);
  };
  int part = team;
  Matrix matrix(work, own_block(part), lane);
  __syncthreads();  // the barriers and the table are there
  // A thread that asks for many boxes is held up until some are there; nobody else waits for this one.
  if (warp_of_block == 4 * teams - 1) {
    if (lane == 0) ring.fill(k_steps, places);
    __syncwarp();
  }

#pragma unroll 1
  for (int tile; ring.take(tile, lane); ring.advance(), part -= kParts) {
    if (work.signs_first != nullptr) {
      TileSigns<shape, 4 * teams>(warp_of_block, lane).ask(work).flip([&](int step) {
        ring.wait_full(step);
        return ring.box(step);
      });
      __syncthreads();
    }
    if (part >= kParts) ring.wait_for_all();
    if (part >= kParts) tickets.release(ring, lane);
#pragma unroll 1
    for (; part < kParts; part += teams) {
      const int box = own_block(part);
      const bool has_rows = box < k_steps, last = part == kParts - 1;
      float d[shape.accumulators()];
      ptx::pin_accumulators(d);
      exact_stage<dtype, columns, kLine, k_steps, launch.steps_together()>(d, matrix, ring);
      writer.send_deferred();
      ptx::wgmma_wait_group<0>();
      ptx::pin_accumulators(d);
      if (part + teams >= kParts) tickets.release(ring, lane);
      if (last) tickets.draw_ahead();
      matrix = Matrix(work, own_block(part + teams), lane);
      writer.wait();
      if (last) ring.refill(warp, lane);
      bool stages = has_rows;  // this warp's staging has results now
      if (!last) {
        finish_own<dtype, launch>(d, has_rows, table_address, constants, work.scale, writer);
      } else {
        const BoxWriter<kLine> first_writer(writer.staging() - warp * shape.box_bytes(), lane);
        ptx::bar_sync(1 + team, 128);  // the first warp's staging may be written
        finish_share<dtype, second>(d, warp, table_address, constants, work.scale, first_writer, lane);
        ptx::fence_proxy_async_shared();
        ptx::bar_sync(1 + team, 128);
        stages = warp == 0;
      }
      if (stages) {
        if (work.signs_last != nullptr) flip_results<shape>(work, writer.staging(), box, lane);
        writer.staged(tile, box);
      }
      __syncwarp();
    }
  }
  writer.drain();
#else
  __trap();  // `supports` says no where there is no code for sm_90a
#endif
}

}  // namespace fwht::kronecker
