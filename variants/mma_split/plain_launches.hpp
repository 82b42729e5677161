// mma_split: plain rows that take another launch than the one of launches.hpp, which rows with codes or signs
// share. Measured on an H100, warm and cold.
#pragma once

#include "variants/mma_split/launches.hpp"

namespace fwht::mma_split {

/// n = 2048, to 2 MiB: a vector a lane. Where data come from DRAM this takes 4 to 11 % less than two warps of
/// four vectors; inside the L2 both take as long, although here lanes store two bytes a time. Four
/// warps of two vectors, the shape of HadaCore's blocks, gain 1 %.
inline constexpr Launch kEightWarpsOfOne = rows::across_warps(1, 8);

/// For contiguous rows on the 16-byte grid.
constexpr KernelId plain_kernel(Dtype dtype, int log_n, Regime regime, Scaling scaling) {
  KernelId id = dense_kernel(dtype, log_n, regime, scaling);
  if (log_n == 11 && regime <= Regime::light) id.launch = kEightWarpsOfOne;
  return id;
}

/// n = 64 .. 256, around 2^20 elements: blocks of one vector a lane leave no room for the next launch, those
/// of two do. Of longer rows it is overlapping_kernel.
constexpr KernelId overlapping_more_kernel(Dtype dtype, int log_n) {
  KernelId id = overlapping_kernel(dtype, log_n, false);
  if (log_n <= 8) id.launch = kTwoVectors;
  return id;
}

/// Whatever a plan of plain rows of this size may ask for; some of it twice.
inline constexpr std::size_t kPlainKernelsOfSize = kKernelsOfSize + kRegimes + 1;
constexpr std::array<KernelId, kPlainKernelsOfSize> plain_kernels_of_size(Dtype dtype, int log_n) {
  std::array<KernelId, kPlainKernelsOfSize> all{};
  std::size_t count = 0;
  for (const KernelId& id : kernels_of_size(dtype, log_n))
    all[count++] = id;
  for (int regime = 0; regime < kRegimes; ++regime)
    all[count++] = plain_kernel(dtype, log_n, static_cast<Regime>(regime), Scaling::results);
  all[count++] = overlapping_more_kernel(dtype, log_n);
  return all;
}

}  // namespace fwht::mma_split
