#include "common/host/host_ranks.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "common/host/error.hpp"

namespace fwht {
namespace {

using namespace std::chrono_literals;

template <class Body>
void on_ranks(int size, TimeLimit limit, const Body& body) {
  HostRanks ranks(size, limit);
  run_ranks(size, ranks.meeting(), [&](int rank) { body(ranks.communicator(rank)); });
}

TEST(HostRanks, ExchangeAsTheInterfaceSays) {
  for (const int size : {1, 2, 3, 4, 8}) {
    on_ranks(size, 10s, [&](Communicator& c) {
      const auto value = [](int from, int piece) { return static_cast<std::int32_t>(1000 * from + piece); };
      std::vector<std::int32_t> send, received(static_cast<std::size_t>(size));
      for (int piece = 0; piece < size; ++piece)
        send.push_back(value(c.rank(), piece));
      for (int round = 0; round < 20; ++round) {
        c.all_to_all(send.data(), received.data(), 4, nullptr);
        for (int r = 0; r < size; ++r)
          EXPECT_EQ(received[static_cast<std::size_t>(r)], value(r, c.rank()));
        c.all_gather(&send[0], received.data(), 4, nullptr);
        for (int r = 0; r < size; ++r)
          EXPECT_EQ(received[static_cast<std::size_t>(r)], value(r, 0));
        float sum[2] = {static_cast<float>(c.rank()), 1.0F};
        c.all_reduce(sum, 2, Dtype::f32, nullptr);
        EXPECT_EQ(sum[0], static_cast<float>(size * (size - 1) / 2));
        EXPECT_EQ(sum[1], static_cast<float>(size));
      }
      c.finish(nullptr, 1s);
    });
  }
}

TEST(SingleRank, IsAGroupOfOne) {
  const std::unique_ptr<Communicator> alone = single_rank(Memory::host);
  EXPECT_EQ(alone->size(), 1);
  EXPECT_EQ(alone->rank(), 0);
  const std::int32_t sent[2] = {7, -3};
  std::int32_t received[2] = {};
  alone->all_gather(sent, received, sizeof sent, nullptr);
  EXPECT_EQ(received[1], -3);
  float sum = 2.5F;
  alone->all_reduce(&sum, 1, Dtype::f32, nullptr);
  EXPECT_EQ(sum, 2.5F);
  agree(*alone, {"the problem", ""}, 1s);
  EXPECT_THROW(agree(*alone, {"the problem", "no CUDA device"}, 1s), BadRequest);
}

TEST(HostRanks, SumsSixteenBitNumbersOnce) {
  on_ranks(4, 10s, [](Communicator& c) {
    // 2048 + 1 + 1 + 1: rounded one by one it would stay 2048.
    std::uint16_t x = float_to_f16(c.rank() == 0 ? 2048.0F : 1.0F);
    c.all_reduce(&x, 1, Dtype::f16, nullptr);
    EXPECT_EQ(f16_to_float(x), 2052.0F);  // 2051 lies between 2050 and 2052, ties to even
  });
  on_ranks(3, 10s, [](Communicator& c) {
    // In fp32 the sum is 2049, a tie.
    constexpr float kOfRank[] = {2048.0F, 1.0F, 0x1p-24F};
    std::uint16_t x = float_to_f16(kOfRank[c.rank()]);
    c.all_reduce(&x, 1, Dtype::f16, nullptr);
    EXPECT_EQ(f16_to_float(x), 2050.0F);
  });
}

TEST(HostRanks, SumsIntegersExactly) {
  on_ranks(3, 10s, [](Communicator& c) {
    constexpr std::int64_t kBeyondDoubles = (std::int64_t{1} << 53) + 1;
    std::int64_t wide[2] = {kBeyondDoubles, c.rank() == 0 ? std::numeric_limits<std::int64_t>::max() : -1};
    c.all_reduce(wide, 2, Dtype::i64, nullptr);
    EXPECT_EQ(wide[0], 3 * kBeyondDoubles);
    EXPECT_EQ(wide[1], std::numeric_limits<std::int64_t>::max() - 2);
    std::int32_t narrow[2] = {std::numeric_limits<std::int32_t>::min(), c.rank() - 7};
    c.all_reduce(narrow, 2, Dtype::i32, nullptr);
    EXPECT_EQ(narrow[0], std::numeric_limits<std::int32_t>::min()) << "-3 2^31 modulo 2^32";
    EXPECT_EQ(narrow[1], -18);
  });
}

TEST(HostRanks, AMissingRankEndsTheOthersWithinTheLimit) {
  const auto start = std::chrono::steady_clock::now();
  try {
    on_ranks(3, 200ms, [](Communicator& c) {
      if (c.rank() == 2) return;  // never arrives
      std::int32_t mine = 0, all[3];
      c.all_gather(&mine, all, 4, nullptr);
    });
    FAIL() << "nobody noticed";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "only 2 of 3 ranks arrived within 200 ms");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST(HostRanks, AFailingRankEndsTheOthersWithItsReason) {
  const auto start = std::chrono::steady_clock::now();
  try {
    on_ranks(4, 60s, [](Communicator& c) {
      if (c.rank() == 1) throw std::runtime_error("out of luck");
      std::int32_t mine = 0, all[4];
      c.all_gather(&mine, all, 4, nullptr);
    });
    FAIL() << "nobody noticed";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "rank 1: out of luck");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

// Every rank sees the same sentence: none goes on alone.
void expect_all_refuse(int size, const std::function<Statement(int)>& statement,
                       const std::string& sentence) {
  HostRanks ranks(size, 10s);
  std::atomic<int> refused = 0;
  run_ranks(size, ranks.meeting(), [&](int rank) {
    try {
      agree(ranks.communicator(rank), statement(rank), 10s);
      ADD_FAILURE() << "rank " << rank << " went on";
    } catch (const BadRequest& error) {
      EXPECT_EQ(error.what(), sentence);
      ++refused;
    }
  });
  EXPECT_EQ(refused, size);
}

TEST(HostRanks, AgreeOrRefuseTogether) {
  on_ranks(4, 10s, [](Communicator& c) { agree(c, {"the problem", ""}, 10s); });
  expect_all_refuse(
      4,
      [](int rank) {
        return Statement{rank == 2 ? "m=8" : "m=16", ""};
      },
      "the ranks have different problems: rank 0 has m=16, rank 2 has m=8");
  expect_all_refuse(
      2,
      [](int rank) {
        return Statement{"m=16", rank == 1 ? "no CUDA device 1: this machine has 1" : ""};
      },
      "rank 1: no CUDA device 1: this machine has 1");
}

}  // namespace
}  // namespace fwht
