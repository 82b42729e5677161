// mma_split: kernels for queries and keys, whose rows are the heads of tokens: rotary embedding, rotation and
// codes of rows that share a position with all rows of their warp.
#pragma once

#include <cstdint>

#include "variants/mma_split/encoded_kernels.hpp"

namespace fwht::mma_split {

inline constexpr int kLargestRopedLogN = 8;  // a row lies in one vector of a warp

/// Few rows, or heads that fill no more; and many.
constexpr Launch roped_launch(bool many) {
  return many ? kEightVectorsSmallBlocks : kFourVectorsSmallBlocks;
}
constexpr KernelId roped_kernel(Dtype dtype, int log_n, bool many) {
  return {dtype, log_n, roped_launch(many), Access::dense, Trigger::behind_loads, Scaling::results};
}

/// Whether a warp of the launch has rows of one token only.
constexpr bool shares_positions(std::int64_t heads, int log_n, bool many) {
  return heads % rows::tile_of(Dtype::bf16, log_n, roped_launch(many)).rows_per_warp() == 0;
}

/// Whether these kernels take a problem of mma_split: halves apart, nothing else in front, rows behind one
/// another, codes that are rounded first, scales without padding.
inline bool is_roped(const Problem& problem) {
  const std::int64_t n = problem.n();
  return problem.prologue && problem.prologue->kind == Prologue::Kind::rope &&
         !problem.prologue->interleaved && !problem.op.has_signs() && !problem.paging &&
         n <= 1 << kLargestRopedLogN && problem.in.row_stride == n && is_rounded_first(problem.encoding, n) &&
         !padding_is_zero(problem.encoding.layout) &&
         shares_positions(problem.prologue->heads, log2_floor(n), false);
}

/// nullptr where it is not compiled.
template <Dtype dtype, CodeFormat format>
CodesKernel<true> find_roped(const KernelId& id);

}  // namespace fwht::mma_split
