#include "variants/wgmma/wgmma.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "common/device/ptx/wgmma_descriptor.hpp"
#include "variants/kit/ring_place.hpp"

namespace fwht::wgmma {
namespace {

/// Of launches whose warpgroups have all columns each; of the others the tests below have maps of their own.
std::vector<Tile> tiles() {
  std::vector<Tile> all;
  for (const Launch& launch : kLaunches) {
    if (launch.form != Form::passes) all.push_back(launch.tile());
  }
  return all;
}

TEST(Wgmma, TilesCoverTheRow) {
  for (const Tile& tile : tiles()) {
    const int log_n = tile.log_n;
    EXPECT_EQ(tile.order() * tile.columns(), 1 << log_n);
    EXPECT_LE(tile.columns(), 256);
    EXPECT_GE(tile.columns(), 64);
    EXPECT_EQ(tile.k_steps() * tile.k_step_bytes(), tile.row_bytes());
  }
}

// The canonical MN-major layout without swizzle, written down from the PTX ISA: element (k, c) of k step s
// lies at start(s) + (c mod 8) * 2 + (k mod 8) * 16 + (k / 8) * LBO + (c / 8) * SBO bytes.
TEST(Wgmma, LinearRowIsTheCanonicalOperand) {
  std::vector<Tile> all = tiles();
  all.push_back(kPasses16.tile());
  for (const Tile& tile : all) {
    const int log_n = tile.log_n;
    std::vector<bool> seen(std::size_t{1} << log_n);
    for (int k = 0; k < tile.order(); ++k) {
      for (int c = 0; c < tile.columns(); ++c) {
        const int in_step = k % 16;
        const int byte = (k / 16) * tile.k_step_bytes() + (c % 8) * 2 + (in_step % 8) * 16 +
                         (in_step / 8) * tile.leading_bytes() + (c / 8) * tile.stride_bytes();
        ASSERT_EQ(byte, 2 * tile.element_of_operand(k, c));
        ASSERT_FALSE(seen[static_cast<std::size_t>(byte / 2)]);
        seen[static_cast<std::size_t>(byte / 2)] = true;
      }
    }
  }
}

TEST(Wgmma, AccumulatorsHoldEachElementOnce) {
  for (const Tile& tile : tiles()) {
    const int log_n = tile.log_n;
    std::vector<bool> seen(std::size_t{1} << log_n);
    for (int group = 0; group < tile.warpgroups_per_row(); ++group) {
      for (int thread = 0; thread < 128; ++thread) {
        for (int i = 0; i < tile.columns() / 2; ++i) {
          const auto element = static_cast<std::size_t>(tile.element_of_accumulator(group, thread, i));
          ASSERT_FALSE(seen[element]);
          seen[element] = true;
        }
      }
    }
  }
}

TEST(Wgmma, DescriptorFields) {
  const std::uint64_t d = ptx::matrix_descriptor(0x12340, 2048, 128);
  EXPECT_EQ(d & 0x3FFF, 0x1234U);
  EXPECT_EQ((d >> 16) & 0x3FFF, 128U);
  EXPECT_EQ((d >> 32) & 0x3FFF, 8U);
  EXPECT_EQ(d >> 46, 0U);
}

TEST(Wgmma, TheFragmentIsTheSylvesterMatrix) {
  for (int lane = 0; lane < 32; ++lane) {
    const std::uint32_t word = ptx::sylvester_fragment(0x3F80, lane);
    for (int half = 0; half < 2; ++half) {
      const int row = ptx::a_row(lane, 0), column = ptx::a_column(lane, 0, half);
      EXPECT_EQ(word >> (16 * half) & 0xFFFF, parity(row & column) ? 0xBF80U : 0x3F80U);
    }
  }
}

TEST(Wgmma, ARingComesBackToItsPlaceInTheOtherPhase) {
  rows::RingPlace<3> at;
  for (int tile = 0; tile < 12; ++tile, at.advance()) {
    EXPECT_EQ(at.place, tile % 3);
    EXPECT_EQ(at.phase, static_cast<std::uint32_t>(tile / 3 % 2));
  }
}

// What a warp stages is one contiguous piece of the row, and stmatrix rows of one instruction (8 rows of 16
// bytes) hit 8 different 16-byte columns of the 128-byte bank line.
TEST(Wgmma, StagingIsThePieceOfTheRowWithoutBankConflicts) {
  for (const Tile& tile : tiles()) {
    const int j = tile.log_column_tiles();
    for (int group = 0; group < tile.warpgroups_per_row(); ++group) {
      for (int warp = 0; warp < 4; ++warp) {
        const int first = tile.element_of_accumulator(group, 32 * warp, 0);
        std::set<int> offsets;
        for (int pair = 0; pair < tile.columns() / 16; ++pair) {
          for (int q = 0; q < 4; ++q) {
            std::set<int> banks;
            for (int row = 0; row < 8; ++row) {
              const int offset = staged_offset(j, pair, q, row);
              banks.insert(offset / 16 % 8);
              for (int t = 0; t < 4; ++t) {  // thread (row, t) delivers the two elements of word t
                const int register_index = 8 * pair + 4 * (q & 1) + 2 * (q >> 1);
                const int element =
                    tile.element_of_accumulator(group, 32 * warp + 4 * row + t, register_index);
                ASSERT_EQ(offset + 4 * t, 2 * (element - first));
                ASSERT_TRUE(offsets.insert(offset + 4 * t).second);
              }
            }
            ASSERT_EQ(banks.size(), 8U);
          }
        }
        EXPECT_EQ(static_cast<int>(offsets.size()) * 4, staged_bytes_per_warp(tile.columns()));
        EXPECT_EQ(*offsets.rbegin() + 4, staged_bytes_per_warp(tile.columns()));
      }
    }
  }
}

void butterflies(std::vector<int>& x, int bit) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i >> bit & 1) continue;
    const int a = x[i], b = x[i | std::size_t{1} << bit];
    x[i] = a + b;
    x[i | std::size_t{1} << bit] = a - b;
  }
}

// D = H X on the labelled bits, then butterflies over b0-b2 and the column-tile bits, is the whole transform:
// checked with exact integers through the two maps.
TEST(Wgmma, ExactStageAndFinishGiveTheTransform) {
  const Tile tile{12, 0};
  const int n = 1 << 12;
  std::vector<int> x(static_cast<std::size_t>(n)), y(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i)
    x[static_cast<std::size_t>(i)] = (i * 37 + 11) % 19 - 9;
  for (int m = 0; m < tile.order(); ++m) {
    for (int c = 0; c < tile.columns(); ++c) {
      int sum = 0;
      for (int k = 0; k < tile.order(); ++k) {
        sum +=
            hadamard_sign(std::uint64_t(m), std::uint64_t(k)) * x[std::size_t(tile.element_of_operand(k, c))];
      }
      y[std::size_t(tile.element_of_operand(m, c))] = sum;
    }
  }
  for (int bit : {0, 1, 2, 6, 7, 8})
    butterflies(y, bit);
  for (int bit = 0; bit < 12; ++bit)
    butterflies(x, bit);
  EXPECT_EQ(x, y);
}

// The canonical K-major layout without swizzle, written down from the PTX ISA. Entry (m, k) of the k step
// that starts at s lies at start(s) + (k mod 8) * 2 + (m mod 8) * 16 + (m / 8) * SBO + (k / 8) * LBO bytes.
TEST(Wgmma, TableIsTheCanonicalOperand) {
  std::set<int> offsets;
  for (int m = 0; m < 64; ++m) {
    for (int k = 0; k < 64; ++k) {
      const int in_step = k % 16;
      EXPECT_EQ(table_offset(m, k), (k / 16) * kTableStepBytes + (in_step % 8) * 2 + (m % 8) * 16 +
                                        (m / 8) * kTableStrideBytes + (in_step / 8) * kTableLeadingBytes);
      offsets.insert(table_offset(m, k));
    }
  }
  EXPECT_EQ(offsets.size(), 64U * 64U);
  EXPECT_EQ(*offsets.rbegin() + 2, kTableBytes);
}

TEST(Wgmma, LaunchesFitTheDevice) {
  for (const Launch& launch : kLaunches) {
    const Tile tile = launch.tile();
    EXPECT_LE(shared_bytes(launch) * launch.blocks_per_sm, 227 << 10);
    EXPECT_LE(launch.threads(), 1024);
    // Pieces of a load begin at k steps, and pieces of a store at column-tile pairs.
    EXPECT_EQ(tile.k_steps() % launch.load_pieces, 0);
    if (launch.staged()) {
      EXPECT_EQ(tile.columns() / 16 % launch.store_pieces, 0);
    }
    EXPECT_EQ(launch.start_groups > 1, launch.start_step > 0);
  }
}

/// Row and piece that every slot of a ring holds; the pieces of row 0 at first.
class Places {
 public:
  explicit Places(const PieceRing& ring) : ring_(ring), held_(std::size_t(ring.slots), {-1, -1}) {
    for (int piece = 0; piece < ring.pieces; ++piece)
      (*this)(0, piece) = {0, piece};
  }
  std::pair<int, int>& operator()(int row, int piece) { return held_[std::size_t(ring_.slot(row, piece))]; }

 private:
  PieceRing ring_;
  std::vector<std::pair<int, int>> held_;
};

// What the loads of a pair of blocks rely on, for some rows in sequence: each piece is loaded once, by one
// warp of one block, into a place whose piece has been read by then.
TEST(Wgmma, PairLoadsEachPieceOnceIntoAFreePlace) {
  constexpr PieceRing ring = kPairRing;
  ASSERT_GE(ring.head(), 1);
  ASSERT_GE(ring.tail(), 1);
  Places place(ring);
  for (int piece = 0; piece < ring.head(); ++piece)
    place(1, piece) = {1, piece};
  for (int row = 0; row < 2 * ring.slots; ++row) {
    for (int piece = 0; piece < ring.pieces; ++piece)
      ASSERT_EQ(place(row, piece), std::pair(row, piece));
    std::set<std::pair<int, int>> loaded;
    const auto load = [&](int next, int piece, int into, int rank) {
      if (PairLoads::loader(piece) != rank) return;
      EXPECT_EQ(ring.slot(next, piece), ring.slot(row, into));
      EXPECT_EQ(place(row, into), std::pair(row, into)) << "not yet read";
      EXPECT_TRUE(loaded.insert({next, piece}).second);
      place(row, into) = {next, piece};
    };
    for (int rank = 0; rank < 2; ++rank) {
      for (int warp = 4; warp < 8; ++warp) {
        if (const int piece = PairLoads::tail_piece(warp); piece < ring.tail())
          load(row + 1, ring.head() + piece, piece, rank);
        if (const int piece = PairLoads::head_piece(warp, rank); piece < ring.head())
          load(row + 2, piece, ring.tail() + piece, rank);
      }
    }
    EXPECT_EQ(loaded.size(), static_cast<std::size_t>(ring.pieces));
  }
}

// The same of a block that makes a row in two passes: half of the next row in each of them.
TEST(Wgmma, PassesLoadEachPieceOnceIntoAFreePlace) {
  constexpr PieceRing ring = kPassesRing;
  ASSERT_GE(ring.head(), 1);
  ASSERT_GE(ring.tail(), 1);
  Places place(ring);
  for (int row = 0; row < 2 * ring.slots; ++row) {
    for (int piece = 0; piece < ring.pieces; ++piece)
      ASSERT_EQ(place(row, piece), std::pair(row, piece));
    for (int warp = 0; warp < ring.head(); ++warp) {
      EXPECT_EQ(ring.slot(row + 1, warp), ring.slot(row, ring.pieces + warp));
      EXPECT_LT(place(row, ring.pieces + warp).first, row) << "still to be read";
      place(row, ring.pieces + warp) = {row + 1, warp};
    }
    for (int piece = 0; piece < ring.pieces; ++piece)
      ASSERT_EQ(place(row, piece), std::pair(row, piece)) << "for the second pass";
    for (int warp = 0; warp < ring.tail(); ++warp) {
      EXPECT_EQ(ring.slot(row + 1, ring.head() + warp), ring.slot(row, warp));
      place(row, warp) = {row + 1, ring.head() + warp};
    }
  }
}

constexpr int kPassesSums = 2 * kSliceSums;

/// Calls visit(pass, group, thread).
template <class Visit>
void for_each_thread_of_passes(Visit visit) {
  for (int pass = 0; pass < 2; ++pass) {
    for (int group = 0; group < 2; ++group) {
      for (int thread = 0; thread < 128; ++thread)
        visit(pass, group, thread);
    }
  }
}

// Thread t of one warpgroup and thread t of the other hold the same elements but for b11. Either keeps the
// registers with bit 1 clear, sends the others, and holds both elements of each butterfly afterwards.
TEST(Wgmma, PassesExchangeWhatTheButterfliesNeed) {
  std::vector<int> before(1 << 16), after(1 << 16);
  for_each_thread_of_passes([&](int pass, int group, int thread) {
    for (int i = 0; i < kPassesSums; ++i) {
      ++before[std::size_t(passes_element(pass, group, thread, i, false))];
      ++after[std::size_t(passes_element(pass, group, thread, i, true))];
      if ((i & 2) != 0) continue;
      const int kept = passes_element(pass, group, thread, i, false);
      const int found = passes_element(pass, group ^ 1, thread, i | 2, false);
      EXPECT_EQ(kept >> 11 & 1, group);
      ASSERT_EQ(kept ^ found, 1 << 11);
      ASSERT_EQ(passes_element(pass, group, thread, i, true), kept & ~(1 << 11));
      ASSERT_EQ(passes_element(pass, group, thread, i | 2, true), kept | 1 << 11);
    }
  });
  EXPECT_TRUE(std::all_of(before.begin(), before.end(), [](int times) { return times == 1; }));
  EXPECT_EQ(before, after);
}

// The A operand's rows and signs, the two additions of the exchange and the butterflies over what is left are
// the whole transform: with exact integers, step by step as the kernel takes them.
TEST(Wgmma, PassesGiveTheTransform) {
  constexpr Tile tile = kPasses16.tile();
  const int n = 1 << 16;
  std::vector<int> x(static_cast<std::size_t>(n)), y(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i)
    x[static_cast<std::size_t>(i)] = (i * 37 + i / 19 + 11) % 23 - 11;
  const auto accumulator = [&](int pass, int group, int thread, int i) {
    const int half = i >> 1 & 1, low = (thread & 31) >> 2, upper = 4 * pass + (thread >> 5);
    const int column = kGroupColumns * group + 8 * (i >> 2) + 2 * (thread & 3) + (i & 1);
    int sum = 0;
    for (int k = 0; k < tile.order(); ++k) {
      int sign = hadamard_sign(std::uint64_t(low), std::uint64_t(k & 7)) *
                 hadamard_sign(std::uint64_t(upper), std::uint64_t(k >> 4));
      if (half + 2 * (k >> 3 & 1) == negative_block(group)) sign = -sign;
      sum += sign * x[std::size_t(tile.element_of_operand(k, column))];
    }
    return sum;
  };
  for_each_thread_of_passes([&](int pass, int group, int thread) {
    const int sign = group == 0 ? 1 : -1;
    for (int i = 0; i < kPassesSums; ++i) {
      if ((i & 2) != 0) continue;
      const int kept = accumulator(pass, group, thread, i);
      const int found = accumulator(pass, group ^ 1, thread, i | 2);
      y[std::size_t(passes_element(pass, group, thread, i, true))] = kept + sign * found;
      y[std::size_t(passes_element(pass, group, thread, i | 2, true))] = sign * kept - found;
    }
  });
  for (int bit : {0, 1, 2, 6, 7, 8, 9, 10})
    butterflies(y, bit);
  for (int bit = 0; bit < 16; ++bit)
    butterflies(x, bit);
  EXPECT_EQ(x, y);
}

TEST(Wgmma, PassesStoreAContiguousPieceAWarp) {
  constexpr int kLogTiles = log2_floor(kGroupColumns) - 3;
  std::set<int> pieces;
  for_each_thread_of_passes([&](int pass, int group, int thread) {
    const int lane = thread & 31, piece = passes_piece(pass, thread >> 5, group);
    pieces.insert(piece);
    for (int i = 0; i < kPassesSums; i += 2) {
      const int q = (i >> 2 & 1) + 2 * (i >> 1 & 1);
      ASSERT_EQ(2 * passes_element(pass, group, thread, i, true),
                piece * staged_bytes_per_warp(kGroupColumns) +
                    staged_offset(kLogTiles, i >> 3, q, lane >> 2) + 4 * (lane & 3));
    }
  });
  EXPECT_EQ(pieces.size(), 16U);
  EXPECT_EQ(*pieces.rbegin(), 15);
}

TEST(Wgmma, EveryChoiceIsListed) {
  const DeviceInfo device = h200_description();
  for (int log_n = kSmallestLogN; log_n <= kLargestLogN; ++log_n) {
    for (std::int64_t rows = 1; rows << log_n <= std::int64_t{1} << 28; rows += 1 + rows / 7) {
      for (const bool programmatic : {false, true}) {
        Problem problem = make_problem(Dtype::f16, std::int64_t{1} << log_n, rows);
        problem.programmatic_launch = programmatic;
        const Launch launch = choose_launch(problem, device);
        EXPECT_EQ(launch.log_n, log_n);
        EXPECT_NE(std::find(std::begin(kLaunches), std::end(kLaunches), launch), std::end(kLaunches))
            << to_string(problem);
        EXPECT_LE(is_eager(launch, problem, device), programmatic)
            << "an ordinary launch pays for the trigger";
      }
    }
  }
}

}  // namespace
}  // namespace fwht::wgmma
