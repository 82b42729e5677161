// The index maps of the kernel, followed on the host through every register, lane and byte.
#include "variants/kronecker/kronecker.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "common/hadamard_matrices.hpp"

namespace fwht::kronecker {
namespace {

/// The 16-bit numbers of one row in shared memory, as the tensor copies leave them; integers stand for them
/// here.
std::vector<int> loaded(const Shape& shape, const std::vector<int>& row) {
  std::vector<int> memory(static_cast<std::size_t>(shape.row_bytes() / 2), 0);
  for (int i = 0; i < shape.order; ++i) {
    for (int c = 0; c < shape.columns; ++c) {
      const int byte = i / 16 * shape.box_bytes() + box_byte(i % 16, c / 8);
      memory[static_cast<std::size_t>(byte / 2 + c % 8)] =
          row[static_cast<std::size_t>(i * shape.columns + c)];
    }
  }
  return memory;
}

/// What wgmma reads at row `k`, column `column` of step `step`: the canonical MN-major layout with the
/// 128-byte swizzle (PTX ISA, "Strides"): 64 columns are a line, 8 lines repeat after the stride, 64 columns
/// after the leading dimension, and the 16-byte pieces of a line are exchanged by address bits 7-9.
int operand_b(const Shape& shape, const std::vector<int>& memory, int step, int k, int column) {
  const std::uint64_t fields = descriptor(0);
  const int leading = static_cast<int>(fields >> 16 & 0x3FFF) * 16,
            stride = static_cast<int>(fields >> 32 & 0x3FFF) * 16;
  int byte =
      step * shape.box_bytes() + column / 64 * leading + k / 8 * stride + k % 8 * 128 + column % 64 * 2;
  byte ^= (byte >> 7 & 7) << 4;
  return memory[static_cast<std::size_t>(byte / 2)];
}

/// The value of one half of a register of operand A, from the table of signs: +1 or -1.
int operand_a(const Shape& shape, const std::vector<std::uint32_t>& signs, int warp, int step, int lane,
              int r, int half) {
  const std::uint32_t word = signs[static_cast<std::size_t>(sign_word_index(shape, warp, step / 4, lane))];
  const std::uint32_t pair = signed_ones(0x3C003C00U, word, step, r);
  return (pair >> (16 * half) & 0x8000U) != 0 ? -1 : 1;
}

/// The kernel's steps for one row, on integers.
std::vector<long> transformed(const Shape& shape, const Factor& factor, const std::vector<int>& row) {
  const std::vector<std::uint32_t> signs = sign_table(shape, factor);
  const std::vector<int> memory = loaded(shape, row);
  std::vector<long> out(static_cast<std::size_t>(shape.n()), -1);
  for (int warp = 0; warp < shape.warps(); ++warp) {
    if (warp >= shape.k_steps()) continue;  // no rows of the product
    // Operand A of this warp as a matrix, by the fragment map.
    std::vector<int> a(static_cast<std::size_t>(16 * 16 * shape.k_steps()));
    for (int step = 0; step < shape.k_steps(); ++step)
      for (int lane = 0; lane < 32; ++lane)
        for (int r = 0; r < 4; ++r)
          for (int half = 0; half < 2; ++half)
            a[static_cast<std::size_t>((step * 16 + ptx::a_row(lane, r)) * 16 +
                                       ptx::a_column(lane, r, half))] =
                operand_a(shape, signs, warp, step, lane, r, half);
    // Stage 1: accumulators by lane.
    std::vector<std::vector<long>> d(32,
                                     std::vector<long>(static_cast<std::size_t>(shape.accumulators()), 0));
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < shape.accumulators(); ++i)
        for (int step = 0; step < shape.k_steps(); ++step)
          for (int k = 0; k < 16; ++k)
            d[static_cast<std::size_t>(lane)][static_cast<std::size_t>(i)] +=
                static_cast<long>(
                    a[static_cast<std::size_t>((step * 16 + ptx::wgmma_d_row(lane, i)) * 16 + k)]) *
                operand_b(shape, memory, step, k, ptx::wgmma_d_column(lane, i));
    // Stage 2: butterflies between registers from half = 4, then H8 over b0-b2 by operand B.
    for (auto& registers : d) {
      for (int half = 4; half < shape.accumulators(); half *= 2)
        for (int i = 0; i < shape.accumulators(); ++i)
          if ((i & half) == 0) {
            long& low = registers[static_cast<std::size_t>(i)];
            long& high = registers[static_cast<std::size_t>(i | half)];
            const long sum = low + high, difference = low - high;
            low = sum, high = difference;
          }
    }
    long h8[8][8];
    for (int lane = 0; lane < 32; ++lane)
      for (int half = 0; half < 2; ++half)
        h8[ptx::b_row(lane, 0, half)][ptx::b_column(lane)] =
            (eight_point_fragment(lane) >> (16 * half) & 0x8000U) != 0 ? -1 : 1;
    std::vector<long> staged(static_cast<std::size_t>(shape.box_bytes() / 2), 0);
    for (int tile = 0; tile < shape.columns / 8; ++tile) {
      long x[16][8];
      for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 4; ++i)
          x[ptx::d_row(lane, i)][ptx::d_column(lane, i)] =
              d[static_cast<std::size_t>(lane)][static_cast<std::size_t>(4 * tile + i)];
      for (int r = 0; r < 16; ++r)
        for (int c = 0; c < 8; ++c) {
          long sum = 0;
          for (int k = 0; k < 8; ++k)
            sum += x[r][k] * h8[k][c];
          staged[static_cast<std::size_t>(box_byte(r, tile) / 2 + c)] = sum;
        }
    }
    // The tensor copy out: the box read as it was written, rows behind the matrix dropped.
    for (int r = 0; r < 16 && 16 * warp + r < shape.order; ++r)
      for (int c = 0; c < shape.columns; ++c)
        out[static_cast<std::size_t>((16 * warp + r) * shape.columns + c)] =
            staged[static_cast<std::size_t>(box_byte(r, c / 8) / 2 + c % 8)];
  }
  return out;
}

/// (H_m (x) S) x by the definition: butterflies over the fast index, then the matrix.
std::vector<long> expected(const Factor& factor, std::int64_t n, const std::vector<int>& row) {
  const std::int64_t m = factor.order, fast = n / m;
  std::vector<long> x(row.begin(), row.end());
  for (std::int64_t half = 1; half < fast; half *= 2)
    for (std::int64_t i = 0; i < n; ++i)
      if ((i % fast & half) == 0) {
        long& low = x[static_cast<std::size_t>(i)];
        long& high = x[static_cast<std::size_t>(i + half)];
        const long sum = low + high, difference = low - high;
        low = sum, high = difference;
      }
  std::vector<long> y(x.size(), 0);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < m; ++j) {
      const long entry = factor.transposed ? hadamard_entry(m, static_cast<int>(j), static_cast<int>(i))
                                           : hadamard_entry(m, static_cast<int>(i), static_cast<int>(j));
      for (std::int64_t c = 0; c < fast; ++c)
        y[static_cast<std::size_t>(i * fast + c)] += entry * x[static_cast<std::size_t>(j * fast + c)];
    }
  return y;
}

std::vector<int> random_row(int n) {
  std::mt19937 random(static_cast<unsigned>(n));
  std::uniform_int_distribution<int> small(-9, 9);
  std::vector<int> row(static_cast<std::size_t>(n));
  for (int& x : row)
    x = small(random);
  return row;
}

TEST(Kronecker, EveryMapTogetherGivesTheTransform) {
  struct Case {
    Shape shape;
    Factor factor;
  };
  for (const Case& c :
       {Case{{12, 64}, {Basis::hadamard, 12}}, Case{{48, 64}, {Basis::hadamard, 12}},
        Case{{40, 128}, {Basis::hadamard, 20}}, Case{{76, 64}, {Basis::hadamard, 76}},
        Case{{116, 64}, {Basis::hadamard, 116}}, Case{{116, 64}, {Basis::hadamard, 116, true}},
        Case{{112, 256}, {Basis::hadamard, 28}}}) {
    const std::vector<int> row = random_row(c.shape.n());
    EXPECT_EQ(transformed(c.shape, c.factor, row), expected(c.factor, c.shape.n(), row))
        << c.shape.order << " x " << c.shape.columns;
  }
}

TEST(Kronecker, EveryLaunchFits) {
  const DeviceInfo h200 = h200_description();
  for (const Launch& launch : kLaunches) {
    SCOPED_TRACE(launch.shape.n());
    EXPECT_LE(launch.threads(), 1024);
    EXPECT_LE(launch.shared_bytes(), h200.shared_bytes_per_block);
    EXPECT_LE((launch.shared_bytes() + 1024) * launch.blocks_per_sm, h200.shared_bytes_per_sm);
    EXPECT_LE(launch.threads() * launch.blocks_per_sm, h200.max_threads_per_sm);
    EXPECT_EQ(launch.shape.row_bytes() % 1024, 0) << "the swizzle repeats every 1024 bytes";
    EXPECT_LT(launch.shape.row_bytes(), 1 << 20) << "what an mbarrier counts";
    // The smallest symmetric order that divides n: what operator_for plans.
    EXPECT_EQ(launch_for(operator_for(launch.shape.n())), launch);
  }
}

TEST(Kronecker, RefusesWhatItsTableDoesNotHold) {
  // Signs, Sylvester alone, fewer than 64 columns, a dense factor, three factors, a length without a launch.
  for (const char* text : {"28x512+signs", "512", "28x32", "d28x512", "28x512x4", "28x1024x2", "12x512x20"}) {
    EXPECT_FALSE(launch_for(parse_operator(text)).has_value()) << text;
  }
  EXPECT_TRUE(launch_for(parse_operator("28x512")).has_value());
  // The transposed matrix is another table for the same launch.
  EXPECT_EQ(launch_for(parse_operator("28tx512")), launch_for(parse_operator("28x512")));
  // 56 is no multiple of 112: the launch of 14336 multiplies by H_28 (x) H_2.
  EXPECT_FALSE(launch_for(parse_operator("112x128")).has_value());
}

}  // namespace
}  // namespace fwht::kronecker
