// The GPU tile on the host: the maps are proven exhaustively, and the very steps that the CUDA kernel runs
// are run here by one std::thread per GPU thread and compared bit for bit with the ascending loop nest.
#include "variants/kokkos/tile.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <bit>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "common/contract/problem.hpp"

namespace fwht::kokkos {
namespace {

template <Dtype dtype>
struct HostCodec {
  static float decode(std::uint32_t bits) {
    if constexpr (dtype == Dtype::f32) return std::bit_cast<float>(bits);
    if constexpr (dtype == Dtype::bf16) return bf16_to_float(static_cast<std::uint16_t>(bits));
    return f16_to_float(static_cast<std::uint16_t>(bits));
  }
  static std::uint32_t encode(float value) {
    if constexpr (dtype == Dtype::f32) return std::bit_cast<std::uint32_t>(value);
    if constexpr (dtype == Dtype::bf16) return float_to_bf16(value);
    return float_to_f16(value);
  }
  static void decode2(std::uint32_t word, float& low, float& high) {
    low = decode(word & 0xFFFFU);
    high = decode(word >> 16);
  }
  static std::uint32_t encode2(float low, float high) { return encode(low) | encode(high) << 16; }
};

template <int kStorageBytes_, int kBits_>
struct ShapeCase {
  using Shape = typename ShapeFor<kStorageBytes_, kBits_>::type;
};
template <class Case>
class KokkosTileMap : public testing::Test {};
using ShapeCases =
    testing::Types<ShapeCase<2, 11>, ShapeCase<2, 12>, ShapeCase<2, 13>, ShapeCase<2, 14>, ShapeCase<2, 15>,
                   ShapeCase<4, 11>, ShapeCase<4, 12>, ShapeCase<4, 13>, ShapeCase<4, 14>, ShapeCase<4, 15>>;
TYPED_TEST_SUITE(KokkosTileMap, ShapeCases);

TYPED_TEST(KokkosTileMap, EveryPassIsABijection) {
  using Shape = typename TypeParam::Shape;
  for (int pass = 0; pass < Shape::kPasses; ++pass) {
    const auto map = Shape::pass(pass);
    std::set<int> seen;
    for (int thread = 0; thread < Shape::kThreads; ++thread) {
      for (int reg = 0; reg < Shape::kRegisters; ++reg)
        seen.insert(map.element_of(thread, reg));
    }
    EXPECT_EQ(seen.size(), std::size_t{Shape::kChunkElements}) << "pass " << pass;
    EXPECT_EQ(*seen.rbegin(), Shape::kChunkElements - 1) << "pass " << pass;
  }
}

TYPED_TEST(KokkosTileMap, LevelsAscendWithoutGapOrRepeat) {
  using Shape = typename TypeParam::Shape;
  int next = 0;
  for (int pass = 0; pass < Shape::kPasses; ++pass) {
    const auto map = Shape::pass(pass);
    EXPECT_EQ(map.first_level, next) << "pass " << pass;
    for (int i = 0; i < map.levels; ++i)
      EXPECT_EQ(map.register_bit[map.first_active + i], next + i);
    next += map.levels;
  }
  EXPECT_EQ(next, Shape::kChunkBits);
}

TYPED_TEST(KokkosTileMap, ScratchHasNoBankConflict) {
  using Shape = typename TypeParam::Shape;
  for (int pass = 0; pass < Shape::kPasses; ++pass) {
    const auto map = Shape::pass(pass);
    for (int warp = 0; warp < Shape::kThreads; warp += 32) {
      for (int reg = 0; reg < Shape::kRegisters; ++reg) {
        std::set<int> banks;
        for (int lane = 0; lane < 32; ++lane)
          banks.insert(padded(map.element_of(warp + lane, reg)) % 32);
        ASSERT_EQ(banks.size(), 32U) << "pass " << pass << ", warp " << warp / 32 << ", register " << reg;
      }
    }
  }
}

TYPED_TEST(KokkosTileMap, ScratchAddressesAreDistinctAdditiveAndWithinKokkosLimit) {
  using Shape = typename TypeParam::Shape;
  std::set<int> addresses;
  for (int element = 0; element < Shape::kChunkElements; ++element)
    addresses.insert(padded(element));
  EXPECT_EQ(addresses.size(), std::size_t{Shape::kChunkElements});
  EXPECT_EQ(*addresses.rbegin(), Shape::kScratchFloats - 1);
  for (int pass = 0; pass < Shape::kPasses; ++pass) {
    const auto map = Shape::pass(pass);
    for (int thread = 0; thread < Shape::kThreads; ++thread) {
      for (int reg = 0; reg < Shape::kRegisters; ++reg) {
        ASSERT_EQ(padded(map.element_of(thread, reg)),
                  padded(map.thread_offset(thread)) + padded(map.register_offset(reg)));
      }
    }
  }
  // Kokkos keeps (team size + 2) doubles of the 48 KiB that a CUDA block gets without opting in to more.
  EXPECT_LE(Shape::kScratchFloats * 4 + (Shape::kThreads + 2) * 8, 48 * 1024);
}

// Neighbouring lanes read and write neighbouring runs: every 32-byte sector is moved whole by one
// instruction, or (two vectors a thread) by two of the same thread.
TYPED_TEST(KokkosTileMap, GlobalAccessIsContiguousAcrossLanes) {
  using Shape = typename TypeParam::Shape;
  const auto load = Shape::pass(0), store = Shape::pass(Shape::kPasses - 1);
  const int run = 1 << Shape::kFirst;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < run; ++i)
      ASSERT_EQ(load.element_of(lane, i), lane * run + i);
    for (int i = 0; i < Shape::kStoreElements; ++i) {
      ASSERT_EQ(store.element_of(lane, i), lane * Shape::kStoreElements + i);
    }
  }
  EXPECT_LE(run * Shape::kStorageBytes, 32);
}

std::vector<std::uint32_t> loop_nest(Dtype dtype, const Problem& problem,
                                     const std::vector<std::uint32_t>& input) {
  std::vector<std::uint32_t> output = input;
  std::vector<float> row(problem.n());
  for (std::int64_t r = 0; r < problem.rows; ++r) {
    const std::int64_t start = r * problem.row_stride();
    for (std::int64_t i = 0; i < problem.n(); ++i)
      row[i] = static_cast<float>(decode(dtype, input[start + i]));
    for (std::int64_t half = 1; half < problem.n(); half *= 2) {
      for (std::int64_t i = 0; i < problem.n(); ++i) {
        if (i & half) continue;
        const float a = row[i], b = row[i + half];
        row[i] = a + b;
        row[i + half] = a - b;
      }
    }
    for (std::int64_t i = 0; i < problem.n(); ++i) {
      output[start + i] = encode(dtype, row[i] * static_cast<float>(problem.scale));
    }
  }
  return output;
}

/// The team that starts at tile `first`, in place, every thread of it a thread of the host.
template <class Codec, class S, bool kVectors>
void run_team(const TileJob& job, void* data, std::int64_t first, std::int64_t step) {
  std::vector<float> scratch(S::kScratchFloats, NAN);
  std::barrier team(S::kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < S::kThreads; ++t) {
    threads.emplace_back([&, t] {
      TileThread<Codec, S, kVectors> thread(job, data, data, t);
      transform_tiles(thread, first, step, job.tiles, scratch.data(), [&] { team.arrive_and_wait(); });
    });
  }
  for (std::thread& thread : threads)
    thread.join();
}

template <Dtype dtype, int kBits>
void run_and_compare(std::int64_t n, std::int64_t rows, std::int64_t stride, bool vectors) {
  using S = Shape<dtype, kBits>;
  constexpr std::int64_t teams = S::kPersistent ? 2 : 1 << 20;  // persistent teams walk over the rows
  using Word = std::conditional_t<dtype == Dtype::f32, std::uint32_t, std::uint16_t>;
  Problem problem = make_problem(dtype, n, rows);
  problem.set_row_stride(stride);
  std::mt19937 random(static_cast<unsigned>(n + rows));
  std::normal_distribution<double> normal;
  std::vector<std::uint32_t> input(problem.span_elements());
  for (auto& bits : input)
    bits = encode(dtype, normal(random));
  // 16 bytes before and after, to see writes out of bounds; `vectors` decides the alignment.
  constexpr int kGuard = 16 / sizeof(Word);
  const int shift = vectors ? 0 : 1;
  std::vector<Words4> storage(input.size() / kGuard + 4);
  std::memset(storage.data(), 0xAB, storage.size() * sizeof(Words4));
  Word* data = reinterpret_cast<Word*>(storage.data()) + kGuard + shift;
  std::copy(input.begin(), input.end(), data);

  const TileJob job = make_tile_job<S>(n, rows, stride, static_cast<float>(problem.scale));
  ASSERT_EQ((whole_vectors<S>(job, data, data)), vectors) << to_string(problem);
  for (std::int64_t team = 0; team < std::min<std::int64_t>(teams, job.tiles); ++team) {
    if (vectors) {
      run_team<HostCodec<dtype>, S, true>(job, data, team, teams);
    } else {
      run_team<HostCodec<dtype>, PatientShape<dtype, kBits>, false>(job, data, team, teams);
    }
  }

  const std::vector<std::uint32_t> expected = loop_nest(dtype, problem, input);
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_EQ(data[i], expected[i]) << "element " << i;
  const Word untouched = static_cast<Word>(0xABABABAB);
  for (int i = 1; i <= kGuard; ++i)
    ASSERT_EQ(data[-i], untouched) << "before the array";
  for (int i = 0; i < kGuard; ++i)
    ASSERT_EQ(data[expected.size() + i], untouched) << "after the array";
}

template <Dtype dtype, int kBits>
void rows_of() {
  const std::int64_t n = std::int64_t{1} << kBits;
  const std::int64_t per_tile = n < 2048 ? 2048 / n : 1;
  const bool gap_keeps_vectors = n * bytes_of(dtype) >= 16;
  SCOPED_TRACE(testing::Message() << "n=" << n);
  run_and_compare<dtype, kBits>(n, kBits == 15 ? 5 : per_tile + 8, n, true);
  run_and_compare<dtype, kBits>(n, kBits > 11 ? 1 : per_tile + 3, n, false);
  run_and_compare<dtype, kBits>(n, kBits > 11 ? 2 : per_tile + 3, n + 8, gap_keeps_vectors);
  run_and_compare<dtype, kBits>(n, 2, n + 3, false);
}
template <Dtype dtype, int... kBits>
void all_rows_of(std::integer_sequence<int, kBits...>) {
  (rows_of<dtype, kBits + 1>(), ...);
}

TEST(KokkosTile, RowsFarApartGetATileEach) {
  using S = Shape<Dtype::f16, kSmallestTileBits>;
  const std::int64_t limit = (std::int64_t{1} << 31) - 1;
  const TileJob near = make_tile_job<S>(64, 100, 64 + limit, 1.0F);
  EXPECT_EQ(near.gap, limit);
  EXPECT_EQ(near.tiles, 4);  // 32 rows of 64 each
  const TileJob far = make_tile_job<S>(64, 100, 64 + limit + 1, 1.0F);
  EXPECT_EQ(far.log2_rows_per_tile, 0);
  EXPECT_EQ(far.tiles, 100);
}

TEST(KokkosTile, BitForBitF16) {
  all_rows_of<Dtype::f16>(
      std::integer_sequence<int, 0, 2, 3, 9, 14>{});  // the codec; the maps are those of bf16
}
TEST(KokkosTile, BitForBitBf16) {
  all_rows_of<Dtype::bf16>(std::make_integer_sequence<int, kLargestTileBits>{});
}
TEST(KokkosTile, BitForBitF32) {
  all_rows_of<Dtype::f32>(std::make_integer_sequence<int, kLargestTileBits>{});
}

}  // namespace
}  // namespace fwht::kokkos
