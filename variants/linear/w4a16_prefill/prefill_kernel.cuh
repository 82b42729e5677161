// w4a16_prefill: y = x W for many tokens, weights unpacked on their way into wgmma.
//
// Idea. Outputs are the 64 rows of a wgmma and tokens its columns, so that operand A, the exact integers
// q - z, is unpacked in registers and never stored again; tokens are operand B, as tensor copies bring them.
// A group's sum must be multiplied by its scale s. Two accumulators, one for the group and one for all,
// would take 256 registers for 256 tokens; so there is one, in units of the scale of the group at hand:
//
//     acc <- acc * s_(g-1) / s_g + sum over group g of (q - z) x        y = acc * s_last
//
// A quotient is exact where it is a number of fp32, and off by 2^-24 else. A group whose scale is zero keeps
// the unit, and operand A is zero.
//
// Roles. Warpgroups 0 and 1: 64 outputs each, all tokens of the tile. One warp of the third fills a ring of
// steps: 128 k of tokens, words and scales by tensor copies, zero points by cp.async (8 bytes are too few for
// a box). They take turns: a warpgroup issues the wgmma of a group, then the other one does, and the first
// unpacks its next operand A, and changes units, meanwhile.
//
// Partition of a step, warp w of warpgroup v, lane = 4 g + t: rows 64 v + 16 w + g and + 8 of the tile. Word
// (block b, half j), after the exchange among the lanes of a row, is k = 32 b + 16 j + 2 t, + 1, + 8, + 9.
// Sum e of the accumulator: row g + 8 (e / 2 % 2), token 8 (e / 4) + 2 t + e % 2.
//
// What one block leaves of a tile, another one finishes: see Division. It takes partial sums from a
// workspace, and a word that holds the plan's own number says that they are there. Whoever has taken them
// puts the word back to 0, which keeps one launch from the next.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "common/device/ptx/acquire.cuh"
#include "common/device/ptx/cp_async.cuh"
#include "common/device/ptx/global.cuh"
#include "common/device/ptx/named_barrier.cuh"
#include "common/device/ptx/shared.cuh"
#include "common/device/ptx/stmatrix.cuh"
#include "common/device/ptx/tensor_copy.cuh"
#include "common/device/ptx/wgmma.cuh"
#include "common/device/ptx/wgmma_descriptor.hpp"
#include "variants/kit/split_stage.cuh"
#include "variants/kit/tile_ring.cuh"
#include "variants/linear/unpack.cuh"
#include "variants/linear/w4a16_prefill/layout.hpp"

namespace fwht::linear::prefill {

struct Launch {
  Form form;
  Dtype dtype = Dtype::f16;
  int scales = 1;  ///< groups in a step
  constexpr bool operator==(const Launch&) const = default;
};

struct Arguments {
  /// Boxes of x: a tile's tokens, and those of the last tile. A box that reached beyond m would be slow to
  /// copy; columns of operand B that hold anything else give columns of sums that are not stored.
  CUtensorMap x[2];
  CUtensorMap words, scales;
  const std::byte* zeros;
  void* y;
  float4* partials;      ///< [worker][sum / 4][thread]
  std::uint64_t* ready;  ///< [worker][sharer]: `launch` when the partial sums for that sharer are there
  std::uint64_t launch;
  PreparedDivision division;
  int m, n, steps, tiles, lowest_zero;
};

/// Named barriers of a block; 0 is __syncthreads.
enum Barrier : int { kResults = 1, kTurn = kResults + kGroups, kBothGroups = kTurn + kGroups };

inline constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;

template <Launch launch>
using Ring = rows::TileRing<launch.form.stages, 1, kGroups * 4, 33>;

/// Rows g and g + 8 of operand A: what a nibble is multiplied by and what is added, so that q - z comes out.
template <Dtype dtype>
struct RowPair {
  Zeros<dtype> zeros;
  std::uint32_t low, high;

  /// scales: those of both rows; a row whose scale is zero becomes zero.
  __device__ RowPair(std::uint32_t stored_zeros, std::uint32_t scales, int lowest_zero)
      : zeros(stored_zeros, lowest_zero) {
    constexpr bool kF16 = dtype == Dtype::f16;
    low = kF16 ? 0x3C003C00U : 0x3F803F80U;
    high = kF16 ? 0x2C002C00U : 0x3F803F80U;
    if ((scales & 0x7FFFU) == 0) low = zeros.low = 0;
    if ((scales & 0x7FFF0000U) == 0) high = zeros.high = 0;
  }

  __device__ void unpack(std::uint32_t word, std::uint32_t (&a)[4]) const {
    if constexpr (dtype == Dtype::f16) {
      const std::uint32_t upper = word >> 8;
      a[0] = ptx::fma_rn_f16x2(mask_or<0x000F000FU, 0x64006400U>(word), low, zeros.low);
      a[1] = ptx::fma_rn_f16x2(mask_or<0x00F000F0U, 0x64006400U>(word), high, zeros.high);
      a[2] = ptx::fma_rn_f16x2(mask_or<0x000F000FU, 0x64006400U>(upper), low, zeros.low);
      a[3] = ptx::fma_rn_f16x2(mask_or<0x00F000F0U, 0x64006400U>(upper), high, zeros.high);
    } else {
      a[0] = ptx::fma_rn_bf16x2(mask_or<0x000F000FU, 0x43004300U>(word), low, zeros.low);
      a[1] = ptx::fma_rn_bf16x2(mask_or<0x000F000FU, 0x43004300U>(word >> 4), high, zeros.high);
      a[2] = ptx::fma_rn_bf16x2(mask_or<0x000F000FU, 0x43004300U>(word >> 8), low, zeros.low);
      a[3] = ptx::fma_rn_bf16x2(mask_or<0x000F000FU, 0x43004300U>(word >> 12), high, zeros.high);
    }
  }
};

/// See exchange_of; x and y are the two words of 32 k.
__device__ inline void exchange(std::uint32_t& x, std::uint32_t& y, const LaneExchange& with, bool upper) {
  const std::uint32_t keep = upper ? y : x, send = upper ? x : y;
  const std::uint32_t got = __shfl_xor_sync(~0U, send, 2);
  const std::uint32_t kept = __byte_perm(keep, got, with.kept), sent = __byte_perm(keep, got, with.sent);
  const std::uint32_t other = __shfl_xor_sync(~0U, sent, 1);
  x = __byte_perm(kept, other, with.first);
  y = __byte_perm(kept, other, with.last);
}

/// a / b, exact where it is a number of fp32.
__device__ inline float quotient(float a, float b) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
  const float estimate = a * inverse;
  return fmaf(fmaf(-estimate, b, a), inverse, estimate);
}

/// By one warp of the third warpgroup.
template <Launch launch>
__device__ void fill_ring(const Arguments& all, std::uint32_t base, int worker) {
  constexpr Form form = launch.form;
  constexpr int kTiles = kOutputs / kTileOutputs, kScales = launch.scales;
  const int lane = static_cast<int>(threadIdx.x % 32);
  Ring<launch> ring(base + form.barriers_at(kScales));
  WorkParts parts(all.division, worker);
  for (Part part; parts.next(all.division, part);) {
    const int tile = all.division.output_tile(part.tile) * kTiles;
    const int token = all.division.token_tile(part.tile) * form.tokens;
    const int end = part.end * steps_of_unit(kScales);
#pragma unroll 1  // few registers
    for (int step = part.first * steps_of_unit(kScales); step < end; ++step) {
      const int place = ring.place();
      ring.wait_for_room();
      if (lane == 0) {
        const std::uint32_t full = ring.full(place), tokens = base + place * form.stage_bytes();
        const bool last = token + form.tokens >= all.m;
        ptx::mbarrier_arrive_expect_tx(full, (last ? form.bytes_of(all.m - token) : form.token_bytes()) +
                                                 form.word_bytes() + form.scale_bytes(kScales));
        ptx::tensor_copy_global_to_shared_3d(tokens + form.token_bytes(), &all.words, 0, step, tile, full);
        ptx::tensor_copy_global_to_shared_3d(base + form.scales_at() + place * form.scale_bytes(kScales),
                                             &all.scales, 0, step, tile, full);
        for (int half = 0; half < 2; ++half)
          ptx::tensor_copy_global_to_shared_2d(tokens + half * (form.token_bytes() / 2), &all.x[last ? 1 : 0],
                                               step * kStepK + half * 64, token, full);
      }
      if (lane < kTiles) {
        const bool wanted = tile + lane < all.tiles && step < all.steps;
        // 32 bits, for want of registers: 2^32 of these are weights of 4 terabytes.
        const std::uint32_t at = wanted ? std::uint32_t(tile + lane) * all.steps + step : 0U;
        const std::uint32_t to =
            base + form.zeros_at(kScales) + place * form.zero_bytes(kScales) + lane * (kZeroBytes * kScales);
#pragma unroll
        for (int i = 0; i < kScales; ++i)
          ptx::cp_async_ca_shared_global_8(
              to + 8 * i, all.zeros + std::uint64_t{at} * (kZeroBytes * kScales) + 8 * i, wanted);
      }
      ptx::cp_async_mbarrier_arrive_noinc(ring.full(place));
      ring.advance();
    }
  }
}

/// One warpgroup's part of the work.
template <Launch launch>
class Consumer {
  static constexpr Form form = launch.form;
  static constexpr int kScales = launch.scales, kWords = 8 / kScales, kSums = form.tokens / 2,
                       kChunks = kSums / 4, kStages = form.stages;

 public:
  __device__ Consumer(const Arguments& all, std::uint32_t base, int worker, int group)
      : all_(all),
        base_(base),
        barriers_(base + form.barriers_at(kScales)),
        worker_(worker),
        group_(group),
        warp_(__shfl_sync(~0U, static_cast<int>(threadIdx.x % 128 / 32), 0)),
        lane_(static_cast<int>(threadIdx.x % 32)) {
    const int t = lane_ % 4;
    exchange_ = t == 0 ? exchange_of(0) : t == 1 ? exchange_of(1) : t == 2 ? exchange_of(2) : exchange_of(3);
#pragma unroll
    for (int e = 0; e < kSums; ++e)
      sums_[e] = 0.0F;
  }

  __device__ void run() {
    if (group_ == kGroups - 1) pass_turn();
    WorkParts parts(all_.division, worker_);
    for (Part part; parts.next(all_.division, part);) {
      multiply(part);
#pragma unroll
      for (int e = 0; e < kSums; ++e)
        sums_[e] *= e % 4 < 2 ? unit_.x : unit_.y;
      TokenRange tokens{0, all_.division.tokens_of(part.tile, form.tokens, all_.m)};
      if (part.first != 0 || part.end != all_.division.units) {
        if (all_.division.shares()) {
          tokens = exchange_with_sharers(tokens.end);
        } else if (part.first != 0) {
          give(tokens, {});
          if (threadIdx.x == 0) ptx::st_release_gpu(all_.ready + worker_ * kMostSharers, all_.launch);
          continue;
        } else {
          take_from_next(part, tokens);
        }
      }
      // Behind the last part there is room where the ring was.
      WorkParts rest = parts;
      if (Part other; rest.next(all_.division, other)) {
        store<form.result_tokens(kScales)>(part.tile, tokens, base_ + form.results_at(kScales));
      } else {
        static_assert(kGroups * form.tokens * kGroupOutputs * 2 <= form.scales_at());
        ptx::bar_sync(kBothGroups, kConsumers);
        store<form.tokens>(part.tile, tokens, base_);
      }
    }
  }

 private:
  __device__ std::uint32_t full(int place) const {
    return barriers_ + 8 * place;
  }
  __device__ std::uint32_t read(int place) const {
    return barriers_ + 8 * (kStages + place);
  }
  __device__ void wait_turn() const {
    ptx::bar_sync(kTurn + group_, 2 * 128);
  }
  __device__ void pass_turn() const {
    ptx::bar_arrive(kTurn + (group_ + 1) % kGroups, 2 * 128);
  }
  __device__ int warp_tile() const {
    return group_ * 4 + warp_;
  }

  struct PackedGroup {
    std::uint32_t words[kWords], scales, zeros;
  };
  __device__ PackedGroup load(int place, int group) const {
    PackedGroup packed;
    const int row = warp_tile() * 8 + lane_ / 4;
    const std::uint32_t words =
        base_ + place * form.stage_bytes() + form.token_bytes() + warp_tile() * kStepBytes + lane_ * 16;
    if constexpr (kWords == 2) {
      asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                   : "=r"(packed.words[0]), "=r"(packed.words[1])
                   : "r"(words + group / 2 * 512 + group % 2 * 8));
    } else {
#pragma unroll
      for (int i = 0; i < kWords / 4; ++i) {
        std::uint32_t vector[4];
        ptx::ld_shared_v4(vector, words + (group * kWords / 4 + i) * 512);
#pragma unroll
        for (int j = 0; j < 4; ++j)
          packed.words[4 * i + j] = vector[j];
      }
    }
    const std::uint32_t scales = base_ + form.scales_at() + place * form.scale_bytes(kScales);
    const std::uint32_t zeros = base_ + form.zeros_at(kScales) + place * form.zero_bytes(kScales);
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(packed.scales) : "r"(scales + (row * kScales + group) * 4));
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(packed.zeros) : "r"(zeros + row * kScales + group));
    return packed;
  }

  /// The new unit of the sums, and what they are to be multiplied by.
  __device__ float2 change_unit(std::uint32_t scales) {
    float2 unit = half2_to_float2(scales);
    if (unit.x == 0.0F) unit.x = unit_.x;
    if (unit.y == 0.0F) unit.y = unit_.y;
    const float2 factor = make_float2(quotient(unit_.x, unit.x), quotient(unit_.y, unit.y));
    unit_ = unit;
    return factor;
  }

  __device__ void unpack(std::uint32_t (&a)[kWords][4], PackedGroup packed) const {
#pragma unroll
    for (int i = 0; i < kWords; i += 2)
      exchange(packed.words[i], packed.words[i + 1], exchange_, lane_ % 4 >= 2);
    const RowPair<launch.dtype> rows(packed.zeros, packed.scales, all_.lowest_zero);
#pragma unroll
    for (int i = 0; i < kWords; ++i)
      rows.unpack(packed.words[i], a[i]);
  }

  /// sums += operand A times the group's tokens; nothing waits here.
  __device__ void issue(const std::uint32_t (&a)[kWords][4], int place, int group, bool first) {
    const std::uint64_t tokens =
        ptx::matrix_descriptor(base_ + place * form.stage_bytes(), 16, 1024, ptx::Swizzle::bytes_128);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const int word = group * kWords + i;
      const int at = word / 4 * (form.token_bytes() / 2) + word % 4 * 32;
      ptx::wgmma_m64k16_b_k_major<launch.dtype, form.tokens>(sums_, a[i], tokens + at / 16, i != 0 || !first);
    }
    ptx::wgmma_commit_group();
  }

  /// sums, in units of unit_, of the part's k.
  __device__ void multiply(const Part& part) {
    constexpr int kSteps = steps_of_unit(kScales), kBody = kSteps * kScales;
    std::uint32_t a[2][kWords][4];
    ptx::mbarrier_wait_parity(full(at_.place), at_.phase);
    {
      const PackedGroup packed = load(at_.place, 0);
      change_unit(packed.scales);
      unpack(a[0], packed);
    }
    bool first = true;
    for (int units = part.end - part.first; units > 0; --units) {
#pragma unroll
      for (int i = 0; i < kBody; ++i) {
        // Nothing is in flight, operand A of the group is ready, and the sums have its unit.
        const int group = i % kScales;
        const bool last_of_step = group == kScales - 1, last = units == 1 && i == kBody - 1;
        const auto here = at_;
        if (last_of_step) at_.advance();
        // At the end of the part the step's last group is met again: the unit stays, operand A is not used.
        const auto next = last ? here : at_;
        wait_turn();
        issue(a[i % 2], here.place, group, first);
        pass_turn();
        first = false;
        if (last_of_step) ptx::mbarrier_wait_parity(full(next.place), next.phase);
        const PackedGroup packed = load(next.place, last ? group : (group + 1) % kScales);
        const float2 factor = change_unit(packed.scales);
        unpack(a[(i + 1) % 2], packed);
        ptx::wgmma_wait_group<0>();
        ptx::pin_accumulators(sums_);
        if (last_of_step && lane_ == 0) ptx::mbarrier_arrive(read(here.place));
#pragma unroll
        for (int e = 0; e < kSums; ++e)
          sums_[e] *= e % 4 < 2 ? factor.x : factor.y;
      }
    }
  }

  /// The sums of 8 tokens that this thread has.
  struct Chunk {
    std::uint32_t words[4];
  };
  __device__ Chunk words_of(int c) const {
    return {{__float_as_uint(sums_[4 * c]), __float_as_uint(sums_[4 * c + 1]),
             __float_as_uint(sums_[4 * c + 2]), __float_as_uint(sums_[4 * c + 3])}};
  }

  __device__ float4* partials(int worker) const {
    return all_.partials + std::int64_t{worker} * (kChunks * kConsumers) + threadIdx.x;
  }

  /// Sums of `tokens`, but not of `kept`, to the workspace; both warpgroups are through when it returns.
  __device__ void give(TokenRange tokens, TokenRange kept) const {
    float4* to = partials(worker_);
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      ptx::st_global_if(tokens.has_chunk(c) && !kept.has_chunk(c), &to[c * kConsumers], words_of(c).words);
    ptx::bar_sync(kBothGroups, kConsumers);
  }

  /// Adds load(source, chunk), other workers' sums in ascending order, for each chunk of `tokens`. Loads of
  /// up to kSources are under way at once.
  template <int kSources, class Load>
  __device__ void add(TokenRange tokens, int sources, const Load& load) {
    constexpr int kBatch = kSources > 1 ? 4 : 8;  // chunks
    for (int begin = 0; begin < sources; begin += kSources) {
#pragma unroll
      for (int c = 0; c < kChunks; c += kBatch) {
        float4 sums[kBatch][kSources];
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
#pragma unroll
          for (int j = 0; j < kSources; ++j)
            if (c + i < kChunks && tokens.has_chunk(c + i) && begin + j < sources)
              sums[i][j] = load(begin + j, c + i);
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
#pragma unroll
          for (int j = 0; j < kSources; ++j) {
            if (c + i >= kChunks || !tokens.has_chunk(c + i) || begin + j >= sources) continue;
            sums_[4 * (c + i)] += sums[i][j].x;
            sums_[4 * (c + i) + 1] += sums[i][j].y;
            sums_[4 * (c + i) + 2] += sums[i][j].z;
            sums_[4 * (c + i) + 3] += sums[i][j].w;
          }
        }
      }
    }
  }

  /// Until `word` is the launch's; then it is made ready for another launch.
  __device__ void wait_for(std::uint64_t* word) const {
    while (ptx::ld_acquire_gpu(word) != all_.launch) {
    }
    *word = 0;
  }

  /// All sharers of the tile run; returns the tokens that this one finishes. Own sums, then those of the
  /// others in ascending order.
  __device__ TokenRange exchange_with_sharers(int tokens) {
    const Sharer sharer(all_.division, worker_, tokens);
    const int sharers = all_.division.by_sharers().value();
    give({0, tokens}, sharer.own);
    const int other = static_cast<int>(threadIdx.x);
    if (other < sharers && other != sharer.index) {
      ptx::st_release_gpu(all_.ready + worker_ * kMostSharers + other, all_.launch);
      wait_for(all_.ready + sharer.worker_at(worker_, other) * kMostSharers + sharer.index);
    }
    ptx::bar_sync(kBothGroups, kConsumers);
    constexpr int kSources = form.tokens < 160 ? 3 : 1;  // at once: as registers allow
    add<kSources>(sharer.own, sharers - 1, [&](int source, int chunk) {
      const int worker = sharer.worker_at(worker_, source < sharer.index ? source : source + 1);
      return __ldcg(&partials(worker)[chunk * kConsumers]);
    });
    return sharer.own;
  }

  /// The part ends before the tile: the workers behind have given the other parts, the last of them first.
  __device__ void take_from_next(const Part& part, TokenRange tokens) {
    const int tile_end = (part.tile - all_.division.first_cut() + 1) * all_.division.units;
    for (int worker = worker_ + 1; all_.division.run_begin(worker) < tile_end; ++worker) {
      if (threadIdx.x == 0) wait_for(all_.ready + worker * kMostSharers);
      ptx::bar_sync(kBothGroups, kConsumers);
      add<1>(tokens, 1, [&](int, int chunk) { return __ldcg(&partials(worker)[chunk * kConsumers]); });
    }
  }

  /// Rounds the sums of `tokens` and writes them, by way of shared memory: rows of 64 outputs, vectors
  /// of 16 bytes exchanged as a 128-byte swizzle does.
  /// @tparam kRoom  tokens that find room there at once
  template <int kRoom>
  __device__ void store(int tile, TokenRange tokens, std::uint32_t results) const {
    const std::uint32_t room = results + group_ * (kRoom * kGroupOutputs * 2);
    const int thread = static_cast<int>(threadIdx.x % 128);
    const int output = (all_.division.output_tile(tile) * kGroups + group_) * kGroupOutputs + thread % 8 * 8;
    const int token = all_.division.token_tile(tile) * form.tokens;
    auto* y = static_cast<std::uint16_t*>(all_.y);
#pragma unroll
    for (int begin = 0; begin < form.tokens; begin += kRoom) {
      if (begin >= tokens.end || begin + kRoom <= tokens.first) continue;
      ptx::bar_sync(kResults + group_, 128);
#pragma unroll
      for (int c = begin / 8; c < (begin + kRoom) / 8; c += 2) {
        if (!tokens.has_chunk(c)) continue;
        std::uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          words[i] = rows::rounded_pair<launch.dtype>(sums_[4 * c + 2 * i], sums_[4 * c + 2 * i + 1]);
        const int row = (8 * c + lane_ / 16 * 8 + lane_ % 8) % kRoom, vector = warp_ * 2 + lane_ / 8 % 2;
        ptx::stmatrix_x4_trans(room + row * 128 + ((vector ^ (row % 8)) << 4), words);
      }
      ptx::bar_sync(kResults + group_, 128);
      const int until = min(begin + kRoom, tokens.end);
      for (int row = max(begin, tokens.first) + thread / 8; row < until; row += 16) {
        if (token + row >= all_.m || output >= all_.n) continue;
        std::uint32_t vector[4];
        ptx::ld_shared_v4(vector, room + row % kRoom * 128 + (((thread % 8) ^ (row % 8)) << 4));
        ptx::st_global_if(true, y + std::int64_t{token + row} * all_.n + output, vector);
      }
    }
  }

  const Arguments& all_;
  std::uint32_t base_, barriers_;
  int worker_, group_, warp_, lane_;
  LaneExchange exchange_{};
  float sums_[kSums];
  float2 unit_ = {1.0F, 1.0F};
  rows::RingPlace<kStages> at_;
};

/// A grid of division.workers blocks. Later blocks begin with the earlier
/// units: who waits for a block behind it in k waits for one that was started before.
template <Launch launch>
__device__ void multiply_layer(const Arguments& all) {
  extern __shared__ __align__(1024) std::byte shared[];
  constexpr Form form = launch.form;
  const std::uint32_t base = ptx::shared_address(shared);
  const int worker = all.division.workers - 1 - static_cast<int>(blockIdx.x);
  const int group = __shfl_sync(~0U, static_cast<int>(threadIdx.x / 128), 0);
  if (threadIdx.x == kConsumers) {
    ptx::prefetch_tensormap(&all.x[0]);
    ptx::prefetch_tensormap(&all.x[1]);
    ptx::prefetch_tensormap(&all.words);
    ptx::prefetch_tensormap(&all.scales);
  }
  if (threadIdx.x == 0) Ring<launch>(base + form.barriers_at(launch.scales)).init();
  __syncthreads();
  if (group == kGroups) {
    ptx::setmaxnreg_dec<kProducerRegisters>();
    if (threadIdx.x < kConsumers + 32) fill_ring<launch>(all, base, worker);
  } else {
    ptx::setmaxnreg_inc<kConsumerRegisters>();
    Consumer<launch>(all, base, worker, group).run();
  }
}

}  // namespace fwht::linear::prefill
