// The rotation inside the layer: a cluster multiplies its tokens by H / sqrt(order) before they meet the
// weights.
//
// Idea. A block owns a slice of k, so it rotates that slice: butterflies over fp32 numbers in shared memory,
// rounded once to 16 bits. Orders up to the slice stay in the block. Longer ones go on over the blocks, whose
// ranks are the highest digit: for its share of the places a block reads all slices, does the butterflies
// over ranks and writes every slice's part back. The weights are on their way to the L2 meanwhile.
//
// Bit card of k: bits 0-2 in a thread from the load on, then three bits a pass through shared memory, then
// the ranks.
#pragma once

#include "common/device/ptx/cluster.cuh"
#include "common/device/ptx/mbarrier.cuh"
#include "common/device/storage.cuh"
#include "common/host/bits.hpp"
#include "variants/kit/warp_program.hpp"
#include "variants/linear/w4a16_pipelined/layout.hpp"

namespace fwht::linear::pipelined {

/// One block's slice of all tokens.
template <Dtype dtype>
struct Slice {
  using Element = typename Storage<dtype>::Element;
  using Pair = typename Storage<dtype>::Pair;

  float* stage;      // [tokens][stage_pitch]: fp32, in work
  Element* rotated;  // [tokens][rotated_pitch]: the result
  int tokens, length;

  __device__ float* at(int token, int i) const {
    return stage + token * stage_pitch(length) + stage_place(i);
  }
  __device__ Element* result(int token, int i) const { return rotated + token * rotated_pitch(length) + i; }
};

/// Tokens into the stage, their lowest three bits done.
template <Dtype dtype>
__device__ void load_slice(const Slice<dtype>& slice, const typename Storage<dtype>::Element* x, int k) {
  using Pair = typename Storage<dtype>::Pair;
  const int vectors = slice.length / 8;
  for (int item = static_cast<int>(threadIdx.x); item < slice.tokens * vectors; item += blockDim.x) {
    const int token = item / vectors, i = item % vectors * 8;
    const uint4 words = *reinterpret_cast<const uint4*>(x + std::int64_t{token} * k + i);
    const auto* pairs = reinterpret_cast<const Pair*>(&words);
    float v[8][1];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 two = Storage<dtype>::to_float2(pairs[j]);
      v[2 * j][0] = two.x;
      v[2 * j + 1][0] = two.y;
    }
    rows::vector_butterflies<3>(v);
    auto* to = reinterpret_cast<float4*>(slice.at(token, i));
    to[0] = {v[0][0], v[1][0], v[2][0], v[3][0]};
    to[1] = {v[4][0], v[5][0], v[6][0], v[7][0]};
  }
  __syncthreads();
}

/// One pass: the digit of `count` places whose distance is h.
template <int count, Dtype dtype>
__device__ void pass(const Slice<dtype>& slice, int h) {
  const int groups = slice.length / count;
  for (int item = static_cast<int>(threadIdx.x); item < slice.tokens * groups; item += blockDim.x) {
    const int token = item / groups, group = item % groups, first = group / h * (count * h) + group % h;
    float v[count][1];
#pragma unroll
    for (int j = 0; j < count; ++j)
      v[j][0] = *slice.at(token, first + j * h);
    rows::vector_butterflies<log2_floor(count)>(v);
#pragma unroll
    for (int j = 0; j < count; ++j)
      *slice.at(token, first + j * h) = v[j][0];
  }
  __syncthreads();
}

template <Dtype dtype>
__device__ uint2 rounded(const float (&v)[4], float factor) {
  using Pair = typename Storage<dtype>::Pair;
  const Pair pairs[2] = {Storage<dtype>::from_float2(v[0] * factor, v[1] * factor),
                         Storage<dtype>::from_float2(v[2] * factor, v[3] * factor)};
  uint2 words;
  memcpy(&words, pairs, sizeof words);
  return words;
}

/// Bits within the slice are done: scaled and rounded.
template <Dtype dtype>
__device__ void round_slice(const Slice<dtype>& slice, float factor) {
  const int vectors = slice.length / 4;
  for (int item = static_cast<int>(threadIdx.x); item < slice.tokens * vectors; item += blockDim.x) {
    const int token = item / vectors, i = item % vectors * 4;
    const float4 four = *reinterpret_cast<const float4*>(slice.at(token, i));
    const float v[4] = {four.x, four.y, four.z, four.w};
    *reinterpret_cast<uint2*>(slice.result(token, i)) = rounded<dtype>(v, factor);
  }
}

/// The digit of the ranks, then the same: `ranks` blocks from rank `first` on share an order.
template <int ranks, Dtype dtype>
__device__ void pass_over_ranks(const Slice<dtype>& slice, int rank, float factor) {
  const int first = rank / ranks * ranks, share = slice.length / ranks, begin = rank % ranks * share;
  const int vectors = share / 4;
  for (int item = static_cast<int>(threadIdx.x); item < slice.tokens * vectors; item += blockDim.x) {
    const int token = item / vectors, i = begin + item % vectors * 4;
    float v[ranks][4];
    const std::uint32_t from = ptx::shared_address(slice.at(token, i)),
                        to = ptx::shared_address(slice.result(token, i));
#pragma unroll
    for (int r = 0; r < ranks; ++r) {
      const float4 four = ptx::ld_shared_cluster_v4(ptx::mapa(from, first + r));
      v[r][0] = four.x;
      v[r][1] = four.y;
      v[r][2] = four.z;
      v[r][3] = four.w;
    }
    rows::vector_butterflies<log2_floor(ranks)>(v);
#pragma unroll
    for (int r = 0; r < ranks; ++r)
      ptx::st_shared_cluster_v2(ptx::mapa(to, first + r), rounded<dtype>(v[r], factor));
  }
}

/// slice.rotated = H / sqrt(order) times the tokens at x, which points to this block's slice of the first
/// token. `order` is a power of two from 8 on; it divides the slice, or is the slice times a number of blocks
/// that divides the cluster's.
template <Dtype dtype, Form form>
__device__ void rotate_tokens(const Slice<dtype>& slice, const typename Storage<dtype>::Element* x, int k,
                              int rank, int order, float factor) {
  load_slice(slice, x, k);
  const int within = min(order, slice.length);
  int h = 8;
  for (; h * 8 <= within; h *= 8)
    pass<8>(slice, h);
  if (h * 4 == within) pass<4>(slice, h);
  if (h * 2 == within) pass<2>(slice, h);
  if constexpr (form.cluster > 1) {
    static_assert(form.cluster == 4);
    if (order > slice.length) {
      ptx::barrier_cluster_arrive();
      ptx::barrier_cluster_wait();
      if (order == 2 * slice.length) pass_over_ranks<2>(slice, rank, factor);
      if (order == 4 * slice.length) pass_over_ranks<4>(slice, rank, factor);
      ptx::barrier_cluster_arrive();
      ptx::barrier_cluster_wait();
      return;
    }
  }
  round_slice(slice, factor);
  __syncthreads();
}

}  // namespace fwht::linear::pipelined
