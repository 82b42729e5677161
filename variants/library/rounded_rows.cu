// y = H D_k ... H D_1 x with one load and one store an element.
//
// Idea: a warp holds whole rows in fp32 registers, so that no round needs memory or a barrier. A block puts
// the signs in the order of its lanes' registers once, 32 in a word, for all rows that it meets: a sign costs
// a shift and an exclusive or, which the multiplication by 1 / sqrt(n) takes along.
//
// Bit card: RoundsTile.
#include "variants/library/rounded_rows.hpp"

#include "common/device/launcher.hpp"
#include "common/device/storage.cuh"
#include "common/host/bits.hpp"
#include "common/host/static_dispatch.hpp"
#include "variants/passes/tile_kernels.cuh"

namespace fwht::walsh {
namespace {

constexpr int kWarps = 4;  // of a block

/// As many as the registers of a multiprocessor hold without spills.
constexpr int blocks_of_rounds(int registers) {
  return registers == 32 ? 6 : registers == 64 ? 4 : 2;
}

template <Dtype dtype>
constexpr RoundsTile tile_of_rounds(int log_n) {
  return {log2_floor(Storage<dtype>::kPerVector), log_n};
}

/// 1 / sqrt(2^log_n).
constexpr float scale_of_round(int log_n) {
  return (log_n % 2 == 0 ? 1.0F : 0.70710678118654752440F) / static_cast<float>(1 << log_n / 2);
}

template <Dtype dtype, int log_n>
__global__ void __launch_bounds__(32 * kWarps, blocks_of_rounds(tile_of_rounds<dtype>(log_n).registers()))
    rounded_rows(__grid_constant__ const RoundedRows work) {
  constexpr RoundsTile tile = tile_of_rounds<dtype>(log_n);
  constexpr int kWords = tile.sign_words(), kVector = Storage<dtype>::kPerVector;
  constexpr float kScale = scale_of_round(log_n);
  __shared__ std::uint32_t words[kMostRounds][kWords][32];
  const int lane = static_cast<int>(threadIdx.x & 31);
  for (int i = static_cast<int>(threadIdx.x >> 5); i < work.count * kWords; i += kWarps)
    words[i / kWords][i % kWords][lane] =
        tile.sign_word(work.signs + (i / kWords << (log_n - 5)), i % kWords, lane);
  __syncthreads();

  const std::int64_t total = work.rows << log_n, step = std::int64_t{gridDim.x} * kWarps;
  const auto* const in = static_cast<const typename Storage<dtype>::Element*>(work.in);
  auto* const out = static_cast<typename Storage<dtype>::Element*>(work.out);
  for (std::int64_t first = (std::int64_t{blockIdx.x} * kWarps + (threadIdx.x >> 5)) << tile.log_elements();
       first < total; first += step << tile.log_elements()) {
    uint4 data[tile.registers() / kVector];
#pragma unroll
    for (int k = 0; k < tile.registers(); k += kVector) {  // all loads before the first use
      const std::int64_t at = first + tile.element(lane, k);
      data[k / kVector] = at < total ? *reinterpret_cast<const uint4*>(in + at) : uint4{};
    }
    float x[tile.registers()][1];
#pragma unroll
    for (int k = 0; k < tile.registers(); k += kVector) {
      float some[kVector];
      unpack<dtype>(data[k / kVector], some);
#pragma unroll
      for (int e = 0; e < kVector; ++e)
        x[k + e][0] = some[e];
    }
    const auto multiply = [&](int round) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        const std::uint32_t word = words[round][w][lane];
#pragma unroll
        for (int j = 0; j < 32; ++j)
          x[32 * w + j][0] *= __uint_as_float(__float_as_uint(kScale) ^ (word << (31 - j) & 0x80000000U));
      }
    };
#pragma unroll 1
    for (int round = 0; round < work.count; ++round) {
      if (!work.transposed) multiply(round);
      passes::register_butterflies<0>(x, tile.row_register_bits());
      passes::lane_butterflies<tile.row_lane_bits()>(x);
      if (work.transposed) multiply(work.count - 1 - round);
    }
#pragma unroll
    for (int k = 0; k < tile.registers(); k += kVector) {
      float some[kVector];
#pragma unroll
      for (int e = 0; e < kVector; ++e)
        some[e] = x[k + e][0];
      const std::int64_t at = first + tile.element(lane, k);
      if (at < total) *reinterpret_cast<uint4*>(out + at) = pack<dtype>(some);
    }
  }
}

template <Dtype dtype>
void launch_rounds(const RoundedRows& work, int sm_count, Stream stream) {
  using Kernel = void (*)(RoundedRows);
  const auto kernel = dispatch_int<kSmallestRoundedRow, kLargestRoundedRow>(
      work.log_n, [](auto log_n) -> Kernel { return rounded_rows<dtype, log_n()>; });
  const RoundsTile tile = tile_of_rounds<dtype>(work.log_n);
  const std::int64_t tiles = ceil_div(work.rows << work.log_n, std::int64_t{1} << tile.log_elements());
  launch(kernel,
         {.blocks = std::min<std::int64_t>(ceil_div(tiles, kWarps),
                                           std::int64_t{sm_count} * blocks_of_rounds(tile.registers())),
          .threads = 32 * kWarps},
         stream, work);
}

}  // namespace

void launch_rounded_rows(Dtype dtype, const RoundedRows& work, int sm_count, Stream stream) {
  if (dtype == Dtype::f32) return launch_rounds<Dtype::f32>(work, sm_count, stream);
  if (dtype == Dtype::f16) return launch_rounds<Dtype::f16>(work, sm_count, stream);
  launch_rounds<Dtype::bf16>(work, sm_count, stream);
}

}  // namespace fwht::walsh
