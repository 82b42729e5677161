// Every bit card and permutation of the kernels on the host, by the functions that the kernels use.
#include "variants/passes/passes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "common/host/text.hpp"
#include "variants/passes/schedule.hpp"

namespace fwht::passes {
namespace {

std::string name_of(const PassTile& tile) {
  return concat(tile.whole_row ? "row " : "", "2^", tile.bits, " x 2^", tile.log_columns, " of ",
                tile.word_bytes(), " bytes");
}

constexpr Word kWords[] = {Word::fp32, Word::int32, Word::eight_bytes};
/// Passes share rows from here on.
constexpr int kFirst = smallest_shared_log_n(Word::eight_bytes);

/// Of every type of number.
std::vector<Schedule> schedules_of(int log_n) {
  std::vector<Schedule> all;
  for (const Word word : kWords) {
    if (log_n < smallest_shared_log_n(word)) continue;
    all.push_back(in_dram(word, log_n));
    all.push_back(in_small_blocks(word, log_n));
    if (log_n <= largest_inside_l2(word)) all.push_back(inside_l2(word, log_n));
  }
  return all;
}

/// The tiles of a schedule, lowest bits first, each with its shift. Rows of `butterflies` are no tile.
struct Step {
  PassTile tile;
  int shift;
};
std::vector<Step> steps_of(const Schedule& s) {
  std::vector<Step> steps;
  if (s.lowest != Lowest::butterflies) steps.push_back({s.row(), s.row().log_columns});
  steps.push_back({s.second, s.log_row});
  if (s.third.bits > 0) steps.push_back({s.third, s.log_row + s.second.bits});
  return steps;
}

/// Of 16 bits, on large and on small devices.
std::vector<RoundedPasses> rounded_of(int log_n) {
  return {rounded_passes(log_n, h200_description().shared_bytes_per_block), rounded_passes(log_n, 101376)};
}

std::vector<Step> all_steps() {
  std::vector<Step> all;
  for (int log_n = kFirst; log_n <= kLargestLogN; ++log_n) {
    for (const Schedule& schedule : schedules_of(log_n)) {
      for (const Step& step : steps_of(schedule)) {
        all.push_back(step);
        all.push_back({narrow(step.tile), step.shift});
      }
    }
  }
  for (const Word word : {Word::fp32, Word::eight_bytes}) {
    for (int bits = kFewestAxisBits; bits <= kMostAxisBits; ++bits)
      all.push_back({axis_passes(word, bits).tiles[0], axis_log_columns(word)});
  }
  for (int log_n = kSmallestLongLogN; log_n <= kLargestLogN; ++log_n) {
    for (const RoundedPasses& passes : rounded_of(log_n)) {
      all.push_back({passes.first, passes.first_shift});
      all.push_back({passes.last, passes.last_shift});
      all.push_back({narrow(passes.last), passes.last_shift});
    }
  }
  return all;
}

float& at(std::vector<float>& values, int index) {
  return values[static_cast<std::size_t>(index)];
}

int row_of(const PassTile& tile, int round, int thread, int k) {
  return tile.first_row(round, thread) + (k << tile.low_bit(round));
}

TEST(Passes, EverySchedulePutsEachIndexBitIntoOnePass) {
  for (int log_n = kFirst; log_n <= kLargestLogN; ++log_n) {
    for (const Schedule& s : schedules_of(log_n)) {
      EXPECT_EQ(s.levels(), log_n);
      int bits = s.lowest == Lowest::butterflies ? s.log_row : 0;
      for (const Step& step : steps_of(s)) {
        EXPECT_EQ(step.tile.whole_row ? 0 : step.shift, bits) << "2^" << log_n;
        EXPECT_GE(step.shift, step.tile.log_columns);
        bits += step.tile.levels();
      }
      EXPECT_EQ(bits, log_n);
      if (s.lowest == Lowest::pair) {
        const PairKernel pair = s.pair();
        EXPECT_EQ(s.second.log_columns, 5) << "the kernel of pairs has these alone";
        EXPECT_EQ(pair.threads % pair.first.threads() + pair.threads % pair.second.threads(), 0);
        EXPECT_GE(s.log_chunk, s.log_row + s.second.bits) << "a chunk holds both passes of a part";
      }
    }
  }
}

TEST(Passes, EveryDeviceHasAScheduleThatFitsAndThatOfAnH200IsTheMeasuredOne) {
  for (const Word word : kWords) {
    for (int log_n = smallest_shared_log_n(word); log_n <= kLargestLogN; ++log_n) {
      const std::int64_t one = (word == Word::eight_bytes ? std::int64_t{8} : 4) << log_n;
      for (const std::int64_t bytes : {std::int64_t{0}, one, one << 11}) {
        const bool inside = std::max(bytes, one) <= std::int64_t{32} << 20;
        for (const DeviceInfo& device : described_devices()) {
          const std::int64_t most = device.shared_bytes_per_block;
          if (is_one_pass(word, log_n, most) && !takes_two_passes(word, log_n, 1, device.sm_count)) continue;
          const Schedule schedule = schedule_for(word, log_n, bytes, most);
          EXPECT_LE(schedule.shared_bytes(), most) << device.name << " 2^" << log_n;
          if (most < 131072) continue;
          EXPECT_EQ(schedule, inside ? inside_l2(word, log_n) : in_dram(word, log_n)) << device.name;
        }
      }
    }
  }
}

TEST(Passes, EveryRoundHoldsEachElementOfATileOnceAndNewBitsInRegisters) {
  for (const auto& [tile, shift] : all_steps()) {
    SCOPED_TRACE(name_of(tile));
    ASSERT_LE(tile.threads(), 1024);
    ASSERT_GE(tile.threads(), 32);
    const std::size_t elements = std::size_t{1} << tile.log_elements();
    int next_bit = 0;
    for (int round = 0; round < tile.rounds(); ++round) {
      EXPECT_EQ(tile.low_bit(round) + tile.first_new_bit(round), next_bit) << "ascending, none twice";
      next_bit = tile.low_bit(round) + tile.register_bits();
      std::vector<bool> seen(elements), words(elements);
      for (int thread = 0; thread < tile.threads(); ++thread) {
        for (int k = 0; k < tile.registers(); ++k) {
          for (int v = 0; v < tile.width(); ++v) {
            const int row = row_of(tile, round, thread, k), column = tile.column_of(thread) + v;
            ASSERT_LT(row, 1 << tile.bits);
            const auto element = static_cast<std::size_t>(row << tile.log_columns | column);
            ASSERT_FALSE(seen[element]);
            seen[element] = true;
            const auto word = static_cast<std::size_t>(tile.word(row, column));
            ASSERT_FALSE(words.at(word));
            words[word] = true;
          }
        }
      }
    }
    EXPECT_EQ(next_bit, tile.bits);
  }
}

// What a warp accesses at once, half a warp where a lane has 8 bytes, is in 32 banks.
TEST(Passes, TheExchangeHasNoBankConflict) {
  for (const auto& [tile, shift] : all_steps()) {
    if (tile.shared_words() == 0) continue;
    const int banks_of_lane = tile.width() * tile.word_bytes() / 4, lanes = 32 / banks_of_lane;
    for (int round = 0; round < tile.rounds(); ++round) {
      for (int first = 0; first < tile.threads(); first += lanes) {
        for (int k = 0; k < tile.registers(); ++k) {
          std::set<int> banks;
          for (int thread = first; thread < first + lanes; ++thread) {
            const int word = tile.word(row_of(tile, round, thread, k), tile.column_of(thread));
            for (int bank = 0; bank < banks_of_lane; ++bank)
              banks.insert((word * tile.word_bytes() / 4 + bank) % 32);
          }
          ASSERT_EQ(banks.size(), 32U) << name_of(tile) << ", round " << round;
        }
      }
    }
  }
}

void plain_butterflies(std::vector<float>& x, int first_bit, int bits) {
  for (std::size_t half = std::size_t{1} << first_bit; half < std::size_t{1} << (first_bit + bits);
       half *= 2) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      if ((i & half) != 0) continue;
      const float a = x[i], b = x[i + half];
      x[i] = a + b;
      x[i + half] = a - b;
    }
  }
}

/// A vector in memory.
struct Place {
  std::vector<float>& values;
  std::int64_t first = 0;
};

/// What a block does to one tile, thread after thread between barriers.
void transform_tile(const PassTile& tile, int shift, std::int64_t index, const Place& in, const Place& out) {
  const auto at_place = [&](const Place& place, int round, int thread, int k, int v) -> float& {
    return place.values.at(static_cast<std::size_t>(place.first + tile.first_element(index, shift) +
                                                    tile.column_of(thread) + v +
                                                    (std::int64_t{row_of(tile, round, thread, k)} << shift)));
  };
  const int registers = tile.registers(), width = tile.width(), last = tile.rounds() - 1;
  using Registers = std::vector<float>;  // k * width + v
  std::vector<Registers> x(static_cast<std::size_t>(tile.threads()),
                           Registers(static_cast<std::size_t>(registers * width)));
  const auto each = [&](const auto& body) {
    for (int thread = 0; thread < tile.threads(); ++thread) {
      for (int k = 0; k < registers; ++k) {
        for (int v = 0; v < width; ++v)
          body(at(x[static_cast<std::size_t>(thread)], k * width + v), thread, k, v);
      }
    }
  };
  each([&](float& register_, int thread, int k, int v) { register_ = at_place(in, 0, thread, k, v); });
  if (tile.whole_row) {
    for (std::size_t lanes = 1; lanes < static_cast<std::size_t>(tile.columns()); lanes *= 2) {
      const std::vector<Registers> before = x;
      each([&](float& register_, int thread, int k, int) {
        const auto t = static_cast<std::size_t>(thread), own = static_cast<std::size_t>(k);
        const float other = before[t ^ lanes][own];
        register_ = (t & lanes) != 0 ? other - before[t][own] : before[t][own] + other;
      });
    }
  }
  std::vector<float> shared(static_cast<std::size_t>(tile.shared_words()));
  for (int round = 0; round <= last; ++round) {
    if (round > 0) {
      each([&](float& register_, int thread, int k, int v) {
        shared.at(static_cast<std::size_t>(
            tile.word(row_of(tile, round - 1, thread, k), tile.column_of(thread) + v))) = register_;
      });
      each([&](float& register_, int thread, int k, int v) {
        register_ = shared.at(
            static_cast<std::size_t>(tile.word(row_of(tile, round, thread, k), tile.column_of(thread) + v)));
      });
    }
    for (Registers& of_thread : x) {
      for (int v = 0; v < width; ++v) {
        for (int half = 1 << tile.first_new_bit(round); half < registers; half *= 2) {
          for (int k = 0; k < registers; ++k) {
            if ((k & half) != 0) continue;
            float& a = at(of_thread, k * width + v);
            float& b = at(of_thread, (k | half) * width + v);
            const float sum = a + b, difference = a - b;
            a = sum, b = difference;
          }
        }
      }
    }
  }
  each([&](const float& register_, int thread, int k, int v) {
    at_place(out, last, thread, k, v) = register_;
  });
}

std::vector<float> random_vector(int log_n) {
  std::mt19937 engine(static_cast<unsigned>(log_n));
  std::normal_distribution<float> normal;
  std::vector<float> x(std::size_t{1} << log_n);
  for (float& value : x)
    value = normal(engine);
  return x;
}

void run_pass(const Step& step, std::vector<float>& x) {
  const std::size_t tiles = x.size() >> step.tile.log_elements();
  for (std::size_t index = 0; index < tiles; ++index)
    transform_tile(step.tile, step.shift, static_cast<std::int64_t>(index), {x}, {x});
}

TEST(Passes, TogetherAreThePlainHostLoopBitForBit) {
  for (int log_n = kFirst; log_n <= 20; ++log_n) {
    std::vector<float> want = random_vector(log_n);
    plain_butterflies(want, 0, log_n);
    for (const Schedule& schedule : schedules_of(log_n)) {
      std::vector<float> got = random_vector(log_n);
      for (const Step& step : steps_of(schedule))
        run_pass(step, got);
      EXPECT_EQ(got, want) << "2^" << log_n;
    }
  }
}

// The kernels of longer vectors, each with its own tile at its lowest shift.
TEST(Passes, EachIsThePlainHostLoopOverItsBits) {
  std::set<std::pair<int, int>> done;
  for (const auto& [tile, shift] : all_steps()) {
    if (tile.whole_row || !done.insert({tile.bits, 8 * tile.log_columns + tile.log_values}).second) continue;
    const int low = tile.log_columns + 1, log_n = low + tile.bits + 1;
    std::vector<float> want = random_vector(log_n), got = want;
    plain_butterflies(want, low, tile.bits);
    run_pass({tile, low}, got);
    EXPECT_EQ(got, want) << name_of(tile);
  }
}

// At the true shifts, up to 2^31: an element's partners over the bits of a pass are rows of its own tile, so
// that an impulse anywhere reaches every element.
TEST(Passes, PartnersAreInOneTileAtEveryLength) {
  std::mt19937_64 engine(1);
  for (int log_n = kFirst; log_n <= kLargestLogN; ++log_n) {
    for (const Schedule& schedule : schedules_of(log_n)) {
      std::int64_t reached = schedule.lowest == Lowest::butterflies ? schedule.log_row : 0;
      for (const auto& [tile, shift] : steps_of(schedule)) {
        const std::int64_t tiles = std::int64_t{1} << (log_n - tile.log_elements());
        for (int sample = 0; sample < 100; ++sample) {
          const auto index = static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(tiles));
          const std::int64_t first = tile.first_element(index, shift);
          const std::int64_t of_tile = ((std::int64_t{1} << tile.bits) - 1) << shift | (tile.columns() - 1);
          ASSERT_EQ(first & of_tile, 0) << "rows and columns count from 0";
          ASSERT_LT(first | of_tile, std::int64_t{1} << log_n);
          // Distinct tiles begin at distinct places: the index is in the bits that are left.
          ASSERT_EQ(tile.first_element(index ^ 1, shift) & of_tile, 0);
          ASSERT_NE(tile.first_element(index ^ 1, shift), first);
        }
        reached += tile.levels();
      }
      EXPECT_EQ(reached, log_n);
    }
  }
}

TEST(Passes, APairWaitsOnlyForTicketsDrawnBefore) {
  for (const int log_items : {0, 1, 5}) {
    for (const std::int64_t chunks : {1, 2, 3, 8}) {
      const std::int64_t items = std::int64_t{1} << log_items, total = 2 * items * chunks;
      std::set<std::int64_t> seen;
      std::vector<std::int64_t> done(static_cast<std::size_t>(chunks));
      for (std::int64_t ticket = 0; ticket < total; ++ticket) {
        const PairWork work = work_of(ticket, log_items, chunks);
        ASSERT_LT(work.chunk, chunks);
        ASSERT_LT(work.item, items);
        ASSERT_TRUE(seen.insert((work.chunk * 2 + (work.second ? 1 : 0)) * items + work.item).second);
        std::int64_t& of_chunk = done[static_cast<std::size_t>(work.chunk)];
        if (work.second) {
          ASSERT_EQ(of_chunk, items) << "ticket " << ticket << " waits for a later one";
        } else {
          ++of_chunk;
        }
      }
    }
  }
}

// On devices with 99 KiB of shared memory a block, too, in one pass more where it takes that.
TEST(Passes, AlongADimensionFitIntoSmallBlocks) {
  for (const Word word : {Word::fp32, Word::int32, Word::eight_bytes}) {
    EXPECT_EQ(most_axis_bits(word, 227 * 1024), kMostAxisBits);
    const int most = most_axis_bits(word, 99 * 1024);
    for (int log_n = kFewestAxisBits; log_n <= 26; ++log_n) {
      const AxisPasses passes = axis_passes(word, log_n, most);
      int bits = 0;
      for (int i = 0; i < passes.count; ++i) {
        const PassTile& tile = passes.tiles[static_cast<std::size_t>(i)];
        EXPECT_LE(tile.shared_bytes(), 99 * 1024);
        EXPECT_EQ(tile, axis_passes(word, tile.bits).tiles[0]) << "the kernels are compiled for these";
        EXPECT_GE(tile.bits, kFewestAxisBits);
        bits += tile.bits;
      }
      EXPECT_EQ(bits, log_n);
      if (word != Word::fp32) continue;
      const RoundedPasses rounded = rounded_axis_passes(log_n, 5, most);
      EXPECT_LE(rounded.shared_bytes(), 99 * 1024);
      EXPECT_EQ(rounded.first.bits + rounded.middle_bits + (rounded.is_one_pass() ? 0 : rounded.last.bits),
                log_n);
    }
  }
}

// Along a dimension, of two tensors behind each other: the plain host loop over that dimension's bits.
TEST(Passes, AlongADimensionAreThePlainHostLoop) {
  for (const Word word : {Word::fp32, Word::int32, Word::eight_bytes}) {
    for (int log_n = kFewestAxisBits; log_n <= 26; ++log_n) {
      const AxisPasses passes = axis_passes(word, log_n);
      const int log_inner = axis_log_columns(word) + log_n % 3;
      std::vector<Step> steps;
      int shift = log_inner;
      for (int i = 0; i < passes.count; ++i) {
        const PassTile& tile = passes.tiles[static_cast<std::size_t>(i)];
        EXPECT_GE(tile.bits, kFewestAxisBits);
        EXPECT_LE(tile.bits, kMostAxisBits);
        EXPECT_EQ(tile, axis_passes(word, tile.bits).tiles[0]) << "the kernels are compiled for these";
        EXPECT_EQ(axis_kernel(tile).elements(), 1 << tile.log_elements());
        EXPECT_LE(tile.log_columns, log_inner);
        EXPECT_EQ(tile.width(), 1);
        steps.push_back({tile, shift});
        shift += tile.bits;
      }
      EXPECT_EQ(shift, log_inner + log_n);
      if (log_n > 13) continue;
      std::vector<float> want = random_vector(log_inner + log_n + 1),
                         first(want.begin(), want.begin() + (want.end() - want.begin()) / 2), got;
      std::vector<float> second(want.begin() + (want.end() - want.begin()) / 2, want.end());
      plain_butterflies(want, log_inner, log_n);
      for (std::vector<float>* tensor : {&first, &second}) {
        for (const Step& step : steps)
          run_pass(step, *tensor);
        got.insert(got.end(), tensor->begin(), tensor->end());
      }
      EXPECT_EQ(got, want) << "2^" << log_n << " at 2^" << log_inner;
    }
  }
}

/// One pass over the bits of a tile, of `elements` elements of vectors of 2^log_n.
void run_tiles(const Step& step, int log_n, std::int64_t elements, const Place& in, std::int64_t in_stride,
               const Place& out, std::int64_t out_stride) {
  const std::int64_t tiles_of_vector = std::int64_t{1} << (log_n - step.tile.log_elements());
  for (std::int64_t tile = 0; tile < elements >> step.tile.log_elements(); ++tile) {
    const std::int64_t vector = tile / tiles_of_vector;
    transform_tile(step.tile, step.shift, tile % tiles_of_vector, {in.values, in.first + vector * in_stride},
                   {out.values, out.first + vector * out_stride});
  }
}

float rounded_value(Dtype dtype, float x) {
  return static_cast<float>(round_to(dtype, static_cast<double>(x)));
}

/// What the launches of a plan of 16 bits do to vectors `stride` apart.
std::vector<float> rounded_transform(const RoundedPasses& passes, int log_n, std::vector<float> x,
                                     std::int64_t vectors, std::int64_t stride, float scale, Dtype dtype) {
  std::vector<float> out(x.size(), -1.0F);
  std::vector<float> between(static_cast<std::size_t>(vectors_together(log_n, vectors) << log_n), NAN);
  const std::int64_t dense = std::int64_t{1} << log_n;
  each_work(passes, log_n, vectors, [&](const RoundedWork& work) {
    const int log_part = std::min(log_n, passes.log_part);
    const std::int64_t at = work.vector * stride;
    switch (work.pass) {
      case RoundedWork::Pass::first:
        return run_tiles({passes.first, passes.first_shift}, log_part, work.elements, {x, at + work.part},
                         stride, {between, work.part}, dense);
      case RoundedWork::Pass::middle:
        return run_tiles({axis_passes(Word::fp32, passes.middle_bits).tiles[0], passes.middle_shift},
                         log_part, work.elements, {between, work.part}, dense, {between, work.part}, dense);
      case RoundedWork::Pass::last:
        run_tiles({passes.last, passes.last_shift}, log_n, work.elements, {between}, dense, {out, at},
                  stride);
        for (std::int64_t v = 0; v < work.count; ++v) {
          for (std::int64_t i = 0; i < dense; ++i) {
            float& result = out.at(static_cast<std::size_t>(at + v * stride + i));
            result = rounded_value(dtype, result * scale);
          }
        }
        return;
    }
  });
  return out;
}

void expect_one_rounding(const RoundedPasses& passes, int first_bit, int log_n, std::int64_t vectors) {
  const std::int64_t n = std::int64_t{1} << log_n, stride = n + 3;
  const float scale = 1.0F / 300.0F;
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    std::mt19937 engine(static_cast<unsigned>(log_n));
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<std::size_t>(vectors * stride)), want(x.size(), -1.0F);
    for (float& value : x)
      value = rounded_value(dtype, normal(engine));
    for (std::int64_t v = 0; v < vectors; ++v) {
      const auto first = x.begin() + v * stride;
      std::vector<float> row(first, first + n);
      plain_butterflies(row, first_bit, log_n - first_bit);
      for (std::int64_t i = 0; i < n; ++i)
        want[static_cast<std::size_t>(v * stride + i)] =
            rounded_value(dtype, row[static_cast<std::size_t>(i)] * scale);
    }
    EXPECT_TRUE(rounded_transform(passes, log_n, x, vectors, stride, scale, dtype) == want)
        << "2^" << log_n << ", " << vectors << " vectors";
  }
}

// The plain host loop, rounded once, bit for bit: one vector, several, and more than the workspace takes at
// once, whose gaps nobody writes.
TEST(Passes, OfSixteenBitsRoundOnce) {
  for (int log_n = kSmallestLongLogN; log_n <= 19; ++log_n)
    expect_one_rounding(rounded_of(log_n)[0], 0, log_n, log_n == 16 ? 67 : 1);
  // Three passes in parts of a vector, as those of 2^26 and more.
  RoundedPasses three = rounded_rows(10, column_tile(5, 6), 5, 20);
  three.log_part = 16;
  expect_one_rounding(three, 0, 20, 1);
  for (const int log_n : {11, 12, 13})
    expect_one_rounding(rounded_axis_passes(log_n, 5), 5, 5 + log_n, 3);
}

TEST(Passes, OfSixteenBitsHaveEachIndexBitInOnePassAndFitTheirDevice) {
  const auto expect_bits = [](const RoundedPasses& passes, std::vector<std::pair<int, int>> bits, int low,
                              int high) {
    std::sort(bits.begin(), bits.end());
    for (const auto& [shift, count] : bits) {
      if (count == 0) continue;
      EXPECT_EQ(shift, low);
      low += count;
    }
    EXPECT_EQ(low, high);
    const bool middle = passes.middle_bits > 0;
    EXPECT_TRUE(!middle || (passes.middle_bits >= kFewestAxisBits && passes.middle_bits <= kMostAxisBits));
    EXPECT_TRUE(!middle || passes.middle_shift >= 5) << "a line of neighbours";
    EXPECT_LE(passes.middle_shift + passes.middle_bits, passes.log_part) << "a part has its middle pass";
    EXPECT_TRUE(passes.log_part == high || (middle && high > kLogWorkspaceInL2)) << "parts are of one vector";
  };
  for (int log_n = kSmallestLongLogN; log_n <= kLargestLogN; ++log_n) {
    for (const DeviceInfo& device : described_devices()) {
      const RoundedPasses rows = rounded_passes(log_n, device.shared_bytes_per_block);
      EXPECT_LE(rows.shared_bytes(), device.shared_bytes_per_block) << device.name << " 2^" << log_n;
      EXPECT_EQ(rows.first.levels(), rows.last_shift - rows.middle_bits);
      expect_bits(rows,
                  {{0, rows.first.levels()},
                   {rows.middle_shift, rows.middle_bits},
                   {rows.last_shift, rows.last.bits}},
                  0, log_n);
    }
    const RoundedPasses ordered = rounded_ordered_passes(log_n);
    expect_bits(ordered,
                {{ordered.first_shift, ordered.first.bits},
                 {ordered.middle_shift, ordered.middle_bits},
                 {0, ordered.last.levels()}},
                0, log_n);
    EXPECT_EQ(ordered.log_part, log_n) << "what is gathered comes from everywhere";
  }
  for (int log_n = kFewestAxisBits; log_n <= 26; ++log_n) {
    for (const int log_inner : {5, kLargestLogN - log_n}) {
      if (log_inner < 5) continue;
      const RoundedPasses axis = rounded_axis_passes(log_n, log_inner);
      EXPECT_EQ(axis.is_one_pass(), log_n <= kMostAxisBits);
      expect_bits(axis,
                  {{axis.first_shift, axis.first.bits},
                   {axis.middle_shift, axis.middle_bits},
                   {axis.last_shift, axis.last.bits}},
                  log_inner, log_inner + log_n);
    }
  }
}

TEST(Passes, TheWorkspaceHoldsWhatWorksTogether) {
  EXPECT_EQ(vectors_together(16, 1), 1);
  EXPECT_EQ(vectors_together(16, 1000), 64);
  EXPECT_EQ(vectors_together(22, 5), 1);
  EXPECT_EQ(vectors_together(31, 5), 1);
  for (const std::int64_t vectors : {1, 64, 65, 1000}) {
    std::int64_t done = 0;
    each_work(rounded_passes(16, 131072), 16, vectors, [&](const RoundedWork& work) {
      EXPECT_LE(work.count, vectors_together(16, vectors));
      if (work.pass == RoundedWork::Pass::last) done += work.count;
    });
    EXPECT_EQ(done, vectors);
  }
  int launches = 0;
  each_work(rounded_passes(30, 131072), 30, 1, [&](const RoundedWork&) { ++launches; });
  EXPECT_EQ(launches, 2 * 256 + 1);
}

constexpr Ordering kOrderings[] = {Ordering::natural, Ordering::dyadic, Ordering::sequency};

/// H x from one ordering into another, by what the orderings are.
std::vector<float> ordered_transform(const std::vector<float>& x, Ordering in, Ordering out, int log_n) {
  std::vector<float> natural(x.size()), y(x.size());
  for (std::size_t k = 0; k < x.size(); ++k)
    natural[static_cast<std::size_t>(natural_place(in, static_cast<std::int64_t>(k), log_n))] = x[k];
  plain_butterflies(natural, 0, log_n);
  for (std::size_t k = 0; k < x.size(); ++k)
    y[k] = natural[static_cast<std::size_t>(natural_place(out, static_cast<std::int64_t>(k), log_n))];
  return y;
}

std::vector<float> random_integers(int log_n) {
  std::mt19937 engine(static_cast<unsigned>(log_n));
  std::vector<float> x(std::size_t{1} << log_n);
  for (float& value : x)
    value = static_cast<float>(engine() % 15) - 7.0F;  // so that all sums are exact
  return x;
}

TEST(Passes, APermutedRowHasTheTransformInAnyOrdering) {
  for (int log_n = 1; log_n <= 11; ++log_n) {
    const std::vector<float> x = random_integers(log_n);
    for (const Ordering in : kOrderings) {
      for (const Ordering out : kOrderings) {
        std::vector<float> permuted(x.size());
        for (std::size_t q = 0; q < x.size(); ++q)
          permuted[q] =
              x.at(static_cast<std::size_t>(source_place(in, out, static_cast<std::int64_t>(q), log_n)));
        plain_butterflies(permuted, 0, log_n);
        EXPECT_EQ(permuted, ordered_transform(x, in, out, log_n)) << log_n;
      }
    }
  }
}

/// What the blocks of an ordered pass hold in registers before their first sums, as the permuted row.
std::vector<float> gathered(const PassTile& tile, int shift, const std::vector<float>& x, Ordering in,
                            Ordering out, int log_n) {
  if (tile.bits < tile.log_columns) return {};
  std::vector<float> permuted(x.size());
  const int threads = 1 << tile.bits;
  for (std::int64_t index = 0; index < static_cast<std::int64_t>(x.size() >> tile.log_elements()); ++index) {
    const std::int64_t first = tile.first_element(index, shift);
    std::vector<float> shared(std::size_t{1} << tile.log_elements());
    for (int thread = 0; thread < threads; ++thread) {
      const auto row = static_cast<int>(reverse_bits(static_cast<std::uint64_t>(thread), tile.bits));
      for (int k = 0; k < tile.registers(); ++k)
        shared.at(static_cast<std::size_t>(tile.gathered_word(row, k))) = x.at(
            static_cast<std::size_t>(source_place(in, out, first + (std::int64_t{row} << shift) + k, log_n)));
    }
    for (int thread = 0; thread < threads; ++thread) {
      for (int k = 0; k < tile.registers(); ++k) {
        const int row = row_of(tile, 0, thread, k), column = tile.column_of(thread);
        permuted[static_cast<std::size_t>(first + (std::int64_t{row} << shift) + column)] =
            shared.at(static_cast<std::size_t>(tile.gathered_word(row, column)));
      }
    }
  }
  return permuted;
}

TEST(Passes, FromOneOrderingIntoAnother) {
  for (const Word word : {Word::fp32, Word::int32, Word::eight_bytes}) {
    std::set<int> compiled_rows;
    for (int log_n = smallest_shared_log_n(word); log_n <= largest_inside_l2(word); ++log_n)
      compiled_rows.insert(inside_l2(word, log_n).log_row);
    for (int log_n = smallest_ordered_log_n(word); log_n <= kLargestLogN; ++log_n) {
      const OrderedPasses passes = ordered_passes(word, log_n);
      const PassTile& first = passes.first;
      const int between = passes.between.bits;
      ASSERT_EQ(first.bits + between + passes.log_row, log_n);
      ASSERT_TRUE(compiled_rows.contains(passes.log_row)) << log_n;
      EXPECT_EQ(passes.row.levels(), passes.log_row);
      EXPECT_TRUE(first.bits >= kFewestGatheredBits && first.bits <= kMostAxisBits) << log_n;
      EXPECT_TRUE(between == 0 || (between >= kFewestAxisBits && between <= kMostAxisBits)) << log_n;
      EXPECT_EQ(first.threads(), 1 << first.bits);
      EXPECT_EQ(first.registers(), first.columns()) << "a register is a column of what is gathered";
      EXPECT_EQ(first.shared_words(), 1 << first.log_elements());
      if (between > 0) {
        EXPECT_EQ(passes.between, axis_passes(word, between).tiles[0]) << "compiled for these";
      }
      if (log_n > 18) continue;
      const std::vector<float> x = random_integers(log_n);
      for (const Ordering in : kOrderings) {
        for (const Ordering out : kOrderings) {
          const int shift = log_n - first.bits;
          std::vector<float> got = gathered(first, shift, x, in, out, log_n);
          run_pass({first, shift}, got);
          run_pass({passes.row, passes.row.log_columns}, got);
          EXPECT_EQ(got, ordered_transform(x, in, out, log_n)) << log_n;
        }
      }
    }
  }
}

TEST(Passes, GatheredRowsHaveNoBankConflictAndReadWholeLines) {
  for (const Word word : {Word::fp32, Word::eight_bytes}) {
    for (int bits = kFewestGatheredBits; bits <= kMostAxisBits; ++bits) {
      PassTile tile = axis_passes(word, bits).tiles[0];
      const int banks_of_lane = tile.word_bytes() / 4, lanes = 32 / banks_of_lane, log_n = 24;
      for (int first = 0; first < tile.threads(); first += lanes) {
        for (int k = 0; k < tile.registers(); ++k) {
          std::set<int> written, read;
          for (int thread = first; thread < first + lanes; ++thread) {
            const auto row = static_cast<int>(reverse_bits(static_cast<std::uint64_t>(thread), bits));
            written.insert(tile.gathered_word(row, k) % lanes);
            read.insert(tile.gathered_word(row_of(tile, 0, thread, k), tile.column_of(thread)) % lanes);
          }
          ASSERT_EQ(written.size(), static_cast<std::size_t>(lanes)) << bits;
          ASSERT_EQ(read.size(), static_cast<std::size_t>(lanes)) << bits;
        }
      }
      // Into or from one ordering the threads of a warp read 32 neighbours.
      for (const auto& [in, out] :
           {std::pair{Ordering::natural, Ordering::dyadic}, std::pair{Ordering::natural, Ordering::sequency},
            std::pair{Ordering::dyadic, Ordering::natural},
            std::pair{Ordering::sequency, Ordering::natural}}) {
        for (int column = 0; column < tile.columns(); ++column) {
          std::set<std::int64_t> groups;
          for (int thread = 32; thread < 64; ++thread) {
            const auto row =
                static_cast<std::int64_t>(reverse_bits(static_cast<std::uint64_t>(thread), bits));
            groups.insert(source_place(in, out, (row << (log_n - bits)) + 2464 + column, log_n) / 32);
          }
          ASSERT_EQ(groups.size(), 1U);
        }
      }
    }
  }
}

/// What the kernel of whole rows does, thread after thread between barriers: `rows` rows of 2^log_n, `stride`
/// apart, of which the last block may have few.
std::vector<float> whole_rows(Word word, int log_n, Ordering in, Ordering out, bool in_units,
                              const std::vector<float>& from, std::int64_t rows, std::int64_t stride) {
  const bool ordered = in != Ordering::natural || out != Ordering::natural;
  const RowTile tile = row_tile(word, log_n, false), load = row_tile(word, log_n, ordered);
  const PassTile upper = tile.upper();
  const std::int64_t n = std::int64_t{1} << log_n,
                     rows_of_block = std::int64_t{1} << (tile.log_elements - log_n);
  std::vector<float> result = from;
  using Registers = std::vector<float>;
  for (std::int64_t first = 0; first < rows; first += rows_of_block) {
    std::vector<float> shared(std::size_t{1} << tile.log_elements);
    std::vector<Registers> x(static_cast<std::size_t>(tile.threads()), Registers(32));
    const auto place = [&](int element) {
      const std::int64_t row = first + (element >> log_n);
      return row < rows ? row * stride + (element & (n - 1)) : std::int64_t{-1};
    };
    const int log_width = in_units ? tile.log_unit() : 0;
    for (int thread = 0; thread < tile.threads(); ++thread) {
      for (int i = 0; i < 32 >> log_width; ++i) {
        for (int v = 0; v < 1 << log_width; ++v) {
          const int element = load.loaded(thread, i, log_width) + v;
          if (place(element) < 0) continue;
          int at = load.word(load.loaded(thread, i, log_width)) + v;
          if (ordered) {
            at = permuted_word(load, in, out, load.loaded(0, i, 0), log_n);
            for (int bit = 0; 1 << bit < tile.threads(); ++bit)
              if ((thread >> bit & 1) != 0)
                at ^= permuted_word(load, in, out, load.loaded(1 << bit, 0, 0), log_n);
            EXPECT_EQ(at, permuted_word(load, in, out, element, log_n));
          }
          shared.at(static_cast<std::size_t>(at)) = from.at(static_cast<std::size_t>(place(element)));
        }
      }
    }
    for (int round = 0; round < tile.rounds(); ++round) {
      const RowTile& layout = round == 0 ? load : tile;
      const auto word_of = [&](const RowTile& words, int thread, int k) {
        return static_cast<std::size_t>(words.word(words.element(round, thread, 0)) ^
                                        words.word(words.element(round, 0, k)));
      };
      for (int thread = 0; thread < tile.threads(); ++thread) {
        Registers& own = x[static_cast<std::size_t>(thread)];
        for (int k = 0; k < 32; ++k)
          at(own, k) = shared.at(word_of(layout, thread, k));
        const int first_bit = round < 2 ? 0 : upper.first_new_bit(1), end = log_n - 5 * round;
        for (int bit = first_bit; bit < (round < 2 ? std::min(end, 5) : 5); ++bit) {
          for (int k = 0; k < 32; ++k) {
            if ((k >> bit & 1) != 0) continue;
            const float a = at(own, k), b = at(own, k | 1 << bit);
            at(own, k) = a + b, at(own, k | 1 << bit) = a - b;
          }
        }
      }
      if (round + 1 == tile.rounds()) break;
      for (int thread = 0; thread < tile.threads(); ++thread) {
        for (int k = 0; k < 32; ++k)
          shared.at(word_of(tile, thread, k)) = at(x[static_cast<std::size_t>(thread)], k);
      }
    }
    for (int thread = 0; thread < tile.threads(); ++thread) {
      for (int k = 0; k < 32; ++k) {
        const int element =
            tile.element(tile.rounds() - 1, thread, 0) + tile.element(tile.rounds() - 1, 0, k);
        if (place(element) >= 0)
          result.at(static_cast<std::size_t>(place(element))) = at(x[static_cast<std::size_t>(thread)], k);
      }
    }
  }
  return result;
}

// One or several rows a block, the last block not full, with gaps that nobody writes.
TEST(Passes, WholeRowsAreThePlainHostLoopBitForBit) {
  for (const Word word : kWords) {
    for (int log_n = kSmallestLogN; log_n <= largest_whole_log_n(word); ++log_n) {
      const std::int64_t n = std::int64_t{1} << log_n, stride = n + 4;
      const std::int64_t rows = log_n < kSmallestRowTile ? (1 << (kSmallestRowTile - log_n)) + 1 : 2;
      std::vector<float> x = random_vector(log_n + 1);
      x.resize(static_cast<std::size_t>(rows * stride));
      for (std::size_t i = static_cast<std::size_t>(2 * n); i < x.size(); ++i)
        x[i] = x[i % static_cast<std::size_t>(2 * n)] + static_cast<float>(i);
      std::vector<float> want = x;
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto first = want.begin() + row * stride;
        std::vector<float> one(first, first + n);
        plain_butterflies(one, 0, log_n);
        std::copy(one.begin(), one.end(), first);
      }
      for (const bool in_units : {false, true}) {
        if (in_units && log_n < row_tile(word, log_n, false).log_unit()) continue;
        EXPECT_EQ(whole_rows(word, log_n, Ordering::natural, Ordering::natural, in_units, x, rows, stride),
                  want)
            << "2^" << log_n;
      }
    }
  }
}

TEST(Passes, WholeRowsFromOneOrderingIntoAnother) {
  for (const Word word : {Word::fp32, Word::eight_bytes}) {
    for (int log_n = kSmallestLogN; log_n <= largest_whole_log_n(word); ++log_n) {
      const std::vector<float> x = random_integers(log_n);
      for (const Ordering in : kOrderings) {
        for (const Ordering out : kOrderings) {
          EXPECT_EQ(whole_rows(word, log_n, in, out, false, x, 1, std::int64_t{1} << log_n),
                    ordered_transform(x, in, out, log_n))
              << "2^" << log_n;
        }
      }
    }
  }
}

TEST(Passes, TargetPlaceIsTheInverseOfSourcePlace) {
  for (int log_n = 1; log_n <= 12; ++log_n) {
    for (const Ordering in : kOrderings) {
      for (const Ordering out : kOrderings) {
        for (std::int64_t place = 0; place < std::int64_t{1} << log_n; ++place)
          ASSERT_EQ(source_place(in, out, target_place(in, out, place, log_n), log_n), place);
      }
    }
  }
}

/// Accesses of `bytes` that the lanes of a warp make at once, as shared memory takes them: 128 bytes after
/// 128 bytes, each without a bank conflict.
template <class WordOfThread>
bool has_no_bank_conflict(int number_bytes, int bytes, const WordOfThread& word) {
  const int lanes = std::min(128 / bytes, 32);
  for (int first = 0; first < 32; first += lanes) {
    std::set<int> banks;
    for (int lane = first; lane < first + lanes; ++lane) {
      for (int bank = 0; bank < bytes / 4; ++bank)
        banks.insert((word(lane) * number_bytes / 4 + bank) % 32);
    }
    if (banks.size() != static_cast<std::size_t>(lanes * bytes / 4)) return false;
  }
  return true;
}

// The load, where a warp has 32 neighbours of memory, and every round; in order in units of 16 bytes.
TEST(Passes, WholeRowsHaveNoBankConflict) {
  for (const Word word : {Word::fp32, Word::eight_bytes}) {
    for (int log_n = kSmallestLogN; log_n <= largest_whole_log_n(word); ++log_n) {
      const RowTile tile = row_tile(word, log_n, false), permuted = row_tile(word, log_n, true);
      const int bytes = tile.number_bytes, unit = 1 << tile.log_unit();
      for (int warp = 0; warp < tile.threads(); warp += 32) {
        for (int k = 0; k < 32; ++k) {
          for (const int log_width : {0, tile.log_unit()}) {
            if (k >= 32 >> log_width) continue;
            EXPECT_TRUE(has_no_bank_conflict(bytes, bytes << log_width, [&](int lane) {
              const int at = tile.word(tile.loaded(warp + lane, k, log_width));
              EXPECT_EQ(at % (1 << log_width), 0);
              return at;
            }));
          }
          if (k % unit == 0) {
            EXPECT_TRUE(has_no_bank_conflict(
                bytes, 16, [&](int lane) { return tile.word(tile.element(0, warp + lane, k)); }));
          }
          EXPECT_TRUE(has_no_bank_conflict(
              bytes, bytes, [&](int lane) { return permuted.word(permuted.element(0, warp + lane, k)); }));
          for (int round = 1; round < tile.rounds(); ++round) {
            EXPECT_TRUE(has_no_bank_conflict(
                bytes, bytes, [&](int lane) { return tile.word(tile.element(round, warp + lane, k)); }));
          }
          for (const Ordering in : kOrderings) {
            for (const Ordering out : kOrderings) {
              EXPECT_TRUE(has_no_bank_conflict(
                  bytes, bytes,
                  [&](int lane) {
                    return permuted_word(permuted, in, out, permuted.loaded(warp + lane, k, 0), log_n);
                  }))
                  << name_of(in) << " " << name_of(out) << " 2^" << log_n;
            }
          }
        }
      }
    }
  }
}

// What lets a warp go on without the block: it loads what it has in rounds 0 and 1, and what a thread puts
// back after round 0 nobody else has read.
TEST(Passes, AWarpOfWholeRowsExchangesWithItselfBeforeTheLastRound) {
  for (const Word word : {Word::fp32, Word::eight_bytes}) {
    for (int log_n = kSmallestRowTile; log_n <= largest_whole_log_n(word); ++log_n) {
      const RowTile tile = row_tile(word, log_n, false), permuted = row_tile(word, log_n, true);
      std::set<int> last;
      for (int thread = 0; thread < tile.threads(); ++thread) {
        for (int k = 0; k < 32; ++k) {
          const int warp = thread >> 5;
          for (const int element :
               {tile.loaded(thread, k, 0), tile.element(0, thread, k), tile.element(1, thread, k)}) {
            ASSERT_EQ(element >> 10, warp);
            ASSERT_EQ(tile.word(element) >> 10, warp);
          }
          ASSERT_EQ(permuted.word(tile.element(0, thread, k)) >> 5, thread);
          ASSERT_EQ(tile.word(tile.element(0, thread, k)) >> 5, thread);
          last.insert(tile.element(tile.rounds() - 1, thread, k));
        }
      }
      EXPECT_EQ(last.size(), std::size_t{1} << tile.log_elements);
    }
  }
}

/// A row through the maps of a cluster's blocks, as the kernel goes.
std::vector<std::int64_t> by_cluster(const ClusterRow& row, const std::vector<std::int64_t>& input) {
  const std::size_t chunk = std::size_t{1} << row.log_chunk();
  std::vector<std::int64_t> output(input.size()), shared(chunk);
  std::vector<std::vector<std::int64_t>> received(static_cast<std::size_t>(row.blocks()),
                                                  std::vector<std::int64_t>(chunk));
  const auto transform = [](std::array<std::int64_t, 16>& x, int first_bit) {
    for (std::size_t half = std::size_t{1} << first_bit; half < 16; half *= 2) {
      for (std::size_t k = 0; k < 16; ++k) {
        if ((k & half) != 0) continue;
        const std::int64_t a = x[k], b = x[k | half];
        x[k] = a + b, x[k | half] = a - b;
      }
    }
  };
  for (int rank = 0; rank < row.blocks(); ++rank) {
    for (int thread = 0; thread < row.threads(); ++thread)
      for (int k = 0; k < 16; ++k) {
        const auto e = static_cast<std::size_t>(row.loaded(thread, k));
        shared.at(static_cast<std::size_t>(row.word(static_cast<int>(e)))) =
            input[static_cast<std::size_t>(rank) * chunk + e];
      }
    for (int round = 0; round < row.rounds(); ++round) {
      for (int thread = 0; thread < row.threads(); ++thread) {
        std::array<std::int64_t, 16> x{};
        const auto place = [&](int k) -> std::int64_t& {
          return shared.at(static_cast<std::size_t>(row.word(row.element(round, thread, k))));
        };
        for (int k = 0; k < 16; ++k)
          x[static_cast<std::size_t>(k)] = place(k);
        transform(x, row.first_new_bit(round));
        for (int k = 0; k < 16; ++k) {
          const std::int64_t value = x[static_cast<std::size_t>(k)];
          if (round + 1 < row.rounds()) {
            place(k) = value;
          } else {
            received[static_cast<std::size_t>(row.owner(k))].at(
                static_cast<std::size_t>(row.sent_to(rank, thread, 0) + row.sent_to(0, 0, k))) = value;
          }
        }
      }
    }
  }
  for (int rank = 0; rank < row.blocks(); ++rank) {
    for (int thread = 0; thread < row.threads(); ++thread) {
      std::array<std::int64_t, 16> x{};
      for (int k = 0; k < 16; ++k)
        x[static_cast<std::size_t>(k)] =
            received[static_cast<std::size_t>(rank)].at(static_cast<std::size_t>(k * row.threads() + thread));
      transform(x, 0);
      for (int k = 0; k < 16; ++k)
        output.at(static_cast<std::size_t>(row.result(rank, thread, 0) + row.result(0, 0, k))) =
            x[static_cast<std::size_t>(k)];
    }
  }
  return output;
}

TEST(Passes, TheBlocksOfAClusterTransformARow) {
  for (const Word word : kWords) {
    for (int log_n = smallest_cluster_log_n(word); log_n <= largest_cluster_log_n(word); ++log_n) {
      const ClusterRow row = cluster_row(word, log_n);
      SCOPED_TRACE(concat("2^", log_n, " by ", row.blocks(), " blocks of ", row.number_bytes, " bytes"));
      EXPECT_GE(row.threads(), 32);
      EXPECT_LE(row.threads(), 1024);
      EXPECT_LE(row.shared_bytes(), 101376) << "what blocks have on every device with clusters";
      int next_bit = 0;
      for (int round = 0; round < row.rounds(); ++round) {
        EXPECT_EQ(row.low_bit(round) + row.first_new_bit(round), next_bit) << "ascending, none twice";
        next_bit = row.low_bit(round) + 4;
      }
      EXPECT_EQ(next_bit, row.levels());
      const std::int64_t n = std::int64_t{1} << log_n;
      std::vector<std::int64_t> input(static_cast<std::size_t>(n));
      for (std::int64_t i = 0; i < n; ++i)
        input[static_cast<std::size_t>(i)] = i * i % 1009 - 500;
      std::vector<std::int64_t> expected = input;
      for (std::size_t half = 1; half < expected.size(); half *= 2)
        for (std::size_t i = 0; i < expected.size(); ++i)
          if ((i & half) == 0) {
            const std::int64_t a = expected[i], b = expected[i | half];
            expected[i] = a + b, expected[i | half] = a - b;
          }
      EXPECT_EQ(by_cluster(row, input), expected);
    }
  }
}

// A warp meets every bank once an access, and the first two rounds find what the warp itself has loaded.
TEST(Passes, TheChunkOfAClustersBlockHasNoBankConflicts) {
  for (const Word word : kWords) {
    for (int log_n = smallest_cluster_log_n(word); log_n <= largest_cluster_log_n(word); ++log_n) {
      const ClusterRow row = cluster_row(word, log_n);
      const int at_once = 128 / row.number_bytes;  // numbers that shared memory serves in a cycle
      const auto expect_each_bank_once = [&](int first, const auto& word_of_lane) {
        std::set<int> banks;
        for (int lane = first; lane < first + at_once; ++lane)
          banks.insert(word_of_lane(lane) % at_once);
        EXPECT_EQ(static_cast<int>(banks.size()), at_once) << "2^" << log_n;
      };
      for (int first = 0; first < row.threads(); first += at_once) {
        for (int k = 0; k < 16; ++k) {
          expect_each_bank_once(first, [&](int thread) { return row.word(row.loaded(thread, k)); });
          for (int round = 1; round < row.rounds(); ++round)
            expect_each_bank_once(first, [&](int thread) { return row.word(row.element(round, thread, k)); });
          expect_each_bank_once(first, [&](int thread) { return row.sent_to(0, thread, k); });
        }
      }
      for (int thread = 0; thread < row.threads(); ++thread)
        for (int k = 0; k < 16; ++k)
          for (const int e : {row.loaded(thread, k), row.element(0, thread, k), row.element(1, thread, k)}) {
            ASSERT_EQ(e >> 9, thread >> 5);
            ASSERT_EQ(row.word(e) >> 9, thread >> 5);
          }
      // Round 0 in units of 16 bytes: eight lanes at once.
      const int unit = 16 / row.number_bytes;
      for (int first = 0; first < row.threads(); first += 8)
        for (int k = 0; k < 16; k += unit) {
          std::set<int> units;
          for (int thread = first; thread < first + 8; ++thread) {
            const int at = row.word(row.element(0, thread, k));
            for (int i = 0; i < unit; ++i)
              EXPECT_EQ(row.word(row.element(0, thread, k + i)), at + i);
            units.insert(at / unit % 8);
          }
          EXPECT_EQ(units.size(), 8U) << "2^" << log_n << " register " << k;
        }
    }
  }
}

TEST(Passes, ClustersShareFewLongRows) {
  const DeviceInfo h200 = h200_description();
  const auto shares = [&](const char* text) { return shares_rows(parse_problem(text), h200); };
  const bool built = static_cast<bool>(require_programmatic_launch(h200));
  for (const char* shared :
       {"f32/n8192/r44", "i32/n16384/r44", "f32/n32768/r66", "f32/n65536/r1", "i32/n65536/r5000",
        "f32/n131072/r65", "f64/n4096/r44", "i64/n8192/r44", "f64/n16384/r66", "f64/n32768/r5000",
        "i64/n65536/r65", "bf16/n65536/r1", "f16/n65536/r5000"})
    EXPECT_EQ(shares(shared), built) << shared;
  for (const char* other :
       {"f32/n4096/r1", "f32/n8192/r45", "i32/n16384/r45", "f32/n32768/r67", "f32/n131072/r64",
        "f32/n262144/r5000", "f64/n2048/r1", "f64/n4096/r45", "i64/n8192/r45", "f64/n16384/r67",
        "i64/n65536/r64", "f64/n131072/r5000", "bf16/n32768/r1", "bf16/n131072/r5000",
        "f32/n16384/r1/out/sequency", "f32/n16384/r64/inner64"})
    EXPECT_FALSE(shares(other)) << other;
  EXPECT_FALSE(shares_rows(parse_problem("f32/n16384/r1"), a100_description()));
}

TEST(Passes, RowsTakeOnePassWhereABlockHoldsThem) {
  const std::int64_t h200 = h200_description().shared_bytes_per_block;
  constexpr std::int64_t kSmall = 101376;  // 99 KiB
  EXPECT_TRUE(is_one_pass(Word::eight_bytes, 14, h200));
  EXPECT_FALSE(is_one_pass(Word::eight_bytes, 15, h200));
  EXPECT_TRUE(is_one_pass(Word::fp32, 15, h200));
  EXPECT_FALSE(is_one_pass(Word::fp32, 16, h200));
  EXPECT_TRUE(is_one_pass(Word::eight_bytes, 13, kSmall));
  EXPECT_FALSE(is_one_pass(Word::eight_bytes, 14, kSmall));
  for (const Word word : kWords) {
    EXPECT_EQ(smallest_shared_log_n(word), largest_whole_log_n(word));
    for (int log_n = kSmallestLogN; log_n <= largest_whole_log_n(word); ++log_n) {
      const RowTile tile = row_tile(word, log_n, false);
      EXPECT_LE(tile.threads(), 1024);
      const Turns few = turns_of(tile, 263, 132), in_l2 = turns_of(tile, 264, 132),
                  many = turns_of(tile, 100000, 132);
      EXPECT_EQ(few, Turns{});
      EXPECT_EQ(many.groups, tile.shared_bytes() < 64 * 1024 ? 1U : 8U);
      EXPECT_EQ(in_l2.clocks > 0, many.clocks > 0);
    }
  }
}

TEST(Passes, FewOfTheLongestRowsTakeTwoPasses) {
  const DeviceInfo device = h200_description();
  const auto holds = [&](const char* text) { return holds_rows(parse_problem(text), device); };
  for (const std::string longest : {"f32/n32768", "i32/n32768", "f64/n16384", "i64/n16384"}) {
    EXPECT_FALSE(holds((longest + "/r1").c_str()));
    EXPECT_FALSE(holds((longest + "/r44").c_str()));
    EXPECT_TRUE(holds((longest + "/r45").c_str())) << "more than a third of its 132 multiprocessors";
    EXPECT_TRUE(holds((longest + "/r1/out/sequency").c_str())) << "permuted rows are held";
  }
  EXPECT_TRUE(holds("f32/n16384/r1"));
  EXPECT_TRUE(holds("f64/n8192/r1"));
  EXPECT_FALSE(holds("f32/n16384/r64/inner64")) << "an axis takes passes of its own";
  const DeviceInfo a100 = a100_description();
  EXPECT_FALSE(holds_rows(parse_problem("f32/n32768/r36"), a100));
  EXPECT_TRUE(holds_rows(parse_problem("f32/n32768/r37"), a100)) << "more than a third of its 108";
  DeviceInfo small = a100;
  small.shared_bytes_per_block = 101376;
  EXPECT_FALSE(holds_rows(parse_problem("f32/n32768/r37"), small)) << "no block holds it";
}

TEST(Passes, RefusesWhatABlockHasTooLittleSharedMemoryFor) {
  DeviceInfo small = a100_description();
  small.shared_bytes_per_block = 49152;
  EXPECT_TRUE(variant.supports(make_problem(Dtype::f32, 1 << 16, 1), small));
  EXPECT_TRUE(variant.supports(parse_problem("f64/n4096/r3/out/sequency"), small));
  EXPECT_TRUE(variant.supports(parse_problem("f64/n16384/r3"), small)) << "in two passes";
  EXPECT_EQ(variant.supports(parse_problem("f64/n16384/r3/out/sequency"), small).why_not,
            "n=16384 needs 131072 bytes of shared memory per block, this device allows 49152");
  EXPECT_EQ(variant.supports(make_problem(Dtype::f32, 1 << 30, 1), small).why_not,
            "n=1073741824 needs 65536 bytes of shared memory per block, this device allows 49152");
}

}  // namespace
}  // namespace fwht::passes
