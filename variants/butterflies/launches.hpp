// butterflies: which kernel serves which problem, and how it is launched. All launches give the same bits.
//
// Of the candidates of butterflies_tune, measured on an H200 over 64 KiB .. 128 MiB, the fastest over the
// sizes of a regime together.
#pragma once

#include <array>
#include <cstddef>

#include "variants/kit/launch.hpp"

namespace fwht::butterflies {

using rows::Access;
using rows::KernelId;
using rows::Launch;
using rows::LaunchRow;
using rows::Scaling;
using rows::Tile;
using rows::Trigger;

inline constexpr int kLargestLogN = 5;       // 16-bit data; above, tensor cores do it (mma_split)
inline constexpr int kLargestWideLogN = 15;  // fp32 data: what the shared memory of a multiprocessor holds

constexpr int largest_log_n(Dtype dtype) {
  return dtype == Dtype::f32 ? kLargestWideLogN : kLargestLogN;
}

// ---- launches: vectors a lane; threads of a block, or warps of a row; blocks that registers are limited for

/// Short rows, few of them or out of the L2: one load and one store a lane, 4 KB a block. bf16 at n = 2, 4
/// inside the L2 too, because its numbers are multiplied by 2^-k.
inline constexpr Launch kOneVector = rows::in_warps(1, 256);
/// Short rows in the L2: more vectors share the addresses.
inline constexpr Launch kTwoVectors = rows::in_warps(2, 256);
inline constexpr Launch kFourVectors = rows::in_warps(4, 128);
/// n = 32 in the L2 and beyond, where shuffles take their time: smaller blocks.
inline constexpr Launch kOneVectorSmallBlocks = rows::in_warps(1, 128);
inline constexpr Launch kTwoVectorsSmallBlocks = rows::in_warps(2, 128);
/// fp32 rows of 256 .. 2048: one warp where there is work enough, several with fewer vectors each where a
/// row's own time counts.
inline constexpr Launch kTwoVectorsTinyBlocks = rows::in_warps(2, 64);
inline constexpr Launch kFourVectorsTinyBlocks = rows::in_warps(4, 64);
inline constexpr Launch kEightVectorsTinyBlocks = rows::in_warps(8, 64);
inline constexpr Launch kTwoWarpsOfOne = rows::across_warps(1, 2);
inline constexpr Launch kFourWarpsOfOne = rows::across_warps(1, 4);
inline constexpr Launch kTwoWarpsOfTwo = rows::across_warps(2, 2);
inline constexpr Launch kFourWarpsOfTwo = rows::across_warps(2, 4);
inline constexpr Launch kEightWarpsOfTwo = rows::across_warps(2, 8);

/// fp32 rows of 4096 and more, of 2048 inside the L2: passes instead of shuffles, and registers limited so
/// that 64 KiB of rows are resident on a multiprocessor, or one row of 32768.
inline constexpr Launch kPasses2048 = rows::smem_passes(8, 2, 16);
inline constexpr Launch kPasses4096 = rows::smem_passes(8, 4, 8);
inline constexpr Launch kPasses8192 = rows::smem_passes(8, 8, 4);
/// One or two rows fill a multiprocessor, and the first rows of all of them would load, compute and store in
/// step. So groups of blocks start one after the other, where the rows are enough for all: two groups inside
/// the L2, eight out of it. There half as many warps with stores of 16 bytes are faster; inside the L2 a
/// row's own time counts, and more warps make it shorter.
inline constexpr Launch kPasses16384 = rows::smem_passes(8, 16, 2);
inline constexpr Launch kPasses16384TwoGroups = rows::smem_passes(8, 16, 2, {1500, 2});
inline constexpr Launch kPasses16384EightGroups = rows::smem_passes(16, 8, 2, {300, 8});
inline constexpr Launch kPasses32768 = rows::smem_passes(8, 32, 1);
inline constexpr Launch kPasses32768TwoGroups = rows::smem_passes(8, 32, 1, {3500, 2});
inline constexpr Launch kPasses32768EightGroups = rows::smem_passes(16, 16, 1, {900, 8});
/// The same off the dense grid, where rows do not wait for each other.
inline constexpr Launch kPasses32768FewWarps = rows::smem_passes(16, 16, 1);

constexpr LaunchRow launches_16_bit(Dtype dtype, int log_n) {
  const bool bf16 = dtype == Dtype::bf16;
  switch (log_n) {
    case 1:
      return {kOneVector, kOneVector, kOneVector, bf16 ? kOneVector : kTwoVectors, kOneVector};
    case 2:
      return {kOneVector, kOneVector, kOneVector, bf16 ? kOneVector : kFourVectors, kOneVector};
    case 3:
      return {kOneVector, kFourVectors, kFourVectors, kFourVectors, kOneVector};
    case 4:
      return {kOneVector, kTwoVectors, kTwoVectors, kTwoVectors, kOneVector};
    default:
      return {kOneVector, kTwoVectorsSmallBlocks, kTwoVectorsSmallBlocks, kOneVectorSmallBlocks,
              kOneVectorSmallBlocks};
  }
}

constexpr LaunchRow launches_f32(int log_n) {
  switch (log_n) {
    case 8:
      return {kTwoWarpsOfOne, kTwoVectorsSmallBlocks, kTwoVectorsSmallBlocks, kFourVectorsTinyBlocks,
              kTwoVectorsTinyBlocks};
    case 9:
      return {kFourWarpsOfOne, kTwoWarpsOfTwo, kTwoWarpsOfTwo, kFourVectorsTinyBlocks, kTwoWarpsOfTwo};
    case 10:
      return {kFourWarpsOfTwo, kFourWarpsOfTwo, kFourWarpsOfTwo, kEightVectorsTinyBlocks, kFourWarpsOfTwo};
    case 11:
      return {kEightWarpsOfTwo, kEightWarpsOfTwo, kEightWarpsOfTwo, kPasses2048, kEightWarpsOfTwo};
    case 12:
      return rows::at_any_work(kPasses4096);
    case 13:
      return rows::at_any_work(kPasses8192);
    case 14:
      return {kPasses16384, kPasses16384, kPasses16384, kPasses16384TwoGroups, kPasses16384EightGroups};
    case 15:
      return {kPasses32768, kPasses32768, kPasses32768, kPasses32768TwoGroups, kPasses32768EightGroups};
    default:
      return {kOneVector, kOneVector, kOneVector, kTwoVectors, kOneVector};
  }
}

constexpr LaunchRow launches_for(Dtype dtype, int log_n) {
  return dtype == Dtype::f32 ? launches_f32(log_n) : launches_16_bit(dtype, log_n);
}

/// For data that are not dense 16-byte vectors, at any amount of work: nobody waits.
constexpr Launch strided_launch(Dtype dtype, int log_n) {
  if (log_n == 15) return kPasses32768FewWarps;
  if (log_n == 14) return kPasses16384;
  return launches_for(dtype, log_n).dram;
}

/// For the launches of few blocks, measured on an H200 over one row .. 2^19 elements: see mma_split. At the
/// start where rows are short.
constexpr Trigger trigger_for(Dtype dtype, int log_n) {
  if (dtype != Dtype::f32 || log_n <= 9) return Trigger::at_start;
  return log_n == 11 || log_n == 12 ? Trigger::before_exchange : Trigger::behind_loads;
}

// ---- kernels

/// For contiguous rows on the 16-byte grid.
constexpr KernelId dense_kernel(Dtype dtype, int log_n, Regime regime) {
  return {dtype,         log_n,           launches_for(dtype, log_n).in(regime),
          Access::dense, Trigger::at_end, Scaling::results};
}
/// Launches that the stream's next one may overlap have few blocks, so they take the smallest regime's.
constexpr KernelId overlapping_kernel(Dtype dtype, int log_n, bool /*single_block*/) {
  KernelId id = dense_kernel(dtype, log_n, Regime::small);
  id.trigger = trigger_for(dtype, log_n);
  return id;
}
constexpr KernelId strided_kernel(Dtype dtype, int log_n) {
  return rows::strided_by(dtype, log_n, strided_launch(dtype, log_n));
}

/// Whatever a plan of this size may ask for; some of it twice.
inline constexpr std::size_t kKernelsOfSize = kRegimes + 3;
constexpr std::array<KernelId, kKernelsOfSize> kernels_of_size(Dtype dtype, int log_n) {
  std::array<KernelId, kKernelsOfSize> all{};
  for (int regime = 0; regime < kRegimes; ++regime)
    all[static_cast<std::size_t>(regime)] = dense_kernel(dtype, log_n, static_cast<Regime>(regime));
  all[kRegimes] = overlapping_kernel(dtype, log_n, false);
  all[kRegimes + 1] = strided_kernel(dtype, log_n);
  all[kRegimes + 2] = rows::for_elements(strided_kernel(dtype, log_n));
  return all;
}

}  // namespace fwht::butterflies
