// wgmma: long rows at the speed of a copy on Hopper, with one rounding.
//
// What this rung changes: the raw 16-bit row is brought in by bulk copies and read by the tensor core where
// it lies. The linear row is already the canonical MN-major operand of wgmma, so the first 6 (n <= 16384) or
// 7 (32768) index bits cost no load, no shuffle and no conversion, and they are exact: products of +-1 with
// 16-bit data in fp32 accumulators. The remaining bits are finished in registers: fp32 additions for the
// column tiles, and one mma.sync stage over b0-b2 and b6 that carries fp32 as a bf16 hi + lo pair (16 bits of
// each intermediate, far below the one rounding at the end). Nothing is exchanged between warps. What limits
// it: memory. An element costs 8.8 issue slots (24-32 are there), 2-3 words of the shared-memory pipe, and a
// quarter of the tensor pipe. Out of the L2 the ring keeps 2-8 rows in flight per SM.
//
// Bit card, n = 2^L, N columns (64, 128, 256, 256 for L = 12..15), j = log2(N/8):
//   load        bulk copy of the row, linear
//   (spread over a cluster: N = 64..256 columns of 64 times as many rows of D as blocks; the top bits are the
//   rank) stage 1     k of wgmma: b3-b5 core rows | b(6+j) leading stride | b(7+j)..b(L-1) k steps wgmma,
//   exact in D        b0 register | b1-b2 lane 0-1 | b3-b5 lane 2-4 | b6..b(5+j) column tile (register) |
//               b(6+j) register | two bits warp | top bit of 32768 warpgroup
//   stage 2     b7..b(5+j)   FADD between registers
//   stage 3     b0, b1, b2, b6   mma.sync m16n8k16 on bf16 hi + lo: keeps every element in its lane and
//   register store       one-shot: STG.32, a warp writes 128 contiguous bytes; ring: stmatrix into the warp's
//   own staging, then
//               one bulk store a warp: its 16 rows of D are one contiguous piece of the row
//
// Inf and NaN: the hi + lo split would turn an Inf into NaN. After stage 2 every register of the first tile
// pair depends on all columns of its lane group, so eight tests a thread and one vote tell whether anything
// is not finite; then the warp takes stage 3 by fp32 butterflies and shuffles instead, with the semantics of
// plain sums.
#include <algorithm>
#include <cstdint>

#include "common/bits.hpp"
#include "common/cuda_check.hpp"
#include "common/ptx/bulk_copy.cuh"
#include "common/ptx/cluster.cuh"
#include "common/ptx/mbarrier.cuh"
#include "common/ptx/mma.cuh"
#include "common/ptx/stmatrix.cuh"
#include "common/ptx/wgmma.cuh"
#include "common/static_dispatch.hpp"
#include "common/storage.cuh"
#include "variants/wgmma/wgmma.hpp"

namespace fwht::wgmma {
namespace {

struct RowBatch {
  const std::byte* in;
  std::byte* out;
  int rows;
  std::int64_t row_stride_bytes;
  float scale;
};

constexpr std::uint32_t kBf16One = 0x3F80;

/// 1.0 in the storage format.
template <Dtype dtype>
constexpr std::uint32_t one() {
  return dtype == Dtype::f16 ? 0x3C00 : kBf16One;
}

/// Two signed ones packed: entries (m, k) and (m, k + 1) of the Sylvester matrix.
__device__ std::uint32_t signed_ones(std::uint32_t one, int m, int k) {
  const std::uint32_t low = one | static_cast<std::uint32_t>(parity(m & k)) << 15;
  const std::uint32_t high = one | static_cast<std::uint32_t>(parity(m & (k + 1))) << 15;
  return low | high << 16;
}

/// The constants of stage 3: H16 as the B operand of m16n8k16 (two tiles of 8 columns), and -I8 for m16n8k8,
/// which subtracts the bf16 head of an accumulator from it exactly.
struct Stage3Constants {
  std::uint32_t hadamard[2][2], minus_identity;

  __device__ explicit Stage3Constants(int lane) {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int r = 0; r < 2; ++r)
        hadamard[tile][r] = signed_ones(kBf16One, g + 8 * tile, 2 * t + 8 * r);
    }
    minus_identity = (2 * t == g ? 0xBF80U : 0U) | (2 * t + 1 == g ? 0xBF800000U : 0U);
  }
};

template <Dtype dtype, int columns>
__device__ void exact_step(float (&d)[columns / 2], const std::uint32_t (&a)[4], std::uint64_t b,
                           bool accumulate) {
  if constexpr (columns == 64) ptx::wgmma_m64n64k16<dtype>(d, a, b, accumulate);
  if constexpr (columns == 128) ptx::wgmma_m64n128k16<dtype>(d, a, b, accumulate);
  if constexpr (columns == 256) ptx::wgmma_m64n256k16<dtype>(d, a, b, accumulate);
}

/// A fragments of all k steps. Upper bits of m are the warp (and warpgroup): they only flip whole fragments.
template <Dtype dtype, int k_steps>
__device__ void load_hadamard(std::uint32_t (&a)[k_steps][4], int lane, int upper_m) {
#pragma unroll
  for (int s = 0; s < k_steps; ++s) {
    const std::uint32_t flip = parity(upper_m & s) ? 0x80008000U : 0U;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      a[s][r] = signed_ones(one<dtype>(), fragment_m(lane, r), fragment_k(lane, r, 0)) ^ flip;
      // Without this the compiler recomputes fragments between the wgmmas and serialises them (C7520).
      asm volatile("" : "+r"(a[s][r]));
    }
  }
}

/// Stage 1 for a row at shared address `row`.
template <Dtype dtype, int log_n, int log_warpgroups, int k_steps>
__device__ void exact_stage(float (&d)[Tile{log_n, log_warpgroups}.columns() / 2],
                            const std::uint32_t (&a)[k_steps][4], std::uint32_t row) {
  constexpr Tile tile{log_n, log_warpgroups};
  ptx::wgmma_fence();
#pragma unroll
  for (int s = 0; s < k_steps; ++s) {
    exact_step<dtype, tile.columns()>(
        d, a[s], descriptor(row + s * tile.k_step_bytes(), tile.leading_bytes(), tile.stride_bytes()), s > 0);
  }
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>();
  ptx::pin_accumulators(d);
}

/// Stage 2: butterflies over the column-tile bits above b6.
template <int registers>
__device__ void column_butterflies(float (&d)[registers]) {
#pragma unroll
  for (int half = 8; half < registers; half *= 2) {
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      if (i & half) continue;
      const float a = d[i], b = d[i | half];
      d[i] = a + b;
      d[i | half] = a - b;
    }
  }
}

/// The bf16 heads (truncated values) of two fp32 numbers, `low` in the lower half.
__device__ std::uint32_t bf16_heads(float low, float high) {
  return ptx::prmt<0x7632>(__float_as_uint(low), __float_as_uint(high));
}

/// Stage 3 on the tensor core: x = hi + lo exactly enough (16 bits), both through the same H16.
__device__ void tensor_pair(float (&even)[4], float (&odd)[4], const Stage3Constants& constants) {
  const std::uint32_t hi[4] = {bf16_heads(even[0], even[1]), bf16_heads(even[2], even[3]),
                               bf16_heads(odd[0], odd[1]), bf16_heads(odd[2], odd[3])};
  ptx::mma_sync_m16n8k8_f32_bf16_accumulate(even, hi[0], hi[1], constants.minus_identity);
  ptx::mma_sync_m16n8k8_f32_bf16_accumulate(odd, hi[2], hi[3], constants.minus_identity);
  const std::uint32_t lo[4] = {
      ptx::cvt_rn_bf16x2_f32(even[0], even[1]), ptx::cvt_rn_bf16x2_f32(even[2], even[3]),
      ptx::cvt_rn_bf16x2_f32(odd[0], odd[1]), ptx::cvt_rn_bf16x2_f32(odd[2], odd[3])};
#pragma unroll
  for (int i = 0; i < 4; ++i)
    even[i] = odd[i] = 0.0F;
  ptx::mma_sync_m16n8k16_f32_bf16(even, hi, constants.hadamard[0]);
  ptx::mma_sync_m16n8k16_f32_bf16(odd, hi, constants.hadamard[1]);
  ptx::mma_sync_m16n8k16_f32_bf16_accumulate(even, lo, constants.hadamard[0]);
  ptx::mma_sync_m16n8k16_f32_bf16_accumulate(odd, lo, constants.hadamard[1]);
}

/// Stage 3 by plain sums, for rows that hold an Inf or a NaN: b0 and b6 between registers, b1 and b2 between
/// lanes.
__device__ void plain_pair(float (&even)[4], float (&odd)[4], int lane) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const float a = even[i], b = even[i + 1], c = odd[i], e = odd[i + 1];
    const float sum_even = a + b, difference_even = a - b, sum_odd = c + e, difference_odd = c - e;
    even[i] = sum_even + sum_odd;
    even[i + 1] = difference_even + difference_odd;
    odd[i] = sum_even - sum_odd;
    odd[i + 1] = difference_even - difference_odd;
  }
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const float sign = lane & bit ? -1.0F : 1.0F;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      even[i] = fmaf(sign, even[i], __shfl_xor_sync(0xFFFFFFFFU, even[i], bit));
      odd[i] = fmaf(sign, odd[i], __shfl_xor_sync(0xFFFFFFFFU, odd[i], bit));
    }
  }
}

template <Dtype dtype>
__device__ std::uint32_t pack_pair(float x, float y) {
  const auto pair = Storage<dtype>::from_float2(x, y);
  return reinterpret_cast<const std::uint32_t&>(pair);
}

/// Stages 2 and 3 of one warp's 16 rows of D. `store(pair, words)` takes the four words of a column-tile
/// pair: bit 0 of the index is the odd tile (b6), bit 1 the upper eight rows. The scale comes last: integers
/// stay integers through the hi + lo pairs, and subnormal data does not sink below the range of bf16 before
/// it is rounded.
template <Dtype dtype, int registers, class Store>
__device__ void finish(float (&d)[registers], float scale, const Stage3Constants& constants, int lane,
                       Store store) {
  column_butterflies(d);
  bool all_finite = true;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    all_finite &= isfinite(d[i]);
  const auto scale_and_store = [&](int pair, const float(&even)[4], const float(&odd)[4]) {
    const std::uint32_t words[4] = {
        pack_pair<dtype>(even[0] * scale, even[1] * scale), pack_pair<dtype>(odd[0] * scale, odd[1] * scale),
        pack_pair<dtype>(even[2] * scale, even[3] * scale), pack_pair<dtype>(odd[2] * scale, odd[3] * scale)};
    store(pair, words);
  };
  // Two loops, not a choice inside one: the tensor chains of several pairs must stay in one basic block to
  // overlap.
  if (__all_sync(0xFFFFFFFFU, all_finite)) {
#pragma unroll
    for (int pair = 0; pair < registers / 8; ++pair) {
      float even[4], odd[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        even[i] = d[8 * pair + i];
        odd[i] = d[8 * pair + 4 + i];
      }
      tensor_pair(even, odd, constants);
      scale_and_store(pair, even, odd);
    }
  } else {
#pragma unroll
    for (int pair = 0; pair < registers / 8; ++pair) {
      float even[4], odd[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        even[i] = d[8 * pair + i];
        odd[i] = d[8 * pair + 4 + i];
      }
      plain_pair(even, odd, lane);
      scale_and_store(pair, even, odd);
    }
  }
}

/// 32-bit word of the row where `lane` of D-row block `upper_m` stores word q of column-tile pair `pair`: the
/// byte offsets of staging, seen from the whole row.
template <int log_n, int log_warpgroups>
__device__ int word_of(int upper_m, int lane, int pair, int q) {
  constexpr Tile tile{log_n, log_warpgroups};
  const int byte = upper_m * staged_bytes_per_warp(tile.columns()) +
                   staged_offset(tile.log_column_tiles(), pair, q, lane >> 2);
  return byte / 4 + (lane & 3);
}

// One row a block of one warpgroup, or a cluster of such blocks: each reads the whole row and makes the
// outputs of its 64 rows of D. The hardware scheduler balances and overlaps blocks.
template <Dtype dtype, int log_n, int log_cluster>
__global__ void __launch_bounds__(128) one_shot(RowBatch batch) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Tile tile{log_n, log_cluster};
  // The row arrives in pieces with a barrier each, so that the first k steps start before the last bytes are
  // there.
  constexpr int kStepsPerPiece = tile.k_steps() <= 4 ? 2 : 4;
  constexpr int kPieces = tile.k_steps() / kStepsPerPiece, kPieceBytes = tile.row_bytes() / kPieces;
  extern __shared__ __align__(1024) std::byte shared[];
  auto* const full = reinterpret_cast<std::uint64_t*>(shared + tile.row_bytes());
  const int lane = static_cast<int>(threadIdx.x) & 31;
  // Through a shuffle, so that the compiler knows it to be uniform.
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) >> 5, 0);
  const int rank = log_cluster == 0 ? 0 : static_cast<int>(ptx::cluster_ctarank());
  const int upper_m = 4 * rank + warp;
  const std::int64_t row_offset = std::int64_t{blockIdx.x >> log_cluster} * batch.row_stride_bytes;
  const std::uint32_t row = ptx::shared_address(shared);

  if (threadIdx.x == 0) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p)
      ptx::mbarrier_init(ptx::shared_address(full + p), 1);
    ptx::fence_mbarrier_init();
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int p = (i + rank) % kPieces;  // the blocks of a cluster start at different pieces
      ptx::mbarrier_arrive_expect_tx(ptx::shared_address(full + p), kPieceBytes);
      ptx::bulk_copy_global_to_shared(row + p * kPieceBytes, batch.in + row_offset + p * kPieceBytes,
                                      kPieceBytes, ptx::shared_address(full + p));
    }
  }
  std::uint32_t a[tile.k_steps()][4];
  load_hadamard<dtype>(a, lane, upper_m);
  const Stage3Constants constants(lane);
  __syncthreads();

  float d[tile.columns() / 2];
#pragma unroll
  for (int s = 0; s < tile.k_steps(); ++s) {
    if (s % kStepsPerPiece == 0) {
      ptx::mbarrier_wait_parity(ptx::shared_address(full + s / kStepsPerPiece), 0);
      ptx::wgmma_fence();
    }
    exact_step<dtype, tile.columns()>(
        d, a[s], descriptor(row + s * tile.k_step_bytes(), tile.leading_bytes(), tile.stride_bytes()), s > 0);
  }
  ptx::wgmma_commit_group();
  if constexpr (log_cluster > 0) ptx::barrier_cluster_arrive();  // this block has read all of the row
  ptx::wgmma_wait_group<0>();
  ptx::pin_accumulators(d);
  // In place, nobody may store before all blocks of the cluster have read.
  if constexpr (log_cluster > 0) ptx::barrier_cluster_wait();

  auto* out = reinterpret_cast<std::uint32_t*>(batch.out + row_offset);
  finish<dtype>(d, batch.scale, constants, lane, [&](int pair, const std::uint32_t(&words)[4]) {
#pragma unroll
    for (int q = 0; q < 4; ++q)
      out[word_of<log_n, log_cluster>(upper_m, lane, pair, q)] = words[q];
  });
#else
  __trap();  // `supports` says no where there is no code for sm_90a
#endif
}

// Resident blocks with `slots` rows in flight each. Groups of warpgroups take slots in turn; no warp is set
// aside as a producer: the last warp that has read a slot refills it.
template <Dtype dtype, int log_n, int warpgroups, int slots, bool dynamic>
__global__ void __launch_bounds__(128 * warpgroups, 1) ring(RowBatch batch, unsigned* next_row) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Tile tile = tile_of({.form = Form::ring}, log_n);
  // Plain constants: a lambda would capture `tile` itself, and read it at run time.
  constexpr int kRowBytes = tile.row_bytes(), kColumns = tile.columns(), kLogTiles = tile.log_column_tiles();
  constexpr int kStagedBytes = staged_bytes_per_warp(kColumns);
  constexpr int kGroups = warpgroups / tile.warpgroups_per_row(),
                kWarpsPerRow = 4 * tile.warpgroups_per_row();
  static_assert(slots % kGroups == 0,
                "a slot must always serve the same group, or a wait passes on an old parity");
  extern __shared__ __align__(1024) std::byte shared[];
  // Everything lives in the dynamic part, rows first, where the alignment of the block's memory is theirs.
  auto* const full =
      reinterpret_cast<std::uint64_t*>(shared + slots * kRowBytes + 4 * warpgroups * kStagedBytes);
  auto* const readers =
      reinterpret_cast<unsigned*>(full + slots);  // warps that have read the slot, over all its rows
  auto* const row_in =
      reinterpret_cast<volatile int*>(readers + slots);  // row that the slot holds or waits for
  auto* const ticket =
      reinterpret_cast<volatile unsigned*>(row_in + slots);  // dynamic: the next row of the slot
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int block_warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) >> 5, 0);
  const int group = block_warp / kWarpsPerRow, upper_m = block_warp % kWarpsPerRow;
  const std::uint32_t rows_at = ptx::shared_address(shared);
  const std::uint32_t staging = rows_at + slots * kRowBytes + block_warp * kStagedBytes;

  const auto refill = [&](int row, int slot) {
    row_in[slot] = row;
    const std::uint32_t barrier = ptx::shared_address(full + slot);
    if (row >= batch.rows) return ptx::mbarrier_arrive(barrier);
    constexpr int kPiece = kRowBytes < 16384 ? kRowBytes : 16384;
    ptx::mbarrier_arrive_expect_tx(barrier, kRowBytes);
#pragma unroll 1
    for (int offset = 0; offset < kRowBytes; offset += kPiece) {
      ptx::bulk_copy_global_to_shared(rows_at + slot * kRowBytes + offset,
                                      batch.in + row * batch.row_stride_bytes + offset, kPiece, barrier);
    }
  };
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < slots; ++slot) {
      ptx::mbarrier_init(ptx::shared_address(full + slot), 1);
      readers[slot] = 0;
    }
    ptx::fence_mbarrier_init();
    for (int slot = 0; slot < slots; ++slot)
      refill(static_cast<int>(blockIdx.x + slot * gridDim.x), slot);
  }
  std::uint32_t a[tile.k_steps()][4];
  load_hadamard<dtype>(a, lane, upper_m);
  const Stage3Constants constants(lane);
  __syncthreads();

  // Dynamic rows: each group draws a ticket at the start and one more a row, and uses it a row later, so that
  // the counter's latency is hidden. The draw that returns rows + groups - 1 is the last of the launch and
  // resets the counter.
  const bool draws = dynamic && lane == 0 && upper_m == 0;
  const unsigned last_draw = static_cast<unsigned>(batch.rows) + gridDim.x * kGroups - 1;
  unsigned drawn = draws ? atomicAdd(next_row, 1U) : 0U;

#pragma unroll 1
  for (int i = group;; i += kGroups) {
    const int slot = i % slots;
    ptx::mbarrier_wait_parity(ptx::shared_address(full + slot), (i / slots) & 1);
    const int row = row_in[slot];
    if (row >= batch.rows) break;
    const unsigned held = drawn;
    if (draws) drawn = atomicAdd(next_row, 1U);

    float d[kColumns / 2];
    exact_stage<dtype, log_n, tile.log_warpgroups>(d, a, rows_at + slot * kRowBytes);
    if (draws) ticket[slot] = held + slots * gridDim.x;
    if (lane == 0) {
      unsigned before;
      asm volatile("atom.acq_rel.cta.shared.add.u32 %0, [%1], 1;"
                   : "=r"(before)
                   : "r"(ptx::shared_address(readers + slot))
                   : "memory");
      if (before % kWarpsPerRow == kWarpsPerRow - 1) {
        refill(
            dynamic ? static_cast<int>(ticket[slot]) : static_cast<int>(blockIdx.x + (i + slots) * gridDim.x),
            slot);
      }
      ptx::bulk_copy_wait_group_read<0>();  // the staging of the row before has been read
    }
    __syncwarp();

    finish<dtype>(d, batch.scale, constants, lane, [&](int pair, const std::uint32_t(&words)[4]) {
      ptx::stmatrix_x4(staging + staged_offset(kLogTiles, pair, lane >> 3, lane & 7), words);
    });
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane == 0) {
      ptx::bulk_copy_shared_to_global(batch.out + row * batch.row_stride_bytes + upper_m * kStagedBytes,
                                      staging, kStagedBytes);
      ptx::bulk_copy_commit_group();
    }
  }
  if (draws && drawn == last_draw) *const_cast<volatile unsigned*>(next_row) = 0;
  if (lane == 0) ptx::bulk_copy_wait_group_read<0>();  // shared memory must outlive the copies that read it
#else
  __trap();  // `supports` says no where there is no code for sm_90a
#endif
}

using Kernel = void (*)(RowBatch);
using RingKernel = void (*)(RowBatch, unsigned*);

template <Dtype dtype>
Kernel one_shot_kernel(int log_n, int log_cluster) {
  switch (log_n) {
    case 12:
      return one_shot<dtype, 12, 0>;
    case 13:
      return one_shot<dtype, 13, 0>;
    case 14:
      return one_shot<dtype, 14, 2>;
    default:
      break;
  }
  return dispatch_int<1, 3>(log_cluster, [](auto log) -> Kernel { return one_shot<dtype, 15, log()>; });
}

template <Dtype dtype>
RingKernel ring_kernel(int log_n, bool dynamic) {
  switch (log_n) {
    case 13:
      return ring<dtype, 13, 4, 8, false>;
    case 14:
      return dynamic ? ring<dtype, 14, 2, 4, true> : ring<dtype, 14, 2, 4, false>;
    default:
      return dynamic ? ring<dtype, 15, 2, 2, true> : ring<dtype, 15, 2, 2, false>;
  }
}

class WgmmaPlan final : public Plan {
 public:
  WgmmaPlan(const Problem& problem, const DeviceInfo& device)
      : Plan(problem), log_n_(log2_floor(problem.n)), launch_(choose_launch(problem, device)) {
    const bool f16 = problem.dtype == Dtype::f16;
    const void* kernel = nullptr;
    if (launch_.form == Form::one_shot) {
      one_shot_ = f16 ? one_shot_kernel<Dtype::f16>(log_n_, launch_.log_cluster)
                      : one_shot_kernel<Dtype::bf16>(log_n_, launch_.log_cluster);
      kernel = reinterpret_cast<const void*>(one_shot_);
    } else {
      ring_ = f16 ? ring_kernel<Dtype::f16>(log_n_, launch_.dynamic)
                  : ring_kernel<Dtype::bf16>(log_n_, launch_.dynamic);
      kernel = reinterpret_cast<const void*>(ring_);
    }
    const auto shared = static_cast<int>(shared_bytes(launch_, log_n_));
    FWHT_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    cudaFuncAttributes attributes{};
    FWHT_CUDA(cudaFuncGetAttributes(&attributes, kernel));
    registers_ = attributes.numRegs;
    FWHT_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm_, kernel, 128 * launch_.warpgroups,
                                                            static_cast<std::size_t>(shared)));
    const std::int64_t resident = std::int64_t{blocks_per_sm_} * device.sm_count;
    blocks_ = launch_.form == Form::one_shot ? problem.rows << launch_.log_cluster
                                             : std::min(problem.rows, resident);
    if (launch_.dynamic) {
      void* counter = nullptr;
      FWHT_CUDA(cudaMalloc(&counter, sizeof(unsigned)));
      counter_ = static_cast<unsigned*>(counter);
      // On a stream of its own: a plan may be made while another one is captured.
      cudaStream_t stream = nullptr;
      FWHT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      FWHT_CUDA(cudaMemsetAsync(counter_, 0, sizeof(unsigned), stream));
      FWHT_CUDA(cudaStreamSynchronize(stream));
      FWHT_CUDA(cudaStreamDestroy(stream));
    }
  }
  ~WgmmaPlan() override {
    if (counter_ != nullptr) cudaFree(counter_);
  }

  std::size_t alignment() const override { return 16; }

  bool one_stream_at_a_time() const override { return counter_ != nullptr; }

  NumericModel numerics() const override {
    NumericModel model = single_rounding(Arithmetic::split_bf16, problem().n);
    // k steps of 16 are chained with truncation, in an order that a shift permutes.
    model.xor_shift_exact = false;
    // A row over a cluster is summed in longer chains than a row of a ring.
    model.batch_invariant = log_n_ < 14;
    return model;
  }

  Settings settings() const override {
    const Tile tile = tile_of(launch_, log_n_);
    const char* form =
        launch_.form == Form::one_shot ? "one_shot" : (launch_.dynamic ? "ring_dynamic" : "ring");
    return {{"form", std::string(form)},
            {"exact_order", std::int64_t{tile.order()}},
            {"columns", std::int64_t{tile.columns()}},
            {"cluster", std::int64_t{1 << launch_.log_cluster}},
            {"blocks", blocks_},
            {"threads", std::int64_t{128 * launch_.warpgroups}},
            {"blocks_per_sm", std::int64_t{blocks_per_sm_}},
            {"slots", std::int64_t{launch_.slots}},
            {"registers", std::int64_t{registers_}},
            {"shared_bytes", shared_bytes(launch_, log_n_)}};
  }

 private:
  void enqueue(const void* in, void* out, Stream stream) const override {
    const Problem& p = problem();
    const RowBatch batch{static_cast<const std::byte*>(in), static_cast<std::byte*>(out),
                         static_cast<int>(p.rows), p.row_stride * 2, static_cast<float>(p.scale)};
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {1U << launch_.log_cluster, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks_));
    config.blockDim = dim3(static_cast<unsigned>(128 * launch_.warpgroups));
    config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes(launch_, log_n_));
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = launch_.log_cluster > 0 ? 1 : 0;
    if (launch_.form == Form::one_shot) {
      FWHT_CUDA(cudaLaunchKernelEx(&config, one_shot_, batch));
    } else {
      FWHT_CUDA(cudaLaunchKernelEx(&config, ring_, batch, counter_));
    }
  }

  int log_n_;
  Launch launch_;
  Kernel one_shot_ = nullptr;
  RingKernel ring_ = nullptr;
  int registers_ = 0, blocks_per_sm_ = 0;
  std::int64_t blocks_ = 0;
  unsigned* counter_ = nullptr;  // rows handed out so far; zero between launches
};

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  return std::make_unique<WgmmaPlan>(problem, device);
}

}  // namespace fwht::wgmma
