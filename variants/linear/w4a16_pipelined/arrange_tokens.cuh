// Kernels in front of the layer: tokens in the order in which it reads them. The layer starts meanwhile and
// waits with its weights under way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/device/ptx/global.cuh"
#include "common/device/ptx/griddepcontrol.cuh"
#include "variants/linear/w4a16_pipelined/layout.hpp"

namespace fwht::linear::pipelined {

/// Eight numbers of a token for a thread; blockIdx.y is the token.
inline constexpr int kArrangeThreads = 256;

/// words = x[token][order[first .. first + 7]], in the order of x without `order`, once the kernel that makes
/// x has ended.
__device__ inline void load_ordered(std::uint32_t (&words)[4], const std::uint16_t* x,
                                    const std::int32_t* order, int first, int k, bool wanted) {
  int from[8] = {};
  if (wanted && order != nullptr) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      from[i] = order[first + i];
  }
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  if (!wanted) return;
  const std::uint16_t* row = x + std::int64_t{blockIdx.y} * k;
  if (order == nullptr) {
    ptx::ld_global_v4(words, row + first);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    words[i] = row[from[2 * i]] | std::uint32_t{row[from[2 * i + 1]]} << 16;
}

/// sorted[token][i] = x[token][order[i]]: tokens as sorted rows meet them.
static __global__ void __launch_bounds__(kArrangeThreads)
    gather_tokens(const std::uint16_t* x, const std::int32_t* order, std::byte* sorted, int, int k, int) {
  const int first = static_cast<int>(blockIdx.x * kArrangeThreads + threadIdx.x) * 8;
  std::uint32_t words[4];
  load_ordered(words, x, order, first, k, first < k);
  ptx::st_global_if(first < k, sorted + (std::int64_t{blockIdx.y} * k + first) * 2, words);
}

/// staged[slice of `tokens`][step of k][stage of wgmma], see stage_word; tokens from m on are zero.
static __global__ void __launch_bounds__(kArrangeThreads)
    stage_tokens(const std::uint16_t* x, const std::int32_t* order, std::byte* staged, int m, int k,
                 int tokens) {
  const int first = static_cast<int>(blockIdx.x * kArrangeThreads + threadIdx.x) * 8;
  const int token = static_cast<int>(blockIdx.y);
  std::uint32_t words[4] = {};
  load_ordered(words, x, order, first, k, first < k && token < m);
  if (first >= k) return;
  const std::int64_t stage = std::int64_t{token / tokens} * (k / kStepK) + first / kStepK;
  std::byte* to = staged + stage * (tokens * kStepK * 2);
  const int at = stage_word(tokens, token % tokens, first % kStepK);
#pragma unroll
  for (int pair = 0; pair < 4; ++pair)  // two bits of the row's vector, which the swizzle is over
    *reinterpret_cast<std::uint32_t*>(to + (at ^ (pair << 4))) = words[pair];
}

}  // namespace fwht::linear::pipelined
