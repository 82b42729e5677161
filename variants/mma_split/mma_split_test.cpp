// Proves without a GPU what the kernels compute: the maps by themselves, and then the kernels' own program
// (warp_program.hpp) executed lane by lane, with the tensor core's arithmetic emulated.
#include "variants/mma_split/mma_split.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "common/static_dispatch.hpp"
#include "reference/emulation.hpp"
#include "reference/hadamard.hpp"
#include "reference/inputs.hpp"
#include "variants/mma_split/warp_program.hpp"

namespace fwht::mma_split {
namespace {

/// Every kernel's geometry, those for data off the 16-byte grid included.
std::vector<Geometry> all_geometries() {
  std::vector<Geometry> all;
  const auto add = [&](const Geometry& g) {
    if (std::find(all.begin(), all.end(), g) == all.end()) all.push_back(g);
  };
  for (const Dtype dtype : kAllDtypes) {
    for (int log_n = 1; log_n <= largest_log_n(dtype); ++log_n) {
      for (int regime = 0; regime < kRegimes; ++regime)
        add({dtype, log_n, launch_for(dtype, log_n, static_cast<Regime>(regime))});
      add({dtype, log_n, fallback_launch(dtype, log_n)});
    }
  }
  return all;
}

/// One geometry for every dtype and row length.
std::vector<Geometry> all_sizes() {
  std::vector<Geometry> all;
  for (const Dtype dtype : kAllDtypes) {
    for (int log_n = 1; log_n <= largest_log_n(dtype); ++log_n)
      all.push_back({dtype, log_n, launch_for(dtype, log_n, Regime::dram)});
  }
  return all;
}

std::string name(const Geometry& g) {
  std::string text = std::string(name_of(g.dtype)) + "/n" + std::to_string(1 << g.log_n);
  for (const int number : {g.vectors(), g.warps_per_row(), g.threads()})
    text += ' ' + std::to_string(number);
  return g.launch.form == Form::passes ? text + " passes" : text;
}

/// Element of the block's rows, laid end to end, in register e of vector v of a lane at load.
int element_at_load(const Geometry& g, int warp, int lane, int v, int e) {
  const int number = g.first_vector(warp, lane);
  const int row = g.row_of_vector(number) + g.row_offset(v) + (e >> g.element_bits());
  const int column = g.column_of_vector(number) + g.column_offset(v) + (e & ((1 << g.element_bits()) - 1));
  return (row << g.log_n) + column;
}

// ---- maps

TEST(MmaSplitMaps, ALaneLoadsWholeVectorsAndABlockEveryElementOnce) {
  for (const Geometry& g : all_geometries()) {
    std::vector<bool> seen(static_cast<std::size_t>(g.rows_per_block()) << g.log_n);
    for (int warp = 0; warp < g.warps(); ++warp) {
      for (int lane = 0; lane < 32; ++lane) {
        for (int v = 0; v < g.vectors(); ++v) {
          const int first = element_at_load(g, warp, lane, v, 0);
          EXPECT_EQ(first % g.vector_elements(), 0);
          for (int e = 0; e < g.vector_elements(); ++e) {
            const int element = element_at_load(g, warp, lane, v, e);
            ASSERT_EQ(element, first + e) << name(g);
            ASSERT_LT(static_cast<std::size_t>(element), seen.size()) << name(g);
            ASSERT_FALSE(seen[static_cast<std::size_t>(element)]) << name(g);
            seen[static_cast<std::size_t>(element)] = true;
          }
        }
      }
    }
    EXPECT_EQ(static_cast<int>(seen.size()), g.threads() * g.vectors() * g.vector_elements()) << name(g);
  }
}

// 32 lanes side by side read 512 consecutive bytes, so every sector of 32 bytes is used whole.
TEST(MmaSplitMaps, NeighbouringLanesLoadNeighbouringVectors) {
  for (const Geometry& g : all_geometries()) {
    for (int lane = 1; lane < 32; ++lane) {
      EXPECT_EQ(element_at_load(g, 0, lane, 0, 0) - element_at_load(g, 0, lane - 1, 0, 0),
                g.vector_elements());
    }
  }
}

TEST(MmaSplitMaps, IndexBitsLieWhereTheBitCardSays) {
  for (const Geometry& g : all_geometries()) {
    EXPECT_EQ(g.element_bits() + g.lane_bits() + g.vector_bits() + g.warp_bits(), g.log_n) << name(g);
    EXPECT_GE(g.vector_bits(), 0) << name(g);
    for (int bit = 0; bit < g.element_bits(); ++bit)
      EXPECT_EQ(element_at_load(g, 0, 0, 0, 1 << bit), 1 << bit) << name(g);
    for (int bit = 0; bit < g.lane_bits(); ++bit)
      EXPECT_EQ(element_at_load(g, 0, 1 << bit, 0, 0), 1 << (g.element_bits() + bit)) << name(g);
    for (int bit = 0; bit < g.vector_bits(); ++bit)
      EXPECT_EQ(element_at_load(g, 0, 0, 1 << bit, 0), 1 << (g.element_bits() + 5 + bit)) << name(g);
    for (int bit = 0; bit < g.warp_bits(); ++bit) {
      EXPECT_EQ(element_at_load(g, 1 << bit, 0, 0, 0), 1 << (g.element_bits() + 5 + g.vector_bits() + bit))
          << name(g);
    }
    if (g.kind() == Kind::split_mma) {
      EXPECT_EQ(g.lane_bits() + 3, std::min(g.log_n, 8)) << name(g);
    }
  }
}

// Rows of one warp have no exchange at which the next kernel could be let in.
TEST(MmaSplitMaps, TheNextKernelIsLetInWhereThereIsSuchAPlace) {
  for (const Dtype dtype : kAllDtypes) {
    for (int log_n = 1; log_n <= largest_log_n(dtype); ++log_n) {
      const Geometry g{dtype, log_n, launch_for(dtype, log_n, Regime::small)};
      for (const bool single_block : {false, true}) {
        const Trigger trigger = trigger_for(dtype, log_n, single_block);
        EXPECT_TRUE(g.warps_per_row() > 1 || !at_exchange(trigger)) << name(g);
        EXPECT_TRUE(g.kind() == Kind::split_mma || trigger != Trigger::behind_matrices) << name(g);
      }
    }
  }
}

TEST(MmaSplitMaps, TheLaunchTableKeepsItsOwnRules) {
  for (const Geometry& g : all_geometries()) {
    EXPECT_TRUE(fits(g)) << name(g);
    EXPECT_EQ(g.threads() % 32, 0) << name(g);
    EXPECT_LE(g.threads(), 1024) << name(g);
    EXPECT_TRUE(is_power_of_two(g.vectors()) && is_power_of_two(g.warps_per_row())) << name(g);
    EXPECT_EQ(1 << g.warp_bits(), g.warps_per_row()) << name(g);
    EXPECT_GE(g.threads() * g.vectors() * 16, 1024) << name(g);  // bytes of a block
    EXPECT_GE(g.rows_per_block(), 1) << name(g);
    if (g.warps_per_row() > 1) {
      EXPECT_EQ(g.warps(), g.warps_per_row()) << name(g);  // a block barrier then is a row barrier
      EXPECT_EQ(g.rows_per_block(), 1) << name(g);
      EXPECT_GE(g.piece(), 1) << name(g);
      EXPECT_EQ(g.kept() * g.piece() * g.warps_per_row(), g.vectors() * g.vector_elements()) << name(g);
    } else {
      EXPECT_EQ(g.rows_per_warp() * g.warps(), g.rows_per_block()) << name(g);
      EXPECT_GE(g.rows_per_warp(), 1) << name(g);
      EXPECT_EQ(g.vectors() % g.vectors_of_row(), 0) << name(g);
    }
    EXPECT_EQ(g.shared_bytes(), g.warps_per_row() > 1 ? 4 << g.log_n : 0) << name(g);
    EXPECT_LE(g.shared_bytes() * std::max(1, g.launch.blocks_per_sm), 227 * 1024) << name(g);
  }
}

/// The words that the lanes of a warp reach in one access of `width` floats each: no bank twice in a phase,
/// which is a quarter of the warp for 16 bytes, half of it for 8, all of it for 4.
void expect_no_conflict(const std::vector<int>& first_words, int width, const std::string& what) {
  const auto lanes_of_phase = static_cast<std::size_t>(32 / width);
  for (std::size_t phase = 0; phase < 32; phase += lanes_of_phase) {
    std::set<int> banks;
    for (std::size_t lane = phase; lane < phase + lanes_of_phase; ++lane) {
      for (int i = 0; i < width; ++i)
        EXPECT_TRUE(banks.insert((first_words[lane] + i) % 32).second) << what << " lane " << lane;
    }
  }
}

template <class Map>
std::vector<int> by_lane(Map&& map) {
  std::vector<int> words;
  for (int lane = 0; lane < 32; ++lane)
    words.push_back(map(lane));
  return words;
}

// Every element of the row is written once and read once, as the element it was, and no access conflicts.
TEST(MmaSplitMaps, TheExchangeHandsOutEveryElementOnceWithoutBankConflicts) {
  for (const Geometry& g : all_geometries()) {
    if (g.warps_per_row() == 1) continue;
    std::vector<int> element_at(static_cast<std::size_t>(1 << g.log_n), -1);
    for (int from = 0; from < g.warps_per_row(); ++from) {
      for (int v = 0; v < g.vectors(); ++v) {
        for (int e = 0; e < g.vector_elements(); e += 4) {
          const auto words = by_lane([&](int lane) { return g.exchange_word(from, v, lane, e); });
          expect_no_conflict(words, 4, name(g) + " put");
          for (int lane = 0; lane < 32; ++lane) {
            for (int i = 0; i < 4; ++i) {
              EXPECT_EQ(g.exchange_word(from, v, lane, e + i), words[static_cast<std::size_t>(lane)] + i);
              int& place = element_at.at(static_cast<std::size_t>(words[static_cast<std::size_t>(lane)] + i));
              EXPECT_EQ(place, -1) << name(g);
              place = ((from * g.vectors() + v) * 32 + lane) * g.vector_elements() + e + i;
            }
          }
        }
      }
    }
    std::set<int> read;
    for (int to = 0; to < g.warps_per_row(); ++to) {
      for (int from = 0; from < g.warps_per_row(); ++from) {
        for (int v = g.vector_taken(to); v < g.vector_taken(to) + g.kept(); ++v) {
          for (int i = 0; i < g.piece(); i += 4) {
            const auto words = by_lane([&](int lane) {
              return g.exchange_word_of(from, v, g.piece_begin(g.part_taken(to), lane) + i);
            });
            expect_no_conflict(words, std::min(4, g.piece()), name(g) + " get");
          }
          for (int lane = 0; lane < 32; ++lane) {
            for (int i = 0; i < g.piece(); ++i) {
              const int element = g.piece_begin(g.part_taken(to), lane) + i;
              const int word = g.exchange_word_of(from, v, element);
              EXPECT_EQ(element_at[static_cast<std::size_t>(word)],
                        (from * g.vectors() + v) * 32 * g.vector_elements() + element)
                  << name(g);
              EXPECT_TRUE(read.insert(word).second) << name(g);
            }
          }
        }
      }
    }
    EXPECT_EQ(static_cast<int>(read.size()), 1 << g.log_n) << name(g);
  }
}

// In each of the first two passes the lanes of a warp have all of its elements among them, a run each and
// then a number of every run, and no access conflicts.
TEST(MmaSplitMaps, EachPassHandsOutTheElementsOfTheWarpOnceWithoutBankConflicts) {
  int seen = 0;
  for (const Geometry& g : all_geometries()) {
    if (g.launch.form != Form::passes) continue;
    ++seen;
    const int run_length = 4 * g.vectors();
    for (int warp = 0; warp < g.warps_per_row(); ++warp) {
      const auto word_of = [&](int element) {  // of the warp's
        return g.exchange_word(warp, element / 128, element / 4 % 32, element % 4);
      };
      for (int unit = 0; unit < g.vectors(); ++unit) {
        const auto words = by_lane([&](int lane) { return g.run_word(warp, lane, unit); });
        expect_no_conflict(words, 4, name(g) + " run");
        for (int lane = 0; lane < 32; ++lane) {
          for (int i = 0; i < 4; ++i)
            EXPECT_EQ(words[static_cast<std::size_t>(lane)] + i, word_of(lane * run_length + 4 * unit + i))
                << name(g);
        }
      }
      for (int run = 0; run < 32; ++run) {
        for (int which = 0; which < g.numbers_of_lane(); ++which) {
          const auto words = by_lane([&](int lane) { return g.number_word(warp, run, which, lane); });
          expect_no_conflict(words, 1, name(g) + " number");
          for (int lane = 0; lane < 32; ++lane)
            EXPECT_EQ(words[static_cast<std::size_t>(lane)], word_of(run * run_length + 32 * which + lane))
                << name(g);
        }
      }
    }
  }
  EXPECT_GT(seen, 0);
}

// ---- fragments

TEST(MmaSplitFragments, EveryCellOfEveryOperandBelongsToOneRegister) {
  std::set<std::pair<int, int>> a, b, d;
  for (int lane = 0; lane < 32; ++lane) {
    for (int r = 0; r < 4; ++r) {
      EXPECT_TRUE(d.emplace(d_row(lane, r), d_column(lane, r)).second);
      for (int half = 0; half < 2; ++half) {
        EXPECT_TRUE(a.emplace(a_row(lane, r), a_column(lane, r, half)).second);
        if (r < 2) {
          EXPECT_TRUE(b.emplace(b_row(lane, r, half), b_column(lane)).second);
        }
      }
    }
  }
  EXPECT_EQ(a.size(), 256U);
  EXPECT_EQ(b.size(), 128U);
  EXPECT_EQ(d.size(), 128U);
  EXPECT_EQ(*a.rbegin(), std::pair(15, 15));
  EXPECT_EQ(*b.rbegin(), std::pair(15, 7));
  EXPECT_EQ(*d.rbegin(), std::pair(15, 7));
}

TEST(MmaSplitFragments, TheMatrixIsSylvesterOverTheTransformedBitsAndTheIdentityElsewhere) {
  for (const std::uint32_t one : {0x3C00U, 0x3F80U, 0x3980U}) {
    for (const unsigned transformed : {9U, 11U, 15U}) {
      for (int lane = 0; lane < 32; ++lane) {
        for (int r = 0; r < 4; ++r) {
          for (int half = 0; half < 2; ++half) {
            const auto m = static_cast<unsigned>(a_row(lane, r)),
                       k = static_cast<unsigned>(a_column(lane, r, half));
            const std::uint32_t bits = (matrix_fragment(lane, r, transformed, one) >> (16 * half)) & 0xFFFFU;
            const bool same_block = ((m ^ k) & ~transformed) == 0;
            const bool negative = hadamard_sign(m & transformed, k & transformed) < 0;
            EXPECT_EQ(bits, same_block ? (negative ? one | 0x8000U : one) : 0U) << m << ' ' << k;
          }
        }
      }
    }
  }
}

TEST(MmaSplitFragments, TheTwoStagesTransformTheLowEightBitsOnceAndAlwaysBitThreeOfK) {
  std::set<int> bits(kFirstStageBits, kFirstStageBits + 4);
  bits.insert(kSecondStageBits, kSecondStageBits + 4);
  EXPECT_EQ(bits, (std::set<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  for (int log_n = kSmallestSplitLogN; log_n <= kLargestLogN; ++log_n) {
    const unsigned first = transformed_bits(kFirstStageBits, log_n);
    const unsigned second = transformed_bits(kSecondStageBits, log_n);
    EXPECT_EQ(first, 15U);
    EXPECT_EQ(second & 8U, 8U);  // matrix_fragment relies on it
    EXPECT_EQ(__builtin_popcount(first) + __builtin_popcount(second), std::min(log_n, 8));
  }
}

// ---- the program, all 32 lanes of a warp at a time

template <class T>
struct Lanes {
  std::array<T, 32> at{};

  template <class F>
  static Lanes from(F&& f) {
    Lanes result;
    for (int lane = 0; lane < 32; ++lane)
      result.at[static_cast<std::size_t>(lane)] = f(static_cast<std::size_t>(lane));
    return result;
  }
};
using Floats = Lanes<float>;
using Words = Lanes<std::uint32_t>;
using Flags = Lanes<bool>;

Floats operator+(const Floats& a, const Floats& b) {
  return Floats::from([&](std::size_t l) { return a.at[l] + b.at[l]; });
}
Floats operator-(const Floats& a, const Floats& b) {
  return Floats::from([&](std::size_t l) { return a.at[l] - b.at[l]; });
}
Flags operator|(const Flags& a, const Flags& b) {
  return Flags::from([&](std::size_t l) { return a.at[l] || b.at[l]; });
}

using Exchange = std::vector<float>;  // the buffer of a row

/// The Warp of warp_program.hpp.
template <Geometry g>
class HostWarp {
 public:
  static constexpr bool first_stage_may_overflow() { return g.dtype == Dtype::bf16; }

  HostWarp(float shrink, const reference::TensorCore& core, Exchange& exchange)
      : shrink_(shrink), core_(core), exchange_(exchange) {
    const auto matrix = [&](Words(&words)[4], const int(&bits)[4], std::uint32_t one) {
      for (int r = 0; r < 4; ++r) {
        words[r] = Words::from([&](std::size_t lane) {
          return matrix_fragment(static_cast<int>(lane), r, transformed_bits(bits, g.log_n), one);
        });
      }
    };
    matrix(first_, kFirstStageBits, g.dtype == Dtype::f16 ? 0x3C00U : 0x3F80U);
    matrix(second_, kSecondStageBits, std::bit_cast<std::uint32_t>(shrink) >> 16);
    minus_identity_ =
        Words::from([](std::size_t lane) { return minus_identity_fragment(static_cast<int>(lane)); });
  }

  void first_stage(Floats (&d)[4], const Words& b0, const Words& b1) const {
    for (Floats& register_of_d : d)
      register_of_d = {};
    mma<16>(d, first_, {b0, b1}, g.dtype);
  }
  void remove_high(Floats (&d)[4], const Words& h0, const Words& h1) const {
    const Words a[4] = {h0, h1, {}, {}};
    mma<8>(d, a, {minus_identity_, {}}, Dtype::bf16);
  }
  void second_stage(Floats (&d)[4], const Words& b0, const Words& b1) const {
    for (Floats& register_of_d : d)
      register_of_d = {};
    second_stage_add(d, b0, b1);
  }
  void second_stage_add(Floats (&d)[4], const Words& b0, const Words& b1) const {
    mma<16>(d, second_, {b0, b1}, Dtype::bf16);
  }
  static Words high_pair(const Floats& a, const Floats& b) {
    return Words::from([&](std::size_t l) {
      return std::bit_cast<std::uint32_t>(a.at[l]) >> 16 |
             (std::bit_cast<std::uint32_t>(b.at[l]) & 0xFFFF0000U);
    });
  }
  static Words low_pair(const Floats& a, const Floats& b) {
    return Words::from([&](std::size_t l) {
      return std::uint32_t{float_to_bf16(a.at[l])} | std::uint32_t{float_to_bf16(b.at[l])} << 16;
    });
  }

  static Floats shuffle(const Floats& x, int lane_mask) {
    return Floats::from([&](std::size_t l) { return x.at[l ^ static_cast<std::size_t>(lane_mask)]; });
  }
  static Floats lane_sign(int bit) {
    return Floats::from([&](std::size_t l) { return (l >> bit) & 1 ? -1.0F : 1.0F; });
  }
  static Floats fma(const Floats& a, const Floats& b, const Floats& c) {
    return Floats::from([&](std::size_t l) { return std::fma(a.at[l], b.at[l], c.at[l]); });
  }
  static Flags is_nan(const Floats& x) {
    return Flags::from([&](std::size_t l) { return std::isnan(x.at[l]); });
  }
  static bool any(const Flags& flags) {
    return std::find(flags.at.begin(), flags.at.end(), true) != flags.at.end();
  }

  template <int count>
  void widen(const Words (&words)[4], Floats (&x)[count]) const {
    constexpr int kPerWord = count / 4;
    for (int e = 0; e < count; ++e) {
      x[e] = Floats::from([&](std::size_t l) {
        const std::uint32_t word = words[e / kPerWord].at[l];
        const std::uint32_t bits = kPerWord == 1 ? word : (word >> (16 * (e % 2))) & 0xFFFFU;
        return static_cast<float>(decode(g.dtype, bits)) * shrink_;
      });
    }
  }
  static Words keep_lanes(const Words& word, int shift, int row) {
    return Words::from([&](std::size_t l) { return static_cast<int>(l >> shift) == row ? word.at[l] : 0U; });
  }

  void put(int from, int v, int quad, const Floats (&x)[4]) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i)
        word(g.exchange_word(from, v, lane, 4 * quad + i)) = x[i].at[static_cast<std::size_t>(lane)];
    }
  }
  void take(int from, int v, int quad, Floats (&x)[4]) const {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i)
        x[i].at[static_cast<std::size_t>(lane)] = word(g.exchange_word(from, v, lane, 4 * quad + i));
    }
  }
  void get(int from, int v, int part, Floats (&x)[g.piece()]) const {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < g.piece(); ++i) {
        x[i].at[static_cast<std::size_t>(lane)] =
            word(g.exchange_word_of(from, v, g.piece_begin(part, lane) + i));
      }
    }
  }
  void take_run(int warp, int unit, Floats (&x)[4]) const {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i)
        x[i].at[static_cast<std::size_t>(lane)] = word(g.run_word(warp, lane, unit) + i);
    }
  }
  void put_run(int warp, int unit, const Floats (&x)[4]) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i)
        word(g.run_word(warp, lane, unit) + i) = x[i].at[static_cast<std::size_t>(lane)];
    }
  }
  void take_number(int warp, int run, int which, Floats& x) const {
    for (int lane = 0; lane < 32; ++lane)
      x.at[static_cast<std::size_t>(lane)] = word(g.number_word(warp, run, which, lane));
  }
  void put_number(int warp, int run, int which, const Floats& x) {
    for (int lane = 0; lane < 32; ++lane)
      word(g.number_word(warp, run, which, lane)) = x.at[static_cast<std::size_t>(lane)];
  }
  static void sync() {}

 private:
  float& word(int i) const { return exchange_.at(static_cast<std::size_t>(i)); }

  /// d += a b, 16 x K times K x 8, from the fragment maps and the model of the tensor core.
  template <int depth>
  void mma(Floats (&d)[4], const Words (&a)[4], const Words (&b)[2], Dtype operand) const {
    double left[16][depth] = {}, right[8][depth] = {};
    for (int lane = 0; lane < 32; ++lane) {
      const auto l = static_cast<std::size_t>(lane);
      for (int half = 0; half < 2; ++half) {
        for (int r = 0; r < depth / 4; ++r) {
          left[a_row(lane, r)][a_column(lane, r, half)] =
              decode(operand, (a[r].at[l] >> (16 * half)) & 0xFFFFU);
        }
        for (int r = 0; r < depth / 8; ++r)
          right[b_column(lane)][b_row(lane, r, half)] =
              decode(operand, (b[r].at[l] >> (16 * half)) & 0xFFFFU);
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      for (int r = 0; r < 4; ++r) {
        float& sum = d[r].at[static_cast<std::size_t>(lane)];
        sum = static_cast<float>(reference::mma_sum(left[d_row(lane, r)], right[d_column(lane, r)], sum,
                                                    operand, reference::Accumulator::f32, core_));
      }
    }
  }

  Words first_[4], second_[4], minus_identity_;
  float shrink_;
  reference::TensorCore core_;
  Exchange& exchange_;
};

using Bits = std::vector<std::uint32_t>;  // contiguous rows, one element each

/// What the kernel does with one block, with the maps and the program of the kernel.
template <Geometry g>
class HostBlock {
  static constexpr int kVectors = g.vectors(), kElements = g.vector_elements(), kWarps = g.warps_per_row();

 public:
  HostBlock(const Problem& problem, const reference::TensorCore& core, const Bits& in, Bits& out,
            std::int64_t first_row)
      : problem_(problem),
        in_(in),
        out_(out),
        first_(first_row << g.log_n),
        exchange_(static_cast<std::size_t>(g.exchange_words())),
        warp_(std::ldexp(1.0F, -shrink_exponent(problem)), core, exchange_),
        factor_(std::ldexp(static_cast<float>(problem.scale), shrink_exponent(problem))) {}

  void run() {
    if constexpr (kWarps == 1) {
      for (int w = 0; w < g.warps(); ++w)
        whole_rows(w);
    } else {
      shared_row();
    }
  }
  int failures() const { return failures_; }

 private:
  using Vectors = Floats[kVectors][kElements];

  /// Up to the vector bits; false where infinities or NaN were met, which takes the exact path.
  bool transform(int w, Vectors& x) {
    Words data[kVectors][4];
    load(w, data);
    if constexpr (g.kind() == Kind::butterflies) {
      widened_butterflies<g>(warp_, data, x);
    } else {
      split_transform(warp_, data, x);
    }
    vector_butterflies<g.vector_bits()>(x);
    if constexpr (g.kind() == Kind::split_mma) {
      if (warp_.any(split_failed<g.vector_bits()>(warp_, x))) {
        ++failures_;
        return false;
      }
    }
    return true;
  }

  void whole_rows(int w) {
    Vectors x;
    if (!transform(w, x)) {
      if constexpr (g.kind() == Kind::split_mma) rows_alone(w);
      return;
    }
    for (int v = 0; v < kVectors; ++v)
      store(w, v, x[v], -1);
  }

  void rows_alone(int w) {
    constexpr int kOfRow = g.vectors_of_row();
    Words data[kVectors][4];
    load(w, data);
    for (int first = 0; first < kVectors; first += kOfRow) {
      for (int row = 0; row < (1 << g.log_rows_per_warp_vector()); ++row) {
        Floats x[kOfRow][8];
        for (int v = 0; v < kOfRow; ++v)
          vector_alone(row, data[first + v], x[v]);
        vector_butterflies<g.vector_bits()>(x);
        for (int v = 0; v < kOfRow; ++v)
          store(w, first + v, x[v], row);
      }
    }
  }

  /// By way of the exchange buffer, as the kernel does.
  void put_again(int w) {
    Words data[kVectors][4];
    load(w, data);
    for (int v = 0; v < kVectors; ++v) {
      Floats one[8];
      vector_alone(0, data[v], one);
      put_vector(warp_, w, v, one);
    }
    Vectors x;
    for (int v = 0; v < kVectors; ++v)
      take_vector(warp_, w, v, x[v]);
    vector_butterflies<g.vector_bits()>(x);
    exchange_put(warp_, w, x);
  }

  void vector_alone(int row, const Words (&data)[4], Floats (&x)[8]) const {
    Floats one[1][8];
    transform_alone<g>(warp_, row, data, one);
    std::copy(std::begin(one[0]), std::end(one[0]), std::begin(x));
  }

  void shared_row() {
    std::vector<int> failed;
    for (int from = 0; from < kWarps; ++from) {
      if constexpr (g.launch.form == Form::passes) {
        load_to_exchange(from);
        passes_of_warp<g, Floats>(warp_, from);
      } else {
        Vectors x;
        if (!transform(from, x)) failed.push_back(from);
        exchange_put(warp_, from, x);
      }
    }
    if constexpr (g.kind() == Kind::split_mma) {  // behind the barrier
      for (const int from : failed)
        put_again(from);
    }
    for (int to = 0; to < kWarps; ++to) {
      for (int v = g.vector_taken(to); v < g.vector_taken(to) + g.kept(); ++v) {
        Floats x[kWarps][g.piece()];
        exchange_get(warp_, v, g.part_taken(to), x);
        store_pieces(to, v, x);
      }
    }
  }

  void load_to_exchange(int w) {
    for (int v = 0; v < kVectors; ++v) {
      Words words[4];
      load(w, v, words);
      for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i)
          exchange_.at(static_cast<std::size_t>(g.exchange_word(w, v, lane, i))) =
              std::bit_cast<float>(words[i].at[static_cast<std::size_t>(lane)]);
      }
    }
  }

  template <int piece>
  void store_pieces(int to, int v, const Floats (&x)[kWarps][piece]) {
    for (int from = 0; from < kWarps; ++from) {
      const std::int64_t vector = first_ + (from * kVectors + v) * 32 * kElements;
      for (int lane = 0; lane < 32; ++lane) {
        for (int e = 0; e < piece; ++e)
          put(vector + g.piece_begin(g.part_taken(to), lane) + e, x[from][e], lane);
      }
    }
  }

  void load(int w, Words (&data)[kVectors][4]) const {
    for (int v = 0; v < kVectors; ++v)
      load(w, v, data[v]);
  }
  void load(int w, int v, Words (&words)[4]) const {
    constexpr int kPerWord = kElements / 4;
    for (int i = 0; i < 4; ++i) {
      words[i] = Words::from([&](std::size_t lane) {
        std::uint32_t word = 0;
        for (int half = 0; half < kPerWord; ++half) {
          const auto at = static_cast<std::size_t>(
              first_ + element_at_load(g, w, static_cast<int>(lane), v, i * kPerWord + half));
          if (at < in_.size()) word |= in_[at] << (16 * half);
        }
        return word;
      });
    }
  }
  /// All lanes, or those of one of the rows in the vector.
  void store(int w, int v, const Floats (&x)[kElements], int row) {
    for (int lane = 0; lane < 32; ++lane) {
      if (row >= 0 && lane >> g.lane_bits() != row) continue;
      for (int e = 0; e < kElements; ++e)
        put(first_ + element_at_load(g, w, lane, v, e), x[e], lane);
    }
  }
  void put(std::int64_t element, const Floats& x, int lane) {
    const auto at = static_cast<std::size_t>(element);
    if (at < out_.size()) out_[at] = encode(g.dtype, x.at[static_cast<std::size_t>(lane)] * factor_);
  }

  Problem problem_;
  const Bits& in_;
  Bits& out_;
  std::int64_t first_;
  Exchange exchange_;
  HostWarp<g> warp_;
  float factor_;
  int failures_ = 0;
};

struct HostRun {
  Bits out;
  int failures = 0;  // warps that left the fast path
};

template <Geometry g>
HostRun run_blocks(const Problem& problem, const Bits& in, const reference::TensorCore& core) {
  HostRun result;
  result.out.assign(in.size(), 0xFFFFU);
  for (std::int64_t row = 0; row < problem.rows; row += g.rows_per_block()) {
    HostBlock<g> block(problem, core, in, result.out, row);
    block.run();
    result.failures += block.failures();
  }
  return result;
}

HostRun run_on_host(const Problem& problem, const Bits& in,
                    const reference::TensorCore& core = reference::kHopperTensorCore,
                    Regime regime = Regime::dram) {
  return dispatch_dtype(problem.dtype(), [&](auto dtype) {
    return dispatch_int<1, largest_log_n(dtype())>(log2_floor(problem.n()), [&](auto log_n) {
      return dispatch_int<0, kRegimes - 1>(static_cast<int>(regime), [&](auto r) {
        constexpr Launch launch = launch_for(dtype(), log_n(), static_cast<Regime>(r()));
        return run_blocks<Geometry{dtype(), log_n(), launch}>(problem, in, core);
      });
    });
  });
}

Problem problem_of(Dtype dtype, int log_n, std::int64_t at_least_elements = 1024) {
  const std::int64_t n = std::int64_t{1} << log_n;
  return make_problem(dtype, n, std::max<std::int64_t>(3, at_least_elements / n + 1));
}

Bits to_bits(const Problem& problem, const std::vector<unsigned char>& storage) {
  Bits bits(static_cast<std::size_t>(problem.elements()));
  for (std::size_t i = 0; i < bits.size(); ++i) {
    bits[i] =
        encode(problem.dtype(), load_element(problem.dtype(), storage.data(), static_cast<std::int64_t>(i)));
  }
  return bits;
}

std::vector<unsigned char> to_storage(const Problem& problem, const Bits& bits) {
  std::vector<unsigned char> storage(static_cast<std::size_t>(problem.span_bytes()));
  for (std::size_t i = 0; i < bits.size(); ++i)
    store_element(problem.dtype(), storage.data(), static_cast<std::int64_t>(i),
                  decode(problem.dtype(), bits[i]));
  return storage;
}

Bits make_input(const Problem& problem, reference::InputClass input_class, std::uint64_t seed) {
  std::vector<unsigned char> storage(static_cast<std::size_t>(problem.span_bytes()));
  reference::write_input(problem, input_class, seed, storage.data(), 1);
  return to_bits(problem, storage);
}

std::vector<Geometry> split_sizes() {
  std::vector<Geometry> all;
  for (const Geometry& g : all_sizes()) {
    if (g.kind() == Kind::split_mma) all.push_back(g);
  }
  return all;
}

/// Same number, or NaN both.
bool same_value(Dtype dtype, std::uint32_t a, std::uint32_t b) {
  const double x = decode(dtype, a), y = decode(dtype, b);
  return x == y || (std::isnan(x) && std::isnan(y));
}

// Every sum is exact, so one wrong index, sign or swapped register shows as a wrong number. The rows count up
// to and beyond what one block holds, and the last block is not full.
TEST(MmaSplitProgram, IntegersComeOutExactly) {
  for (const Geometry& g : all_sizes()) {
    const Problem problem = problem_of(g.dtype, g.log_n, 5 << 9);
    Bits in(static_cast<std::size_t>(problem.elements()));
    reference::IntMatrix sums(problem.rows, problem.n());
    std::uint32_t state = 12345;
    for (std::size_t i = 0; i < in.size(); ++i) {
      state = state * 1664525U + 1013904223U;
      const int value = static_cast<int>(state >> 29) - 3;  // -3 .. 4
      in[i] = encode(g.dtype, value);
      sums(static_cast<std::int64_t>(i) / problem.n(), static_cast<std::int64_t>(i) % problem.n()) = value;
    }
    reference::transform(sums, reference::StageOrder::ascending, 1);
    const HostRun run = run_on_host(problem, in);
    EXPECT_EQ(run.failures, 0) << name(g);
    for (std::size_t i = 0; i < in.size(); ++i) {
      const auto sum =
          sums(static_cast<std::int64_t>(i) / problem.n(), static_cast<std::int64_t>(i) % problem.n());
      const float scaled = static_cast<float>(sum) * static_cast<float>(problem.scale);
      ASSERT_EQ(decode(g.dtype, run.out[i]), round_to(g.dtype, scaled)) << name(g) << " element " << i;
    }
  }
}

TEST(MmaSplitProgram, ButterflySizesEqualThePlainHostLoopBitForBit) {
  for (const Geometry& g : all_sizes()) {
    if (g.kind() != Kind::butterflies) continue;
    const Problem problem = problem_of(g.dtype, g.log_n);
    ASSERT_EQ(numerics_of(problem, 90).steps.front().sums, Sums::fp32);
    for (const auto input_class : {reference::InputClass::normal, reference::InputClass::subnormal}) {
      const Bits in = make_input(problem, input_class, 7);
      const std::vector<unsigned char> storage = to_storage(problem, in);
      std::vector<unsigned char> out(storage.size());
      reference::emulate(problem, numerics_of(problem, 90), storage.data(), out.data(), 1);
      const Bits want = to_bits(problem, out), got = run_on_host(problem, in).out;
      for (std::size_t i = 0; i < in.size(); ++i)
        ASSERT_TRUE(same_value(g.dtype, got[i], want[i])) << name(g) << " element " << i;
    }
  }
}

// What a launch table may choose between: the bits do not depend on it. A bad row among good ones too, which
// takes them through the exact paths.
TEST(MmaSplitProgram, EveryLaunchOfASizeGivesTheSameBits) {
  for (const Geometry& g : all_sizes()) {
    const Problem problem = problem_of(g.dtype, g.log_n, 3 << 10);
    Bits in = make_input(problem, reference::InputClass::normal, 23);
    for (const bool with_infinity : {false, true}) {
      if (with_infinity) in[static_cast<std::size_t>(problem.n() + 1)] = encode(g.dtype, HUGE_VAL);
      const Bits want = run_on_host(problem, in).out;
      for (int regime = 0; regime < kRegimes; ++regime) {
        const auto launch = launch_for(g.dtype, g.log_n, static_cast<Regime>(regime));
        if (launch == g.launch) continue;
        const Bits got =
            run_on_host(problem, in, reference::kHopperTensorCore, static_cast<Regime>(regime)).out;
        for (std::size_t i = 0; i < in.size(); ++i) {
          ASSERT_TRUE(same_value(g.dtype, got[i], want[i]))
              << name({g.dtype, g.log_n, launch}) << " element " << i;
        }
      }
    }
  }
}

struct Errors {
  double ours = 0.0, ideal = 0.0, norm = 0.0;
};

Errors errors_of(const Problem& problem, const Bits& in, const Bits& out) {
  const std::vector<unsigned char> storage = to_storage(problem, in);
  const reference::Matrix truth = reference::expected(problem, storage.data(), 0, -1, 1);
  Errors errors;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double y =
        truth(static_cast<std::int64_t>(i) / problem.n(), static_cast<std::int64_t>(i) % problem.n());
    errors.ours += std::pow(decode(problem.dtype(), out[i]) - y, 2);
    errors.ideal += std::pow(round_to(problem.dtype(), y) - y, 2);
    errors.norm += y * y;
  }
  return errors;
}

// The error of one rounding, on the smallest numbers too: a pair of bf16 halves keeps 16 bits or every bit
// above 2^-133. Sampling: both errors come from the same outputs, so their ratio is known far better than
// either.
TEST(MmaSplitProgram, TheErrorIsThatOfOneRounding) {
  for (const Geometry& g : split_sizes()) {
    const Problem problem = problem_of(g.dtype, g.log_n, 1 << 13);
    for (const auto input_class : {reference::InputClass::normal, reference::InputClass::subnormal,
                                   reference::InputClass::fa3_mixture}) {
      for (const auto& core : {reference::kHopperTensorCore, reference::kAmpereTensorCore}) {
        const Bits in = make_input(problem, input_class, 11);
        const HostRun run = run_on_host(problem, in, core);
        EXPECT_EQ(run.failures, 0) << name(g);
        const Errors errors = errors_of(problem, in, run.out);
        const double ratio = std::sqrt(errors.ours / errors.ideal);
        EXPECT_GT(ratio, 0.9999) << name(g) << ' ' << reference::name_of(input_class);
        EXPECT_LT(ratio, 1.002) << name(g) << ' ' << reference::name_of(input_class);
      }
    }
  }
}

// The model's share of the split in the error, measured where nothing else is: f32 results of the same
// arithmetic.
TEST(MmaSplitProgram, TheModelBoundsTheErrorBeforeTheLastRounding) {
  for (int log_n = kSmallestSplitLogN; log_n <= 10; ++log_n) {
    const Problem problem = problem_of(Dtype::f16, log_n, 1 << 14);
    const Numerics numerics = numerics_of(problem, 90);
    const Bits in = make_input(problem, reference::InputClass::normal, 5);
    const Errors errors = errors_of(problem, in, run_on_host(problem, in).out);
    const double u = format_of(Dtype::f16).unit_roundoff();
    const double modelled = std::hypot(numerics.steps.front().rounding_rms * u, numerics.sum_rms() * 0x1p-24);
    EXPECT_NEAR(std::sqrt(errors.ours / errors.norm) / modelled, 1.0, 0.03) << log_n;
  }
}

// ---- what the model says about symmetries

Bits shifted(const Problem& problem, const Bits& in, std::int64_t a) {
  Bits out(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    const auto element = static_cast<std::int64_t>(i);
    out[static_cast<std::size_t>(element / problem.n() * problem.n() + ((element % problem.n()) ^ a))] =
        in[i];
  }
  return out;
}

Bits modulated(const Problem& problem, const Bits& in, std::int64_t a) {
  Bits out = in;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const auto column = static_cast<std::uint64_t>(static_cast<std::int64_t>(i) % problem.n());
    if (parity(column & static_cast<std::uint64_t>(a))) out[i] ^= 0x8000U;
  }
  return out;
}

TEST(MmaSplitProgram, SymmetriesAreExactWhereTheModelSaysSo) {
  for (const Geometry& g : split_sizes()) {
    const Problem problem = problem_of(g.dtype, g.log_n);
    const Bits in = make_input(problem, reference::InputClass::normal, 3);
    for (const int compute_capability : {80, 90}) {
      const auto& core =
          compute_capability == 80 ? reference::kAmpereTensorCore : reference::kHopperTensorCore;
      const Promises promises = numerics_of(problem, compute_capability).promises;
      EXPECT_TRUE(promises.modulation_exact);
      const Bits out = run_on_host(problem, in, core).out;
      for (const std::int64_t a :
           {std::int64_t{1}, problem.n() / 2, problem.n() - 1, std::int64_t{0x2A} % problem.n()}) {
        const Bits from_modulated = run_on_host(problem, modulated(problem, in, a), core).out;
        const Bits want = shifted(problem, out, a);
        for (std::size_t i = 0; i < in.size(); ++i)
          ASSERT_TRUE(same_value(g.dtype, from_modulated[i], want[i])) << name(g) << " modulation " << a;
        if (!promises.xor_shift_exact) continue;
        const Bits from_shifted = run_on_host(problem, shifted(problem, in, a), core).out;
        const Bits signs = modulated(problem, out, a);
        for (std::size_t i = 0; i < in.size(); ++i)
          ASSERT_TRUE(same_value(g.dtype, from_shifted[i], signs[i])) << name(g) << " shift " << a;
      }
    }
  }
}

// ---- exceptional values

/// The row's results as the direct sum gives them, up to overflow of the storage type.
std::vector<double> truth_of_row(const Problem& problem, const Bits& in, std::int64_t row) {
  reference::Matrix x(1, problem.n());
  for (std::int64_t j = 0; j < problem.n(); ++j)
    x(0, j) = decode(problem.dtype(), in[static_cast<std::size_t>(row * problem.n() + j)]);
  reference::transform(x, problem.scale, reference::StageOrder::ascending, 1);
  return {x.data(), x.data() + problem.n()};
}

std::int64_t place_of_row(const Problem& problem, std::int64_t row) {
  return row * problem.n();
}

/// Runs `in`, whose row `row` holds infinities or NaN, against `clean`, the same without them.
void expect_contained(const Problem& problem, const Bits& in, const HostRun& clean, std::int64_t row,
                      const std::string& what) {
  const HostRun run = run_on_host(problem, in);
  ASSERT_GT(run.failures, 0) << what << ": the fast path did not notice";
  const std::vector<double> truth = truth_of_row(problem, in, row);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const auto element = static_cast<std::int64_t>(i);
    if (element / problem.n() != row) {
      ASSERT_EQ(run.out[i], clean.out[i]) << what << " changed row " << element / problem.n();
      continue;
    }
    const double got = decode(problem.dtype(), run.out[i]),
                 want = truth[static_cast<std::size_t>(element - place_of_row(problem, row))];
    ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
        << what << " column " << element % problem.n() << ": got " << got << ", want " << want;
  }
}

TEST(MmaSplitExceptionalValues, OneInAnyColumnIsNoticedAndStaysInItsRow) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Geometry& g : split_sizes()) {
    const Problem problem = problem_of(g.dtype, g.log_n, 512);
    const Bits in = make_input(problem, reference::InputClass::normal, 13);
    const HostRun clean = run_on_host(problem, in);
    EXPECT_EQ(clean.failures, 0) << name(g);
    const std::int64_t step = problem.n() <= 64 ? 1 : problem.n() / 48 + 1;
    for (std::int64_t column = 0; column < problem.n(); column += step) {
      const std::int64_t row = column % problem.rows;
      const double value =
          std::array{infinity, -infinity, std::nan("")}[static_cast<std::size_t>(column / step % 3)];
      Bits bad = in;
      bad[static_cast<std::size_t>(row * problem.n() + column)] = encode(g.dtype, value);
      expect_contained(problem, bad, clean, row,
                       name(g) + " " + std::to_string(value) + " in column " + std::to_string(column));
      if (HasFatalFailure()) return;
    }
  }
}

// Signs agree: infinite; they do not: NaN. In every warp of the row, and with a second bad row beside it.
TEST(MmaSplitExceptionalValues, SeveralInOneRowAndABadNeighbour) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Geometry& g : split_sizes()) {
    const Problem problem = problem_of(g.dtype, g.log_n, 512);
    const Bits in = make_input(problem, reference::InputClass::normal, 17);
    Bits bad = in;
    const auto set = [&](std::int64_t row, std::int64_t column, double value) {
      bad[static_cast<std::size_t>(row * problem.n() + column)] = encode(g.dtype, value);
    };
    for (std::int64_t column = 0; column < problem.n(); column += problem.n() / 8)
      set(1, column + 5, infinity);
    const HostRun clean = run_on_host(problem, in);
    expect_contained(problem, bad, clean, 1, name(g));
    set(2, 1, -infinity);
    set(2, problem.n() - 1, infinity);
    const HostRun run = run_on_host(problem, bad);
    for (const std::int64_t row : {1, 2}) {
      const std::vector<double> truth = truth_of_row(problem, bad, row);
      for (std::int64_t j = 0; j < problem.n(); ++j) {
        const double got = decode(g.dtype, run.out[static_cast<std::size_t>(row * problem.n() + j)]),
                     want = truth[static_cast<std::size_t>(j)];
        ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
            << name(g) << ' ' << row << ' ' << j;
      }
    }
    for (std::int64_t j = 0; j < problem.n(); ++j)
      ASSERT_EQ(run.out[static_cast<std::size_t>(j)], clean.out[static_cast<std::size_t>(j)]) << name(g);
  }
}

// bf16 reaches as far as fp32. A row along a Walsh function with |x| = 3e38 has one result, sqrt(n) |x|,
// which is infinite, and zeros; with |x| = 2^127 / sqrt(n) it is finite, although a plain sum of n such
// numbers is not.
TEST(MmaSplitExceptionalValues, NoSumOverflowsWhereTheResultIsFinite) {
  for (int log_n = 1; log_n <= kLargestLogN; ++log_n) {
    const Problem problem = problem_of(Dtype::bf16, log_n, 512);
    EXPECT_EQ(numerics_of(problem, 90).promises.intermediate_growth, 1.0);
    const Bits in = make_input(problem, reference::InputClass::normal, 19);
    const HostRun clean = run_on_host(problem, in);
    for (const double size : {3e38, std::ldexp(1.0, 127 - (log_n + 1) / 2)}) {
      const std::int64_t walsh = 0x1555 % problem.n();
      Bits large = in;
      for (std::int64_t j = 0; j < problem.n(); ++j) {
        const int sign = hadamard_sign(static_cast<std::uint64_t>(walsh), static_cast<std::uint64_t>(j));
        large[static_cast<std::size_t>(problem.n() + j)] = encode(Dtype::bf16, sign * size);
      }
      const double x = std::fabs(decode(Dtype::bf16, large[static_cast<std::size_t>(problem.n())]));
      const HostRun run = run_on_host(problem, large);
      for (std::int64_t j = 0; j < problem.n(); ++j) {
        const double result =
            j == walsh ? x * static_cast<double>(problem.n()) * static_cast<float>(problem.scale) : 0.0;
        ASSERT_EQ(decode(Dtype::bf16, run.out[static_cast<std::size_t>(problem.n() + j)]),
                  round_to(Dtype::bf16, result))
            << problem.n() << ' ' << j;
      }
      for (std::int64_t j = 0; j < problem.n(); ++j)
        ASSERT_EQ(run.out[static_cast<std::size_t>(j)], clean.out[static_cast<std::size_t>(j)])
            << problem.n();
    }
  }
}

TEST(MmaSplitMaps, AScaleThatIsAPowerOfTwoLeavesNothingToMultiplyByInHalfPrecision) {
  for (int log_n = kSmallestSplitLogN; log_n <= kLargestLogN; ++log_n) {
    const bool even = log_n % 2 == 0;  // the orthonormal scale is a power of two
    const Problem half = problem_of(Dtype::f16, log_n), wide = problem_of(Dtype::bf16, log_n);
    EXPECT_EQ(shrink_exponent(half), even ? log_n / 2 : log_n);
    EXPECT_EQ(final_factor(half) == 1.0F, even);
    EXPECT_EQ(shrink_exponent(wide), log_n);  // where a sum of n numbers could overflow
    for (const double scale : {1.0, 0x1p-64, 0x1p64}) {
      Problem other = half;
      other.scale = scale;
      EXPECT_EQ(final_factor(other), 1.0F) << scale;
      EXPECT_EQ(std::ldexp(1.0, -shrink_exponent(other)), scale);
    }
    for (const double scale : {0.3, -0.5, 0x1p-65, 0x1p65}) {
      Problem other = half;
      other.scale = scale;
      EXPECT_EQ(shrink_exponent(other), log_n) << scale;
    }
  }
}

TEST(MmaSplitExceptionalValues, AScaleThatLeavesNoRoomIsUsedAsItIs) {
  Problem problem = problem_of(Dtype::bf16, 6, 64);
  EXPECT_EQ(shrink_exponent(problem), 6);
  problem.scale = 1e38;
  EXPECT_EQ(shrink_exponent(problem), 0);
  EXPECT_EQ(numerics_of(problem, 90).promises.intermediate_growth, 64.0);
  Bits in(static_cast<std::size_t>(problem.elements()), 0);
  in[0] = encode(Dtype::bf16, 1.5);
  const Bits out = run_on_host(problem, in).out;
  EXPECT_EQ(decode(Dtype::bf16, out[63]), round_to(Dtype::bf16, 1.5 * static_cast<double>(1e38F)));
}

}  // namespace
}  // namespace fwht::mma_split
