#include "common/host/parallel_for.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

namespace fwht {
namespace {

TEST(ParallelFor, CoversEveryIndexOnce) {
  for (const std::int64_t count : {0, 1, 2, 3, 7, 64, 1000}) {
    for (const int threads : {-1, 0, 1, 2, 3, 8, 100}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
      parallel_for(count, threads, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          ++visits[static_cast<std::size_t>(i)];
      });
      for (const auto& visit : visits)
        ASSERT_EQ(visit, 1) << count << " over " << threads;
    }
  }
}

TEST(ParallelFor, GivesNoPieceTwiceAndNoEmptyPieceForMoreThreadsThanWork) {
  std::atomic<int> pieces{0};
  parallel_for(3, 8, [&](std::int64_t begin, std::int64_t end) {
    EXPECT_EQ(end, begin + 1);
    ++pieces;
  });
  EXPECT_EQ(pieces, 3);
}

TEST(ParallelFor, ReallyUsesOtherThreads) {
  std::atomic<int> elsewhere{0};
  const std::thread::id here = std::this_thread::get_id();
  parallel_for(4, 4, [&](std::int64_t, std::int64_t) { elsewhere += std::this_thread::get_id() != here; });
  EXPECT_EQ(elsewhere, 3);
}

TEST(ParallelFor, ThrowsAgainInTheCallerWhicheverPieceFails) {
  for (const std::int64_t bad : {0, 1, 2, 3}) {
    std::atomic<int> finished{0};
    const auto body = [&](std::int64_t begin, std::int64_t) {
      if (begin == bad) throw std::runtime_error("piece " + std::to_string(begin));
      ++finished;
    };
    try {
      parallel_for(4, 4, body);
      FAIL() << "the exception of piece " << bad << " was lost";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), "piece " + std::to_string(bad));
    }
    EXPECT_EQ(finished, 3) << "the other pieces are finished before the exception leaves";
  }
}

}  // namespace
}  // namespace fwht
