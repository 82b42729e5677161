// factors: how rows of any operator are worked off, shared by the kernel and its host tests.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/contract/variant.hpp"
#include "common/host/bits.hpp"

namespace fwht::factors {

extern const Variant variant;

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device);

/// A row is at most this long: a block's threads hold the results of a matrix in registers.
inline constexpr std::int64_t kLargestN = 28672;
inline constexpr int kMostThreads = 1024;
/// A thread makes the products of a matrix for kTileRows of its rows and kTileColumns columns of the data.
inline constexpr int kTileRows = 8, kTileColumns = 4;
/// Short rows share a block, up to so many elements.
inline constexpr std::int64_t kSharedElements = 4096;
/// Levels of butterflies that a thread does between two exchanges, and those that a warp does while it
/// stores.
inline constexpr int kMostLevels = 4, kStoreLevels = 5;

/// One pass over the data in shared memory. The index of an element is (outer, digit, inner) with `order`
/// digits, `stride` apart; a column is all digits of one outer and inner index.
struct Stage {
  int order = 1, stride = 1;
  int levels = 0;  ///< butterflies of 2^levels points; 0: the product with a matrix
  /// Of the matrix: column j is padded_order() numbers from j padded_order() on.
  const float* entries = nullptr;

  constexpr int padded_order() const { return (order + kTileRows - 1) / kTileRows * kTileRows; }
  constexpr int columns(int elements) const { return elements / order; }
  /// Index of digit 0 of a column.
  constexpr int first_of(int column) const { return column / stride * (order * stride) + column % stride; }

  // Products: item = (rows of the matrix, one of `quads`). Its columns are adjacent where that makes four
  // adjacent numbers in memory; else they are spread, so that neighbouring threads have neighbouring columns.
  constexpr bool columns_are_adjacent() const { return stride % kTileColumns == 0; }
  constexpr int quads(int elements) const { return (columns(elements) + kTileColumns - 1) / kTileColumns; }
  constexpr int column_of(int elements, int quad, int c) const {
    return columns_are_adjacent() ? kTileColumns * quad + c : quad + c * quads(elements);
  }
  constexpr int items(int elements) const { return padded_order() / kTileRows * quads(elements); }
  /// Items overwrite nothing that others read.
  constexpr bool items_are_apart() const { return order <= kTileRows; }
};

/// The passes of one operator, in order of execution, and what a warp does with the fastest bits while it
/// stores.
struct Program {
  std::vector<Stage> stages;
  std::vector<int> factor_of;  ///< of each stage: position in Operator::factors
  int store_levels = 0;
  int rows_per_block = 1, threads = 32;
};

/// Stages' entries are null.
Program program_of(const Operator& op);

/// One fp32 sum per factor, one rounding. Matrices of +-1 and butterflies in a fixed order, dense factors by
/// fused multiply-add.
Numerics numerics_of(const Problem& problem);

}  // namespace fwht::factors
