// mma_split: how rows of 32768 and 65536 are spread, as constexpr maps: the kernel (streamed_rows.cuh) and
// its host test have them from here.
#pragma once

#include <cstdint>

#include "variants/kit/tile.hpp"

namespace fwht::mma_split {

/// A block holds 2^15 sums in registers, all that eight warps have. A longer row takes a pass for each of its
/// halves: the sums of pass p are those of the first half plus or minus the second.
struct StreamedShape {
  int log_n = 15;  ///< 15 or 16
  int rounds = 2;  ///< in which the warps exchange their sums, 2 or 4: more take less shared memory

  static constexpr int kLogSums = 15, kSmallestLogN = kLogSums, kLargestLogN = 16;
  static constexpr int kWarps = 8, kVectors = 16, kThreads = 32 * kWarps;
  static constexpr int kGroup = 4;  ///< vectors that the tensor cores have at once, as in split_transform
  static constexpr int kKept = kVectors / kWarps;  ///< whole vectors that a warp takes from each other one
  static constexpr int kVectorBytes = 16;

  static constexpr rows::Tile tile(Dtype dtype) { return {dtype, kLogSums, kVectors, kWarps, kThreads}; }
  /// What two numbers of the second half are XORed with in a pass: the signs of both in the last one.
  static constexpr std::uint32_t signs_of_second_half(int pass) { return pass == 0 ? 0U : 0x80008000U; }
  constexpr int halves() const { return 1 << (log_n - kLogSums); }

  /// 16-byte vector of the row, counted through it, that is vector `v` of a lane in a half. Shared memory has
  /// them in that order, too, so that a lane reads what it has asked for itself.
  static constexpr int vector(int half, int warp, int v, int lane) {
    return ((half * kWarps + warp) * kVectors + v) * 32 + lane;
  }

  /// A round hands out one vector of every warp for every other one: all of its eight numbers, or four.
  constexpr int quads_at_once() const { return 4 / rounds; }
  /// Word of 16 bytes of the exchange: quad `q` of those at hand, which warp `from` has for warp `to`.
  constexpr int exchange_quad(int from, int to, int q, int lane) const {
    return ((from * kWarps + to) * quads_at_once() + q) * 32 + lane;
  }
  /// Vector of every warp that warp `to` takes as its kept one.
  static constexpr int taken(int to, int kept) { return kKept * to + kept; }

  constexpr int row_bytes() const { return 2 << log_n; }
  constexpr int exchange_bytes() const { return (4 << kLogSums) / rounds; }
  constexpr int shared_bytes() const { return row_bytes() + exchange_bytes(); }
};

constexpr bool is_streamed(int log_n) {
  return log_n >= StreamedShape::kSmallestLogN && log_n <= StreamedShape::kLargestLogN;
}

/// As few rounds as a block's shared memory allows; the bits are the same.
constexpr StreamedShape streamed_shape(int log_n, std::int64_t shared_bytes_per_block) {
  const StreamedShape wide{log_n, 2};
  return wide.shared_bytes() <= shared_bytes_per_block ? wide : StreamedShape{log_n, 4};
}

}  // namespace fwht::mma_split
