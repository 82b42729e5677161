// Grids of more blocks than the x dimension takes.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "common/host/bits.hpp"

namespace fwht::rows {

/// Of so many blocks; beyond the 2^31 - 1 of the x dimension they continue along y. Blocks past the last one
/// do nothing.
inline dim3 grid_of(std::int64_t blocks) {
  constexpr std::int64_t kMostBlocksX = (std::int64_t{1} << 31) - 1;
  const std::int64_t y = std::max<std::int64_t>(ceil_div(blocks, kMostBlocksX), 1);
  return {static_cast<unsigned>(ceil_div(blocks, y)), static_cast<unsigned>(y), 1};
}

}  // namespace fwht::rows
