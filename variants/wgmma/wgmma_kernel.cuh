// Kernels of wgmma; wgmma.cu opens with the idea and the bit card. Included by the plan and by wgmma_tune.
#pragma once

#include <cstdint>

#include "common/bits.hpp"
#include "common/ptx/bulk_copy.cuh"
#include "common/ptx/cluster.cuh"
#include "common/ptx/fragments.hpp"
#include "common/ptx/griddepcontrol.cuh"
#include "common/ptx/mbarrier.cuh"
#include "common/ptx/mma.cuh"
#include "common/ptx/named_barrier.cuh"
#include "common/ptx/stmatrix.cuh"
#include "common/ptx/wgmma.cuh"
#include "common/storage.cuh"
#include "variants/wgmma/wgmma.hpp"

namespace fwht::wgmma {

struct RowBatch {
  const std::byte* in;
  std::byte* out;
  int rows;
  std::int64_t row_stride_bytes;
  float scale;
};

/// Where the scale is applied. A power of two goes into the constants of stage 3: there it changes no bit and
/// costs nothing. Any other factor multiplies the results, one instruction an element.
enum class Scaling { constants, results };

constexpr std::uint32_t kBf16One = 0x3F80, kBothSigns = 0x80008000;

/// 1.0 in the storage format.
template <Dtype dtype>
constexpr std::uint32_t one() {
  return dtype == Dtype::f16 ? 0x3C00 : kBf16One;
}

/// Entries (g, 2t) and (g, 2t + 1) of the Sylvester matrix, packed: lane = 4 g + t. All fragments of larger
/// matrices are this word, negated where the upper bits of row and column share an odd number of ones.
__device__ inline std::uint32_t signed_ones(std::uint32_t one, int lane) {
  const int g = lane >> 2, k = 2 * (lane & 3);
  const std::uint32_t parities = 0x96;  // bit i: parity of i < 8; without the slow population count
  const std::uint32_t low = parities >> (g & k) & 1, high = low ^ (g & 1);
  return (one | low << 15) | (one | high << 15) << 16;
}

/// The constants of stage 3: H16 as the B operand of m16n8k16 (two tiles of 8 columns), times the scale where
/// it goes there, and -I8 for m16n8k8, which subtracts the bf16 head of an accumulator from it exactly.
/// `held`: in registers, for many rows. Otherwise the compiler works them out anew for every row, and copies
/// equal words to where an operand wants its pair.
template <Scaling scaling, bool held>
struct Stage3Constants {
  std::uint32_t hadamard[2][2], minus_identity;
  float scale;  // of sums that have not seen `hadamard`

  __device__ Stage3Constants(int lane, float factor) : scale(factor) {
    const std::uint32_t one = scaling == Scaling::constants ? __float_as_uint(factor) >> 16 : kBf16One;
    const std::uint32_t block = signed_ones(one, lane);
    hadamard[0][0] = hadamard[0][1] = hadamard[1][0] = block;
    hadamard[1][1] = block ^ kBothSigns;
    minus_identity = ptx::minus_identity_fragment(lane);
    if constexpr (held) {
      asm volatile("" : "+r"(minus_identity));
#pragma unroll
      for (int i = 0; i < 4; ++i)
        asm volatile("" : "+r"(hadamard[i >> 1][i & 1]));
    }
  }
  __device__ float last_factor() const {
    return scaling == Scaling::constants ? 1.0F : scale;
  }
};

/// The A operand in registers: fragments of all k steps. Upper bits of m are the warp (and warpgroup): they
/// only flip whole fragments. Of the four 8x8 blocks of a fragment one is negative: that of rows 8-15 and
/// columns 8-15, unless the rows are wanted in another order or with other signs.
template <Dtype dtype, int k_steps>
struct Fragments {
  std::uint32_t a[k_steps][4];

  __device__ Fragments(int lane, int upper_m, int negative = 3) {
    const std::uint32_t block = signed_ones(one<dtype>(), lane);
#pragma unroll
    for (int s = 0; s < k_steps; ++s) {
      const std::uint32_t flip = parity(upper_m & s) ? kBothSigns : 0U;
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        a[s][r] = block ^ flip ^ (r == negative ? kBothSigns : 0U);
        // Without this the compiler recomputes fragments between the wgmmas and serialises them (C7520).
        asm volatile("" : "+r"(a[s][r]));
      }
    }
  }
  __device__ const std::uint32_t (&operand(int s) const)[4] {
    return a[s];
  }
};

/// The A operand as a table in shared memory, and behind it the negated one for upper bits of k.
struct Table {
  std::uint32_t address;
  int part;  // upper bits of m: the warpgroup of the row

  __device__ std::uint64_t operand(int s) const {
    const int negated = parity(part & (s >> 2)) ? kTableBytes : 0;
    return descriptor(address + negated + (s & 3) * kTableStepBytes, kTableLeadingBytes, kTableStrideBytes);
  }
};

/// Fills the tables, `threads` threads together; a fence and a barrier must follow.
template <Dtype dtype, int threads, int tables>
__device__ void fill_table(std::byte* table) {
  for (int i = static_cast<int>(threadIdx.x); i < tables * 512; i += threads) {
    const int m = i & 63, upper_k = i >> 6 & 7;
    const std::uint32_t flip = (parity(m >> 3 & upper_k) ^ (i >> 9)) ? kBothSigns : 0U;
    std::uint32_t words[4];
#pragma unroll
    for (int t = 0; t < 4; ++t)
      words[t] = signed_ones(one<dtype>(), 4 * (m & 7) + t) ^ flip;
    *reinterpret_cast<uint4*>(table + (i >> 9) * kTableBytes + table_offset(m, 8 * upper_k)) =
        make_uint4(words[0], words[1], words[2], words[3]);
  }
}

/// Stage 1 for a row at shared address `row`; before_step(s) waits for what step s reads.
template <Dtype dtype, int log_n, int log_parts, class Hadamard, class Before>
__device__ void exact_stage(float (&d)[Tile{log_n, log_parts}.columns() / 2], const Hadamard& hadamard,
                            std::uint32_t row, Before before_step) {
  constexpr Tile tile{log_n, log_parts};
#pragma unroll
  for (int s = 0; s < tile.k_steps(); ++s) {
    before_step(s);
    ptx::wgmma_m64k16<dtype, tile.columns()>(
        d, hadamard.operand(s),
        descriptor(row + s * tile.k_step_bytes(), tile.leading_bytes(), tile.stride_bytes()), s > 0);
  }
  ptx::wgmma_commit_group();
}

/// Stage 2: butterflies over the column-tile bits above b6 (`first` = 4: b6 too), of the registers i with
/// (i & mask) == value.
template <int first = 8, int mask = 0, int value = 0, int registers>
__device__ void column_butterflies(float (&d)[registers]) {
#pragma unroll
  for (int half = first; half < registers; half *= 2) {
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      if ((i & half) != 0 || (i & mask) != value) continue;
      const float a = d[i], b = d[i | half];
      d[i] = a + b;
      d[i | half] = a - b;
    }
  }
}

/// The bf16 heads (truncated values) of two fp32 numbers, `low` in the lower half.
__device__ inline std::uint32_t bf16_heads(float low, float high) {
  return ptx::prmt<0x7632>(__float_as_uint(low), __float_as_uint(high));
}

/// Stage 3 on the tensor core for `chains` column-tile pairs at once, step by step, so that their latencies
/// overlap: x = hi + lo exactly enough (16 bits), both through the same H16.
template <int chains, class Constants>
__device__ void tensor_pairs(float (&x)[chains][2][4], const Constants& constants) {
  std::uint32_t hi[chains][4], lo[chains][4];
#pragma unroll
  for (int c = 0; c < chains; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      hi[c][i] = bf16_heads(x[c][i >> 1][2 * (i & 1)], x[c][i >> 1][2 * (i & 1) + 1]);
  }
#pragma unroll
  for (int c = 0; c < chains; ++c) {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      ptx::mma_sync_m16n8k8_f32_bf16_accumulate(x[c][tile], hi[c][2 * tile], hi[c][2 * tile + 1],
                                                constants.minus_identity);
    }
  }
#pragma unroll
  for (int c = 0; c < chains; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      lo[c][i] = ptx::cvt_rn_bf16x2_f32(x[c][i >> 1][2 * (i & 1)], x[c][i >> 1][2 * (i & 1) + 1]);
  }
#pragma unroll
  for (int c = 0; c < chains; ++c) {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile)
      ptx::mma_sync_m16n8k16_f32_bf16(x[c][tile], hi[c], constants.hadamard[tile]);
  }
#pragma unroll
  for (int c = 0; c < chains; ++c) {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile)
      ptx::mma_sync_m16n8k16_f32_bf16_accumulate(x[c][tile], lo[c], constants.hadamard[tile]);
  }
}

/// The same for b0-b2 alone: hi and lo lie side by side in k, so that one product with H8 above H8 sums both.
/// mma.sync and fp32 additions overlap only in part: two products less are worth eight additions for b6.
template <int chains, class Constants>
__device__ void joined_pairs(float (&x)[chains][2][4], const Constants& constants) {
  constexpr int kTiles = 2 * chains;
  std::uint32_t halves[kTiles][4];  // hi of the lower and the upper eight rows, then lo
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const float* const d = x[tile >> 1][tile & 1];
    halves[tile][0] = bf16_heads(d[0], d[1]);
    halves[tile][1] = bf16_heads(d[2], d[3]);
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    ptx::mma_sync_m16n8k8_f32_bf16_accumulate(x[tile >> 1][tile & 1], halves[tile][0], halves[tile][1],
                                              constants.minus_identity);
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const float* const d = x[tile >> 1][tile & 1];
    halves[tile][2] = ptx::cvt_rn_bf16x2_f32(d[0], d[1]);
    halves[tile][3] = ptx::cvt_rn_bf16x2_f32(d[2], d[3]);
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
    ptx::mma_sync_m16n8k16_f32_bf16(x[tile >> 1][tile & 1], halves[tile], constants.hadamard[0]);
}

/// The butterfly over b6, between the tiles of a pair.
__device__ inline void tile_butterfly(float (&even)[4], float (&odd)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float a = even[i], b = odd[i];
    even[i] = a + b;
    odd[i] = a - b;
  }
}

/// b0-b2 of a tile by plain sums, for rows that hold an Inf or a NaN: b0 between registers, b1 and b2 between
/// lanes.
__device__ inline void plain_tile(float (&d)[4], int lane) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const float a = d[i], b = d[i + 1];
    d[i] = a + b;
    d[i + 1] = a - b;
  }
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const float sign = lane & bit ? -1.0F : 1.0F;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      d[i] = fmaf(sign, d[i], __shfl_xor_sync(0xFFFFFFFFU, d[i], bit));
  }
}

template <Dtype dtype>
__device__ std::uint32_t pack_pair(float x, float y) {
  const auto pair = Storage<dtype>::from_float2(x, y);
  return reinterpret_cast<const std::uint32_t&>(pair);
}

/// The words of a finished column-tile pair: bit 0 of the index is the odd tile (b6), bit 1 the upper eight
/// rows. A scale that is no power of two comes last: integers stay integers through the hi + lo pairs, and
/// subnormal data does not sink below the range of bf16 before it is rounded.
template <Dtype dtype>
__device__ void scaled_words(std::uint32_t (&words)[4], const float (&x)[2][4], float scale) {
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const float* pair = x[q & 1] + 2 * (q >> 1);
    words[q] = pack_pair<dtype>(pair[0] * scale, pair[1] * scale);
  }
}

/// Whether nothing in a warp's 16 rows of D is Inf or NaN: after stage 2 every register of the first tile
/// pair depends on all columns of its lane group.
template <int registers>
__device__ bool all_finite(const float (&d)[registers]) {
  bool finite = true;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    finite &= isfinite(d[i]);
  return __all_sync(0xFFFFFFFFU, finite);
}

/// Stage 3 of one warp's 16 rows of D, `most_chains` column-tile pairs at once. `store(pair, words)` takes
/// each of them in turn.
template <Dtype dtype, int most_chains, bool joined = false, int registers, class Constants, class Store>
__device__ void finish_pairs(float (&d)[registers], bool finite, const Constants& constants, int lane,
                             Store store) {
  constexpr int kPairs = registers / 8, kChains = kPairs < most_chains ? kPairs : most_chains;
  // Two loops, not a choice inside one: the tensor chains of several pairs must stay in one basic block to
  // overlap.
  if (finite) {
#pragma unroll
    for (int pair = 0; pair < kPairs; pair += kChains) {
      float x[kChains][2][4];
#pragma unroll
      for (int i = 0; i < 8 * kChains; ++i)
        x[i / 8][i / 4 % 2][i % 4] = d[8 * pair + i];
      if constexpr (joined) {
        joined_pairs(x, constants);
      } else {
        tensor_pairs(x, constants);
      }
#pragma unroll
      for (int c = 0; c < kChains; ++c) {
        std::uint32_t words[4];
        scaled_words<dtype>(words, x[c], constants.last_factor());
        store(pair + c, words);
      }
    }
  } else {
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      float x[2][4];
#pragma unroll
      for (int i = 0; i < 8; ++i)
        x[i / 4][i % 4] = d[8 * pair + i];
      if (!joined) tile_butterfly(x[0], x[1]);
      plain_tile(x[0], lane);
      plain_tile(x[1], lane);
      std::uint32_t words[4];
      scaled_words<dtype>(words, x, constants.scale);
      store(pair, words);
    }
  }
}

/// Stages 2 and 3; `between()` is called between them.
template <Dtype dtype, int most_chains, bool joined = false, int registers, class Constants, class Between,
          class Store>
__device__ void finish(float (&d)[registers], const Constants& constants, int lane, Between between,
                       Store store) {
  column_butterflies<joined ? 4 : 8>(d);
  between();
  finish_pairs<dtype, most_chains, joined>(d, all_finite(d), constants, lane, store);
}

template <Dtype dtype, int most_chains, int registers, class Constants, class Store>
__device__ void finish(float (&d)[registers], const Constants& constants, int lane, Store store) {
  const auto nothing = [] {};
  finish<dtype, most_chains>(d, constants, lane, nothing, store);
}

/// Byte of the row where `lane` stores its first word (column-tile pair 0, q = 0); word q of a pair lies
/// staged_offset(.., pair, q, 0) behind it. A store of its own pointer plus a constant is one instruction;
/// from the sum of all terms the compiler works out every address anew.
template <int log_n, int log_parts>
__device__ int first_word_offset(int upper_m, int lane) {
  constexpr Tile tile{log_n, log_parts};
  return upper_m * staged_bytes_per_warp(tile.columns()) +
         staged_offset(tile.log_column_tiles(), 0, 0, lane >> 2) + 4 * (lane & 3);
}

// The kernels are templates over a class with a Launch inside, because nvcc takes no object as an argument.

// One row a block of one warpgroup, or a cluster of such blocks: each reads the whole row and makes the
// outputs of its 64 rows of D. The hardware scheduler balances and overlaps blocks.
template <Dtype dtype, int log_n, class Choice, Scaling scaling>
__global__ void __launch_bounds__(128, Choice::launch.blocks_per_sm) one_shot(RowBatch batch) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Launch launch = Choice::launch;
  constexpr int kLogCluster = launch.log_parts, kPieces = launch.load_pieces;
  constexpr bool kTable = launch.table;
  constexpr Tile tile{log_n, kLogCluster};
  constexpr int kLogTiles = tile.log_column_tiles();
  // The row arrives in pieces with a barrier each, so that the first k steps start before the last bytes are
  // there.
  constexpr int kStepsPerPiece = tile.k_steps() / kPieces, kPieceBytes = tile.row_bytes() / kPieces;
  extern __shared__ __align__(1024) std::byte shared[];
  std::byte* const table = shared + tile.row_bytes();
  auto* const full = reinterpret_cast<std::uint64_t*>(table + table_bytes(launch));
  const int lane = static_cast<int>(threadIdx.x) & 31;
  // Through a shuffle, so that the compiler knows it to be uniform.
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) >> 5, 0);
  const int rank = kLogCluster == 0 ? 0 : static_cast<int>(ptx::cluster_ctarank());
  const int upper_m = 4 * rank + warp;
  const std::int64_t row_offset = std::int64_t{blockIdx.x >> kLogCluster} * batch.row_stride_bytes;
  const std::uint32_t row = ptx::shared_address(shared);

  if (threadIdx.x == 0) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p)
      ptx::mbarrier_init(ptx::shared_address(full + p), 1);
    ptx::fence_mbarrier_init();
    ptx::griddepcontrol_wait();  // everything else of the block follows the loads
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int p = (i + rank) % kPieces;  // the blocks of a cluster start at different pieces
      ptx::mbarrier_arrive_expect_tx(ptx::shared_address(full + p), kPieceBytes);
      ptx::bulk_copy_global_to_shared(row + p * kPieceBytes, batch.in + row_offset + p * kPieceBytes,
                                      kPieceBytes, ptx::shared_address(full + p));
    }
    if constexpr (launch.eager) ptx::griddepcontrol_launch_dependents();
  }
  const auto hadamard = [&] {
    if constexpr (kTable) {
      fill_table<dtype, 128, kLogCluster == 0 ? 1 : 2>(table);
      ptx::fence_proxy_async_shared();
      return Table{ptx::shared_address(table), rank};
    } else {
      return Fragments<dtype, tile.k_steps()>(lane, upper_m);
    }
  }();
  const Stage3Constants<scaling, false> constants(lane, batch.scale);
  __syncthreads();

  float d[tile.columns() / 2];
  exact_stage<dtype, log_n, kLogCluster>(d, hadamard, row, [&](int s) {
    if (s % kStepsPerPiece != 0) return;
    ptx::mbarrier_wait_parity(ptx::shared_address(full + s / kStepsPerPiece), 0);
    ptx::wgmma_fence();
  });
  if constexpr (kLogCluster > 0) ptx::barrier_cluster_arrive();  // this block has read all of the row
  ptx::wgmma_wait_group<0>();
  ptx::pin_accumulators(d);
  // In place, nobody may store before all blocks of the cluster have read.
  if constexpr (kLogCluster > 0) ptx::barrier_cluster_wait();

  std::byte* const out = batch.out + row_offset + first_word_offset<log_n, kLogCluster>(upper_m, lane);
  finish<dtype, launch.chains>(d, constants, lane, [&](int pair, const std::uint32_t(&words)[4]) {
#pragma unroll
    for (int q = 0; q < 4; ++q)
      *reinterpret_cast<std::uint32_t*>(out + staged_offset(kLogTiles, pair, q, 0)) = words[q];
  });
#else
  __trap();  // `supports` says no where there is no code for sm_90a
#endif
}

/// A word that one thread of a block leaves for others, which come by an mbarrier. Atomic, because racecheck
/// does not follow the order that a barrier of single lanes gives.
__device__ inline void leave(int* word, int value) {
  atomicExch(word, value);
}
__device__ inline int left_in(int* word) {
  return atomicCAS(word, 0, 0);
}

// Resident blocks of `teams` independent teams: `parts` warpgroups that share a row and have `slots` rows in
// flight. No warp is set aside as a producer: a slot that all warps have read is refilled by the first ones,
// a piece each, between stages 2 and 3, when nobody has to wait for the others any more. (Right behind the
// exact stage the slower warps are waited for; a count of the readers, the last of which refills, is an
// atomic with a fence for every warp.)
template <Dtype dtype, int log_n, class Choice, Scaling scaling>
__global__ void __launch_bounds__(Choice::launch.threads(), Choice::launch.blocks_per_sm)
    ring(RowBatch batch, unsigned* next_row) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Launch launch = Choice::launch;
  constexpr Tile tile = tile_of(launch, log_n);
  // Plain constants: a lambda would capture `tile` itself, and read it at run time.
  constexpr int kRowBytes = tile.row_bytes(), kColumns = tile.columns(), kLogTiles = tile.log_column_tiles();
  constexpr int kTeams = launch.teams, kSlots = launch.slots, kAllSlots = kTeams * kSlots;
  constexpr int kStagedBytes = staged_bytes_per_warp(kColumns), kWarpsPerRow = 4 * launch.parts();
  constexpr int kLoads = launch.load_pieces, kLoadBytes = kRowBytes / kLoads;
  constexpr int kStepsPerLoad = tile.k_steps() / kLoads;
  constexpr int kStores = launch.store_pieces;
  constexpr bool kTable = launch.table, kDynamic = launch.dynamic, kStaged = launch.staged();
  constexpr bool kDeferred = launch.deferred;
  static_assert(!kDeferred || kStores == 1, "the staged row is sent as one piece");
  extern __shared__ __align__(1024) std::byte shared[];
  // Everything lives in the dynamic part, rows first, where the alignment of the block's memory is theirs.
  std::byte* const table = shared + row_area_bytes(launch, log_n);
  std::byte* const all_staging = table + table_bytes(launch);
  std::byte* const bookkeeping = all_staging + staging_bytes(launch, log_n);
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int block_warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) >> 5, 0);
  const int team = block_warp / kWarpsPerRow, upper_m = block_warp % kWarpsPerRow;
  // mbarriers of a slot: the bytes of each piece of the row are there, and all warps have read the row.
  const std::uint32_t full = ptx::shared_address(bookkeeping) + 8 * team * kSlots * (kLoads + 1);
  const std::uint32_t read = full + 8 * kSlots * kLoads;
  // Dynamic: the row that a slot waits for, and the one after it.
  int* const row_in = reinterpret_cast<int*>(bookkeeping + 8 * kAllSlots * (kLoads + 1)) + team * kSlots;
  int* const next_in = row_in + kAllSlots;
  const std::uint32_t rows_at = ptx::shared_address(shared) + team * kSlots * kRowBytes;
  const std::uint32_t staging = ptx::shared_address(all_staging) + block_warp * kStagedBytes;
  const int stride = static_cast<int>(gridDim.x) * kTeams;  // from a team's row to its next
  const int first = static_cast<int>(blockIdx.x) + team * static_cast<int>(gridDim.x);

  const auto full_of = [&](int slot, int piece) { return full + 8 * (slot * kLoads + piece); };
  const auto refill = [&](int row, int slot, int piece) {
    if (kDynamic && piece == 0) leave(row_in + slot, row);
    if (row >= batch.rows) {
      if (kDynamic && piece == 0) ptx::mbarrier_arrive(full_of(slot, 0));
      return;
    }
    ptx::mbarrier_arrive_expect_tx(full_of(slot, piece), kLoadBytes);
    ptx::bulk_copy_global_to_shared(rows_at + slot * kRowBytes + piece * kLoadBytes,
                                    batch.in + row * batch.row_stride_bytes + piece * kLoadBytes, kLoadBytes,
                                    full_of(slot, piece));
  };
  // One thread of the team issues, in order: spread over the warps, the first loads start sooner, but the
  // first row arrives later, among the others.
  if (lane == 0 && upper_m == 0) {
    for (int slot = 0; slot < kSlots; ++slot) {
      for (int piece = 0; piece < kLoads; ++piece)
        ptx::mbarrier_init(full_of(slot, piece), 1);
      ptx::mbarrier_init(read + 8 * slot, kWarpsPerRow);
    }
    ptx::fence_mbarrier_init();
    ptx::griddepcontrol_wait();
    for (int slot = 0; slot < kSlots; ++slot) {
#pragma unroll
      for (int piece = 0; piece < kLoads; ++piece)
        refill(first + slot * stride, slot, piece);
    }
  }
  const auto hadamard = [&] {
    if constexpr (kTable) {
      fill_table<dtype, launch.threads(), launch.parts() == 1 ? 1 : 2>(table);
      ptx::fence_proxy_async_shared();
      return Table{ptx::shared_address(table), upper_m >> 2};
    } else {
      return Fragments<dtype, tile.k_steps()>(lane, upper_m);
    }
  }();
  const Stage3Constants<scaling, !kTable> constants(lane, batch.scale);
  if constexpr (kTable) {
    __syncthreads();
  } else {
    ptx::bar_sync(1 + team, 32 * kWarpsPerRow);
  }

  // Dynamic rows: the first ones of a team are its own, as many as it has slots. For each later one it draws
  // a ticket a row ahead: one at the start, and one a row. The last draw of a launch puts the counter back to
  // 0.
  const bool draws = kDynamic && lane == 0 && upper_m == 0;
  const auto last_draw = static_cast<unsigned>(batch.rows + stride - 1);
  unsigned drawn = draws ? atomicInc(next_row, last_draw) : 0U;

  // Sends what stmatrix has staged: column-tile pairs that are contiguous in the row, as one piece or, of a
  // part of them, the lower and the upper eight rows of D apart.
  const auto send = [&](std::byte* out, int first_pair, int pairs) {
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane != 0) return;
    if constexpr (kStores == 1) {
      ptx::bulk_copy_shared_to_global(out, staging, kStagedBytes);
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = 256 * first_pair + half * (kStagedBytes / 2);
        ptx::bulk_copy_shared_to_global(out + at, staging + at, 256 * pairs);
      }
    }
    ptx::bulk_copy_commit_group();
  };
  std::byte* staged_for = nullptr;  // kDeferred: the place of the row before, which waits in staging

  int slot = 0;
  std::uint32_t phase = 0;
#pragma unroll 1
  for (int row = first; kDynamic || row < batch.rows; row += stride) {
    if (kDynamic) {
      ptx::mbarrier_wait_parity(full_of(slot, 0), phase);
      // By the thread that will arrive for this warp, so that the next row is written after this.
      if (lane == 0) row = left_in(row_in + slot);
      row = __shfl_sync(0xFFFFFFFFU, row, 0);
      if (row >= batch.rows) break;
    }
    const unsigned held = drawn;

    float d[kColumns / 2];
    exact_stage<dtype, log_n, launch.log_parts>(d, hadamard, rows_at + slot * kRowBytes, [&](int s) {
      if (s % kStepsPerLoad != 0) return;
      ptx::mbarrier_wait_parity(full_of(slot, s / kStepsPerLoad), phase);
      ptx::wgmma_fence();
    });
    // The fence waits for the staging, a few hundred clocks of which the tensor core makes use here.
    if (kDeferred && staged_for != nullptr) send(staged_for, 0, kColumns / 16);
    // Under the tensor core, because the next wait for any memory may be one for this too.
    if (draws) drawn = atomicInc(next_row, last_draw);
    ptx::wgmma_wait_group<0>();
    ptx::pin_accumulators(d);
    if (draws) leave(next_in + slot, static_cast<int>(held) + kSlots * stride);
    if (lane == 0) {
      ptx::mbarrier_arrive(read + 8 * slot);
      if (kStaged) ptx::bulk_copy_wait_group_read<0>();  // the staged row before has been read
    }
    __syncwarp();

    const auto refill_slot = [&] {
      const int next = row + kSlots * stride;
      if (lane != 0 || upper_m >= kLoads || (!kDynamic && next >= batch.rows)) return;
      ptx::mbarrier_wait_parity(read + 8 * slot, phase);
      for (int piece = upper_m; piece < kLoads; piece += kWarpsPerRow)
        refill(kDynamic ? left_in(next_in + slot) : next, slot, piece);
    };
    std::byte* const out =
        batch.out + row * batch.row_stride_bytes +
        (kStaged ? upper_m * kStagedBytes : first_word_offset<log_n, launch.log_parts>(upper_m, lane));
    finish<dtype, launch.chains, launch.joined>(
        d, constants, lane, refill_slot, [&](int pair, const std::uint32_t(&words)[4]) {
          if constexpr (!kStaged) {
#pragma unroll
            for (int q = 0; q < 4; ++q)
              *reinterpret_cast<std::uint32_t*>(out + staged_offset(kLogTiles, pair, q, 0)) = words[q];
          } else {
            ptx::stmatrix_x4(staging + staged_offset(kLogTiles, pair, lane >> 3, lane & 7), words);
            constexpr int kPairsPerPiece = kColumns / 16 / (kStaged ? kStores : 1);
            if (!kDeferred && (pair + 1) % kPairsPerPiece == 0)
              send(out, pair + 1 - kPairsPerPiece, kPairsPerPiece);
          }
        });
    if (kDeferred) staged_for = out;
    if (++slot == kSlots) slot = 0, phase ^= 1;
    __syncwarp();
  }
  if (kDeferred && staged_for != nullptr) send(staged_for, 0, kColumns / 16);
  // Shared memory must outlive the copies that read it.
  if (kStaged && lane == 0) ptx::bulk_copy_wait_group_read<0>();
#else
  __trap();  // `supports` says no where there is no code for sm_90a
#endif
}

}  // namespace fwht::wgmma
