#include "common/contract/linear/weights.hpp"
#include <gtest/gtest.h>

#include "common/host/error.hpp"

namespace fwht {
namespace {

/// 64 rows, 16 columns, two groups of 32.
GptqWeights small(ZeroPoints zero_points, std::vector<std::int32_t> g_idx = {}) {
  std::vector<std::uint8_t> q(64 * 16), z(2 * 16);
  std::vector<std::uint16_t> scales(2 * 16);
  for (std::size_t i = 0; i < q.size(); ++i)
    q[i] = static_cast<std::uint8_t>((i * 7 + i / 16) % 16);
  for (std::size_t i = 0; i < z.size(); ++i)
    z[i] = static_cast<std::uint8_t>(i % 16 + (zero_points == ZeroPoints::v1 ? 1 : 0));
  for (std::size_t i = 0; i < scales.size(); ++i)
    scales[i] = static_cast<std::uint16_t>(encode(Dtype::f16, 0.25 * static_cast<double>(i + 1)));
  if (zero_points == ZeroPoints::symmetric) z.clear();
  return pack_gptq(16, 64, 32, zero_points, q, z, scales, std::move(g_idx));
}

TEST(GptqWeights, NibblesLieWhereTheFormatSays) {
  const GptqWeights weights = small(ZeroPoints::v1);
  // Word (r, c) holds rows 8 r to 8 r + 7 of column c, the first in the lowest bits.
  EXPECT_EQ(weights.qweight[0 * 16 + 3] & 15U, (3U * 7) % 16);
  EXPECT_EQ(weights.qweight[2 * 16 + 5] >> 28, ((23U * 16 + 5) * 7 + 23) % 16);
  // z - 1 is stored: column 15 of group 1 has z = 16.
  EXPECT_EQ(weights.qzeros[1 * 2 + 1] >> 28, 15U);
  EXPECT_EQ(weights.zero(1, 15), 16);
  EXPECT_EQ(small(ZeroPoints::v2).zero(1, 15), 15);
  EXPECT_EQ(small(ZeroPoints::symmetric).zero(1, 15), 8);
  for (std::int64_t row = 0; row < 64; ++row) {
    for (std::int64_t c = 0; c < 16; ++c) {
      const std::int64_t q = ((row * 16 + c) * 7 + row) % 16, g = row / 32;
      EXPECT_EQ(weights.weight(row, c),
                0.25 * static_cast<double>(g * 16 + c + 1) * static_cast<double>(q - (c + 1)));
    }
  }
}

TEST(GptqWeights, SortingKeepsEveryRowWithItsGroup) {
  std::vector<std::int32_t> g_idx(64);
  for (std::size_t i = 0; i < 64; ++i)
    g_idx[i] = static_cast<std::int32_t>(i * 5 % 64 % 2);
  const GptqWeights mixed = small(ZeroPoints::v1, g_idx);
  const GptqWeights sorted = sorted_rows(mixed);
  const std::vector<std::int32_t> order = row_order(mixed);
  EXPECT_TRUE(sorted.g_idx.empty());
  for (std::int64_t row = 0; row < 64; ++row)
    for (std::int64_t c = 0; c < 16; ++c)
      EXPECT_EQ(sorted.weight(row, c), mixed.weight(order[static_cast<std::size_t>(row)], c));
  for (std::size_t i = 1; i < 32; ++i)
    EXPECT_LT(order[i - 1], order[i]);  // stable
}

TEST(GptqWeights, BadTensorsAreRefused) {
  const auto refused = [](auto&& change, const char* part) {
    GptqWeights weights = small(ZeroPoints::v1);
    change(weights);
    try {
      validate(weights);
      ADD_FAILURE() << part << " is accepted";
    } catch (const BadRequest& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refused([](GptqWeights& w) { w.qweight.pop_back(); }, "qweight has 127 entries, 128 are needed");
  refused([](GptqWeights& w) { w.qzeros.push_back(0); }, "qzeros has 5 entries, 4 are needed");
  refused([](GptqWeights& w) { w.zero_points = ZeroPoints::symmetric; },
          "qzeros has 4 entries, 0 are needed");
  refused([](GptqWeights& w) { w.scales.clear(); }, "scales has 0 entries");
  refused([](GptqWeights& w) { w.scales[17] = 0x7E00; }, "scale of group 1, column 1");
  refused([](GptqWeights& w) { w.scales[2] = 0xFC00; }, "scale of group 0, column 2");
  refused([](GptqWeights& w) { w.g_idx.assign(64, 2); }, "g_idx of row 0 is 2, groups are 0 to 1");
  refused([](GptqWeights& w) { w.g_idx.assign(64, -1); }, "g_idx of row 0 is -1");
  refused([](GptqWeights& w) { w.g_idx.assign(63, 0); }, "g_idx has 63 entries");
  refused([](GptqWeights& w) { w.group = 48; }, "group 48");

  GptqWeights uneven = small(ZeroPoints::v1);
  uneven.g_idx.assign(64, 0);
  EXPECT_THROW(sorted_rows(uneven), BadRequest);
  const std::vector<std::uint16_t> scales(32, 0x3C00);
  const std::vector<std::uint8_t> q(64 * 16, 0), zeros(32, 1);
  EXPECT_THROW(pack_gptq(16, 64, 32, ZeroPoints::v1, std::vector<std::uint8_t>(64 * 16, 16), zeros, scales),
               BadRequest);
  EXPECT_THROW(pack_gptq(16, 64, 32, ZeroPoints::v1, q, std::vector<std::uint8_t>(32, 17), scales),
               BadRequest);
  EXPECT_THROW(pack_gptq(16, 64, 32, ZeroPoints::v1, q, std::vector<std::uint8_t>(32, 0), scales),
               BadRequest);
  EXPECT_THROW(pack_gptq(16, 64, 32, ZeroPoints::v2, q, std::vector<std::uint8_t>(32, 16), scales),
               BadRequest);
  EXPECT_NO_THROW(pack_gptq(16, 64, 32, ZeroPoints::v1, q, std::vector<std::uint8_t>(32, 16), scales));
}

}  // namespace
}  // namespace fwht
