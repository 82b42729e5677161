// y = H D_k ... H D_1 x with one load and one store an element.
//
// Idea: a warp holds whole rows in fp32 registers, so that no round needs memory or a barrier. A block puts
// the signs in the order of its lanes' registers once, 32 in a word, for all rows that it meets: a sign
// costs a shift and an exclusive or, which the multiplication by 1 / sqrt(n) takes along. A matrix of order
// 12 to 36 is multiplied within a lane, by sums that the compiler knows. All matrices are symmetric, so
// that transposed rounds are the same kernel. Rows that become codes are quantized where they lie.
//
// Bit card: RoundsTile.
#pragma once

#include "common/device/launcher.hpp"
#include "common/device/storage.cuh"
#include "common/host/bits.hpp"
#include "common/host/static_dispatch.hpp"
#include "variants/kit/encode/scales.hpp"
#include "variants/library/rounded_rows.hpp"
#include "variants/passes/tile_kernels.cuh"

namespace fwht::walsh {

inline constexpr int kRoundWarps = 4;  // of a block

/// As many as the registers of a multiprocessor hold without spills.
constexpr int blocks_of_rounds(int registers, bool to_codes) {
  return registers == 32 ? (to_codes ? 5 : 6) : registers <= 64 ? 4 : registers <= 80 ? 3 : 2;
}

/// Of 16 bytes; rows of an order other than 1 hold four numbers at a time.
template <Dtype dtype, int order>
inline constexpr int kVectorOfRounds = order == 1 ? Storage<dtype>::kPerVector : 4;

template <Dtype dtype, int vector>
__device__ void load_numbers(const typename Storage<dtype>::Element* from, bool exists, uint4& data) {
  data = {};
  if (!exists) return;
  if constexpr (vector == Storage<dtype>::kPerVector) {
    data = *reinterpret_cast<const uint4*>(from);
  } else {
    const uint2 half = *reinterpret_cast<const uint2*>(from);
    data.x = half.x, data.y = half.y;
  }
}

/// All loads before the first use; zeros where there is no row.
/// @param place   of register k, the element in memory
/// @param exists  whether the row of register k does
template <Dtype dtype, int vector, int registers, class Place, class Exists>
__device__ void load_rows(const void* in, const Place& place, const Exists& exists,
                          float (&x)[registers][1]) {
  uint4 data[registers / vector];
#pragma unroll
  for (int k = 0; k < registers; k += vector)
    load_numbers<dtype, vector>(static_cast<const typename Storage<dtype>::Element*>(in) + place(k),
                                exists(k), data[k / vector]);
#pragma unroll
  for (int k = 0; k < registers; k += vector) {
    float some[Storage<dtype>::kPerVector];
    unpack<dtype>(data[k / vector], some);
#pragma unroll
    for (int e = 0; e < vector; ++e)
      x[k + e][0] = some[e];
  }
}

/// Rounded to the storage type.
template <Dtype dtype, int vector, int registers, class Place, class Exists>
__device__ void store_rows(const float (&x)[registers][1], void* out, const Place& place,
                           const Exists& exists) {
#pragma unroll
  for (int k = 0; k < registers; k += vector) {
    float some[Storage<dtype>::kPerVector] = {};
#pragma unroll
    for (int e = 0; e < vector; ++e)
      some[e] = x[k + e][0];
    const uint4 packed = pack<dtype>(some);
    auto* const to = static_cast<typename Storage<dtype>::Element*>(out) + place(k);
    if (!exists(k)) continue;
    if constexpr (vector == Storage<dtype>::kPerVector) {
      *reinterpret_cast<uint4*>(to) = packed;
    } else {
      *reinterpret_cast<uint2*>(to) = {packed.x, packed.y};
    }
  }
}

/// D times the scale: a factor is the scale with the sign that is a bit of the lane's words.
template <int registers, int count>
__device__ void multiply_by_signs(float (&x)[registers][1], const std::uint32_t (&words)[count][32],
                                  float scale, int lane) {
#pragma unroll
  for (int w = 0; w < count; ++w) {
    const std::uint32_t word = words[w][lane];
#pragma unroll
    for (int j = 0; j < 32 && 32 * w + j < registers; ++j)
      x[32 * w + j][0] *= __uint_as_float(__float_as_uint(scale) ^ (word << (31 - j) & 0x80000000U));
  }
}

/// Keeps the compiler from computing what follows before what precedes, which would need all registers
/// twice.
template <int count>
__device__ void compute_in_turn(float (&x)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i)
    asm volatile("" : "+f"(x[i]));
}

/// Signs of a conference matrix, for the compiler: -1 where the bit of row and column is set.
template <int points>
struct ConferenceSigns {
  std::uint32_t rows[points] = {};
  constexpr ConferenceSigns() {
    for (int i = 0; i < points; ++i) {
      for (int j = 0; j < points; ++j)
        rows[i] |= (conference_entry(points, i, j) < 0 ? 1U : 0U) << j;
    }
  }
};

/// H_order of a matrix whose rows are `columns` registers each, by Paley's second construction: with C of
/// half the order, p the sums of neighbours and q their differences, C p + q and C q - p side by side. C
/// has zeros on its diagonal, so that a column takes half the sums of its definition.
template <int order, int columns, int registers>
__device__ void matrix_product(float (&x)[registers][1]) {
  static_assert(registers == order * columns);
  constexpr int kPoints = order / 2;
  constexpr ConferenceSigns<kPoints> kSigns;
#pragma unroll
  for (int c = 0; c < columns; ++c) {
    float p[kPoints], q[kPoints], y[order];
#pragma unroll
    for (int i = 0; i < kPoints; ++i) {
      const float even = x[2 * i * columns + c][0], odd = x[(2 * i + 1) * columns + c][0];
      p[i] = even + odd, q[i] = even - odd;
    }
    compute_in_turn(p);
    compute_in_turn(q);
#pragma unroll
    for (int i = 0; i < kPoints; ++i) {
      y[2 * i] = q[i], y[2 * i + 1] = -p[i];
#pragma unroll
      for (int j = 0; j < kPoints; ++j) {
        if (j == i) continue;
        const bool negative = (kSigns.rows[i] >> j & 1) != 0;
        y[2 * i] += negative ? -p[j] : p[j], y[2 * i + 1] += negative ? -q[j] : q[j];
      }
    }
    compute_in_turn(y);
#pragma unroll
    for (int i = 0; i < order; ++i)
      x[i * columns + c][0] = y[i];
  }
}

/// Over the lanes of a row.
template <int registers>
__device__ void lane_butterflies(float (&x)[registers][1], int lane_bits) {
#pragma unroll
  for (int bit = 0; bit < 5; ++bit) {
    if (bit >= lane_bits) break;
    const float sign = (threadIdx.x >> bit & 1) != 0 ? -1.0F : 1.0F;
#pragma unroll
    for (int k = 0; k < registers; ++k)
      x[k][0] = fmaf(sign, x[k][0], __shfl_xor_sync(0xFFFFFFFFU, x[k][0], 1 << bit));
  }
}

/// Of four numbers q that are to be rounded, the codes of `bits` bits, the first in the lowest.
template <int bits>
__device__ std::uint32_t codes_of_four(const float (&q)[4]) {
  if constexpr (bits == 8) return encoder::int8_codes(q[0], q[1], q[2], q[3]);
  std::uint32_t codes = 0;
#pragma unroll
  for (int e = 0; e < 4; ++e)
    codes |= (bits == 4 ? encoder::nearest_integer(q[e]) & 15U : q[e] < 0 ? 1U : 0U) << bits * e;
  return codes;
}

/// The lane's rows as codes. Of `group` registers each; lane_bits as in RoundsTile.
template <int bits, int group, int registers>
__device__ void store_codes(const RoundedRows& work, const RoundsTile& tile, const float (&x)[registers][1],
                            std::int64_t first_row, int lane) {
  using Form = encoder::Form<bits == 8 ? Element::int8 : Element::int4, encoder::Family::f32, true>;
  encoder::Rule rule;  // Recipe::symmetric
  rule.limit = bits == 8 ? 127.0F : 7.0F;
  rule.codes = encoder::Codes::by_ratio;
  const std::int64_t n = tile.n();
#pragma unroll
  for (int first = 0; first < registers; first += group) {
    float of_row = 0;
#pragma unroll
    for (int k = first; k < first + group; ++k)
      of_row = bits == 1 ? of_row + fabsf(x[k][0]) : fmaxf(of_row, fabsf(x[k][0]));
#pragma unroll
    for (int bit = 0; bit < 5; ++bit) {
      if (bit >= tile.lane_bits) break;
      const float other = __shfl_xor_sync(0xFFFFFFFFU, of_row, 1 << bit);
      of_row = bits == 1 ? of_row + other : fmaxf(of_row, other);
    }
    encoder::Scale scale;
    if (bits == 1) {
      scale.number = of_row / static_cast<float>(n);
    } else {
      scale = encoder::scale_of<encoder::Family::f32, false>(rule, of_row);
    }
    const std::int64_t row = first_row + tile.row(lane, first);
    const bool exists = row < work.rows;
    auto* const codes =
        static_cast<std::uint8_t*>(work.out) + (row * n + tile.place_of_lane(lane)) * bits / 8;
#pragma unroll
    for (int k = first; k < first + group; k += 4) {
      float q[4];
#pragma unroll
      for (int e = 0; e < 4; ++e)
        q[e] = bits == 1 ? x[k + e][0] : encoder::number_to_round<Form>(rule, scale, x[k + e][0]);
      std::uint32_t word = codes_of_four<bits>(q);
      std::uint8_t* const to = codes + tile.place_of_register(k) * bits / 8;
      if constexpr (bits == 1) {  // two lanes have a byte
        word |= __shfl_down_sync(0xFFFFFFFFU, word, 1) << 4;
        if (exists && lane % 2 == 0) *to = static_cast<std::uint8_t>(word);
      } else if (exists) {
        if constexpr (bits == 8) *reinterpret_cast<std::uint32_t*>(to) = word;
        if constexpr (bits == 4) *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(word);
      }
    }
    if (exists && tile.place_of_lane(lane) == 0) work.scales[row] = scale.number;
  }
}

/// @tparam lane_bits  of RoundsTile; -1 where the launch says it
/// @tparam to_codes   the results are codes of work.bits bits
template <Dtype dtype, int order, int register_bits, int lane_bits, bool to_codes>
__global__ void __launch_bounds__(32 * kRoundWarps,
                                  blocks_of_rounds(RoundsTile{0, register_bits, 0, order}.registers(),
                                                   to_codes))
    rounded_rows(const __grid_constant__ RoundedRows work) {
  constexpr int kVector = kVectorOfRounds<dtype, order>, kVectorBits = log2_floor(kVector);
  constexpr RoundsTile kTile{kVectorBits, register_bits, lane_bits, order};
  constexpr int kRegisters = kTile.registers(), kWords = kTile.sign_words();
  const RoundsTile tile{kVectorBits, register_bits, lane_bits < 0 ? work.tile.lane_bits : lane_bits, order};
  const std::int64_t n = tile.n();
  __shared__ std::uint32_t words[kMostRounds][kWords][32];
  const int lane = static_cast<int>(threadIdx.x & 31);
  for (int i = static_cast<int>(threadIdx.x >> 5); i < work.count * kWords; i += kRoundWarps)
    words[i / kWords][i % kWords][lane] =
        tile.sign_word(work.signs + i / kWords * (n / 32), i % kWords, lane);
  __syncthreads();

  const std::int64_t step = std::int64_t{gridDim.x} * kRoundWarps * tile.rows();
  for (std::int64_t first_row = (std::int64_t{blockIdx.x} * kRoundWarps + (threadIdx.x >> 5)) * tile.rows();
       first_row < work.rows; first_row += step) {
    const auto place = [&](int k) {
      return (first_row + tile.row(lane, k)) * n + tile.place_of_lane(lane) + tile.place_of_register(k);
    };
    const auto exists = [&](int k) { return first_row + tile.row(lane, k) < work.rows; };
    float x[kRegisters][1];
    load_rows<dtype, kVector>(work.in, place, exists, x);
#pragma unroll 1
    for (int round = 0; round < work.count; ++round) {
      if (!work.transposed) multiply_by_signs(x, words[round], work.scale, lane);
      passes::register_butterflies<0>(x, register_bits);
      lane_butterflies(x, tile.lane_bits);
      if constexpr (order > 1) matrix_product<order, 1 << register_bits>(x);
      if (work.transposed) multiply_by_signs(x, words[work.count - 1 - round], work.scale, lane);
    }
    constexpr int kGroup = kTile.registers_of_row();
    if constexpr (!to_codes) {
      store_rows<dtype, kVector>(x, work.out, place, exists);
    } else if (work.bits == 8) {
      store_codes<8, kGroup>(work, tile, x, first_row, lane);
    } else if (work.bits == 4) {
      store_codes<4, kGroup>(work, tile, x, first_row, lane);
    } else {
      store_codes<1, kGroup>(work, tile, x, first_row, lane);
    }
  }
}

template <Dtype dtype, int order, int register_bits, int lane_bits, bool to_codes>
void launch_rounds(const RoundedRows& work, int sm_count, Stream stream) {
  const std::int64_t tiles = ceil_div(work.rows, std::int64_t{work.tile.rows()});
  launch(rounded_rows<dtype, order, register_bits, lane_bits, to_codes>,
         {.blocks = std::min<std::int64_t>(
              ceil_div(tiles, std::int64_t{kRoundWarps}),
              std::int64_t{sm_count} * blocks_of_rounds(work.tile.registers(), to_codes)),
          .threads = 32 * kRoundWarps},
         stream, work);
}

/// Rows of a power of two.
template <Dtype dtype, bool to_codes>
void launch_rounds_of_columns(const RoundedRows& work, int sm_count, Stream stream) {
  dispatch_int<kSmallestRoundedRow, kLargestRoundedRow>(work.tile.log_columns(), [&](auto log_n) {
    constexpr RoundsTile kTile = RoundsTile::of(log2_floor(kVectorOfRounds<dtype, 1>), log_n());
    launch_rounds<dtype, 1, kTile.register_bits, kTile.lane_bits, to_codes>(work, sm_count, stream);
  });
}

/// Of the other orders.
template <Dtype dtype, bool to_codes>
void launch_rounds_of_matrices(const RoundedRows& work, int sm_count, Stream stream) {
  const auto launch_one = [&]<int order, int register_bits>() {
    launch_rounds<dtype, order, register_bits, -1, to_codes>(work, sm_count, stream);
  };
  switch (work.tile.order) {
    case 12:
      return work.tile.register_bits == 2 ? launch_one.template operator()<12, 2>()
                                          : launch_one.template operator()<12, 3>();
    case 20:
      return launch_one.template operator()<20, 2>();
    case 28:
      return launch_one.template operator()<28, 2>();
    default:
      return launch_one.template operator()<36, 2>();
  }
}

}  // namespace fwht::walsh
