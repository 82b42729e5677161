// mma_split: the kernels. Their idea is told in mma_split.cu, what a warp computes in warp_program.hpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "common/bits.hpp"
#include "common/ptx/cp_async.cuh"
#include "common/ptx/global.cuh"
#include "common/ptx/griddepcontrol.cuh"
#include "common/ptx/mma.cuh"
#include "common/storage.cuh"
#include "variants/mma_split/mma_split.hpp"
#include "variants/mma_split/warp_program.hpp"

namespace fwht::mma_split {

struct Batch {
  const void* in;
  void* out;
  std::int64_t row_stride, block_stride;  // elements between rows, between the first rows of blocks
  unsigned last_block;
  int rows_of_last_block;
  float factor;  // scale 2^k
  float shrink;  // 2^-k, a bf16 number; see shrink_exponent
  unsigned multiprocessors;
  std::uint32_t zero = 0;
};

inline Batch batch_of(const Problem& p, const Geometry& g, int multiprocessors, const void* in, void* out) {
  const int k = shrink_exponent(p);
  const std::int64_t last_block = ceil_div(p.rows, g.rows_per_block()) - 1;
  return {in,
          out,
          p.row_stride(),
          g.rows_per_block() * p.row_stride(),
          static_cast<unsigned>(last_block),
          static_cast<int>(p.rows - last_block * g.rows_per_block()),
          final_factor(p),
          std::ldexp(1.0F, -k),
          static_cast<unsigned>(multiprocessors)};
}

/// One lane of a warp; see warp_program.hpp.
template <Geometry g>
class Lane {
  static constexpr int kElements = g.vector_elements();

 public:
  using Float = float;
  using Word = std::uint32_t;
  static constexpr bool first_stage_may_overflow() { return g.dtype == Dtype::bf16; }

  /// `exchange`: the buffer of the row.
  /// A zero that the compiler does not know keeps it from seeing equal registers of a matrix.
  __device__ Lane(const Batch& batch, float* exchange) : shrink_(batch.shrink), exchange_(exchange) {
    if constexpr (g.kind() == Kind::split_mma) {
      constexpr unsigned kFirst = transformed_bits(kFirstStageBits, g.log_n);
      constexpr unsigned kSecond = transformed_bits(kSecondStageBits, g.log_n);
      constexpr bool kHide = hides_equal_registers(g);
      constexpr std::uint32_t kOne = g.dtype == Dtype::f16 ? 0x3C00U : 0x3F80U;
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const Word hidden = kHide && (r == 1 || r == 2) ? batch.zero << r : 0U;
        first_[r] = matrix_fragment(lane(), r, kFirst, kOne) ^ hidden;
        second_[r] = matrix_fragment(lane(), r, kSecond, __float_as_uint(shrink_) >> 16) ^ hidden;
      }
      minus_identity_ = minus_identity_fragment(lane());
    }
  }

  __device__ static int lane() {
    return static_cast<int>(threadIdx.x & 31U);
  }

  __device__ void first_stage(float (&d)[4], Word b0, Word b1) const {
    if constexpr (g.dtype == Dtype::f16) {
      ptx::mma_sync_m16n8k16_f32_f16(d, first_, {b0, b1});
    } else {
      ptx::mma_sync_m16n8k16_f32_bf16(d, first_, {b0, b1});
    }
  }
  __device__ void remove_high(float (&d)[4], Word h0, Word h1) const {
    ptx::mma_sync_m16n8k8_f32_bf16_accumulate(d, h0, h1, minus_identity_);
  }
  __device__ void second_stage(float (&d)[4], Word b0, Word b1) const {
    ptx::mma_sync_m16n8k16_f32_bf16(d, second_, {b0, b1});
  }
  __device__ void second_stage_add(float (&d)[4], Word b0, Word b1) const {
    ptx::mma_sync_m16n8k16_f32_bf16_accumulate(d, second_, {b0, b1});
  }
  __device__ static Word high_pair(float a, float b) {
    return ptx::prmt<0x7632>(__float_as_uint(a), __float_as_uint(b));  // the upper halves of both
  }
  __device__ static Word low_pair(float a, float b) {
    return ptx::cvt_rn_bf16x2_f32(a, b);
  }

  __device__ static float shuffle(float x, int lane_mask) {
    return __shfl_xor_sync(0xFFFFFFFFU, x, lane_mask);
  }
  __device__ static float lane_sign(int bit) {
    return (lane() >> bit) & 1 ? -1.0F : 1.0F;
  }
  __device__ static float fma(float a, float b, float c) {
    return fmaf(a, b, c);
  }
  __device__ static bool is_nan(float x) {
    return x != x;
  }
  __device__ static bool any(bool flag) {
    return __any_sync(0xFFFFFFFFU, flag);
  }

  __device__ void widen(const Word (&words)[4], float (&x)[kElements]) const {
    unpack<g.dtype>(uint4{words[0], words[1], words[2], words[3]}, x);
    if constexpr (g.dtype == Dtype::bf16 || g.kind() == Kind::split_mma) {  // elsewhere k = 0
#pragma unroll
      for (int e = 0; e < kElements; ++e)
        x[e] *= shrink_;
    }
  }
  __device__ static Word keep_lanes(Word word, int shift, int row) {
    return lane() >> shift == row ? word : 0U;
  }

  __device__ void put(int from, int v, int quad, const float (&x)[4]) {
    constexpr Geometry here = g;  // an object that device code can call
    *at<float4>(here.exchange_word(from, v, lane(), 4 * quad)) = {x[0], x[1], x[2], x[3]};
  }
  __device__ void take(int from, int v, int quad, float (&x)[4]) const {
    constexpr Geometry here = g;
    read<4>(here.exchange_word(from, v, lane(), 4 * quad), x);
  }
  __device__ void get(int from, int v, int part, float (&x)[g.piece()]) const {
    constexpr Geometry here = g;
    const int element = here.piece_begin(part, lane());
    constexpr int kStep = g.piece() < 4 ? g.piece() : 4;
#pragma unroll
    for (int i = 0; i < g.piece(); i += kStep) {
      float some[kStep];
      read<kStep>(here.exchange_word_of(from, v, element + i), some);
#pragma unroll
      for (int j = 0; j < kStep; ++j)
        x[i + j] = some[j];
    }
  }
  __device__ void take_run(int warp, int unit, float (&x)[4]) const {
    constexpr Geometry here = g;
    read<4>(here.run_word(warp, lane(), unit), x);
  }
  __device__ void put_run(int warp, int unit, const float (&x)[4]) {
    constexpr Geometry here = g;
    *at<float4>(here.run_word(warp, lane(), unit)) = {x[0], x[1], x[2], x[3]};
  }
  __device__ void take_number(int warp, int run, int which, float& x) const {
    constexpr Geometry here = g;
    x = exchange_[here.number_word(warp, run, which, lane())];
  }
  __device__ void put_number(int warp, int run, int which, float x) {
    constexpr Geometry here = g;
    exchange_[here.number_word(warp, run, which, lane())] = x;
  }
  __device__ static void sync() {
    __syncwarp();
  }

  /// There when almost all work for them is done.
  __device__ Word word_of_matrices() const {
    return second_[3] ^ minus_identity_;
  }

 private:
  template <class Pack>
  __device__ Pack* at(int word) const {
    return reinterpret_cast<Pack*>(exchange_ + word);
  }
  template <int count>
  __device__ void read(int word, float (&x)[count]) const {
    if constexpr (count == 4) {
      const float4 v = *at<const float4>(word);
      x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    } else if constexpr (count == 2) {
      const float2 v = *at<const float2>(word);
      x[0] = v.x, x[1] = v.y;
    } else {
      x[0] = exchange_[word];
    }
  }

  Word first_[4], second_[4], minus_identity_;
  float shrink_;
  float* exchange_;
};

/// Where the vectors of a lane lie: vector v follows vector 0 at fixed distances. Offsets are in elements.
template <Geometry g, Access access>
class Place {
 public:
  using Bits = std::conditional_t<g.dtype == Dtype::f32, std::uint32_t, std::uint16_t>;

  __device__ Place(const Batch& batch, int warp, int lane) : batch_(batch) {
    constexpr Geometry here = g;
    number_ = here.first_vector(warp, lane);
    first_of_warp_ = here.first_vector(warp, 0);
    rows_ = blockIdx.x == batch.last_block ? batch.rows_of_last_block : g.rows_per_block();
    row_ = kRowPerBlock ? 0 : here.row_of_vector(number_);
    if constexpr (access == Access::dense) {
      offset_ = block_offset() + (number_ << g.log_vector());
      if constexpr (g.launch.stagger > 0) asm volatile("" : "+l"(offset_));  // now, not behind the wait
    } else {
      offset_ = row_begin() + here.column_of_vector(number_);
      if constexpr (!kRowPerBlock) asm("" : "+l"(offset_));  // here, not under the predicate of every load
    }
  }

  /// Whether a warp lies behind the last row; the same in all of its lanes.
  __device__ static bool warp_is_idle(const Batch& batch, int warp) {
    constexpr Geometry here = g;
    if constexpr (kRowPerBlock) return false;
    return blockIdx.x == batch.last_block &&
           here.row_of_vector(here.first_vector(warp, 0)) >= batch.rows_of_last_block;
  }

  /// Zeros where rows do not exist.
  __device__ void load(int v, std::uint32_t (&words)[4]) const {
    if constexpr (access == Access::elements) {
      load_elements(v, words);
    } else if constexpr (g.log_rows_per_vector() > 0) {
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

  /// All vectors of the lane. Their addresses come first, so that the loads are issued back to back: the
  /// compiler orders the tensor-core chains as it sees their data arrive.
  __device__ void load(std::uint32_t (&words)[g.vectors()][4]) const {
    if constexpr (access == Access::elements || g.log_rows_per_vector() > 0) {
#pragma unroll
      for (int v = 0; v < g.vectors(); ++v)
        load(v, words[v]);
    } else {
      std::int64_t from[g.vectors()];
#pragma unroll
      for (int v = 0; v < g.vectors(); ++v)
        from[v] = offset_to_load(v);
#pragma unroll
      for (int v = 0; v < g.vectors(); ++v)
        ptx::ld_global_v4(words[v], in() + from[v]);
    }
  }

  /// All vectors of the lane to their places in the exchange buffer.
  __device__ void load_to(float* exchange, int self) const {
    constexpr Geometry here = g;
#pragma unroll
    for (int v = 0; v < g.vectors(); ++v) {
      auto* to = reinterpret_cast<uint4*>(exchange + here.exchange_word(self, v, Lane<g>::lane(), 0));
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
      if constexpr (g.log_rows_per_vector() > 0) {
        if (!whole(v)) store_elements(v, words);
      }
    }
  }

  /// Where the piece that the lane took of part `part` of vector `v` of the first warp belongs: where a warp
  /// stands after the exchange. That of another warp lies at a distance that is known when the kernel is
  /// compiled.
  __device__ Bits* piece_of_first_warp(int v, int part) const {
    constexpr Geometry here = g;
    return out() + (row_begin() + (v * 32 << g.log_vector()) + here.piece_begin(part, Lane<g>::lane()));
  }
  template <int count>
  __device__ static void store_piece(Bits* first, int from, const std::uint32_t (&words)[count]) {
    Bits* const to = first + from * (g.vectors() * 32 << g.log_vector());
    if constexpr (access == Access::elements) {
#pragma unroll
      for (int e = 0; e < g.piece(); ++e)
        to[e] = bits_of(words, e);
    } else if constexpr (g.piece() * sizeof(Bits) == 2) {
      *to = bits_of(words, 0);
    } else {
      ptx::st_global_if(true, to, words);
    }
  }

 private:
  static constexpr bool kRowPerBlock = g.warps_per_row() > 1;
  static constexpr int kPerWord = g.vector_elements() / 4;

  __device__ const Bits* in() const {
    return static_cast<const Bits*>(batch_.in);
  }
  __device__ Bits* out() const {
    return static_cast<Bits*>(batch_.out);
  }

  /// Where vectors are used strides fit 32 bits (see access_for): one multiplication instead of three, and at
  /// n = 8192 the register between a fifth resident block and none.
  __device__ std::int64_t rows_apart(int rows) const {
    if constexpr (access == Access::dense) return std::int64_t{rows} << g.log_n;
    if constexpr (access == Access::elements) return rows * batch_.row_stride;
    return std::int64_t{rows} * static_cast<std::uint32_t>(batch_.row_stride);
  }
  __device__ std::int64_t block_offset() const {
    if constexpr (access == Access::dense) {
      return std::int64_t{blockIdx.x} * (std::int64_t{g.rows_per_block()} << g.log_n);
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
    constexpr Geometry here = g;
    return row_ + here.row_offset(v);
  }
  __device__ std::int64_t offset(int v) const {
    constexpr Geometry here = g;
    if constexpr (access == Access::dense) return offset_ + v * (32 << g.log_vector());
    const std::int64_t in_row = offset_ + here.column_offset(v);
    return g.rows_per_warp() > 1 ? in_row + rows_apart(here.row_offset(v)) : in_row;
  }
  /// Where a row does not exist, the warp's first vector instead of a load under a predicate, which the
  /// compiler puts off until the vectors before it have been transformed.
  __device__ std::int64_t offset_to_load(int v) const {
    constexpr Geometry here = g;
    if constexpr (kRowPerBlock) {
      return offset(v);
    } else if constexpr (access == Access::dense) {
      return block_offset() + ((whole(v) ? number_ + 32 * v : first_of_warp_) << g.log_vector());
    } else {
      return whole(v) ? offset(v) : block_offset() + rows_apart(here.row_of_vector(first_of_warp_));
    }
  }
  /// All rows of the vector exist; of short rows, some of the last vector may not. Warps that share a row
  /// have been asked before, see warp_is_idle.
  __device__ bool whole(int v) const {
    return kRowPerBlock || row(v) + ((1 << g.log_rows_per_vector()) - 1) < rows_;
  }
  __device__ bool element_exists(int v, int e) const {
    return kRowPerBlock || row(v) + (e >> g.element_bits()) < rows_;
  }
  __device__ std::int64_t offset_of_element(int v, int e) const {
    return offset(v) + rows_apart(e >> g.element_bits()) + (e & ((1 << g.element_bits()) - 1));
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
    for (int e = 0; e < g.vector_elements(); ++e) {
      if (element_exists(v, e)) out()[offset_of_element(v, e)] = bits_of(words, e);
    }
  }

  const Batch& batch_;
  std::int64_t offset_;
  int number_, first_of_warp_, row_, rows_;
};

/// 32-bit words of a number of elements.
constexpr int words_of(Dtype dtype, int elements) {
  return dtype == Dtype::f32 ? elements : (elements + 1) / 2;
}

/// Where the scale is: in the last multiplication, or all of it in the constants of the second stage, so that
/// none is needed (see shrink_exponent).
enum class Scale { multiplied, in_constants };

/// Scale and the one rounding.
template <Dtype dtype, Scale scale = Scale::multiplied, int count>
__device__ void finish(const Batch& batch, const float (&x)[count],
                       std::uint32_t (&words)[words_of(dtype, count)]) {
  float y[count + count % 2];
#pragma unroll
  for (int e = 0; e < count; ++e)
    y[e] = scale == Scale::multiplied ? x[e] * batch.factor : x[e];
  if constexpr (count % 2 != 0) y[count] = 0.0F;
#pragma unroll
  for (int w = 0; w < words_of(dtype, count); ++w) {
    if constexpr (dtype == Dtype::f32) words[w] = __float_as_uint(y[w]);
    if constexpr (dtype == Dtype::f16) words[w] = ptx::cvt_rn_f16x2_f32(y[2 * w], y[2 * w + 1]);
    if constexpr (dtype == Dtype::bf16) words[w] = ptx::cvt_rn_bf16x2_f32(y[2 * w], y[2 * w + 1]);
  }
}

// The exact paths. They read the data again instead of keeping them until it is known that they are needed,
// and are not inlined: inlined they lie in the middle of the code that every launch has to fetch, and take
// registers from it.

/// Of a warp that holds whole rows: every row alone.
template <Geometry g, Access access>
__device__ __noinline__ void transform_rows_alone(const Batch& batch, int warp_of_block) {
  constexpr int kVectors = g.vectors_of_row();
  const Lane<g> warp(batch, nullptr);
  const Place<g, access> place(batch, warp_of_block, warp.lane());
#pragma unroll 1
  for (int first = 0; first < g.vectors(); first += kVectors) {
#pragma unroll 1
    for (int row = 0; row < (1 << g.log_rows_per_warp_vector()); ++row) {
      float x[kVectors][8];
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        std::uint32_t data[4];
        float one[1][8];
        place.load(first + v, data);
        transform_alone<g>(warp, row, data, one);
#pragma unroll
        for (int e = 0; e < 8; ++e)
          x[v][e] = one[0][e];
      }
      vector_butterflies<g.vector_bits()>(x);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        std::uint32_t words[4];
        finish<g.dtype>(batch, x[v], words);
        if (warp.lane() >> g.lane_bits() == row) place.store(first + v, words);
      }
    }
  }
}

/// Of a warp that shares its row: up to the exchange, one vector after the other, by way of the words of the
/// exchange buffer that this warp alone writes before the barrier.
template <Geometry g, Access access>
__device__ __noinline__ void put_again(const Batch& batch, float* exchange, int self) {
  Lane<g> warp(batch, exchange);
  const Place<g, access> place(batch, self, warp.lane());
#pragma unroll 1
  for (int v = 0; v < g.vectors(); ++v) {
    std::uint32_t words[4];
    float one[1][g.vector_elements()];
    place.load(v, words);
    transform_alone<g>(warp, 0, words, one);
    put_vector(warp, self, v, one[0]);
  }
  float x[g.vectors()][g.vector_elements()];
#pragma unroll
  for (int v = 0; v < g.vectors(); ++v)
    take_vector(warp, self, v, x[v]);
  vector_butterflies<g.vector_bits()>(x);
  exchange_put(warp, self, x);
}

/// What to do about infinities and NaN. `ignored` serves no plan: mma_split_tune measures with it what the
/// look at the results costs.
enum class NonFinite { handled, ignored };

/// The first blocks start together. Left alone they all load, then all compute, then all store, and the
/// memory waits meanwhile; a block that starts later finds its data no later, because there are loads enough
/// without it, and those that start first have theirs sooner. Blocks fill the multiprocessors one after the
/// other, which costs only time where it is not so.
template <Geometry g>
__device__ void wait_for_turn(const Batch& batch) {
  if constexpr (g.launch.stagger > 0) {
    const unsigned block = blockIdx.x, side_by_side = batch.multiprocessors;
    if (block >= g.launch.blocks_per_sm * side_by_side) return;
    unsigned wait = 0;
    if constexpr (g.launch.groups > 0) {
      wait = block % g.launch.groups * g.launch.stagger;
    } else {
#pragma unroll
      for (int turn = 1; turn < g.launch.blocks_per_sm; ++turn)
        wait += block >= turn * side_by_side ? g.launch.stagger : 0;
    }
    if (wait == 0) return;
    const auto start = static_cast<unsigned>(clock());
    while (static_cast<unsigned>(clock()) - start < wait) {
    }
  }
}

// The kernels' template arguments are plain numbers, because nvcc 13.0 declares no object of a class in its
// host code for them; kernel_of puts them together.

template <Dtype dtype, int log_n, int vectors, int warps_per_row, int threads, int blocks_per_sm, int stagger,
          int groups, Form form, Access access, Trigger trigger, NonFinite non_finite, Scale scale>
__global__ void __launch_bounds__(threads, blocks_per_sm)
    transform_rows(__grid_constant__ const Batch batch) {
  constexpr Geometry g{dtype, log_n, {vectors, warps_per_row, threads, blocks_per_sm, form, stagger, groups}};
  static_assert(fits(g) && (warps_per_row > 1 || !at_exchange(trigger)));
  static_assert(g.kind() == Kind::split_mma || trigger != Trigger::behind_matrices);
  constexpr int kVectors = g.vectors(), kElements = g.vector_elements(), kWarps = g.warps_per_row();
  extern __shared__ float4 shared[];

  const int self = static_cast<int>(threadIdx.x >> 5);  // in the block; in the row, where warps share one
  if (Place<g, access>::warp_is_idle(batch, self)) return;
  const Place<g, access> place(batch, self, Lane<g>::lane());
  ptx::griddepcontrol_wait();
  // Behind the wait: before it, every later launch would come at once and wait in the places of this one.
  if constexpr (trigger == Trigger::at_start) ptx::griddepcontrol_launch_dependents();
  wait_for_turn<g>(batch);
  float* const exchange = reinterpret_cast<float*>(shared);
  std::uint32_t words[kVectors][4];
  if constexpr (form == Form::passes) {
    place.load_to(exchange, self);
  } else {
    place.load(words);
  }
  if constexpr (trigger == Trigger::behind_loads) ptx::griddepcontrol_launch_dependents();

  Lane<g> warp(batch, exchange);
  if constexpr (trigger == Trigger::behind_matrices) {
    ptx::griddepcontrol_launch_dependents_behind(warp.word_of_matrices(), batch.zero);
  }
  float x[kVectors][kElements];
  if constexpr (form == Form::passes) {
    warp.sync();
    passes_of_warp<g, float>(warp, self);
  } else if constexpr (g.kind() == Kind::butterflies) {
    widened_butterflies<g>(warp, words, x);
  } else {
    split_transform(warp, words, x);
  }
  if constexpr (form == Form::registers) vector_butterflies<g.vector_bits()>(x);

  constexpr bool kLooks = g.kind() == Kind::split_mma && non_finite == NonFinite::handled;
  bool failed = false;
  if constexpr (kLooks) failed = split_failed<g.vector_bits()>(warp, x);
  if constexpr (kLooks && kWarps == 1) {
    if (warp.any(failed)) [[unlikely]] {
      transform_rows_alone<g, access>(batch, self);
      return;
    }
  }

  if constexpr (trigger == Trigger::before_exchange) ptx::griddepcontrol_launch_dependents();
  if constexpr (kWarps == 1) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      finish<g.dtype, scale>(batch, x[v], words[v]);
      place.store(v, words[v]);
    }
  } else {
    // A vote of the warp waits for all of its tensor-core chains before anything is put. Where they are many
    // the barrier votes; where they are few, that would only make the barrier longer.
    constexpr bool kBarrierVotes = kLooks && kVectors >= 4;
    bool done = form == Form::passes;
    if constexpr (kLooks && !kBarrierVotes) {
      if (warp.any(failed)) [[unlikely]] {
        put_again<g, access>(batch, exchange, self);
        done = true;
      }
    }
    if (!done) exchange_put(warp, self, x);
    if constexpr (kBarrierVotes) {
      if (__syncthreads_or(failed)) [[unlikely]] {
        if (warp.any(failed)) put_again<g, access>(batch, exchange, self);
        __syncthreads();
      }
    } else {
      __syncthreads();
    }
    if constexpr (trigger == Trigger::behind_exchange) ptx::griddepcontrol_launch_dependents();
    constexpr Geometry here = g;
    const int first = here.vector_taken(self), part = here.part_taken(self);
#pragma unroll
    for (int v = 0; v < g.kept(); ++v) {
      float gathered[kWarps][g.piece()];
      exchange_get(warp, first + v, part, gathered);
      auto* const to = place.piece_of_first_warp(first + v, part);
#pragma unroll
      for (int from = 0; from < kWarps; ++from) {
        std::uint32_t piece[words_of(g.dtype, g.piece())];
        finish<g.dtype, scale>(batch, gathered[from], piece);
        place.store_piece(to, from, piece);
      }
    }
  }
}

using Kernel = void (*)(Batch);

template <Geometry g, Access access, Trigger trigger = Trigger::at_end,
          NonFinite non_finite = NonFinite::handled, Scale scale = Scale::multiplied>
constexpr Kernel kernel_of() {
  constexpr Launch l = g.launch;
  constexpr int kBlocks =
      access == Access::elements ? 0 : l.blocks_per_sm;  // the slow path has all registers
  return transform_rows<g.dtype, g.log_n, l.vectors, l.warps_per_row, l.threads, kBlocks, l.stagger, l.groups,
                        l.form, access, trigger, non_finite, scale>;
}

}  // namespace fwht::mma_split
