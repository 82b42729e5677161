#include "variants/linear/w4a16_prefill/prefill.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "common/device/ptx/fragments.hpp"

namespace fwht::linear::prefill {
namespace {

std::uint32_t byte_perm(std::uint32_t x, std::uint32_t y, unsigned selector) {
  const std::uint64_t both = std::uint64_t{y} << 32 | x;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<std::uint32_t>(both >> (selector >> (4 * i) & 7U) * 8 & 0xFFU) << (8 * i);
  return result;
}

TEST(PrefillLayout, LanesExchangeWordsOfDecodeForOperandA) {
  // Bit after bit of k as nibbles, for row g and for row g + 8.
  for (const int row : {0, 8}) {
    for (int bit = 0; bit < 5; ++bit) {
      std::uint32_t words[4][2] = {};
      for (int k = 0; k < 32; ++k) {
        const pipelined::NibblePlace at = pipelined::nibble_place(row, k);
        words[at.lane % 4][at.word % 2] |= static_cast<std::uint32_t>(k >> bit & 1) << at.shift;
      }
      // As the kernel's exchange() does it, for the four lanes at once.
      std::uint32_t kept[4], sent[4];
      for (int t = 0; t < 4; ++t) {
        const LaneExchange with = exchange_of(t);
        const bool upper = t >= 2;
        const std::uint32_t keep = words[t][upper ? 1 : 0], got = words[t ^ 2][(t ^ 2) >= 2 ? 0 : 1];
        kept[t] = byte_perm(keep, got, with.kept);
        sent[t] = byte_perm(keep, got, with.sent);
      }
      for (int t = 0; t < 4; ++t) {
        const LaneExchange with = exchange_of(t);
        const std::uint32_t made[2] = {byte_perm(kept[t], sent[t ^ 1], with.first),
                                       byte_perm(kept[t], sent[t ^ 1], with.last)};
        for (int half = 0; half < 2; ++half) {
          for (int reg = row / 8; reg < 4; reg += 2) {
            for (int element = 0; element < 2; ++element) {
              const int k = 16 * half + ptx::a_column(t, reg, element);
              constexpr int kShift[4] = {0, 4, 8, 12};  // as unpack takes registers from a word
              EXPECT_EQ(ptx::a_row(t, reg), row);
              EXPECT_EQ(made[half] >> (kShift[reg] + 16 * element) & 15U, static_cast<unsigned>(k >> bit & 1))
                  << "lane " << t << ", k " << k;
            }
          }
        }
      }
    }
  }
}

TEST(PrefillLayout, PartsOfSharedMemoryFollowEachOther) {
  for (const Form& form : kForms) {
    for (const int scales : {1, 2, 4}) {
      EXPECT_EQ(form.stage_bytes() % 1024, 0) << "the swizzle repeats every 1024 bytes";
      EXPECT_EQ(form.token_bytes() / 2 % 1024, 0);
      EXPECT_EQ(form.scales_at() % 128, 0) << "boxes begin at multiples of 128";
      EXPECT_EQ(form.scale_bytes(scales) % 128, 0);
      EXPECT_EQ(form.tokens % 16, 0);
      const int room = form.result_tokens(scales);
      EXPECT_GE(room, 16);
      EXPECT_EQ(room % 16, 0);
      EXPECT_EQ(form.tokens % room, 0);
      EXPECT_LE(form.zeros_at(scales) + form.stages * form.zero_bytes(scales), form.results_at(scales));
      EXPECT_LE(form.shared_bytes(scales), kMostShared);
    }
  }
}

std::vector<LinearProblem> problems() {
  std::vector<LinearProblem> all;
  for (const char* shape :
       {"n4096/k4096/w4g128", "n4096/k14336/w4g128", "n14336/k4096/w4g64", "n8192/k8192/w4g128",
        "n5120/k13824/w4g32", "n64/k128/w4g128", "n8/k384/w4g-1", "n136/k384/w4g128", "n4128/k640/w4g128"}) {
    for (const int m : {1, 65, 96, 97, 128, 130, 256, 300, 512, 1000, 2048, 8192, 70000})
      all.push_back(parse_linear_problem("f16/m" + std::to_string(m) + "/" + shape));
  }
  return all;
}

/// An H100, and an H200.
constexpr int kMultiprocessors = 132;

void expect_each_unit_once(const Division& d) {
  ASSERT_GE(d.workers, 1);
  const PreparedDivision prepared(d);
  std::vector<std::vector<bool>> done(static_cast<std::size_t>(d.tiles()),
                                      std::vector<bool>(static_cast<std::size_t>(d.units)));
  std::vector<int> tiles_shared(static_cast<std::size_t>(d.workers), -1);
  for (int worker = 0; worker < d.workers; ++worker) {
    WorkParts parts(prepared, worker);
    int count = 0;
    for (Part part; parts.next(prepared, part); ++count) {
      ASSERT_LT(part.first, part.end);
      if (part.first != 0) {
        EXPECT_EQ(count, d.whole_waves) << "only a run's first part misses its tile's beginning";
      }
      for (int unit = part.first; unit < part.end; ++unit) {
        auto at = done[static_cast<std::size_t>(part.tile)].begin() + unit;
        ASSERT_FALSE(*at);
        *at = true;
      }
      if (!d.shares() || count < d.whole_waves) continue;
      EXPECT_EQ(count, d.whole_waves) << "a shared part is the last one";
      EXPECT_EQ(part.tile, d.first_cut() + worker / d.sharers) << "sharers stand side by side";
      EXPECT_TRUE(part.first != 0 || part.end != d.units) << "every sharer meets the others";
      tiles_shared[static_cast<std::size_t>(worker)] = part.tile;
    }
  }
  for (const auto& tile : done)
    for (const bool unit : tile)
      ASSERT_TRUE(unit);
  for (int worker = 0; d.shares() && worker < d.workers; ++worker)
    EXPECT_EQ(tiles_shared[static_cast<std::size_t>(worker)] >= 0, worker < d.runs());
}

TEST(PrefillDivision, EveryUnitIsDoneOnceAndNobodyWaitsForLaterBlocks) {
  for (const LinearProblem& problem : problems()) {
    for (const int multiprocessors : {1, 7, 114, kMultiprocessors}) {
      const Chosen choice = choose(problem, multiprocessors);
      const Division& d = choice.division;
      const Form& form = kForms[choice.form];
      SCOPED_TRACE(to_string(problem) + " on " + std::to_string(multiprocessors));
      ASSERT_LE(d.workers, multiprocessors) << "blocks that wait for each other run at once";
      ASSERT_GE(d.outputs * kOutputs, problem.n);
      ASSERT_GE(d.tokens * form.tokens, problem.m);
      ASSERT_LT((d.tokens - 1) * form.tokens, problem.m) << "the last tile's box has tokens";
      expect_each_unit_once(d);
    }
  }
}

TEST(PrefillDivision, TheLastWavesTilesAreShared) {
  std::mt19937 random(1);
  const auto from = [&](int first, int last) {
    return std::uniform_int_distribution<int>(first, last)(random);
  };
  int shared = 0;
  for (int i = 0; i < 400; ++i) {
    for (const int multiprocessors : {132, 78}) {
      Division d;
      d.outputs = from(1, 60);
      d.tokens = from(1, 12);
      d.units = from(2, 60);
      d.whole_waves = d.tiles() / multiprocessors;
      const int left = d.tiles() % multiprocessors;
      if (left == 0 || left > multiprocessors / 2) continue;
      for (d.sharers = 2; d.sharers <= std::min({kMostSharers, d.units, multiprocessors / left});
           ++d.sharers) {
        d.workers = d.whole_waves == 0 ? left * d.sharers : multiprocessors;
        SCOPED_TRACE(std::to_string(d.outputs) + " x " + std::to_string(d.tokens) + " tiles of " +
                     std::to_string(d.units) + " by " + std::to_string(d.sharers) + " of " +
                     std::to_string(d.workers));
        expect_each_unit_once(d);
        ++shared;
      }
    }
  }
  EXPECT_GT(shared, 500);
}

TEST(PrefillDivision, QuotientsAreExact) {
  constexpr int kMost = 0x7FFFFFFF;
  for (const int divisor :
       {1, 2, 3, 5, 7, 8, 9, 100, 127, 128, 129, 132, 640, 65537, 1 << 30, kMost - 1, kMost}) {
    const Divisor by(divisor);
    std::vector<int> numbers = {0,
                                1,
                                divisor - 1,
                                divisor,
                                kMost - 1,
                                kMost,
                                kMost / divisor * divisor,
                                kMost / divisor * divisor - 1};
    for (int n = 1; n < 3000; ++n)
      numbers.insert(numbers.end(), {n, kMost - n, static_cast<int>(std::int64_t{n} * divisor % kMost)});
    for (const int n : numbers) {
      ASSERT_EQ(n / by, n / divisor) << n << " by " << divisor;
      ASSERT_EQ(n % by, n % divisor) << n << " by " << divisor;
    }
  }
}

TEST(PrefillDivision, TilesAreNumberedOnce) {
  for (const auto& [outputs, tokens] :
       std::vector<std::pair<int, int>>{{1, 1}, {3, 8}, {5, 9}, {32, 1}, {7, 23}}) {
    Division d;
    d.outputs = outputs;
    d.tokens = tokens;
    d.units = d.workers = 1;
    const PreparedDivision prepared(d);
    std::set<std::pair<int, int>> places;
    for (int tile = 0; tile < d.tiles(); ++tile) {
      const int output = prepared.output_tile(tile), token = prepared.token_tile(tile);
      EXPECT_TRUE(output >= 0 && output < outputs);
      EXPECT_TRUE(token >= 0 && token < tokens);
      places.insert({output, token});
    }
    EXPECT_EQ(static_cast<int>(places.size()), d.tiles());
  }
}

TEST(PrefillDivision, SharersFinishEveryTokenOnce) {
  for (const int tokens : {16, 64, 80, 96, 256}) {
    for (int sharers = 2; sharers <= kMostSharers; ++sharers) {
      Division d;
      d.outputs = 3;
      d.tokens = 1;
      d.sharers = sharers;
      d.units = sharers;
      d.workers = 3 * sharers;
      const PreparedDivision prepared(d);
      int end = 0;
      for (int i = 0; i < sharers; ++i) {
        const Sharer sharer(prepared, sharers + i, tokens);
        SCOPED_TRACE(std::to_string(i) + " of " + std::to_string(sharers));
        EXPECT_EQ(sharer.index, i);
        EXPECT_EQ(sharer.own.first, end) << "where the one before ends";
        EXPECT_EQ(sharer.own.first % 16, 0) << "stmatrix stores 16 tokens";
        end = sharer.own.end;
        for (int other = 0; other < sharers; ++other)
          EXPECT_EQ(sharer.worker_at(sharers + i, other), sharers + other);
      }
      EXPECT_EQ(end, tokens);
    }
  }
}

TEST(PrefillDivision, FewTilesAreSharedAndManyAreNot) {
  const auto chosen = [](const char* problem) {
    return choose(parse_linear_problem(problem), kMultiprocessors);
  };
  EXPECT_TRUE(chosen("f16/m96/n4096/k4096/w4g128").division.shares());
  const Chosen many = chosen("f16/m8192/n8192/k8192/w4g128");
  EXPECT_EQ(kForms[many.form].tokens, 256);
  EXPECT_FALSE(many.division.shares());
  const Chosen wave = chosen("f16/m1024/n5120/k13824/w4g128");  // 160 tiles
  EXPECT_EQ(wave.division.whole_waves, 1);
  EXPECT_EQ(wave.division.sharers, 4);
  EXPECT_EQ(wave.division.workers - wave.division.runs(), 132 - 28 * 4) << "blocks without a shared part";
  const Chosen by_three = chosen("f16/m512/n5120/k13824/w4g128");  // 80 tiles
  EXPECT_EQ(by_three.division.workers, 120);
  EXPECT_FALSE(by_three.division.shares());
}

TEST(PrefillDivision, LongRunsDoNotCutTiles) {
  const Division d = choose(parse_linear_problem("f16/m8192/n4096/k14336/w4g128"), kMultiprocessors).division;
  EXPECT_EQ(d.tiles(), 1024);
  EXPECT_FALSE(d.cuts());
}

TEST(PrefillDivision, UpTo256TokensTakeTheSmallestTileThatHoldsThem) {
  for (const Form& form : kForms) {
    for (const int m : {form.tokens - 31, form.tokens}) {
      SCOPED_TRACE(m);
      const Chosen choice =
          choose(parse_linear_problem("f16/m" + std::to_string(m) + "/n8192/k8192/w4g128"), kMultiprocessors);
      EXPECT_EQ(kForms[choice.form].tokens, form.tokens);
      EXPECT_EQ(choice.division.tokens, 1);
    }
  }
}

}  // namespace
}  // namespace fwht::linear::prefill
