// The index maps of the kernel, followed on the host through every register, lane and byte.
#include "variants/kronecker/kronecker.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "common/contract/hadamard_matrices.hpp"
#include "variants/kit/box_signs.hpp"
#include "variants/kit/row_signs.hpp"

namespace fwht::kronecker {
namespace {

/// k steps of one tensor copy.
int copied_steps(const Launch& launch) {
  return launch.spread ? launch.piece_steps() : 1;
}

/// The 16-bit numbers of one tile in shared memory, as the tensor copies leave them. A copy brings 16 rows of
/// every matrix, or several times as many, line by line, and the swizzle exchanges the pieces of 16 bytes
/// inside 128 bytes by address bits 7-9 (PTX ISA, "Swizzling Modes"). Integers stand for the numbers here.
std::vector<int> loaded(const Launch& launch, int order, const std::vector<std::vector<int>>& rows) {
  const Shape& shape = launch.shape;
  const int line = shape.line(), steps = copied_steps(launch), copied = 16 * steps;  // rows
  std::vector<int> memory(
      static_cast<std::size_t>(launch.spread ? launch.slot_bytes() / 2 : shape.tile_bytes() / 2), 0);
  for (int r = 0; r < shape.rows; ++r) {
    for (int i = 0; i < order; ++i) {
      for (int c = 0; c < shape.columns; ++c) {
        int byte = i / copied * steps * shape.box_bytes() +
                   ((r * (shape.columns / line) + c / line) * copied + i % copied) * 2 * line + c % line * 2;
        byte ^= (byte >> 7 & (line / 8 - 1)) << 4;
        memory[static_cast<std::size_t>(byte / 2)] =
            rows[static_cast<std::size_t>(r)][static_cast<std::size_t>(i * shape.columns + c)];
      }
    }
  }
  return memory;
}

/// What wgmma reads at row `k`, column `column` of step `step`: the canonical MN-major layout (PTX ISA,
/// "Strides"). A line of columns, 8 of them repeat after the stride, the next columns lie after the leading
/// dimension, and the pieces are exchanged as above.
int operand_b(const Launch& launch, const std::vector<int>& memory, int step, int k, int column) {
  const Shape& shape = launch.shape;
  const std::uint64_t fields = box_descriptor(0, shape.line(), copied_steps(launch));
  const int leading = static_cast<int>(fields >> 16 & 0x3FFF) * 16,
            stride = static_cast<int>(fields >> 32 & 0x3FFF) * 16, line = 128 >> ((fields >> 62) - 1);
  int byte = step_byte(shape.tile_columns(), shape.line(), copied_steps(launch), step) +
             column * 2 / line * leading + k / 8 * stride + k % 8 * line + column * 2 % line;
  byte ^= (byte >> 7 & (line / 16 - 1)) << 4;
  return memory[static_cast<std::size_t>(byte / 2)];
}

/// The value of one half of a register of operand A, from the table of signs: +1 or -1.
int operand_a(const Shape& shape, const std::vector<std::uint32_t>& signs, int block, int step, int lane,
              int r, int half) {
  const std::uint32_t word =
      signs[static_cast<std::size_t>(sign_word_index(shape.k_steps(), block, step / 4, lane))];
  const std::uint32_t pair = signed_ones(0x3C003C00U, word, step, r);
  return (pair >> (16 * half) & 0x8000U) != 0 ? -1 : 1;
}

/// Entry (k, column) of the second matrix as wgmma reads it: K-major without swizzle (PTX ISA, "Strides").
/// There are 8 columns of k in 16 bytes, the next 8 of k after the leading dimension, the next 8 columns of
/// the product after the stride. One step has the same 8 of k twice, for hi and for lo; 0 where those differ.
int ring_stage_2_entry(int second, const std::vector<std::uint32_t>& words, int k, int column) {
  const std::uint64_t fields =
      second_descriptor(static_cast<std::uint32_t>(k / 8 * 4 * second_step_words(second)), second);
  const int start = static_cast<int>(fields & 0x3FFF) * 16,
            leading = static_cast<int>(fields >> 16 & 0x3FFF) * 16,
            stride = static_cast<int>(fields >> 32 & 0x3FFF) * 16;
  int entries[2];
  for (int part = 0; part < 2; ++part) {
    const int byte = start + part * leading + column / 8 * stride + column % 8 * 16 + k % 8 * 2;
    const std::uint32_t half = words[static_cast<std::size_t>(byte / 4)] >> (8 * (byte % 4)) & 0xFFFFU;
    entries[part] = half == 0x3F80U ? 1 : half == 0xBF80U ? -1 : 0;
  }
  return entries[0] == entries[1] ? entries[0] : 0;
}

/// Entry (k, column) of the operand B of stage 2's last product, from the kernel's words: H8, or the second
/// matrix.
int stage_2_entry(const Launch& launch, const std::vector<std::uint32_t>& second, int k, int column) {
  const Shape& shape = launch.shape;
  if (launch.places > 0 && shape.second > 1) return ring_stage_2_entry(shape.second, second, k, column);
  for (int lane = 0; lane < 32; ++lane) {
    for (int half = 0; half < 2; ++half) {
      if (ptx::b_row(lane, 0, half) != k % 8 || ptx::b_column(lane) != column % 8) continue;
      const std::uint32_t word =
          shape.second == 1
              ? ptx::sylvester_fragment(ptx::kBf16One, lane)
              : second[static_cast<std::size_t>(second_word_index(shape.second, column / 8, k / 8, lane))];
      return (word >> (16 * half) & 0x8000U) != 0 ? -1 : 1;
    }
  }
  return 0;
}

/// The kernel's steps for one tile, on integers.
std::vector<std::vector<long>> transformed(const Choice& choice, const std::vector<std::vector<int>>& rows) {
  const Shape& shape = choice.launch.shape;
  const int order = choice.order, steps = shape.k_steps();
  const std::vector<std::uint32_t> signs = sign_table(shape, order, choice.slow),
                                   second = second_table(choice.launch, choice.second);
  const std::vector<int> memory = loaded(choice.launch, order, rows);
  const int group = shape.second == 1 ? 8 : shape.second;  // columns of the last product
  std::vector<int> last(static_cast<std::size_t>(group * group));
  for (int k = 0; k < group; ++k)
    for (int c = 0; c < group; ++c)
      last[static_cast<std::size_t>(k * group + c)] = stage_2_entry(choice.launch, second, k, c);
  std::vector<std::vector<long>> out(static_cast<std::size_t>(shape.rows),
                                     std::vector<long>(static_cast<std::size_t>(order * shape.columns), -1));
  for (int pass = 0; pass < choice.launch.parts() * choice.cluster(); ++pass) {  // or block of the cluster
    for (int warp = 0; warp < choice.launch.warps(); ++warp) {
      // Where four warps have the same rows, each ends a share of their columns: those of its accumulators
      // from `first` on.
      const bool shares = choice.launch.shares_last_part() && pass == choice.launch.parts() - 1;
      const int block = pass * choice.launch.warps() + (shares ? 0 : warp),
                accumulators = shape.accumulators();
      const int share = !shares ? accumulators : shape.second == 1 ? accumulators / 4 : shape.second / 2;
      const int first = shares ? warp * share : 0;
      if (block >= steps || first >= accumulators) continue;  // no rows of the product
      // Operand A of this block as a matrix, by the fragment map.
      std::vector<int> a(static_cast<std::size_t>(16 * 16 * steps));
      for (int step = 0; step < steps; ++step)
        for (int lane = 0; lane < 32; ++lane)
          for (int r = 0; r < 4; ++r)
            for (int half = 0; half < 2; ++half)
              a[static_cast<std::size_t>((step * 16 + ptx::a_row(lane, r)) * 16 +
                                         ptx::a_column(lane, r, half))] =
                  operand_a(shape, signs, block, step, lane, r, half);
      std::vector<long> staged(static_cast<std::size_t>(shape.box_bytes() / 2), 0);
      std::vector<long> x(static_cast<std::size_t>(16 * shape.tile_columns()), 0);  // rows of X, all columns
      for (int lane = 0; lane < 32; ++lane) {
        // Stage 1: accumulators of a lane.
        std::vector<long> d(static_cast<std::size_t>(shape.accumulators()), 0);
        for (int i = 0; i < shape.accumulators(); ++i)
          for (int step = 0; step < steps; ++step)
            for (int k = 0; k < 16; ++k)
              d[static_cast<std::size_t>(i)] +=
                  static_cast<long>(
                      a[static_cast<std::size_t>((step * 16 + ptx::wgmma_d_row(lane, i)) * 16 + k)]) *
                  operand_b(choice.launch, memory, step, k, ptx::wgmma_d_column(lane, i));
        // Stage 2: butterflies between registers.
        std::vector<long> own(static_cast<std::size_t>(accumulators), 0);
        for (int i = 0; i < accumulators; ++i)  // between shares
          own[static_cast<std::size_t>(first + i % share)] +=
              hadamard_sign(static_cast<std::uint64_t>(first / share),
                            static_cast<std::uint64_t>(i / share)) *
              d[static_cast<std::size_t>(i)];
        if (shares) d = own;
        for (int distance = group / 2; distance < (shares ? share : shape.columns / 2); distance *= 2)
          for (int i = first; i < first + share; ++i)
            if ((i - first) / distance % 2 == 0) {
              long& low = d[static_cast<std::size_t>(i)];
              long& high = d[static_cast<std::size_t>(i + distance)];
              const long sum = low + high, difference = low - high;
              low = sum, high = difference;
            }
        for (int i = 0; i < shape.accumulators(); ++i)
          x[static_cast<std::size_t>(ptx::wgmma_d_row(lane, i) * shape.tile_columns() +
                                     ptx::wgmma_d_column(lane, i))] = d[static_cast<std::size_t>(i)];
      }
      // The last product, group by group, and the staging.
      for (int r = 0; r < 16; ++r)
        for (int c = 2 * first; c < 2 * (first + share); ++c) {
          long sum = 0;
          for (int k = 0; k < group; ++k)
            sum += x[static_cast<std::size_t>(r * shape.tile_columns() + c / group * group + k)] *
                   last[static_cast<std::size_t>(k * group + c % group)];
          staged[static_cast<std::size_t>(box_byte(r, c / 8, shape.line()) / 2 + c % 8)] = sum;
        }
      // The tensor copy out, rows behind the matrix dropped.
      for (int r = 0; r < 16 && 16 * block + r < order; ++r)
        for (int c = 2 * first; c < 2 * (first + share); ++c)
          out[static_cast<std::size_t>(c / shape.columns)]
             [static_cast<std::size_t>((16 * block + r) * shape.columns + c % shape.columns)] =
                 staged[static_cast<std::size_t>(box_byte(r, c / 8, shape.line()) / 2 + c % 8)];
    }
  }
  return out;
}

/// One factor of the product over the index of stride `stride`, by its definition.
std::vector<long> multiplied(const Factor& factor, std::int64_t stride, const std::vector<long>& x) {
  std::vector<long> y(x.size(), 0);
  const std::int64_t m = factor.order;
  for (std::int64_t at = 0; at < static_cast<std::int64_t>(x.size()); ++at) {
    const std::int64_t i = at / stride % m, base = at - i * stride;
    for (std::int64_t j = 0; j < m; ++j) {
      const auto row = static_cast<int>(i), column = static_cast<int>(j);
      const int entry = factor.basis == Basis::sylvester
                            ? hadamard_sign(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j))
                        : factor.transposed ? hadamard_entry(m, column, row)
                                            : hadamard_entry(m, row, column);
      y[static_cast<std::size_t>(at)] += entry * x[static_cast<std::size_t>(base + j * stride)];
    }
  }
  return y;
}

std::vector<long> expected(const Operator& op, const std::vector<int>& row) {
  std::vector<long> x(row.begin(), row.end());
  std::int64_t stride = op.n();
  for (const Factor& factor : op.factors()) {
    stride /= factor.order;
    x = multiplied(factor, stride, x);
  }
  return x;
}

std::vector<int> random_row(std::int64_t n, int number) {
  std::mt19937 random(static_cast<unsigned>(n + number));
  std::uniform_int_distribution<int> small(-9, 9);
  std::vector<int> row(static_cast<std::size_t>(n));
  for (int& x : row)
    x = small(random);
  return row;
}

TEST(Kronecker, EveryMapTogetherGivesTheTransform) {
  // One, four and eight rows in a tile; lines of 16, 32 and 64 columns; passes; two matrices; a launch that
  // is made for another order; transposes of bases that are not symmetric.
  for (const char* text :
       {"12x32", "12x64", "180x16", "28x64", "20x128", "20x256", "76x64", "116x64", "116tx64", "116tx32",
        "28x1024", "428tx32", "76x2x36x2", "60x4x28x2", "116tx4x28x2", "36x1024", "52x1024", "4096+signs"}) {
    const Operator op = parse_operator(text);
    const std::optional<Choice> choice = choice_for(op);
    ASSERT_TRUE(choice.has_value()) << text;
    std::vector<std::vector<int>> rows;
    for (int r = 0; r < choice->launch.shape.rows; ++r)
      rows.push_back(random_row(op.n(), r));
    const std::vector<std::vector<long>> made = transformed(*choice, rows);
    for (std::size_t r = 0; r < rows.size(); ++r)
      EXPECT_EQ(made[r], expected(op, rows[r])) << text << ", row " << r;
  }
}

TEST(Kronecker, TheMapsOfFewRowsGiveTheTransform) {
  for (const char* text : {"20x256", "28tx256", "172x64", "116x128", "20x1024", "28x1024", "428x32", "180x16",
                           "36x1024", "52x1024", "76x2x36x2", "116tx4x28x2", "84x256", "172x128"}) {
    const Operator op = parse_operator(text);
    for (const std::int64_t rows : {1, 24}) {
      const std::optional<Choice> choice = few_rows_choice_for(op, rows, 132);
      ASSERT_TRUE(choice.has_value()) << text << ", " << rows << " rows";
      const std::vector<int> row = random_row(op.n(), 0);
      EXPECT_EQ(transformed(*choice, {row})[0], expected(op, row)) << text << ", " << rows << " rows";
    }
  }
}

TEST(Kronecker, FewRowsAreThoseWhoseClustersFit) {
  const Operator op = parse_operator("28x512");
  EXPECT_EQ(few_rows_choice_for(op, 64, 132)->cluster(), 4) << "eight in each GPC, two on a multiprocessor";
  EXPECT_FALSE(few_rows_choice_for(op, 65, 132).has_value());
  EXPECT_FALSE(few_rows_choice_for(parse_operator("28x128"), 1, 132).has_value()) << "one warpgroup's work";
  const Operator two = parse_operator("132x4x28x2");
  EXPECT_EQ(few_rows_choice_for(two, 24, 132)->cluster(), 5);
  EXPECT_EQ(few_rows_choice_for(two, 25, 132)->cluster(), 3) << "the next launch";
  EXPECT_FALSE(few_rows_choice_for(two, 41, 132).has_value());
  const Operator seven = parse_operator("28x1024");
  const auto clusters = [&](std::int64_t rows) { return few_rows_choice_for(seven, rows, 132)->cluster(); };
  EXPECT_EQ(clusters(14), 7) << "98 blocks";
  EXPECT_EQ(clusters(15), 4) << "105 blocks would share multiprocessors, 60 do not";
  EXPECT_EQ(clusters(30), 4);
  EXPECT_EQ(clusters(31), 7) << "both share";
  EXPECT_EQ(clusters(32), 7);
  EXPECT_EQ(clusters(33), 4) << "two on a multiprocessor";
  EXPECT_EQ(clusters(64), 4);
  EXPECT_FALSE(few_rows_choice_for(seven, 65, 132).has_value());
  const Operator six = parse_operator("172x128");
  EXPECT_EQ(few_rows_choice_for(six, 16, 132)->cluster(), 6);
  EXPECT_EQ(few_rows_choice_for(six, 17, 132)->cluster(), 3);
  EXPECT_EQ(few_rows_choice_for(six, 88, 132)->cluster(), 3);
  EXPECT_FALSE(few_rows_choice_for(six, 89, 132).has_value());
  EXPECT_EQ(few_rows_choice_for(parse_operator("20x1024"), 48, 132)->cluster(), 5) << "three are no faster";
  for (const Launch& launch : kFewRows) {
    EXPECT_LE(launch.shape.warpgroups(), 8) << "the largest cluster of every device";
    EXPECT_LE(launch.shared_bytes(), h200_description().shared_bytes_per_block);
    EXPECT_LE(16 * launch.piece_steps(), 256) << "a box of a tensor map";
    EXPECT_GE(launch.pieces() * launch.piece_steps(), launch.shape.k_steps());
    EXPECT_GE(launch.slot_bytes(), launch.warps() * launch.shape.box_bytes()) << "results lie there";
  }
}

TEST(Kronecker, FewRowsHaveKernelsOfCodesWhereManyHave) {
  int with_codes = 0;
  for (const NamedHadamard& named : named_hadamard_matrices()) {
    for (std::int64_t k = 16; k <= 1024; k *= 2) {
      const Operator op = parse_operator(std::to_string(named.order) + "x" + std::to_string(k));
      const std::optional<Choice> many = choice_for(op);
      if (!many || !many->launch.writes_codes()) continue;
      ++with_codes;
      for (std::int64_t rows = 1; rows <= 256; ++rows) {
        const std::optional<Choice> few = few_rows_choice_for(op, rows, 132);
        EXPECT_TRUE(!few || few->launch.writes_codes()) << to_string(op) << ", " << rows << " rows";
      }
    }
  }
  EXPECT_GE(with_codes, 50);
}

TEST(Kronecker, RowsHaveTheSameBitsWhereFewAreCutAlike) {
  const auto promised = [](const char* text) {
    return numerics_of(parse_problem(text)).promises.batch_invariant;
  };
  EXPECT_TRUE(promised("f16/180x16/r1")) << "few rows are of the same order";
  EXPECT_TRUE(promised("f16/28x128/r1")) << "few rows are like many";
  EXPECT_FALSE(promised("f16/28x512/r1"));
  EXPECT_FALSE(promised("f16/52x1024/r1"));
  EXPECT_FALSE(promised("f16/76x2x36x2/r1")) << "cut alike, but many rows are made in a ring";
}

TEST(Kronecker, ARingHoldsTheBoxesThatAreReadFromIt) {
  struct Content {
    int tile, step;
    unsigned times;  // that the place was filled
  };
  int rings = 0;
  for (const Launch& launch : kLaunches) {
    if (launch.places == 0) continue;
    ++rings;
    const int k_steps = launch.shape.k_steps(), first_tiles = ring_first_tiles(launch.places, k_steps);
    SCOPED_TRACE(launch.shape.n());
    EXPECT_GE(launch.places, k_steps);
    EXPECT_LE(2 * first_tiles, kRingTiles)
        << "numbers of tiles that are waited for and of those that are asked for";
    std::vector<Content> places;
    for (int p = 0; p < launch.places; ++p)
      places.push_back({p / k_steps, p % k_steps, 1});
    EXPECT_EQ(places.back().tile, first_tiles - 1);
    RingPosition at{launch.places, k_steps};
    for (int tile = 0; tile < 100; ++tile, at.advance()) {
      ASSERT_EQ(at.tile, tile);
      for (int step = 0; step < k_steps; ++step) {
        Content& content = places.at(static_cast<std::size_t>(at.place(step)));
        ASSERT_EQ(content.tile, tile);
        ASSERT_EQ(content.step, step);
        ASSERT_EQ(at.parity(step), (content.times - 1) & 1U) << "phases of a barrier are counted from 0";
        content = {at.next_tile(step), at.next_step(step), content.times + 1};
        ASSERT_LE(content.tile, tile + first_tiles);
      }
    }
  }
  EXPECT_GT(rings, 0);
}

TEST(Kronecker, EveryLaunchFits) {
  const DeviceInfo h200 = h200_description();
  for (const Launch& launch : kLaunches) {
    const Shape& shape = launch.shape;
    SCOPED_TRACE(shape.n());
    EXPECT_LE(launch.threads(), 1024);
    EXPECT_LE(launch.shared_bytes(), h200.shared_bytes_per_block);
    EXPECT_LE((launch.shared_bytes() + 1024) * launch.blocks_per_sm, h200.shared_bytes_per_sm);
    EXPECT_LE(launch.threads() * launch.blocks_per_sm, h200.max_threads_per_sm);
    EXPECT_EQ(shape.box_bytes() % (16 * shape.line()), 0) << "the swizzle repeats after 8 lines";
    EXPECT_LT(shape.tile_bytes(), 1 << 20) << "what an mbarrier counts";
    EXPECT_LE(shape.rows, 256) << "a box of a tensor map";
    EXPECT_TRUE(!launch.held || launch.places == 0) << "a ring's warps make other rows in every part";
    EXPECT_GE(launch.parts() * launch.warps(), shape.k_steps());
    const Operator op =
        is_power_of_two(shape.n()) ? operator_for(shape.n()).with_signs() : operator_for(shape.n());
    const std::optional<Choice> choice = choice_for(op);
    ASSERT_TRUE(choice.has_value());
    EXPECT_EQ(choice->launch, launch);
    EXPECT_EQ(choice->order, shape.order);
  }
}

// The row lengths of current models that are no power of two, and their shards: users of this library bring
// them.
TEST(Kronecker, EveryWidthOfAModelIsServed) {
  for (const std::int64_t n :
       {768,   896,   1408,  1536,  1792,  2304,  2560,  2880,  3072,  3200,  3584,  4864,  5120,
        5376,  6144,  7168,  8960,  9216,  9728,  10944, 11008, 12288, 13440, 13696, 13824, 14336,
        17408, 17920, 18432, 18944, 20480, 21504, 22016, 25600, 27648, 28672, 29568, 36864, 53248}) {
    const std::optional<Choice> choice = choice_for(operator_for(n));
    ASSERT_TRUE(choice.has_value()) << n;
    EXPECT_EQ(choice->launch.shape.n(), n);
  }
}

TEST(Kronecker, ADenseFactorTakesTheLaunchWithTheFewestSteps) {
  const std::optional<Choice> choice = choice_for(parse_operator("d53x256"));
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->order, 106);
  EXPECT_EQ(choice->launch.shape.columns, 128);
  EXPECT_EQ(choice->launch.shape.k_steps(), 7);
  // The same launch as the named matrix of that order.
  EXPECT_EQ(choice_for(parse_operator("d28tx512"))->launch, choice_for(parse_operator("28x512"))->launch);
  // A launch that expands signs holds no fragments.
  EXPECT_FALSE(choice_for(parse_operator("d144x256")).has_value());
}

TEST(Kronecker, RefusesWhatNoLaunchTakes) {
  // Sylvester alone, fewer than 16 columns, a dense factor in second place, two
  // Sylvester factors, a second matrix without a launch, too long a row.
  for (const char* text : {"512", "28x8", "12x4xd20", "64x64", "12x512x20", "28x2048", "65536+signs"}) {
    EXPECT_FALSE(choice_for(parse_operator(text)).has_value()) << text;
  }
  // The transposed matrix is another table for the same launch, signs are operands.
  EXPECT_EQ(choice_for(parse_operator("28tx512"))->launch, choice_for(parse_operator("28x512"))->launch);
  EXPECT_EQ(choice_for(parse_operator("signs+28x512")), choice_for(parse_operator("28x512")));
}

// Bit i of a byte of signs is that of element i, the lower half of a word that of the first of its two.
TEST(Kronecker, SignsOfAPieceMeetTheirElements) {
  for (int element = 0; element < 8; ++element) {
    for (int word = 0; word < 4; ++word) {
      const std::uint32_t bit = element / 2 == word ? 0x8000U << (16 * (element % 2)) : 0U;
      EXPECT_EQ(rows::pair_of_spread(rows::spread_signs(1U << element), word), bit);
    }
  }
}

// What BoxSigns does, of all boxes of a tile: every element is flipped once, by its own sign.
void expect_signs_meet_their_elements(const Launch& launch) {
  const Shape& shape = launch.shape;
  const int steps = copied_steps(launch), line = shape.line(), order = shape.order;
  SCOPED_TRACE(testing::Message() << order << " x " << shape.columns << ", " << shape.rows << " rows");
  std::vector<std::vector<int>> rows;  // an element's number in the tile, from 1 on: 0 is behind the matrix
  for (int r = 0; r < shape.rows; ++r) {
    rows.emplace_back(static_cast<std::size_t>(order * shape.columns));
    std::iota(rows.back().begin(), rows.back().end(), r * order * shape.columns + 1);
  }
  const std::vector<int> memory = loaded(launch, order, rows);
  const rows::SignUnits units{shape.columns, shape.tile_columns(), line, line_bytes(line, steps)};
  ASSERT_EQ(units.turns() % units.words(), 0);
  std::vector<int> times(static_cast<std::size_t>(order * shape.tile_columns()), 0);
  for (int step = 0; step < shape.k_steps(); ++step) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int turn = 0; turn < units.turns(); ++turn) {
        if (!units.takes(turn, lane)) continue;
        for (int i = 0; i < units.unit(); ++i) {
          const int byte = step_byte(shape.tile_columns(), line, steps, step) +
                           (units.byte(lane) ^ units.flip(i / 8)) + units.offset(turn) + i % 8 * 2;
          const int row = 16 * step + lane % 16, column = units.column(units.word(turn), lane) + i;
          const int number = memory.at(static_cast<std::size_t>(byte / 2));
          if (row >= order) {
            EXPECT_EQ(number, 0);
            continue;
          }
          ASSERT_EQ((number - 1) % (order * shape.columns), row * shape.columns + column)
              << "step " << step << ", lane " << lane << ", turn " << turn << ", bit " << i;
          ++times.at(static_cast<std::size_t>(number - 1));
        }
      }
    }
  }
  EXPECT_EQ(std::ranges::count(times, 1), std::ssize(times));
}

TEST(Kronecker, SignsMeetTheirElements) {
  for (const Launch& launch : kLaunches)
    expect_signs_meet_their_elements(launch);
  for (const Launch& launch : kFewRows)
    expect_signs_meet_their_elements(launch);
  // Other tiles, of mma_kronecker.
  for (const Shape& shape : {Shape{16, 16, 8}, Shape{40, 32, 4}, Shape{24, 16, 4}, Shape{12, 32, 1}})
    expect_signs_meet_their_elements({.shape = shape});
}

// Eight lanes meet eight different pieces of 128 bytes, so that none waits for another.
TEST(Kronecker, LanesThatFlipSignsMeetNoBankTwice) {
  for (const Launch& launch : kLaunches) {
    const Shape& shape = launch.shape;
    const rows::SignUnits units{shape.columns, shape.tile_columns(), shape.line()};
    for (int first = 0; first < 32; first += 8) {
      std::set<int> banks;
      for (int lane = first; lane < first + 8; ++lane)
        banks.insert(units.byte(lane) % 128);
      EXPECT_EQ(banks.size(), 8U) << shape.columns;
    }
  }
}

TEST(Kronecker, CodesReadTheBoxInTheOrderOfTheRow) {
  int launches = 0;
  for (const std::span<const Launch> table :
       {std::span<const Launch>(kLaunches), std::span<const Launch>(kFewRows)}) {
    for (const Launch& plain : table) {
      const Launch launch = codes_launch(plain);
      EXPECT_EQ(launch.writes_codes(), plain.writes_codes());
      EXPECT_EQ(launch.shape.order, plain.shape.order) << "rows would be cut otherwise";
      EXPECT_EQ(launch.shape.columns, plain.shape.columns);
      if (!launch.writes_codes()) continue;
      ++launches;
      const Shape& shape = launch.shape;
      const int columns = shape.columns, line = shape.line();
      std::vector<int> times(static_cast<std::size_t>(shape.box_bytes() / 16), 0);  // that 16 bytes are read
      for (int row = 0; row < shape.rows; ++row) {
        for (int v = 0; v < columns / 16; ++v) {
          for (int lane = 0; lane < 32; ++lane) {
            const int element = 256 * v + 8 * lane,
                      byte = box_byte(element / columns, (row * columns + element % columns) / 8, line);
            EXPECT_EQ(vector_byte(columns, line, row, v, lane), byte);
            EXPECT_EQ((vector_byte(columns, line, 0, 0, lane) ^ vector_flip(columns, line, v)) +
                          vector_offset(columns, line, row, v),
                      byte)
                << shape.order << " x " << columns << ", vector " << v << ", lane " << lane;
            ++times[static_cast<std::size_t>(byte / 16)];
          }
        }
      }
      for (const int count : times)
        EXPECT_EQ(count, 1);
    }
  }
  EXPECT_GE(launches, 20);
}

TEST(Kronecker, CodesHaveRoomForTheirMaxima) {
  for (const Launch& plain : kLaunches) {
    const Launch launch = codes_launch(plain);
    if (!launch.writes_codes()) continue;
    constexpr int kMultiprocessor = 227 * 1024, kReserved = 1024;  // bytes; reserved per block
    EXPECT_LE(launch.blocks_per_sm * (launch.shared_bytes() + launch.maxima_bytes() + kReserved),
              kMultiprocessor + kReserved)
        << launch.shape.order << " x " << launch.shape.columns;
    EXPECT_EQ(launch.shared_bytes() % 4, 0);
    EXPECT_LE(launch.shape.k_steps(), 32) << "a lane looks at a box";
  }
  for (const Launch& launch : kFewRows)
    EXPECT_LE(launch.shape.k_steps(), 32);
}

}  // namespace
}  // namespace fwht::kronecker
