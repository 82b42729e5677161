// The maps of the kernels on rows, for every launch in the tables of the variants that have such kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "variants/butterflies/launches.hpp"
#include "variants/butterflies/passes_program.hpp"
#include "variants/kit/on_host/host_rows.hpp"
#include "variants/mma_split/plain_launches.hpp"

namespace fwht::rows {
namespace {

/// Every kernel of every table, those for data off the 16-byte grid included.
std::vector<KernelId> all_kernels() {
  std::vector<KernelId> all;
  const auto add = [&](const auto& kernels) {
    for (const KernelId& id : kernels) {
      if (std::find(all.begin(), all.end(), id) == all.end()) all.push_back(id);
    }
  };
  for (const Dtype dtype : kAllDtypes) {
    for (int log_n = 1; log_n <= butterflies::largest_log_n(dtype); ++log_n)
      add(butterflies::kernels_of_size(dtype, log_n));
    if (dtype == Dtype::f32) continue;
    for (int log_n = mma_split::kSmallestLogN; log_n <= mma_split::kLargestLogN; ++log_n)
      add(mma_split::plain_kernels_of_size(dtype, log_n));
  }
  return all;
}

// ---- maps

TEST(RowMaps, ALaneLoadsWholeVectorsAndABlockEveryElementOnce) {
  for (const KernelId& id : all_kernels()) {
    const Tile g = id.tile();
    std::vector<bool> seen(static_cast<std::size_t>(g.rows_per_block()) << g.log_n);
    for (int warp = 0; warp < g.warps(); ++warp) {
      for (int lane = 0; lane < 32; ++lane) {
        for (int v = 0; v < g.vectors; ++v) {
          const int first = element_at_load(g, warp, lane, v, 0);
          EXPECT_EQ(first % g.vector_elements(), 0);
          for (int e = 0; e < g.vector_elements(); ++e) {
            const int element = element_at_load(g, warp, lane, v, e);
            ASSERT_EQ(element, first + e) << describe(id);
            ASSERT_LT(static_cast<std::size_t>(element), seen.size()) << describe(id);
            ASSERT_FALSE(seen[static_cast<std::size_t>(element)]) << describe(id);
            seen[static_cast<std::size_t>(element)] = true;
          }
        }
      }
    }
    EXPECT_EQ(static_cast<int>(seen.size()), g.threads * g.vectors * g.vector_elements()) << describe(id);
  }
}

// 32 lanes side by side read 512 consecutive bytes, so every sector of 32 bytes is used whole.
TEST(RowMaps, NeighbouringLanesLoadNeighbouringVectors) {
  for (const KernelId& id : all_kernels()) {
    const Tile g = id.tile();
    for (int lane = 1; lane < 32; ++lane) {
      EXPECT_EQ(element_at_load(g, 0, lane, 0, 0) - element_at_load(g, 0, lane - 1, 0, 0),
                g.vector_elements());
    }
  }
}

TEST(RowMaps, IndexBitsLieWhereTheBitCardSays) {
  for (const KernelId& id : all_kernels()) {
    const Tile g = id.tile();
    EXPECT_EQ(g.element_bits() + g.lane_bits() + g.vector_bits() + g.warp_bits(), g.log_n) << describe(id);
    EXPECT_GE(g.vector_bits(), 0) << describe(id);
    for (int bit = 0; bit < g.element_bits(); ++bit)
      EXPECT_EQ(element_at_load(g, 0, 0, 0, 1 << bit), 1 << bit) << describe(id);
    for (int bit = 0; bit < g.lane_bits(); ++bit)
      EXPECT_EQ(element_at_load(g, 0, 1 << bit, 0, 0), 1 << (g.element_bits() + bit)) << describe(id);
    for (int bit = 0; bit < g.vector_bits(); ++bit)
      EXPECT_EQ(element_at_load(g, 0, 0, 1 << bit, 0), 1 << (g.element_bits() + 5 + bit)) << describe(id);
    for (int bit = 0; bit < g.warp_bits(); ++bit) {
      EXPECT_EQ(element_at_load(g, 1 << bit, 0, 0, 0), 1 << (g.element_bits() + 5 + g.vector_bits() + bit))
          << describe(id);
    }
    if (id.dtype != Dtype::f32 && id.log_n >= mma_split::kSmallestLogN) {  // what the two stages transform
      EXPECT_EQ(g.lane_bits() + 3, std::min(g.log_n, 8)) << describe(id);
    }
  }
}

// Rows of one warp have no exchange at which the next kernel could be let in, butterflies no matrices.
TEST(RowMaps, TheNextKernelIsLetInWhereThereIsSuchAPlace) {
  for (const KernelId& id : all_kernels()) {
    EXPECT_TRUE(id.launch.form != Form::in_warps || !at_exchange(id.trigger)) << describe(id);
    const bool has_matrices = id.dtype != Dtype::f32 && id.log_n >= mma_split::kSmallestLogN;
    EXPECT_TRUE(has_matrices ? id.trigger != Trigger::at_start : id.trigger != Trigger::behind_matrices)
        << describe(id);
  }
}

// A kernel has its launch as a number, and a plan finds its kernel by comparing the launch.
TEST(RowMaps, ALaunchIsItsCode) {
  std::set<LaunchCode> codes;
  std::vector<Launch> launches;
  for (const KernelId& id : all_kernels()) {
    EXPECT_EQ(launch_of(code_of(id.launch)), id.launch) << describe(id);
    codes.insert(code_of(id.launch));
    if (std::find(launches.begin(), launches.end(), id.launch) == launches.end())
      launches.push_back(id.launch);
  }
  EXPECT_EQ(codes.size(), launches.size());
}

TEST(RowMaps, TheLaunchTableKeepsItsOwnRules) {
  for (const KernelId& id : all_kernels()) {
    const Tile g = id.tile();
    EXPECT_TRUE(fits(id.dtype, id.log_n, id.launch)) << describe(id);
    EXPECT_EQ(g.threads % 32, 0) << describe(id);
    EXPECT_LE(g.threads, 1024) << describe(id);
    EXPECT_TRUE(is_power_of_two(g.vectors) && is_power_of_two(g.warps_per_row)) << describe(id);
    EXPECT_EQ(1 << g.warp_bits(), g.warps_per_row) << describe(id);
    EXPECT_GE(g.threads * g.vectors * 16, 1024) << describe(id);  // bytes of a block
    EXPECT_GE(g.rows_per_block(), 1) << describe(id);
    if (g.warps_per_row > 1) {
      EXPECT_EQ(g.warps(), g.warps_per_row) << describe(id);  // a block barrier then is a row barrier
      EXPECT_EQ(g.rows_per_block(), 1) << describe(id);
      EXPECT_GE(g.piece(), 1) << describe(id);
      EXPECT_EQ(g.kept() * g.piece() * g.warps_per_row, g.vectors * g.vector_elements()) << describe(id);
    } else {
      EXPECT_EQ(g.rows_per_warp() * g.warps(), g.rows_per_block()) << describe(id);
      EXPECT_GE(g.rows_per_warp(), 1) << describe(id);
      EXPECT_EQ(g.vectors % g.vectors_of_row(), 0) << describe(id);
    }
    EXPECT_EQ(g.exchange_words(), g.warps_per_row > 1 ? 1 << g.log_n : 0) << describe(id);
    EXPECT_LE(4 * g.exchange_words() * std::max(1, id.launch.blocks_per_sm), 227 * 1024) << describe(id);
    if (id.launch.form == Form::smem_passes) {
      EXPECT_TRUE(g.vectors == 8 || g.vectors == 16) << describe(id);
      EXPECT_EQ(g.dtype, Dtype::f32) << describe(id);
    }
  }
}

/// The words that the lanes of a warp reach in one access of `width` floats each. No bank twice in a phase,
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
template <class Buffer>
void expect_exchange(const KernelId& id, const Buffer& buffer) {
  const Tile g = id.tile();
  std::vector<int> element_at(static_cast<std::size_t>(1 << g.log_n), -1);
  for (int from = 0; from < g.warps_per_row; ++from) {
    for (int v = 0; v < g.vectors; ++v) {
      for (int e = 0; e < g.vector_elements(); e += 4) {
        const auto words = by_lane([&](int lane) { return buffer.word(from, v, lane, e); });
        expect_no_conflict(words, 4, describe(id) + " put");
        for (int lane = 0; lane < 32; ++lane) {
          for (int i = 0; i < 4; ++i) {
            EXPECT_EQ(buffer.word(from, v, lane, e + i), words[static_cast<std::size_t>(lane)] + i);
            int& place = element_at.at(static_cast<std::size_t>(words[static_cast<std::size_t>(lane)] + i));
            EXPECT_EQ(place, -1) << describe(id);
            place = ((from * g.vectors + v) * 32 + lane) * g.vector_elements() + e + i;
          }
        }
      }
    }
  }
  std::set<int> read;
  for (int to = 0; to < g.warps_per_row; ++to) {
    for (int from = 0; from < g.warps_per_row; ++from) {
      for (int v = g.vector_taken(to); v < g.vector_taken(to) + g.kept(); ++v) {
        for (int i = 0; i < g.piece(); i += 4) {
          const auto words = by_lane([&](int lane) {
            return word_of_element(buffer, from, v, g.piece_begin(g.part_taken(to), lane) + i);
          });
          expect_no_conflict(words, std::min(4, g.piece()), describe(id) + " get");
        }
        for (int lane = 0; lane < 32; ++lane) {
          for (int i = 0; i < g.piece(); ++i) {
            const int element = g.piece_begin(g.part_taken(to), lane) + i;
            const int word = word_of_element(buffer, from, v, element);
            EXPECT_EQ(element_at[static_cast<std::size_t>(word)],
                      (from * g.vectors + v) * 32 * g.vector_elements() + element)
                << describe(id);
            EXPECT_TRUE(read.insert(word).second) << describe(id);
          }
        }
      }
    }
  }
  EXPECT_EQ(static_cast<int>(read.size()), 1 << g.log_n) << describe(id);
}

TEST(RowMaps, TheExchangeHandsOutEveryElementOnceWithoutBankConflicts) {
  for (const KernelId& id : all_kernels()) {
    if (id.launch.form == Form::across_warps) expect_exchange(id, ExchangeBuffer{id.tile()});
    if (id.launch.form == Form::smem_passes) expect_exchange(id, butterflies::RunBuffer{id.tile()});
  }
}

// In each of the first two passes the lanes of a warp have all of its elements among them, a run each and
// then a number of every run, and no access conflicts.
TEST(RowMaps, EachPassHandsOutTheElementsOfTheWarpOnceWithoutBankConflicts) {
  int seen = 0;
  for (const KernelId& id : all_kernels()) {
    if (id.launch.form != Form::smem_passes) continue;
    const Tile g = id.tile();
    const butterflies::RunBuffer buffer{g};
    ++seen;
    const int run_length = buffer.run_length();
    for (int warp = 0; warp < g.warps_per_row; ++warp) {
      const auto word_of = [&](int element) {  // of the warp's
        return buffer.word(warp, element / 128, element / 4 % 32, element % 4);
      };
      for (int unit = 0; unit < g.vectors; ++unit) {
        const auto words = by_lane([&](int lane) { return buffer.run_word(warp, lane, unit); });
        expect_no_conflict(words, 4, describe(id) + " run");
        for (int lane = 0; lane < 32; ++lane) {
          for (int i = 0; i < 4; ++i)
            EXPECT_EQ(words[static_cast<std::size_t>(lane)] + i, word_of(lane * run_length + 4 * unit + i))
                << describe(id);
        }
      }
      for (int run = 0; run < 32; ++run) {
        for (int which = 0; which < buffer.numbers_of_lane(); ++which) {
          const auto words = by_lane([&](int lane) { return buffer.number_word(warp, run, which, lane); });
          expect_no_conflict(words, 1, describe(id) + " number");
          for (int lane = 0; lane < 32; ++lane)
            EXPECT_EQ(words[static_cast<std::size_t>(lane)], word_of(run * run_length + 32 * which + lane))
                << describe(id);
        }
      }
    }
  }
  EXPECT_GT(seen, 0);
}

}  // namespace
}  // namespace fwht::rows
