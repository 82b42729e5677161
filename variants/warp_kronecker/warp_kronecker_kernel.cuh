// warp_kronecker: rows of m 2^k elements that one warp holds in registers, or up to sixteen.
//
// It is the algebra of `mma_kronecker`: a row is a matrix X of D x 2^k, 16 to 1024 columns, y = scale * H_D X
// S, stage 1 exact on raw data, stage 2 additions and one hi + lo product.
//
// What this rung changes: the row never sees shared memory. A lane loads the vectors of 8 columns whose rows
// of X operand B wants of it, so that one PRMT a word makes operands of them: column j of a product is column
// j of eight vectors. So the first product's columns are b3-b5, the sums of one row lie 16 bytes a lane, and
// leave as they came. One warp waits for no other; of two, each exchanges half of its sums.
//
// With fewer columns, two or four rows of the problem lie side by side in a warp, in place of b5 or b4-b5. A
// product with zeros would take an infinity of one row into the other, so lanes and registers add the rest.
//
// Rows to 61440 lie in 4, 8 or 16 warps of one block, 64 columns each, with few rows of X. They hand all sums
// out through shared memory once, and a thread adds those of a few columns.
//
// Bit card, columns b0 .. b9, rows d of X, rows r of the problem side by side:
//   load      16 bytes a lane: b0-b2 in the vector | b3-b5 lane 2-4 | d: lane 0-1, register, step |
//             b6-b9 warp
//   stage 1   d is k, b3-b5 the columns of a product, b0-b2 product after product
//             D: b3 register | b4-b5 lane 0-1 | b0-b2 register | d: lane 2-4, register, block
//             of 32 columns: b4 register | b3, r lane 0-1; of 16: r register | b3, r lane 0-1; so stored
//   stage 2   b0-b2       FADD between registers
//             b6          the parts exchange eight rows of each block: fp32 through shared memory, FADD
//             b3-b5       mma.sync m16n8k16, every number as bf16 hi + lo side by side in k
//             b3, b4      with 16 or 32 columns: a shuffle over lane bit 0; b4 FADD between registers
//   many      behind b3-b5: fp32 through shared memory, whole; b6-b9 FADD between registers
//   store     16 bytes a lane: b0-b2 in the vector | b3-b4 lane 0-1 | b5, b6 register | d as above
//             many parts: 16, 8 or 4 bytes of each of them a lane | rest of b0-b5, then d: lane, warp, take
#pragma once

#include <cstdint>

#include "common/device/ptx/global.cuh"
#include "common/device/ptx/griddepcontrol.cuh"
#include "common/device/ptx/mbarrier.cuh"
#include "common/device/ptx/mma.cuh"
#include "common/device/ptx/shared.cuh"
#include "variants/kit/kernel_table.hpp"
#include "variants/kit/signs.hpp"
#include "variants/kit/split_stage.cuh"
#include "variants/kit/work.cuh"
#include "variants/warp_kronecker/warp_kronecker.hpp"

using _ZN4fwht14warp_kronecker10WarpLaunchE = fwht::warp_kronecker::WarpLaunch;  // see kernel_table.hpp

namespace fwht::warp_kronecker {

/// The rows of one launch.
struct WarpWork {
  const std::byte* in;
  std::byte* out;
  std::int64_t in_stride, out_stride;            ///< bytes between rows
  const std::uint32_t* matrix;                   ///< rows::sign_table
  const std::uint8_t *signs_first, *signs_last;  ///< a bit for each element of a row; null for none
  int row_count, order;
  float scale;
};

/// What a warp does of a row, or of the rows that lie side by side in it.
struct WarpPlace {
  int row;         ///< the first of them
  int part, team;  ///< see WarpLaunch
  int lane;
};

/// The part of a row of the problem that a warp holds, as operands B of stage 1.
template <WarpLaunch launch>
class HeldRow {
  static constexpr int kSteps = launch.k_steps, kWidth = launch.columns;

 public:
  std::uint32_t operands[kSteps][8][2];  ///< of each step and column of b0-b2

  /// Asks for all of it at once. Rows of X behind the matrix are zeros, for the signs there to meet, and so
  /// are rows behind the last of the problem.
  __device__ HeldRow(const WarpWork& work, const WarpPlace& place)
      : row_(place.row + row_of_slot(kWidth, loaded_slot(kWidth, place.lane))) {
    const std::byte* const from =
        work.in + row_ * work.in_stride + loaded_byte(kWidth, 0, 0, place.part, place.lane);
    each_vector([&](int step, int i) {
      const auto vector = exists(work, step, i, place.lane)
                              ? *reinterpret_cast<const uint4*>(from + behind_first(step, i))
                              : uint4{0, 0, 0, 0};
      word(step, i, 0) = vector.x, word(step, i, 1) = vector.y;
      word(step, i, 2) = vector.z, word(step, i, 3) = vector.w;
    });
  }
  __device__ void flip_signs(const WarpWork& work, const WarpPlace& place) {
    const std::uint8_t* const from =
        work.signs_first + loaded_byte(kWidth, 0, 0, place.part, place.lane) / 16;
    each_vector([&](int step, int i) {
      if (!exists(work, step, i, place.lane)) return;
      const std::uint32_t eight = __ldg(from + behind_first(step, i) / 16);
#pragma unroll
      for (int w = 0; w < 4; ++w)
        word(step, i, w) ^= rows::pair_signs(eight, w);
    });
  }
  /// From four vectors of a step to eight operands: one column each, two rows of X in a register.
  __device__ void arrange() {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const std::uint32_t upper = word(step, 2 * r, w), lower = word(step, 2 * r + 1, w);
          word(step, 2 * r, w) = ptx::prmt<0x5410>(upper, lower);
          word(step, 2 * r + 1, w) = ptx::prmt<0x7632>(upper, lower);
        }
      }
    }
  }

 private:
  template <class F>
  __device__ static void each_vector(const F& f) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        f(step, i);
    }
  }
  /// Word `w` of vector `i` lies where arrange() leaves register i / 2 of column 2 w + i % 2.
  __device__ std::uint32_t& word(int step, int i, int w) {
    return operands[step][2 * w + i % 2][i / 2];
  }
  __device__ static constexpr int behind_first(int step, int i) {
    return loaded_byte(kWidth, step, i, 0, 0);
  }
  __device__ bool exists(const WarpWork& work, int step, int i, int lane) const {
    const bool is_of_matrix = !launch.may_pass_matrix(step) || loaded_line(step, i, lane) < work.order;
    return is_of_matrix && (launch.rows_per_warp() == 1 || row_ < work.row_count);
  }

  int row_;
};

/// The signs of operand A for the blocks that a warp makes at once, read ahead.
template <Dtype dtype, WarpLaunch launch>
class BlockSigns {
  static constexpr int kWords = rows::sign_words(launch.k_steps);

 public:
  __device__ BlockSigns(const WarpWork& work, const WarpPlace& place) : table_(work.matrix + place.lane) {}

  /// From block `first` on; behind the last block, that one again.
  __device__ void fetch(int first) {
#pragma unroll
    for (int b = 0; b < launch.together; ++b) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        const int block = min(first + b, launch.k_steps - 1);
        words_[b][i] = __ldg(table_ + rows::sign_word_index(launch.k_steps, block, i, 0));
      }
    }
  }
  __device__ void operand(std::uint32_t (&a)[4], int b, int step) const {
#pragma unroll
    for (int r = 0; r < 4; ++r)
      a[r] = rows::signed_ones(rows::two_ones<dtype>(), words_[b][step / 4], step, r);
  }

 private:
  const std::uint32_t* table_;
  std::uint32_t words_[launch.together][kWords];
};

/// Sums of 16 rows of the product: d[j] those of column j of eight vectors.
using Sums = float[8][4];

/// Stage 1: exact products with signs.
template <Dtype dtype, WarpLaunch launch>
__device__ void exact_stage(Sums (&d)[launch.together], const HeldRow<launch>& row,
                            const BlockSigns<dtype, launch>& signs) {
#pragma unroll
  for (int step = 0; step < launch.k_steps; ++step) {
#pragma unroll
    for (int b = 0; b < launch.together; ++b) {
      std::uint32_t a[4];
      signs.operand(a, b, step);
#pragma unroll
      for (int j = 0; j < 8; ++j)
        rows::multiply_add<dtype>(d[b][j], a, row.operands[step][j]);
    }
  }
}

/// b6, between two warps: each keeps eight rows of the block, and sends the other eight. Of the parts' sums
/// and differences the second one's differences come out negated.
__device__ inline void exchange_parts(Sums& d, std::uint32_t buffer, int round, int part, int lane) {
  const auto address = [&](int from, int pair) {
    return buffer + 4 * static_cast<std::uint32_t>(exchanged_word(round, from, pair, lane));
  };
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    std::uint32_t sent[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&sums)[4] = d[2 * pair + i / 2];
      sent[i] = __float_as_uint(part == 0 ? sums[2 + i % 2] : sums[i % 2]);
    }
    ptx::st_shared_v4(address(part, pair), sent);
  }
  __syncthreads();
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    std::uint32_t received[4];
    ptx::ld_shared_v4(received, address(1 - part, pair));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float(&sums)[4] = d[2 * pair + i / 2];
      const float kept = part == 0 ? sums[i % 2] : sums[2 + i % 2], other = __uint_as_float(received[i]);
      sums[i % 2] = kept + other;
      sums[2 + i % 2] = kept - other;
    }
  }
}

/// Adds the vectors of a row: b3-b5, or b3 and b4 where rows lie side by side.
template <WarpLaunch launch>
__device__ void add_vectors(Sums& d, const rows::Stage2Constants& constants, int lane) {
  if constexpr (launch.rows_per_warp() == 1) {
#pragma unroll
    for (int j = 0; j < 8; j += 4) {
      rows::eight_point_stage(reinterpret_cast<float(&)[4][4]>(d[j]), constants.hadamard,
                              constants.minus_identity);
    }
  } else {
    float(&sums)[32] = reinterpret_cast<float(&)[32]>(d);
    const float sign = lane % 2 == 0 ? 1.0F : -1.0F;
#pragma unroll
    for (float& x : sums)
      x = fmaf(x, sign, __shfl_xor_sync(0xFFFFFFFFU, x, 1));
    if constexpr (vectors_per_row(launch.columns) == 4) rows::register_butterflies<1, 2>(sums);
  }
}

/// The scale and the one rounding; then the block's rows leave.
/// @param scales  of the first part of the columns, and of the second
template <Dtype dtype, WarpLaunch launch, bool with_signs>
__device__ void put_block(const Sums& d, const WarpWork& work, const WarpPlace& place, int block,
                          const float (&scales)[2]) {
  constexpr int kWidth = launch.columns;
  // Plus 0, so that negated differences of equal sums are 0, not -0.
  const auto scaled = [&](float x, int i) {
    return launch.parts() == 2 && i >= 2 ? fmaf(x, scales[1], 0.0F) : x * scales[0];
  };
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = place.row + row_of_slot(kWidth, stored_slot(kWidth, i, place.lane));
    const bool exists = stored_line(kWidth, block, i, place.part, place.lane) < work.order &&
                        (launch.rows_per_warp() == 1 || row < work.row_count);
    const int byte = stored_byte(kWidth, block, i, place.part, place.lane);
    std::uint32_t words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w)
      words[w] = rows::rounded_pair<dtype>(scaled(d[2 * w][i], i), scaled(d[2 * w + 1][i], i));
    if (with_signs && work.signs_last != nullptr && exists) {
      const std::uint32_t eight = __ldg(work.signs_last + byte / 16);
#pragma unroll
      for (int w = 0; w < 4; ++w)
        words[w] ^= rows::pair_signs(eight, w);
    }
    ptx::st_global_if(exists, work.out + row * work.out_stride + byte, words);
  }
}

/// Of four parts or more: the sums of all of them for a few columns, in one thread.
template <Dtype dtype, WarpLaunch launch, bool with_signs>
class ManyParts {
  static constexpr int kParts = launch.parts(), kTaken = launch.taken_columns();

 public:
  __device__ ManyParts(float* exchange, const WarpWork& work, const WarpPlace& place)
      : exchange_(exchange), work_(work), place_(place) {}

  /// b6 and above of the blocks of a round; then the row's share of each thread leaves.
  __device__ void exchange_and_store(int round, const Sums (&d)[launch.together]) const {
    if (launch.exchange_buffers() == 1 && round > 0) __syncthreads();  // what was there has been taken
#pragma unroll
    for (int b = 0; b < launch.together; ++b)
      hand_out(round, b, d[b]);
    __syncthreads();
#pragma unroll
    for (int take = 0; take < launch.takes(); ++take) {
      const int row = taken_row(launch, take, static_cast<int>(threadIdx.x));
      if (16 * launch.together * round + row >= work_.order) return;  // and so does every later one
      float x[kParts][kTaken];
      collect(round, row, x);
      rows::register_butterflies<kTaken, kParts * kTaken>(reinterpret_cast<float(&)[kParts * kTaken]>(x));
      put(16 * launch.together * round + row, x);
    }
  }

 private:
  __device__ float4* quad_at(int round, int part, int row, int quad) const {
    return reinterpret_cast<float4*>(exchange_ + handed_word(launch, round, part, row, quad));
  }
  __device__ void hand_out(int round, int b, const Sums& d) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = handed_row(b, i, place_.lane), quad = handed_quad(i, place_.lane);
      *quad_at(round, place_.part, row, quad) = {d[0][i], d[1][i], d[2][i], d[3][i]};
      *quad_at(round, place_.part, row, quad + 1) = {d[4][i], d[5][i], d[6][i], d[7][i]};
    }
  }
  __device__ void collect(int round, int row, float (&x)[kParts][kTaken]) const {
    const int column = taken_column(launch, static_cast<int>(threadIdx.x));
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      if constexpr (kTaken == 2) {
        const auto* const quad = reinterpret_cast<const float2*>(quad_at(round, part, row, column / 4));
        const float2 two = quad[column / 2 % 2];
        x[part][0] = two.x, x[part][1] = two.y;
      } else {
#pragma unroll
        for (int c = 0; c < kTaken; c += 4) {
          const float4 four = *quad_at(round, part, row, (column + c) / 4);
          x[part][c] = four.x, x[part][c + 1] = four.y, x[part][c + 2] = four.z, x[part][c + 3] = four.w;
        }
      }
    }
  }
  /// The scale and the one rounding of a few columns of every part, of this row of X.
  __device__ void put(int line, const float (&x)[kParts][kTaken]) const {
    const int element = line * launch.columns + taken_column(launch, static_cast<int>(threadIdx.x));
    std::byte* const to = work_.out + place_.row * work_.out_stride + 2 * element;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      std::uint32_t words[kTaken / 2];
#pragma unroll
      for (int w = 0; w < kTaken / 2; ++w)
        words[w] = rows::rounded_pair<dtype>(x[part][2 * w] * work_.scale, x[part][2 * w + 1] * work_.scale);
      if (with_signs && work_.signs_last != nullptr) {
        const std::uint32_t eight = __ldg(work_.signs_last + (element + kColumns * part) / 8) >> element % 8;
#pragma unroll
        for (int w = 0; w < kTaken / 2; ++w)
          words[w] ^= rows::pair_signs(eight, w);
      }
      ptx::st_global_if(true, to + 2 * kColumns * part, words);
    }
  }

  float* exchange_;
  const WarpWork& work_;
  const WarpPlace& place_;
};

template <WarpLaunch launch>
__device__ WarpPlace this_place() {
  const int warp = rows::uniform_warp(), of_row = warp % launch.warps_per_row();
  return {static_cast<int>(blockIdx.x) * launch.rows_per_block() +
              warp / launch.warps_per_row() * launch.rows_per_warp(),
          of_row % launch.parts(), of_row / launch.parts(), static_cast<int>(threadIdx.x & 31U)};
}

/// @tparam with_signs  kernels of their own: what a branch around the operands keeps alive costs the longest
///                     rows 60 registers
template <Dtype dtype, WarpLaunch launch, bool with_signs>
__global__ void __launch_bounds__(launch.threads(), launch.resident_blocks())
    rows_in_registers(const __grid_constant__ WarpWork work) {
  static_assert(
      launch.exchange_words() == 0 || launch.hands_out() || (launch.teams == 1 && launch.together == 1),
      "one exchange a round");
  constexpr bool kOneRound = launch.teams == launch.rounds();
  constexpr bool kIsStatic = !launch.hands_out() && launch.exchange_words() > 0;
  __shared__ __align__(16) float exchange[kIsStatic ? launch.exchange_words() : 4];
  extern __shared__ __align__(16) float of_many_parts[];
  const WarpPlace place = this_place<launch>();
  const rows::Stage2Constants constants(place.lane, lane_of_fragment(place.lane));
  BlockSigns<dtype, launch> signs(work, place);
  int round = place.team;
  signs.fetch(round * launch.together);

  ptx::griddepcontrol_wait();
  if (place.row >= work.row_count) return;  // such a warp shares its row with none
  HeldRow<launch> held(work, place);
  if constexpr (launch.teams > 1) ptx::griddepcontrol_launch_dependents();
  // In place, nobody may store before all have read. Of many parts nobody does before the exchange.
  if constexpr (launch.warps_per_row() > 1 && !launch.hands_out()) __syncthreads();
  if constexpr (with_signs) {
    if (work.signs_first != nullptr) held.flip_signs(work, place);
  }
  held.arrange();

  const float scales[2] = {work.scale, place.part == 0 ? work.scale : -work.scale};
  const auto make_blocks = [&] {
    Sums d[launch.together] = {};
    exact_stage<dtype>(d, held, signs);
    if constexpr (!kOneRound) {
      signs.fetch(min(round + launch.teams, launch.rounds() - 1) * launch.together);
    }
#pragma unroll
    for (int b = 0; b < launch.together; ++b) {
      rows::register_butterflies<4, 32>(reinterpret_cast<float(&)[32]>(d[b]));  // b0-b2
      if constexpr (launch.parts() == 2) {
        exchange_parts(d[b], ptx::shared_address(exchange), round, place.part, place.lane);
      }
      add_vectors<launch>(d[b], constants, place.lane);
      if constexpr (!launch.hands_out()) {
        put_block<dtype, launch, with_signs>(d[b], work, place, round * launch.together + b, scales);
      }
    }
    if constexpr (launch.hands_out())
      ManyParts<dtype, launch, with_signs>(of_many_parts, work, place).exchange_and_store(round, d);
  };
  if constexpr (kOneRound) {
    make_blocks();
  } else {
#pragma unroll 1
    for (; round < launch.rounds(); round += launch.teams)
      make_blocks();
  }
}

/// Takes WarpWork.
using Kernel = const void*;
using Kernels = Table<WarpLaunch, Kernel>;

template <Dtype dtype, bool with_signs, int part>
const Kernels& kernels();

/// What kernels() gives, where its kernels are compiled.
template <Dtype dtype, bool with_signs, int part>
Kernels compiled_kernels() {
  return table_of_each<Kernels, kLaunches>([](Kernels& table, auto launch) {
    if constexpr (part_of_object(launch()) == part)
      table.add(launch(), reinterpret_cast<Kernel>(rows_in_registers<dtype, launch(), with_signs>));
  });
}

}  // namespace fwht::warp_kronecker
