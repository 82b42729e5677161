// rotate_then_quantize: quantizers of rows in the storage type.
//
// Idea: a lane loads eight numbers side by side, 16 bytes or, of fp32, 32. The largest |y| is found in the
// storage type itself, of 16 bits two numbers per instruction. Patterns without sign are ordered like
// numbers, and a NaN is larger than all of them, so that one comparison tells whether the short arithmetic is
// exact. Scales and codes are those of the epilogues (variants/kit/encode).
//
// A launch may begin while the rotation runs, and waits for its end before it reads (griddepcontrol). On
// Hopper the blocks of a cluster share a token where there are few: each tells the others its largest |y|.
//
// Bit card, quantize_vectors, quantize_blocks and quantize_twice: element bits 0..2 register, 3..7 lane,
// above: vectors of a lane, then warps, then blocks of a cluster. quantize_any: element bits 0..4 lane,
// above: warps where a block has the group.
#pragma once

#include <cstdint>

#include "common/device/ptx/cluster.cuh"
#include "common/device/ptx/global.cuh"
#include "common/device/ptx/griddepcontrol.cuh"
#include "common/device/ptx/mbarrier.cuh"
#include "common/device/storage.cuh"
#include "variants/kit/encode/row_encoder.cuh"
#include "variants/rotate_then_quantize/quantizer.hpp"

namespace fwht::rotate_then_quantize {

using encoder::Family;
using encoder::Output;
using encoder::Scale;

// ---- a lane's vector: eight numbers

template <Dtype dtype>
constexpr int kWordsOfVector = dtype == Dtype::f32 ? 8 : 4;
template <Dtype dtype>
using Words = std::uint32_t[kWordsOfVector<dtype>];

/// @param element  the first of the eight, on the 16-byte grid
template <Dtype dtype>
__device__ __forceinline__ void load_vector(std::uint32_t (&words)[kWordsOfVector<dtype>], const Rows& rows,
                                            std::int64_t element) {
  if constexpr (dtype == Dtype::f32) {
    const float* from = static_cast<const float*>(rows.in) + element;
    std::uint32_t half[2][4];
    ptx::ld_global_v4(half[0], from);
    ptx::ld_global_v4(half[1], from + 4);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      words[i] = half[i / 4][i % 4];
  } else {
    ptx::ld_global_v4(words, static_cast<const std::uint16_t*>(rows.in) + element);
  }
}

template <Dtype dtype>
__device__ __forceinline__ void numbers_of_vector(const std::uint32_t (&words)[kWordsOfVector<dtype>],
                                                  float (&y)[8]) {
  if constexpr (dtype == Dtype::f32) {
#pragma unroll
    for (int e = 0; e < 8; ++e)
      y[e] = __uint_as_float(words[e]);
  } else {
    unpack<dtype>(make_uint4(words[0], words[1], words[2], words[3]), y);
  }
}

// ---- largest magnitudes

/// Pattern of the largest of a vector's magnitudes, NaN above all.
__device__ __forceinline__ std::uint32_t largest_pattern(const std::uint32_t (&words)[4]) {
  constexpr std::uint32_t kWithoutSigns = 0x7FFF7FFFU;
  const std::uint32_t pairs = __vmaxu2(__vmaxu2(words[0] & kWithoutSigns, words[1] & kWithoutSigns),
                                       __vmaxu2(words[2] & kWithoutSigns, words[3] & kWithoutSigns));
  return max(pairs & 0xFFFFU, pairs >> 16);
}

/// The same of fp32 numbers.
__device__ __forceinline__ std::uint32_t largest_pattern(const std::uint32_t (&words)[8]) {
  std::uint32_t largest = 0;
#pragma unroll
  for (int e = 0; e < 8; ++e)
    largest = max(largest, words[e] & 0x7FFFFFFFU);
  return largest;
}

/// Over the block. Every thread must come here as often as all others do.
__device__ __forceinline__ std::uint32_t largest_of_block(std::uint32_t value) {
  __shared__ std::uint32_t of_warps[32];
  const int lane = static_cast<int>(threadIdx.x) & 31, warp = static_cast<int>(threadIdx.x >> 5);
  value = __reduce_max_sync(0xFFFFFFFFU, value);
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  value = __reduce_max_sync(0xFFFFFFFFU, lane < static_cast<int>(blockDim.x / 32) ? of_warps[lane] : 0U);
  __syncthreads();
  return value;
}

/// Who has a token: this block alone, or the blocks of a cluster. All threads of all of them come along.
struct OneBlock {
  __device__ static int rank() { return 0; }
  __device__ static int count() { return 1; }
  __device__ static std::uint32_t largest(std::uint32_t value) { return largest_of_block(value); }
};
class Cluster {
 public:
  /// Its blocks say their largest twice at most, on a barrier for each time.
  __device__ Cluster()
      : rank_(static_cast<int>(ptx::cluster_ctarank())), count_(static_cast<int>(ptx::cluster_nctarank())) {
    if (threadIdx.x == 0) {
      for (std::uint64_t& barrier : told().barriers)
        ptx::mbarrier_init(ptx::shared_address(&barrier), 1);
      ptx::fence_mbarrier_init();
      for (std::uint64_t& barrier : told().barriers)
        ptx::mbarrier_arrive_expect_tx(ptx::shared_address(&barrier), 4 * count_);
    }
    ptx::barrier_cluster_arrive_relaxed();
  }
  __device__ int rank() const { return rank_; }
  __device__ int count() const { return count_; }
  /// Of a value of each thread.
  __device__ std::uint32_t largest(std::uint32_t value) {
    value = largest_of_block(value);
    if (time_ == 0) ptx::barrier_cluster_wait();  // all blocks are there
    std::uint32_t* const of_blocks = told().largest[time_];
    const std::uint32_t barrier = ptx::shared_address(&told().barriers[time_]);
    if (static_cast<int>(threadIdx.x) < count_) {
      ptx::st_async_shared_cluster(ptx::mapa(ptx::shared_address(of_blocks + rank_), threadIdx.x), value,
                                   ptx::mapa(barrier, threadIdx.x));
    }
    ptx::mbarrier_wait_parity_cluster(barrier, 0);
    ++time_;
    const int lane = static_cast<int>(threadIdx.x) & 31;
    return __reduce_max_sync(0xFFFFFFFFU, lane < count_ ? of_blocks[lane] : 0U);
  }

 private:
  struct ToldMaxima {
    std::uint64_t barriers[2];
    std::uint32_t largest[2][kMostSharers];
  };
  __device__ static ToldMaxima& told() {
    __shared__ ToldMaxima in_block;
    return in_block;
  }
  int rank_, count_, time_ = 0;
};

/// Over groups of `lanes` lanes, a power of two.
__device__ __forceinline__ std::uint32_t largest_of_lanes(std::uint32_t value, int lanes) {
  if (lanes == 32) return __reduce_max_sync(0xFFFFFFFFU, value);
#pragma unroll
  for (int step = 1; step < 16; step *= 2) {
    if (lanes > step) value = max(value, __shfl_xor_sync(0xFFFFFFFFU, value, step));
  }
  return value;
}

template <Dtype dtype>
__device__ __forceinline__ float number_of_pattern(std::uint32_t pattern) {
  if constexpr (dtype == Dtype::f32) return __uint_as_float(pattern);
  if constexpr (dtype == Dtype::bf16) return __uint_as_float(pattern << 16);
  return __half2float(__ushort_as_half(static_cast<unsigned short>(pattern)));
}

template <Dtype dtype>
constexpr std::uint32_t kInfinityPattern = dtype == Dtype::f32    ? 0x7F800000U
                                           : dtype == Dtype::bf16 ? 0x7F80U
                                                                  : 0x7C00U;

/// Bits of the largest |y| of a lane's vectors, NaN ignored.
template <int vectors>
__device__ __forceinline__ std::uint32_t largest_number(const float (&y)[vectors][8]) {
  float largest = 0.0F;
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
#pragma unroll
    for (int e = 0; e < 8; ++e)
      largest = fmaxf(largest, fabsf(y[v][e]));
  }
  return __float_as_uint(largest);
}

// ---- one vector under its scale

template <class Form>
__device__ __forceinline__ void codes_of_vector(const Output& out, const Scale& scale, bool ordinary,
                                                const float (&y)[8], std::uint32_t (&words)[Form::words]) {
  if (!ordinary) [[unlikely]] {
    // Arrays of their own: what a call is given the address of lies in memory, on every way there.
    float copy[8];
    std::uint32_t slow[Form::words];
#pragma unroll
    for (int e = 0; e < 8; ++e)
      copy[e] = y[e];
    encoder::codes_of_any<Form>(out.rule, scale, copy, slow);
#pragma unroll
    for (int w = 0; w < Form::words; ++w)
      words[w] = slow[w];
  } else if (Form::element == Element::e2m1) {
    if (Form::family == Family::e4m3 && encoder::code_is_saturated(scale)) {
      encoder::codes_of<Form, false, true>(scale, y, words);
    } else {
      encoder::codes_of<Form, false, false>(scale, y, words);
    }
  } else if (((Form::element == Element::e4m3 && Form::family == Family::f32) ||
              Form::element == Element::int4) &&
             out.rule.codes == encoder::Codes::by_quotient) {
    encoder::codes_of<Form, true, false>(scale, y, words);
  } else {
    encoder::codes_of<Form, false, false>(scale, y, words);
  }
}

/// @tparam zeros  see is_short
/// @param rule    of rule_in_kernel()
template <class Form, bool zeros>
__device__ __forceinline__ Scale scale_for(const encoder::Rule& rule, bool ordinary, float largest) {
  if (rule.given) {
    Scale scale;
    scale.factor = rule.given_factor;
    return scale;
  }
  const float maximum = encoder::larger(largest, rule.floor);
  if (zeros && maximum == 0.0F) return encoder::scale_of<Form::family, false>(rule, maximum);
  return ordinary ? encoder::scale_of<Form::family, true>(rule, maximum)
                  : encoder::scale_of<Form::family, false>(rule, maximum);
}

/// @tparam zeros  groups of zeros are, too, of which a product keeps the signs. Asking takes time where a
///                lane asks for each of many vectors.
template <class Form, bool zeros>
__device__ __forceinline__ bool is_short(const encoder::Rule& rule, bool finite, float largest) {
  if (rule.given) return finite;
  const float maximum = encoder::larger(largest, rule.floor);
  if (zeros && finite && maximum == 0.0F) return rule.codes != encoder::Codes::by_quotient;
  return finite && encoder::is_ordinary<Form::family>(rule, encoder::larger(largest, rule.floor));
}

template <class Form>
__device__ __forceinline__ void store_scale_of_group(const Rows& rows, const Scale& scale,
                                                     std::int64_t group) {
  if (rows.out.rule.given) return;
  if (rows.out.largest != nullptr) {
    if (group == 0) encoder::store_scale<Form>(rows.out, scale, 0);
    return;
  }
  if (rows.out.layout == ScaleLayout::row_major) return encoder::store_scale<Form>(rows.out, scale, group);
  std::int64_t row = 0, column = 0;
  if (rows.log_columns >= 0) {
    row = group >> rows.log_columns, column = group & ((std::int64_t{1} << rows.log_columns) - 1);
  } else {
    row = group / rows.out.scale_columns, column = group % rows.out.scale_columns;
  }
  encoder::store_scale<Form>(
      rows.out, scale,
      scale_position(rows.out.layout, row, column, rows.out.scale_rows, rows.out.scale_columns));
}

// ---- kernels

/// Groups of 8 .. 256 elements, a power of two.
template <class Form, Dtype dtype, int vectors>
__global__ void __launch_bounds__(128) quantize_vectors(const __grid_constant__ Rows rows) {
  ptx::griddepcontrol_wait();
  constexpr bool kZeros = Form::family == Family::f32 && vectors == 1;
  const Output& out = rows.out;
  const encoder::Rule rule = encoder::rule_in_kernel<Form>(out);
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const std::int64_t warp = std::int64_t{blockIdx.x} * (blockDim.x / 32) + (threadIdx.x >> 5);
  const std::int64_t first = (warp * vectors * 32 + lane) * 8;

  std::uint32_t words[vectors][kWordsOfVector<dtype>] = {};
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    if (const std::int64_t element = first + v * 256; element < rows.elements)
      load_vector<dtype>(words[v], rows, element);
  }
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    float y[1][8];
    numbers_of_vector<dtype>(words[v], y[0]);
    const std::uint32_t pattern = largest_of_lanes(largest_pattern(words[v]), out.lanes);
    float largest =
        out.largest != nullptr ? __uint_as_float(*out.largest) : number_of_pattern<dtype>(pattern);
    const bool ordinary =
        __all_sync(0xFFFFFFFFU, is_short<Form, kZeros>(rule, pattern < kInfinityPattern<dtype>, largest));
    if (!ordinary && out.largest == nullptr)
      largest = __uint_as_float(largest_of_lanes(largest_number(y), out.lanes));
    const Scale scale = scale_for<Form, kZeros>(rule, ordinary, largest);

    std::uint32_t codes[Form::words];
    codes_of_vector<Form>(out, scale, ordinary, y[0], codes);
    const std::int64_t element = first + v * 256;
    ptx::st_global_if(element < rows.elements, out.codes + element * Form::bits / 8, codes);
    if ((lane & (out.lanes - 1)) == 0 && element < rows.elements)
      store_scale_of_group<Form>(rows, scale, element >> out.log_group);
  }
}

/// @param sharers  their threads count through
template <class Form, Dtype dtype, int vectors, class Sharers>
__device__ __forceinline__ void quantize_token(const Rows& rows, Sharers& sharers) {
  const Output& out = rows.out;
  const encoder::Rule rule = encoder::rule_in_kernel<Form>(out);
  const std::int64_t group = blockIdx.x / sharers.count(), first = group * rows.group;
  const int threads = static_cast<int>(blockDim.x) * sharers.count();
  const int thread = sharers.rank() * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
  const auto offset = [&](int v) { return (thread + v * threads) * 8; };

  std::uint32_t words[vectors][kWordsOfVector<dtype>] = {};
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    if (offset(v) < rows.group) load_vector<dtype>(words[v], rows, first + offset(v));
  }
  float y[vectors][8];
  std::uint32_t pattern = 0;
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    pattern = max(pattern, largest_pattern(words[v]));
    numbers_of_vector<dtype>(words[v], y[v]);
  }
  pattern = sharers.largest(pattern);
  float largest = number_of_pattern<dtype>(pattern);
  const bool ordinary = is_short<Form, true>(rule, pattern < kInfinityPattern<dtype>, largest);
  if (!ordinary) largest = __uint_as_float(sharers.largest(largest_number(y)));
  const Scale scale = scale_for<Form, true>(rule, ordinary, largest);
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    std::uint32_t codes[Form::words];
    codes_of_vector<Form>(out, scale, ordinary, y[v], codes);
    ptx::st_global_if(offset(v) < rows.group, out.codes + (first + offset(v)) * Form::bits / 8, codes);
  }
  if (thread == 0) store_scale_of_group<Form>(rows, scale, group);
}

/// One block per group: a token, or what else is a multiple of 8 and fits.
template <class Form, Dtype dtype, int vectors>
__global__ void quantize_blocks(const __grid_constant__ Rows rows) {
  ptx::griddepcontrol_wait();
  OneBlock block;
  quantize_token<Form, dtype, vectors>(rows, block);
}

/// A cluster per token.
template <class Form, Dtype dtype, int vectors>
__global__ void __launch_bounds__(kMostThreads) quantize_clusters(const __grid_constant__ Rows rows) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  Cluster cluster;
  ptx::griddepcontrol_wait();
  quantize_token<Form, dtype, vectors>(rows, cluster);
#endif
}

/// One block per token that is longer than a block holds: read for the largest |y|, and again, out of the L2,
/// for the codes.
template <class Form, Dtype dtype>
__global__ void __launch_bounds__(kMostThreads) quantize_twice(const __grid_constant__ Rows rows) {
  ptx::griddepcontrol_wait();
  const Output& out = rows.out;
  const encoder::Rule rule = encoder::rule_in_kernel<Form>(out);
  constexpr int kVectors = 4;
  const std::int64_t first = blockIdx.x * rows.group;
  // All vectors of a step are asked for before the first is used.
  const auto for_each_vector = [&](auto&& use) {
    const std::int64_t step = std::int64_t{blockDim.x} * 8;
    for (std::int64_t offset = std::int64_t{threadIdx.x} * 8; offset < rows.group;
         offset += kVectors * step) {
      Words<dtype> words[kVectors] = {};
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        if (offset + v * step < rows.group) load_vector<dtype>(words[v], rows, first + offset + v * step);
      }
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
        use(words[v], offset + v * step);
    }
  };

  std::uint32_t pattern = 0;
  for_each_vector(
      [&](const Words<dtype>& words, std::int64_t) { pattern = max(pattern, largest_pattern(words)); });
  pattern = largest_of_block(pattern);
  float largest = number_of_pattern<dtype>(pattern);
  const bool ordinary = is_short<Form, true>(rule, pattern < kInfinityPattern<dtype>, largest);
  if (!ordinary) {
    std::uint32_t number = 0;
    for_each_vector([&](const Words<dtype>& words, std::int64_t) {
      float y[1][8];
      numbers_of_vector<dtype>(words, y[0]);
      number = max(number, largest_number(y));
    });
    largest = __uint_as_float(largest_of_block(number));
  }
  const Scale scale = scale_for<Form, true>(rule, ordinary, largest);
  for_each_vector([&](const Words<dtype>& words, std::int64_t offset) {
    float y[8];
    numbers_of_vector<dtype>(words, y);
    std::uint32_t codes[Form::words];
    codes_of_vector<Form>(out, scale, ordinary, y, codes);
    ptx::st_global_if(offset < rows.group, out.codes + (first + offset) * Form::bits / 8, codes);
  });
  if (threadIdx.x == 0) store_scale_of_group<Form>(rows, scale, blockIdx.x);
}

/// Any group, any strides, scales of the whole tensor: one warp per group, or one block where groups are
/// long; two codes of four bits per lane.
template <class Form, Dtype dtype>
__global__ void __launch_bounds__(kMostThreads) quantize_any(const __grid_constant__ Rows rows) {
  ptx::griddepcontrol_wait();
  const Output& out = rows.out;
  const encoder::Rule rule = encoder::rule_in_kernel<Form>(out);
  const int team = rows.group >= kGroupOfBlock ? static_cast<int>(blockDim.x) : 32;
  const int teams = static_cast<int>(blockDim.x) / team, member = static_cast<int>(threadIdx.x) % team;
  constexpr int kPerByte = 8 / Form::bits;
  const auto* in = static_cast<const typename Storage<dtype>::Element*>(rows.in);
  const auto number = [&](std::int64_t element) {
    return Storage<dtype>::to_float(in[element / rows.n * rows.in_stride + element % rows.n]);
  };
  const std::int64_t groups = (rows.elements + rows.group - 1) / rows.group;
  const std::int64_t step = std::int64_t{gridDim.x} * teams;
  for (std::int64_t group = std::int64_t{blockIdx.x} * teams + static_cast<int>(threadIdx.x) / team;
       group < groups; group += step) {
    const std::int64_t begin = group * rows.group, end = min(begin + rows.group, rows.elements);
    float largest = 0.0F;
    if (out.largest != nullptr) {
      largest = __uint_as_float(*out.largest);
    } else if (!out.rule.given) {
      for (std::int64_t e = begin + member; e < end; e += team)
        largest = fmaxf(largest, fabsf(number(e)));
      const std::uint32_t own = __float_as_uint(largest);
      largest = __uint_as_float(team == 32 ? largest_of_lanes(own, 32) : largest_of_block(own));
    }
    const Scale scale = scale_for<Form, false>(rule, false, largest);
    for (std::int64_t e = begin + member * kPerByte; e < end; e += team * kPerByte) {
      float y[8] = {};
#pragma unroll
      for (int i = 0; i < kPerByte; ++i)
        y[i] = number(e + i);
      std::uint32_t codes[Form::words];
      encoder::codes_of_any<Form>(out.rule, scale, y, codes);
      const std::int64_t to = e / rows.n * rows.out_stride + e % rows.n;
      out.codes[to / kPerByte] = static_cast<std::uint8_t>(codes[0]);
    }
    if (member == 0) store_scale_of_group<Form>(rows, scale, group);
  }
}

/// Most warps find a larger number in memory already, so that few of them meet in an atomic operation.
__device__ __forceinline__ void leave_largest(const Rows& rows, float largest) {
  const std::uint32_t bits = __reduce_max_sync(0xFFFFFFFFU, __float_as_uint(largest));
  if ((threadIdx.x & 31) == 0 && bits > *rows.out.largest) atomicMax(rows.out.largest, bits);
}

/// Of contiguous rows on the 16-byte grid.
template <Dtype dtype, int vectors>
__global__ void __launch_bounds__(128) find_largest_in_vectors(const __grid_constant__ Rows rows) {
  ptx::griddepcontrol_wait();
  const std::int64_t warp = std::int64_t{blockIdx.x} * (blockDim.x / 32) + (threadIdx.x >> 5);
  const std::int64_t first = (warp * vectors * 32 + (threadIdx.x & 31)) * 8;
  std::uint32_t words[vectors][kWordsOfVector<dtype>] = {};
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    if (const std::int64_t element = first + v * 256; element < rows.elements)
      load_vector<dtype>(words[v], rows, element);
  }
  std::uint32_t pattern = 0;
#pragma unroll
  for (int v = 0; v < vectors; ++v)
    pattern = max(pattern, largest_pattern(words[v]));
  float largest = number_of_pattern<dtype>(pattern);
  if (pattern > kInfinityPattern<dtype>) {  // NaN, which do not count
    float y[vectors][8];
#pragma unroll
    for (int v = 0; v < vectors; ++v)
      numbers_of_vector<dtype>(words[v], y[v]);
    largest = __uint_as_float(largest_number(y));
  }
  leave_largest(rows, largest);
}

/// Of rows any distance apart.
template <Dtype dtype>
__global__ void __launch_bounds__(128) find_largest_of_any(const __grid_constant__ Rows rows) {
  ptx::griddepcontrol_wait();
  const auto* in = static_cast<const typename Storage<dtype>::Element*>(rows.in);
  float largest = 0.0F;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t e = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < rows.elements; e += step)
    largest = fmaxf(largest, fabsf(Storage<dtype>::to_float(in[e / rows.n * rows.in_stride + e % rows.n])));
  leave_largest(rows, largest);
}

// ---- instances

template <Dtype dtype, CodeFormat format>
Kernel find_kernel(const Launch& launch) {
  constexpr Family kFamily = encoder::family_of(format);
  using InVectors = encoder::Form<element_of(format), kFamily, false>;
  switch (launch.reader) {
    case Reader::vectors:
      return launch.vectors == 1 ? quantize_vectors<InVectors, dtype, 1>
                                 : quantize_vectors<InVectors, dtype, 4>;
    case Reader::blocks:
      if constexpr (kFamily == Family::f32) {
        using Whole = encoder::Form<element_of(format), kFamily, true>;
        switch (launch.vectors) {
          case 1:
            return quantize_blocks<Whole, dtype, 1>;
          case 2:
            return quantize_blocks<Whole, dtype, 2>;
          case 4:
            return quantize_blocks<Whole, dtype, 4>;
          case 8:
            return quantize_blocks<Whole, dtype, 8>;
          default:
            return nullptr;
        }
      }
      return nullptr;
    case Reader::clusters:
      if constexpr (kFamily == Family::f32) {
        using Whole = encoder::Form<element_of(format), kFamily, true>;
        return launch.vectors == 2 ? quantize_clusters<Whole, dtype, 2> : quantize_clusters<Whole, dtype, 8>;
      }
      return nullptr;
    case Reader::twice:
      if constexpr (kFamily == Family::f32)
        return quantize_twice<encoder::Form<element_of(format), kFamily, true>, dtype>;
      return nullptr;
    case Reader::any:
      return quantize_any<InVectors, dtype>;
  }
  return nullptr;
}

}  // namespace fwht::rotate_then_quantize
