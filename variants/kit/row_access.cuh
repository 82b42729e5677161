// Loads and stores of the rows of a block.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/device/ptx/cp_async.cuh"
#include "common/device/ptx/global.cuh"
#include "common/device/ptx/mma.cuh"
#include "variants/kit/batch.hpp"
#include "variants/kit/launch.hpp"

namespace fwht::rows {

__device__ inline int lane_of_warp() {
  return static_cast<int>(threadIdx.x & 31U);
}

/// 32-bit words of a number of elements.
constexpr int words_of(Dtype dtype, int elements) {
  return dtype == Dtype::f32 ? elements : (elements + 1) / 2;
}

/// Scale and the one rounding.
template <Dtype dtype, Scaling scaling = Scaling::results, int count>
__device__ void round_to_words(const Batch& batch, const float (&x)[count],
                               std::uint32_t (&words)[words_of(dtype, count)]) {
  float y[count + count % 2];
#pragma unroll
  for (int e = 0; e < count; ++e)
    y[e] = scaling == Scaling::results ? x[e] * batch.factors.last : x[e];
  if constexpr (count % 2 != 0) y[count] = 0.0F;
#pragma unroll
  for (int w = 0; w < words_of(dtype, count); ++w) {
    if constexpr (dtype == Dtype::f32) words[w] = __float_as_uint(y[w]);
    if constexpr (dtype == Dtype::f16) words[w] = ptx::cvt_rn_f16x2_f32(y[2 * w], y[2 * w + 1]);
    if constexpr (dtype == Dtype::bf16) words[w] = ptx::cvt_rn_bf16x2_f32(y[2 * w], y[2 * w + 1]);
  }
}

/// Where the vectors of a lane lie: vector v follows vector 0 at fixed distances. Offsets are in elements.
template <Tile tile, Access access>
class RowAccess {
 public:
  using Bits = std::conditional_t<tile.dtype == Dtype::f32, std::uint32_t, std::uint16_t>;

  __device__ RowAccess(const Batch& batch, int warp) : batch_(batch) {
    constexpr Tile here = tile;  // an object that device code can call
    number_ = here.first_vector(warp, lane_of_warp());
    first_of_warp_ = here.first_vector(warp, 0);
    rows_ = blockIdx.x == batch.last_block ? batch.rows_of_last_block : tile.rows_per_block();
    row_ = kRowPerBlock ? 0 : here.row_of_vector(number_);
    if constexpr (access == Access::dense) {
      offset_ = block_offset() + (number_ << tile.log_vector());
    } else {
      offset_ = row_begin() + here.column_of_vector(number_);
      if constexpr (!kRowPerBlock) work_out_addresses();  // not under the predicate of every load
    }
  }

  /// Here, and not where the compiler would like to.
  __device__ void work_out_addresses() { asm("" : "+l"(offset_)); }
  /// The same, and not behind instructions of this kind that follow.
  __device__ void work_out_addresses_first() { asm volatile("" : "+l"(offset_)); }

  /// Whether a warp lies behind the last row; the same in all of its lanes.
  __device__ static bool warp_is_idle(const Batch& batch, int warp) {
    constexpr Tile here = tile;
    if constexpr (kRowPerBlock) return false;
    return blockIdx.x == batch.last_block &&
           here.row_of_vector(here.first_vector(warp, 0)) >= batch.rows_of_last_block;
  }

  /// Zeros where rows do not exist.
  __device__ void load(int v, std::uint32_t (&words)[4]) const {
    if constexpr (access == Access::elements) {
      load_elements(v, words);
    } else if constexpr (tile.log_rows_per_vector() > 0) {
      if (whole(v)) {
        load_vector(v, words);
      } else {
        load_elements(v, words);
      }
    } else {
#pragma unroll
      for (int w = 0; w < 4; ++w)
        words[w] = 0;
      if (whole(v)) load_vector(v, words);
    }
  }

  /// Where vector v of the lane begins, and whether it is there at all.
  __device__ std::uint32_t row_of_batch(int v) const {
    return blockIdx.x * static_cast<std::uint32_t>(tile.rows_per_block()) +
           static_cast<std::uint32_t>(row(v));
  }
  __device__ int column(int v) const {
    constexpr Tile here = tile;
    return here.column_of_vector(number_) + here.column_offset(v);
  }
  __device__ static std::uint32_t row_step(int v) {
    constexpr Tile here = tile;
    return static_cast<std::uint32_t>(here.row_offset(v));
  }
  __device__ static int column_step(int v) {
    constexpr Tile here = tile;
    return here.column_offset(v);
  }
  __device__ bool exists(int v) const {
    return whole(v);
  }

  /// All vectors of the lane. Their addresses come first, so that the loads are issued back to back: the
  /// compiler orders the tensor-core chains as it sees their data arrive.
  __device__ void load(std::uint32_t (&words)[tile.vectors][4]) const {
    if constexpr (access == Access::elements || tile.log_rows_per_vector() > 0) {
#pragma unroll
      for (int v = 0; v < tile.vectors; ++v)
        load(v, words[v]);
    } else {
      const Bits* first = in() + offset_;
      asm("" : "+l"(first));  // the others lie at distances from it
      const Bits* from[tile.vectors];
#pragma unroll
      for (int v = 0; v < tile.vectors; ++v)
        from[v] = place_to_load(first, v);
#pragma unroll
      for (int v = 0; v < tile.vectors; ++v)
        ptx::ld_global_v4(words[v], from[v]);
    }
  }

  /// All vectors of a lane of warp `self` of the row, fp32, to their places in a buffer of shared memory.
  template <class Buffer>
  __device__ void load_to(float* shared, int self) const {
    constexpr Buffer buffer{tile};
#pragma unroll
    for (int v = 0; v < tile.vectors; ++v) {
      auto* to = reinterpret_cast<uint4*>(shared + buffer.word(self, v, lane_of_warp(), 0));
      if constexpr (access == Access::elements) {
        std::uint32_t words[4];
        load_elements(v, words);
        *to = {words[0], words[1], words[2], words[3]};
      } else {
        ptx::cp_async_cg_shared_global_16(to, in() + offset(v));
      }
    }
    ptx::cp_async_wait_all();
  }

  __device__ void store(int v, const std::uint32_t (&words)[4]) const {
    if constexpr (access == Access::elements) {
      store_elements(v, words);
    } else {
      ptx::st_global_if(whole(v), out() + offset(v), words);
      if constexpr (tile.log_rows_per_vector() > 0) {
        if (!whole(v)) store_elements(v, words);
      }
    }
  }

  /// Where the piece that the lane took of part `part` of vector `v` of the first warp belongs: where a warp
  /// stands after the exchange. That of another warp lies at a distance that is known when the kernel is
  /// compiled.
  __device__ Bits* piece_of_first_warp(int v, int part) const {
    constexpr Tile here = tile;
    return out() + (row_begin() + (v * 32 << tile.log_vector()) + here.piece_begin(part, lane_of_warp()));
  }
  template <int count>
  __device__ static void store_piece(Bits* first, int from, const std::uint32_t (&words)[count]) {
    Bits* const to = first + from * (tile.vectors * 32 << tile.log_vector());
    if constexpr (access == Access::elements) {
#pragma unroll
      for (int e = 0; e < tile.piece(); ++e)
        to[e] = bits_of(words, e);
    } else if constexpr (tile.piece() * sizeof(Bits) == 2) {
      *to = bits_of(words, 0);
    } else {
      ptx::st_global_if(true, to, words);
    }
  }

 private:
  static constexpr bool kRowPerBlock = tile.warps_per_row > 1;
  static constexpr int kPerWord = tile.vector_elements() / 4;

  __device__ const Bits* in() const {
    return static_cast<const Bits*>(batch_.in);
  }
  __device__ Bits* out() const {
    return static_cast<Bits*>(batch_.out);
  }

  /// Where vectors are used strides fit 32 bits (see RowsPlan): one multiplication instead of three, and at
  /// n = 8192 the register between a fifth resident block and none.
  __device__ std::int64_t rows_apart(int rows) const {
    if constexpr (access == Access::dense) return std::int64_t{rows} << tile.log_n;
    if constexpr (access == Access::elements) return rows * batch_.row_stride;
    return std::int64_t{rows} * static_cast<std::uint32_t>(batch_.row_stride);
  }
  __device__ std::int64_t block_offset() const {
    if constexpr (access == Access::dense) {
      return std::int64_t{blockIdx.x} * (std::int64_t{tile.rows_per_block()} << tile.log_n);
    } else if constexpr (access == Access::vectors && kRowPerBlock) {
      return std::int64_t{blockIdx.x} * static_cast<std::uint32_t>(batch_.row_stride);
    }
    return blockIdx.x * batch_.block_stride;
  }
  __device__ std::int64_t row_begin() const {
    return kRowPerBlock ? block_offset() : block_offset() + rows_apart(row_);
  }

  /// (First) row of vector v within the block; offset of its first element.
  __device__ int row(int v) const {
    constexpr Tile here = tile;
    return row_ + here.row_offset(v);
  }
  __device__ std::int64_t offset(int v) const {
    constexpr Tile here = tile;
    if constexpr (access == Access::dense) return offset_ + v * (32 << tile.log_vector());
    const std::int64_t in_row = offset_ + here.column_offset(v);
    return tile.rows_per_warp() > 1 ? in_row + rows_apart(here.row_offset(v)) : in_row;
  }
  /// Where a row does not exist, the warp's first vector instead of a load under a predicate, which the
  /// compiler puts off until the vectors before it have been transformed.
  __device__ const Bits* place_to_load(const Bits* first, int v) const {
    constexpr Tile here = tile;
    if constexpr (kRowPerBlock || tile.rows_per_warp() == 1) {
      return first + (offset(v) - offset_);
    } else if constexpr (access == Access::dense) {
      const int ahead = whole(v) ? 32 * v : first_of_warp_ - number_;
      return first + (ahead << tile.log_vector());
    } else {
      return in() + (whole(v) ? offset(v) : block_offset() + rows_apart(here.row_of_vector(first_of_warp_)));
    }
  }
  /// All rows of the vector exist; of short rows, some of the last vector may not. Warps that share a row, or
  /// hold one, have been asked before, see warp_is_idle.
  __device__ bool whole(int v) const {
    return kRowPerBlock || tile.rows_per_warp() == 1 ||
           row(v) + ((1 << tile.log_rows_per_vector()) - 1) < rows_;
  }
  __device__ bool element_exists(int v, int e) const {
    return kRowPerBlock || row(v) + (e >> tile.element_bits()) < rows_;
  }
  __device__ std::int64_t offset_of_element(int v, int e) const {
    return offset(v) + rows_apart(e >> tile.element_bits()) + (e & ((1 << tile.element_bits()) - 1));
  }

  __device__ void load_vector(int v, std::uint32_t (&words)[4]) const {
    const uint4 vector = *reinterpret_cast<const uint4*>(in() + offset(v));
    words[0] = vector.x, words[1] = vector.y, words[2] = vector.z, words[3] = vector.w;
  }

  template <int count>
  __device__ static Bits bits_of(const std::uint32_t (&words)[count], int e) {
    return static_cast<Bits>(words[e / kPerWord] >> (16 * (e % kPerWord)));
  }

  __device__ void load_elements(int v, std::uint32_t (&words)[4]) const {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      words[w] = 0;
#pragma unroll
      for (int i = 0; i < kPerWord; ++i) {
        const int e = w * kPerWord + i;
        if (element_exists(v, e)) words[w] |= std::uint32_t{in()[offset_of_element(v, e)]} << (16 * i);
      }
    }
  }

  __device__ void store_elements(int v, const std::uint32_t (&words)[4]) const {
#pragma unroll
    for (int e = 0; e < tile.vector_elements(); ++e) {
      if (element_exists(v, e)) out()[offset_of_element(v, e)] = bits_of(words, e);
    }
  }

  const Batch& batch_;
  std::int64_t offset_;
  int number_, first_of_warp_, row_, rows_;
};

/// All vectors of a lane, scaled and rounded.
template <Scaling scaling, Tile tile, Access access>
__device__ __forceinline__ void store_rows(const Batch& batch, const RowAccess<tile, access>& io,
                                           const float (&x)[tile.vectors][tile.vector_elements()]) {
#pragma unroll
  for (int v = 0; v < tile.vectors; ++v) {
    std::uint32_t words[4];
    round_to_words<tile.dtype, scaling>(batch, x[v], words);
    io.store(v, words);
  }
}

}  // namespace fwht::rows
