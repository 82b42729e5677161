// The GPU tile on the host: the maps are proven exhaustively, and the very steps that the CUDA kernel runs
// are run here by one std::thread per GPU thread and compared bit for bit with the ascending loop nest.
#include "variants/kokkos/tile.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <bit>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "common/problem.hpp"

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
  std::vector<float> row(problem.n);
  for (std::int64_t r = 0; r < problem.rows; ++r) {
    const std::int64_t start = r * problem.row_stride;
    for (std::int64_t i = 0; i < problem.n; ++i)
      row[i] = static_cast<float>(decode(dtype, input[start + i]));
    for (std::int64_t half = 1; half < problem.n; half *= 2) {
      for (std::int64_t i = 0; i < problem.n; ++i) {
        if (i & half) continue;
        const float a = row[i], b = row[i + half];
        row[i] = a + b;
        row[i + half] = a - b;
      }
    }
    for (std::int64_t i = 0; i < problem.n; ++i) {
      output[start + i] = encode(dtype, row[i] * static_cast<float>(problem.scale));
    }
  }
  return output;
}

template <Dtype dtype, int kBits>
void run_and_compare(std::int64_t n, std::int64_t rows, std::int64_t stride, bool vectors) {
  using S = Shape<dtype, kBits>;
  using Word = std::conditional_t<dtype == Dtype::f32, std::uint32_t, std::uint16_t>;
  Problem problem = make_problem(dtype, n, rows);
  problem.row_stride = stride;
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

  TileJob job;
  job.rows = rows;
  job.row_stride = stride;
  job.gap = stride - n;
  job.log2_n = log2_floor(n);
  job.log2_rows_per_tile = job.log2_n < S::kChunkBits ? S::kChunkBits - job.log2_n : 0;
  job.vectors = vectors;
  job.scale = static_cast<float>(problem.scale);
  std::vector<float> scratch(S::kScratchFloats, NAN);
  for (std::int64_t tile = 0; tile << job.log2_rows_per_tile < rows; ++tile) {
    std::barrier team(S::kThreads);
    std::vector<std::thread> threads;
    for (int t = 0; t < S::kThreads; ++t) {
      threads.emplace_back([&, t] {
        TileThread<HostCodec<dtype>, S> thread(job, data, data, tile, t);
        transform_tile(thread, scratch.data(), [&] { team.arrive_and_wait(); });
      });
    }
    for (std::thread& thread : threads)
      thread.join();
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

template <Dtype dtype>
void short_rows() {
  for (int levels = 1; levels <= kSmallestTileBits; ++levels) {
    const std::int64_t n = std::int64_t{1} << levels, rows = (std::int64_t{2048} >> levels) + 3;
    SCOPED_TRACE(testing::Message() << "n=" << n);
    run_and_compare<dtype, kSmallestTileBits>(n, rows, n, true);
    run_and_compare<dtype, kSmallestTileBits>(n, rows, n, false);
    run_and_compare<dtype, kSmallestTileBits>(n, rows, n + 8, n >= 8);
    run_and_compare<dtype, kSmallestTileBits>(n, rows, n + 3, false);
    if (testing::Test::HasFatalFailure()) return;
  }
}
template <Dtype dtype>
void long_rows() {
  run_and_compare<dtype, 12>(4096, 2, 4096 + 16, true);
  run_and_compare<dtype, 12>(4096, 1, 4096, false);
  run_and_compare<dtype, 13>(8192, 2, 8192, true);
  run_and_compare<dtype, 13>(8192, 1, 8192, false);
  run_and_compare<dtype, 14>(16384, 2, 16384 + 8, true);
  run_and_compare<dtype, 14>(16384, 1, 16384, false);
  run_and_compare<dtype, 15>(32768, 2, 32768, true);
  run_and_compare<dtype, 15>(32768, 1, 32768, false);
}

TEST(KokkosTile, ShortRowsF16) {
  short_rows<Dtype::f16>();
}
TEST(KokkosTile, ShortRowsBf16) {
  short_rows<Dtype::bf16>();
}
TEST(KokkosTile, ShortRowsF32) {
  short_rows<Dtype::f32>();
}
TEST(KokkosTile, LongRowsF16) {
  long_rows<Dtype::f16>();
}
TEST(KokkosTile, LongRowsBf16) {
  long_rows<Dtype::bf16>();
}
TEST(KokkosTile, LongRowsF32) {
  long_rows<Dtype::f32>();
}

}  // namespace
}  // namespace fwht::kokkos
