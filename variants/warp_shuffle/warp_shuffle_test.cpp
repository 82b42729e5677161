#include "variants/warp_shuffle/warp_shuffle.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace fwht::warp_shuffle {
namespace {

TEST(WarpShuffle, RegistersOfAllThreadsHoldEachElementOnce) {
  for (int bytes : {2, 4}) {
    for (int log_n = 1; log_n <= kLargestLogN; ++log_n) {
      const Geometry g(log_n, bytes);
      std::vector<bool> seen(std::size_t{1} << log_n);
      for (int thread = 0; thread < g.threads(); ++thread) {
        for (int chunk = 0; chunk < g.chunks(); ++chunk) {
          for (int e = 0; e < g.elements(); ++e) {
            const auto element = static_cast<std::size_t>(g.element_of(thread, chunk, e));
            ASSERT_LT(element, seen.size());
            ASSERT_FALSE(seen[element]);
            seen[element] = true;
          }
          ASSERT_EQ(g.element_of(thread, chunk, 0) % g.elements(), 0);
        }
      }
      EXPECT_EQ(g.threads() * g.chunks() * g.elements(), 1 << log_n);
    }
  }
}

TEST(WarpShuffle, ThreadsAreThePublishedTable) {
  const int published[] = {1, 2, 4, 8, 16, 32, 32, 128, 256, 256, 256, 256, 256};
  for (int log_n = 3; log_n <= 15; ++log_n)
    EXPECT_EQ(Geometry(log_n, 2).threads(), published[log_n - 3]);
  EXPECT_EQ(Geometry(15, 2).shared_bytes(), 32768);
}

// 128-bit accesses go through in phases of 8 lanes, which must hit 8 different 16-byte slots of a 128-byte
// line.
TEST(WarpShuffle, ExchangeIsAPermutationWithoutBankConflicts) {
  for (int log_warps : {2, 3}) {
    const int threads = 32 << log_warps;
    std::set<int> written, read;
    for (int first = 0; first < threads; first += 8) {
      std::set<int> write_banks, read_banks;
      for (int thread = first; thread < first + 8; ++thread) {
        const int own = exchange_slot(thread >> 5, thread & 31, log_warps);
        const int other =
            exchange_slot(exchanged_warp(thread, log_warps), exchanged_lane(thread, log_warps), log_warps);
        written.insert(own);
        read.insert(other);
        write_banks.insert(own % 8);
        read_banks.insert(other % 8);
      }
      EXPECT_EQ(write_banks.size(), 8U) << first;
      EXPECT_EQ(read_banks.size(), 8U) << first;
    }
    EXPECT_EQ(written.size(), static_cast<std::size_t>(threads));
    EXPECT_EQ(read, written);
  }
}

// The exchanged warp bits are the lowest lane bits, so that shuffles by 1, 2, 4 pair what differs in a warp
// bit.
TEST(WarpShuffle, WarpBitsLieInTheLowestLaneBits) {
  for (int log_warps : {2, 3}) {
    for (int thread = 0; thread < (32 << log_warps); ++thread) {
      for (int bit = 0; bit < log_warps; ++bit) {
        const int partner = thread ^ (1 << bit);
        EXPECT_EQ(thread >> 5, partner >> 5);
        EXPECT_EQ(exchanged_warp(thread, log_warps) ^ exchanged_warp(partner, log_warps), 1 << bit);
        EXPECT_EQ(exchanged_lane(thread, log_warps), exchanged_lane(partner, log_warps));
      }
    }
  }
}

}  // namespace
}  // namespace fwht::warp_shuffle
