// mma_split: which kernel serves which problem, and how it is launched. All launches give the same bits.
//
// Of the candidates of mma_split_tune, measured on an H200 over 64 KiB .. 128 MiB, the fastest over the sizes
// of a regime together.
#pragma once

#include <array>
#include <cstddef>

#include "variants/kit/launch.hpp"

namespace fwht::mma_split {

using rows::Access;
using rows::KernelId;
using rows::Launch;
using rows::LaunchRow;
using rows::Scaling;
using rows::Tile;
using rows::Trigger;

inline constexpr int kSmallestLogN = 6;  // below, CUDA cores keep up with memory (butterflies)
inline constexpr int kLargestLogN = 14;  // plain rows go on to 2^16: streamed_shape.hpp

// ---- launches: vectors a lane; threads of a block, or warps of a row; blocks that registers are limited for

/// n = 64 .. 256, few rows. Latency is the length of the code that one warp runs.
inline constexpr Launch kOneVector = rows::in_warps(1, 128);
/// To 2 MiB. Small blocks, so that all multiprocessors have warps.
inline constexpr Launch kTwoVectorsSmallBlocks = rows::in_warps(2, 64);
/// DRAM: many small blocks with few loads each, the best shape of a copy. At n = 512 for few rows too: no
/// exchange, which a launch that the next one overlaps would feel most.
inline constexpr Launch kTwoVectors = rows::in_warps(2, 128);
/// In the L2. Four vectors share the fixed part of a warp's code (addresses, matrices). Blocks of 16 KB: an
/// H200 starts about 1.6 blocks a ns, and of smaller ones the last start when others are done already.
inline constexpr Launch kFourVectors = rows::in_warps(4, 256);
/// The same for bf16: 64 registers, so that 2^22 elements are one wave. f16 comes out at 64 by itself, and
/// spills where it is told to.
inline constexpr Launch kFourVectorsOneWave = rows::in_warps(4, 256, 4);
/// n = 512, f16, in the L2 from 16 MiB.
inline constexpr Launch kFourVectorsMidBlocks = rows::in_warps(4, 128);
/// n = 1024 beyond the L2 and to 2 MiB: a warp holds the row, and no exchange is better than more warps.
inline constexpr Launch kFourVectorsSmallBlocks = rows::in_warps(4, 64);

/// Few rows of 1024, 2048, 4096. Latency: more warps with fewer vectors each, as long as the block stays
/// small.
inline constexpr Launch kFourWarpsOfOne = rows::across_warps(1, 4);
inline constexpr Launch kFourWarpsOfTwo = rows::across_warps(2, 4);
inline constexpr Launch kEightWarpsOfTwo = rows::across_warps(2, 8);
/// 2048 .. 8192: every warp keeps whole vectors in the exchange, or halves of them (8192).
inline constexpr Launch kTwoWarpsOfFour = rows::across_warps(4, 2);
inline constexpr Launch kFourWarpsOfFour = rows::across_warps(4, 4);
inline constexpr Launch kEightWarpsOfFour = rows::across_warps(4, 8);
/// 16384: 128 sums a lane, three rows on a multiprocessor. They would load, compute and store in step, unless
/// they start apart.
inline constexpr Launch kThreeLongRows = rows::across_warps(16, 4, 3);
inline constexpr Launch kThreeLongRowsApart = rows::across_warps(16, 4, 3, {600, 0});
/// 16384 off the dense grid: registers for addresses.
inline constexpr Launch kTwoLongRows = rows::across_warps(8, 8, 2);

constexpr LaunchRow launches_for(Dtype dtype, int log_n) {
  const bool bf16 = dtype == Dtype::bf16;
  const Launch in_l2 = bf16 ? kFourVectorsOneWave : kFourVectors;
  switch (log_n) {
    case 9:
      return {kTwoVectors, kTwoVectorsSmallBlocks, in_l2, bf16 ? in_l2 : kFourVectorsMidBlocks, kTwoVectors};
    case 10:
      return {kFourWarpsOfOne, kFourVectorsSmallBlocks, in_l2, in_l2, kFourVectorsSmallBlocks};
    case 11:
      return {kFourWarpsOfTwo, kTwoWarpsOfFour, kTwoWarpsOfFour, kTwoWarpsOfFour, kTwoWarpsOfFour};
    case 12:
      return {kEightWarpsOfTwo, kFourWarpsOfFour, kFourWarpsOfFour, kFourWarpsOfFour, kFourWarpsOfFour};
    case 13:
      return rows::at_any_work(kEightWarpsOfFour);
    case 14:
      return {kThreeLongRows, kThreeLongRowsApart, kThreeLongRowsApart, kThreeLongRowsApart,
              kThreeLongRowsApart};
    default:
      return {kOneVector, kTwoVectorsSmallBlocks, in_l2, in_l2, kTwoVectors};
  }
}

/// For data that are not dense 16-byte vectors, at any amount of work.
constexpr Launch strided_launch(Dtype dtype, int log_n) {
  return log_n == kLargestLogN ? kTwoLongRows : launches_for(dtype, log_n).dram;
}

/// For the launches of few blocks, measured on an H200 over one row .. 2^19 elements. Early, the blocks of
/// the next kernel come while those of this one still start and load, and cost them time, the more the longer
/// the rows; late, they are not there when this one has ended.
constexpr Trigger trigger_for(int log_n, bool single_block) {
  switch (log_n) {
    case 9:
      return single_block ? Trigger::behind_loads : Trigger::behind_matrices;
    case 10:
      return single_block ? Trigger::behind_loads : Trigger::before_exchange;
    case 11:
      return Trigger::before_exchange;
    case 12:
      return Trigger::behind_exchange;
    case 13:
      return Trigger::behind_matrices;
    default:
      return Trigger::behind_loads;
  }
}

// ---- kernels

/// Whether kernels without the last multiplication are built, for problems whose last factor is 1: as the
/// orthonormal scale is where log2 n is even.
constexpr bool has_scale_in_constants(Dtype dtype, int log_n) {
  return dtype == Dtype::f16 && log_n % 2 == 0 && log_n >= 10;
}

/// For contiguous rows on the 16-byte grid.
constexpr KernelId dense_kernel(Dtype dtype, int log_n, Regime regime, Scaling scaling) {
  return {dtype, log_n, launches_for(dtype, log_n).in(regime), Access::dense, Trigger::at_end, scaling};
}
/// Launches that the stream's next one may overlap have few blocks, so they take the smallest regime's.
constexpr KernelId overlapping_kernel(Dtype dtype, int log_n, bool single_block) {
  KernelId id = dense_kernel(dtype, log_n, Regime::small, Scaling::results);
  id.trigger = trigger_for(log_n, single_block);
  return id;
}
constexpr KernelId strided_kernel(Dtype dtype, int log_n) {
  return rows::strided_by(dtype, log_n, strided_launch(dtype, log_n));
}

/// Rows of these sizes are multiplied by the regular matrix, too: by the same launches.
constexpr bool takes_regular(int log_n) {
  return log_n == 6 || log_n == 8;
}
constexpr KernelId regular(KernelId id) {
  id.launch.regular = true;
  return id;
}

/// Of those whose rows are any distance apart: one vector a lane leaves the exact path the registers that its
/// sums take.
constexpr KernelId regular_strided_kernel(Dtype dtype, int log_n) {
  return regular(rows::strided_by(dtype, log_n, kOneVector));
}

/// Whatever a plan of this size may ask for; some of it twice.
inline constexpr std::size_t kKernelsOfSize = 2 * kRegimes + 4;
constexpr std::array<KernelId, kKernelsOfSize> kernels_of_size(Dtype dtype, int log_n) {
  std::array<KernelId, kKernelsOfSize> all{};
  std::size_t count = 0;
  for (int regime = 0; regime < kRegimes; ++regime) {
    const auto r = static_cast<Regime>(regime);
    all[count++] = dense_kernel(dtype, log_n, r, Scaling::results);
    all[count++] = dense_kernel(dtype, log_n, r,
                                has_scale_in_constants(dtype, log_n) ? Scaling::constants : Scaling::results);
  }
  for (const bool single_block : {false, true})
    all[count++] = overlapping_kernel(dtype, log_n, single_block);
  all[count++] = strided_kernel(dtype, log_n);
  all[count++] = rows::for_elements(strided_kernel(dtype, log_n));
  return all;
}

/// The same of the regular matrix.
constexpr std::array<KernelId, kKernelsOfSize> regular_kernels_of_size(Dtype dtype, int log_n) {
  std::array<KernelId, kKernelsOfSize> all = kernels_of_size(dtype, log_n);
  for (KernelId& id : all)
    id = regular(id);
  all[kKernelsOfSize - 2] = regular_strided_kernel(dtype, log_n);
  all[kKernelsOfSize - 1] = rows::for_elements(regular_strided_kernel(dtype, log_n));
  return all;
}

/// Three of the four registers of a matrix hold the same number, and for almost every mma the compiler makes
/// a copy of all four, unless it does not see that. Whether to keep that from it: where a warp has four
/// vectors to itself, or sixteen of a shared row. With fewer the copies hide behind the loads, or registers
/// are short: at n = 512 (f16) hiding needs a 65th register, and 14 blocks instead of 16 fit on a
/// multiprocessor. The same holds for n = 64 and 1024 in blocks of 256 threads.
constexpr bool hides_equal_registers(const Tile& tile) {
  if (tile.warps_per_row > 1) return tile.vectors >= 16;
  const bool short_of_registers =
      tile.dtype == Dtype::f16 &&
      (tile.log_n == 9 || (tile.threads == 256 && (tile.log_n == 6 || tile.log_n == 10)));
  return tile.vectors >= 4 && !short_of_registers;
}

}  // namespace fwht::mma_split
