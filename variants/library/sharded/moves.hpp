// What happens on a rank before and after an exchange: blocks change places, columns are picked, the parts
// of all ranks are added with the signs of H_T. On the host and on the device, by the same index maps.
#pragma once

#include <cstdint>

#include "common/contract/variant.hpp"
#include "common/host/bits.hpp"

namespace fwht::sharded {

/// out[b][a] = in[a][b], for a < outer, b < inner, each a block of `bytes` bytes, a multiple of 16 on the
/// device: rows x parts -> parts x rows and back. in != out. `programmatic`: as Problem::programmatic_launch.
void swap_outer(Memory memory, const void* in, void* out, std::int64_t outer, std::int64_t inner,
                std::int64_t bytes, bool programmatic, Stream stream);

/// out[row] = the first `bytes` bytes at in + row * stride_bytes; both multiples of 16 on the device. in !=
/// out.
void take_chunk(Memory memory, const void* in, void* out, std::int64_t rows, std::int64_t stride_bytes,
                std::int64_t bytes, Stream stream);

/// What came of every rank: `rows` rows of `width` elements each, strides in elements.
struct Parts {
  int ranks = 1;  ///< a power of two, at most kMostRanks
  std::int64_t rows = 0, width = 0;
  std::int64_t rank_stride = 0, row_stride = 0;
};
inline constexpr int kMostRanks = 16;

/// out[row][s][j] = scale sum_r (-1)^popcount(s & r) in[r][row][j] for r, s < ranks, j < width: fp32 sums in
/// ascending order of r, one rounding. in != out. On the device width and strides are multiples of 16 bytes.
void add_with_signs(Memory memory, Dtype dtype, const void* in, void* out, const Parts& parts, float scale,
                    bool programmatic, Stream stream);

/// out[row][i] = in at columns[i] of the row, for i < count. `in` is what an all-gather leaves: parts of
/// `width` columns, each with all rows ([part][row][width]); width is the whole row where it is not spread.
/// 16-bit elements. `columns` lies in the same memory.
void pick_columns(Memory memory, const void* in, void* out, const std::int32_t* columns, std::int64_t rows,
                  std::int64_t count, std::int64_t width, Stream stream);

constexpr std::int64_t gathered_offset(std::int64_t rows, std::int64_t width, std::int64_t row,
                                       std::int64_t column) {
  return column / width * (rows * width) + row * width + column % width;
}

}  // namespace fwht::sharded
