// hadacore: the kernel that executes the program of hadacore.hpp, step by step, at compile time.
#pragma once

#include <cstdint>
#include <utility>

#include "common/contract/dtype.hpp"
#include "common/device/ptx/mma.cuh"
#include "variants/hadacore/hadacore.hpp"
#include "variants/kit/grid.hpp"

namespace fwht::hadacore {

struct RowBatch {
  const void* in;
  void* out;
  std::int64_t rows, row_stride;  // in elements
  std::uint32_t scale_constant;   // 16-bit pattern of the constant of the stage that carries the scale
};

/// The device side of one program. `whole_vectors` moves 16 bytes at a time and needs aligned rows; without
/// it, elements travel one by one.
template <int log_n, int log_chunks, int log_warps, Dtype dtype, bool whole_vectors>
struct Kernel {
  static constexpr Shape shape{log_n, log_chunks, log_warps};
  static constexpr Program program = make_program(shape);
  static constexpr int words = shape.words();
  using Words = std::uint32_t (&)[words];

  /// Calls body(integral_constant i) for 0 <= i < count.
  template <int count, class Body>
  __device__ static void unrolled(Body&& body) {
    [&]<int... i>(std::integer_sequence<int, i...>) {
      (body(std::integral_constant<int, i>{}), ...);
    }
    (std::make_integer_sequence<int, count>{});
  }

  /// `i` with zero bits put in at bit positions `low` < `high`: the i-th register whose two bits are zero.
  __device__ static constexpr int spread(int i, int low, int high) {
    i = ((i >> low) << (low + 1)) | (i & ((1 << low) - 1));
    return ((i >> high) << (high + 1)) | (i & ((1 << high) - 1));
  }

  // ---- where a thread's elements are

  /// Tile index of what a thread holds in word 0, half 0; the words' own bits are OR-ed in by word_index.
  template <int at>
  __device__ static int thread_index(int thread) {
    int index = 0;
    unrolled<5>([&](auto i) {
      constexpr int bit = program.before[at].lane(i());
      index |= shifted(thread & (1 << i()), bit - i());
    });
    unrolled<shape.log_warps>([&](auto i) {
      constexpr int bit = program.before[at].warp(shape, i());
      index |= shifted(thread & (32 << i()), bit - 5 - i());
    });
    return index;
  }
  __device__ static int shifted(int x, int left) { return left >= 0 ? x << left : x >> -left; }

  template <int at, int word>
  static constexpr int word_index = index_of(shape, program.before[at], 0, word, 0);

  /// First element of the tile-relative index in the batch, as (row within the batch, offset of the element).
  struct Place {
    std::int64_t row, offset;
  };
  __device__ static Place place(const RowBatch& batch, std::int64_t first_row, int index) {
    const std::int64_t row = first_row + (index >> shape.log_n);
    return {row, row * batch.row_stride + (index & ((1 << shape.log_n) - 1))};
  }

  static constexpr bool short_rows = shape.log_n < 3;  // several rows in one vector: contiguous only

  /// visit(vector number, offset, whole): `whole` where all 8 elements are in the batch; not called where
  /// none is. Rows of fewer than 8 elements can end inside a vector.
  template <int at, class Visit>
  __device__ static void for_each_vector(const RowBatch& batch, std::int64_t first_row, Visit&& visit) {
    const int mine = thread_index<at>(static_cast<int>(threadIdx.x));
    const Place base = place(batch, first_row, mine);
    unrolled<shape.vectors()>([&](auto v) {
      constexpr int index = word_index<at, v() << kFirstVectorBit>;
      if constexpr (short_rows) {
        const std::int64_t offset = (first_row << shape.log_n) + (mine | index);
        const std::int64_t left = (batch.rows << shape.log_n) - offset;
        if (left > 0) visit(v, offset, left >= 8, static_cast<int>(left));
      } else {
        constexpr int rows_on = index >> shape.log_n, column = index & ((1 << shape.log_n) - 1);
        if (base.row + rows_on < batch.rows)
          visit(v, base.offset + rows_on * batch.row_stride + column, true, 8);
      }
    });
  }

  template <int at>
  __device__ static void load_vectors(const RowBatch& batch, std::int64_t first_row, Words w) {
    const auto* in = static_cast<const std::uint16_t*>(batch.in);
#pragma unroll
    for (int i = 0; i < words; ++i)
      w[i] = 0;  // rows past the end
    for_each_vector<at>(batch, first_row, [&](auto v, std::int64_t offset, bool whole, int count) {
      constexpr int first = v() << kFirstVectorBit;
      if (whole) {
        const uint4 vector = *reinterpret_cast<const uint4*>(in + offset);
        w[first] = vector.x, w[first + 1] = vector.y, w[first + 2] = vector.z, w[first + 3] = vector.w;
      } else if constexpr (short_rows) {
        unrolled<8>([&](auto e) {
          if (e() < count) w[first + e() / 2] |= std::uint32_t{in[offset + e()]} << (16 * (e() % 2));
        });
      }
    });
  }

  template <int at>
  __device__ static void store_vectors(const RowBatch& batch, std::int64_t first_row, Words w) {
    auto* out = static_cast<std::uint16_t*>(batch.out);
    for_each_vector<at>(batch, first_row, [&](auto v, std::int64_t offset, bool whole, int count) {
      constexpr int first = v() << kFirstVectorBit;
      if (whole) {
        *reinterpret_cast<uint4*>(out + offset) =
            make_uint4(w[first], w[first + 1], w[first + 2], w[first + 3]);
      } else if constexpr (short_rows) {
        unrolled<8>([&](auto e) {
          if (e() < count)
            out[offset + e()] = static_cast<std::uint16_t>(w[first + e() / 2] >> (16 * (e() % 2)));
        });
      }
    });
  }

  /// visit(word number, half number, offset) for every element that is in the batch.
  template <int at, class Visit>
  __device__ static void for_each_element(const RowBatch& batch, std::int64_t first_row, Visit&& visit) {
    const int mine = thread_index<at>(static_cast<int>(threadIdx.x));
    unrolled<2 * words>([&](auto i) {
      constexpr int word = i() / 2, half = i() % 2;
      const Place p =
          place(batch, first_row, mine | word_index<at, word> | (half << program.before[at].pack()));
      if (p.row < batch.rows) visit(word, half, p.offset);
    });
  }

  __device__ static void load(const RowBatch& batch, std::int64_t first_row, Words w) {
    if constexpr (whole_vectors) {
      load_vectors<0>(batch, first_row, w);
    } else {
      const auto* in = static_cast<const std::uint16_t*>(batch.in);
#pragma unroll
      for (int i = 0; i < words; ++i)
        w[i] = 0;
      for_each_element<0>(batch, first_row, [&](int word, int half, std::int64_t offset) {
        w[word] |= std::uint32_t{in[offset]} << (16 * half);
      });
    }
  }

  __device__ static void store(const RowBatch& batch, std::int64_t first_row, Words w) {
    if constexpr (whole_vectors) {
      store_vectors<program.steps>(batch, first_row, w);
    } else {
      auto* out = static_cast<std::uint16_t*>(batch.out);
      for_each_element<program.steps>(batch, first_row, [&](int word, int half, std::int64_t offset) {
        out[offset] = static_cast<std::uint16_t>(w[word] >> (16 * half));
      });
    }
  }

  // ---- stages

  /// d = a b, rounded to storage and packed in pairs.
  __device__ static void multiply(std::uint32_t (&d)[2], const std::uint32_t (&a)[4],
                                  const std::uint32_t (&b)[2]) {
    if constexpr (has_fp16_sums(dtype)) {
      ptx::mma_sync_m16n8k16_f16_f16(d, a, b);
    } else {
      float sum[4];
      ptx::mma_sync_m16n8k16_f32_bf16(sum, a, b);
      d[0] = ptx::cvt_rn_bf16x2_f32(sum[0], sum[1]);
      d[1] = ptx::cvt_rn_bf16x2_f32(sum[2], sum[3]);
    }
  }

  /// The matrix of a stage as operand A; columns 8 j .. 8 j + 7 of it as operand B are h[j], h[j + 2].
  template <int s>
  __device__ static void matrix(std::uint32_t (&h)[4], std::uint32_t scale_constant) {
    constexpr std::uint32_t kQuarter = dtype == Dtype::f16 ? 0x3400U : 0x3E80U;
    const std::uint32_t constant = program.step[s].carries_scale ? scale_constant : kQuarter;
    const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      h[i] = stage_fragment(lane, i, program.step[s].transformed, constant);
  }

  /// Four registers, [K bit 3][row bit]: two products, one for each value of K bit 3 in the result.
  __device__ static void multiply_rows(std::uint32_t (&q)[2][2], const std::uint32_t (&h)[4]) {
    const std::uint32_t a[4] = {q[0][0], q[0][1], q[1][0], q[1][1]};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const std::uint32_t b[2] = {h[j], h[j + 2]};
      multiply(q[j], a, b);
    }
  }

  /// The same where some K bits tell rows apart: one product for each value of those lane bits, with the data
  /// of all other lanes replaced by zeros, so that a NaN of one row meets nothing of another.
  template <unsigned separated>
  __device__ static void multiply_separated_rows(std::uint32_t (&q)[2][2], const std::uint32_t (&h)[4]) {
    constexpr int kLaneBits = (separated >> 1) & 3;  // K bits 1 and 2 are lane bits 0 and 1
    constexpr bool kRegisterBit = (separated >> 3) & 1;
    const int group = static_cast<int>(threadIdx.x) & kLaneBits;
    std::uint32_t result[2][2];
    unrolled<4>([&](auto g) {
      if constexpr ((g() & ~kLaneBits) == 0) {
        const bool own = group == g();
        const std::uint32_t a[4] = {own ? q[0][0] : 0, own ? q[0][1] : 0, own ? q[1][0] : 0,
                                    own ? q[1][1] : 0};
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const std::uint32_t b[2] = {h[j], h[j + 2]};
          const std::uint32_t low[4] = {a[0], a[1], 0, 0}, high[4] = {0, 0, a[2], a[3]};
          std::uint32_t d[2];
          multiply(d, kRegisterBit ? (j == 0 ? low : high) : a, b);
          if (own) result[j][0] = d[0], result[j][1] = d[1];
        }
      }
    });
#pragma unroll
    for (int i = 0; i < 4; ++i)
      q[i / 2][i % 2] = result[i / 2][i % 2];
  }

  template <int s>
  __device__ static void data_as_a(Words w, const std::uint32_t (&h)[4]) {
    constexpr int a = program.step[s].a, b = program.step[s].b, low = a < b ? a : b, high = a < b ? b : a;
    constexpr unsigned separated = program.step[s].separated;
    unrolled<words / 4>([&](auto i) {
      constexpr int base = spread(i(), low, high), k = 1 << a, row = 1 << b;
      std::uint32_t q[2][2] = {{w[base], w[base | row]}, {w[base | k], w[base | k | row]}};
      if constexpr (separated != 0) {
        multiply_separated_rows<separated>(q, h);
      } else {
        multiply_rows(q, h);
      }
      w[base] = q[0][0], w[base | row] = q[0][1], w[base | k] = q[1][0], w[base | k | row] = q[1][1];
    });
  }

  template <int s>
  __device__ static void data_as_b(Words w, const std::uint32_t (&h)[4]) {
    constexpr int a = program.step[s].a;
    unrolled<words / 2>([&](auto i) {
      constexpr int first = spread_one(i(), a), second = first | (1 << a);
      const std::uint32_t b[2] = {w[first], w[second]};
      std::uint32_t d[2];
      multiply(d, h, b);
      w[first] = d[0], w[second] = d[1];
    });
  }
  __device__ static constexpr int spread_one(int i, int bit) {
    return ((i >> bit) << (bit + 1)) | (i & ((1 << bit) - 1));
  }

  // ---- moves

  template <int s>
  __device__ static void swap_pack(Words w) {
    constexpr int a = program.step[s].a;
    unrolled<words / 2>([&](auto i) {
      constexpr int first = spread_one(i(), a), second = first | (1 << a);
      const std::uint32_t x = w[first], y = w[second];
      w[first] = ptx::prmt<0x5410>(x, y);   // both lower halves
      w[second] = ptx::prmt<0x7632>(x, y);  // both upper halves
    });
  }

  /// Each lane keeps one register of a pair and gets the other from its partner.
  template <int s>
  __device__ static void swap_lane_register(Words w) {
    constexpr int a = program.step[s].a, lane_bit = 1 << program.step[s].b;
    const bool upper = (threadIdx.x & lane_bit) != 0;
    unrolled<words / 2>([&](auto i) {
      constexpr int first = spread_one(i(), a), second = first | (1 << a);
      const std::uint32_t received = ptx::shfl_sync_bfly(upper ? w[first] : w[second], lane_bit);
      if (upper) {
        w[first] = received;
      } else {
        w[second] = received;
      }
    });
  }

  template <int s>
  __device__ static void permute_lanes(Words w) {
    int source = 0;
    unrolled<5>([&](auto i) {
      constexpr int from = program.before[s].position_of(shape, program.before[s + 1].lane(i())) - kFirstLane;
      source |= shifted(static_cast<int>(threadIdx.x) & (1 << i()), from - i());
    });
#pragma unroll
    for (int i = 0; i < words; ++i)
      w[i] = ptx::shfl_sync_idx(w[i], source);
  }

  /// Slot number of a thread or a vector alone; the slot of both is their XOR.
  template <int s, int at>
  static constexpr unsigned slot_share(int thread, int vector) {
    return slot_of(shape, program.before[s], program.before[s + 1], program.before[at], thread, vector);
  }

  template <int s, int at>
  __device__ static unsigned thread_slot() {
    unsigned slot = 0;
    unrolled<5 + shape.log_warps>([&](auto i) {
      constexpr unsigned column = slot_share<s, at>(1 << i(), 0);
      slot ^= (threadIdx.x >> i() & 1U) * column;
    });
    return slot;
  }

  /// Slot bits that differ among threads. The vector's other bits are added, so that they become the
  /// immediate offset of the access.
  template <int s, int at>
  static constexpr unsigned thread_slot_bits() {
    unsigned bits = 0;
    for (int i = 0; i < 5 + shape.log_warps; ++i)
      bits |= slot_share<s, at>(1 << i, 0);
    return bits;
  }

  /// visit(first word of the vector, its place in shared memory).
  template <int s, int at, class Visit>
  __device__ static void for_each_slot(Visit&& visit) {
    extern __shared__ uint4 slots[];
    const unsigned mine = thread_slot<s, at>();
    unrolled<shape.vectors()>([&](auto v) {
      constexpr unsigned column = slot_share<s, at>(0, v()), shared_bits = column & thread_slot_bits<s, at>();
      visit(std::integral_constant<int, v() << kFirstVectorBit>{},
            slots[(mine ^ shared_bits) + (column ^ shared_bits)]);
    });
  }

  template <int s>
  __device__ static void exchange(Words w) {
    for_each_slot<s, s>(
        [&](auto i, uint4& slot) { slot = make_uint4(w[i()], w[i() + 1], w[i() + 2], w[i() + 3]); });
    __syncthreads();
    for_each_slot<s, s + 1>([&](auto i, const uint4& slot) {
      const uint4 vector = slot;
      w[i()] = vector.x, w[i() + 1] = vector.y, w[i() + 2] = vector.z, w[i() + 3] = vector.w;
    });
  }

  template <int s>
  __device__ static void run_step(Words w, std::uint32_t scale_constant) {
    constexpr Action action = program.step[s].action;
    if constexpr (is_stage(action)) {
      std::uint32_t h[4];
      matrix<s>(h, scale_constant);
      if constexpr (action == Action::data_as_a) {
        data_as_a<s>(w, h);
      } else {
        data_as_b<s>(w, h);
      }
    } else if constexpr (action == Action::swap_pack) {
      swap_pack<s>(w);
    } else if constexpr (action == Action::swap_lane_register) {
      swap_lane_register<s>(w);
    } else if constexpr (action == Action::permute_lanes) {
      permute_lanes<s>(w);
    } else {
      exchange<s>(w);
    }
  }
};

/// One tile a block. All threads stay to the end: rows past the last are zeros that nobody stores. (The
/// parameters are Kernel's, one by one: nvcc 13.0 cannot name a kernel template with a parameter of class
/// type.)
template <int log_n, int log_chunks, int log_warps, int blocks_per_sm, Dtype dtype, bool whole_vectors>
__global__ void __launch_bounds__(32 << log_warps, blocks_per_sm) transform_tile(RowBatch batch) {
  using K = Kernel<log_n, log_chunks, log_warps, dtype, whole_vectors>;
  const std::int64_t block = std::int64_t{blockIdx.y} * gridDim.x + blockIdx.x;
  const std::int64_t first_row = block << K::shape.log_rows();
  std::uint32_t w[K::words];
  K::load(batch, first_row, w);
  K::template unrolled<K::program.steps>([&](auto s) { K::template run_step<s()>(w, batch.scale_constant); });
  K::store(batch, first_row, w);
}

inline dim3 grid_for(Shape shape, std::int64_t rows) {
  return rows::grid_of(ceil_div(rows, std::int64_t{1} << shape.log_rows()));
}

}  // namespace fwht::hadacore
