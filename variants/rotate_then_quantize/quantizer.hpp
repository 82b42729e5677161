// rotate_then_quantize: the kernels that quantize rows of the storage type, as pointers.
#pragma once

#include <cstdint>

#include "variants/kit/encode/output.hpp"

namespace fwht::rotate_then_quantize {

/// The argument of every kernel: rows of n elements, token after token.
struct Rows {
  encoder::Output out;
  const void* in;
  std::int64_t elements, token, group;  // group: elements that share a scale
  std::int64_t n, in_stride, out_stride;
  int log_columns;  // of the matrix of scales; -1 where their number is no power of two
};
using Kernel = void (*)(Rows);

/// Which kernel reads the rows.
enum class Reader : std::uint8_t {
  vectors,   ///< 16 bytes per lane, groups lie in the 256 elements of a warp; rows are contiguous
  blocks,    ///< the same, one block per token
  clusters,  ///< the same, the blocks of a cluster per token; two vectors per lane or eight
  twice,     ///< the same of tokens that are longer than a block holds
  any        ///< element by element, one warp or one block per group: all the rest
};
/// Of a block: with more, a thread has too few registers for the 64 numbers that it may hold.
constexpr int kMostThreads = 512;
/// Blocks that share a token, of which a cluster has eight on every device that has any.
constexpr int kMostSharers = 8;
/// From here on Reader::any gives a group a block: number by number, a warp takes milliseconds for a long
/// one.
constexpr std::int64_t kGroupOfBlock = 1024;
struct Launch {
  Reader reader = Reader::any;
  int vectors = 1;  ///< per lane
  int threads = 128;
  std::int64_t blocks = 1;
  int sharers = 1;  ///< blocks of a token, a cluster
};

/// nullptr where no such kernel is compiled.
template <Dtype dtype, CodeFormat format>
Kernel find_kernel(const Launch& launch);

/// Finds the largest |y| of the tensor, as bits of fp32 in Output::largest, which must be zero before.
template <Dtype dtype>
Kernel largest_kernel(Reader reader);

}  // namespace fwht::rotate_then_quantize
