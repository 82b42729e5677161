#include "common/host/parallel_for.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <new>
#include <stdexcept>
#include <thread>

namespace {
thread_local int allocations_left = -1;  // below 0: any number
}  // namespace

// Not inlined: g++ would see memory of operator new in free().
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  if (void* const at = std::malloc(bytes == 0 ? 1 : bytes)) return at;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* at) noexcept {
  std::free(at);
}
[[gnu::noinline]] void operator delete(void* at, std::size_t) noexcept {
  std::free(at);
}

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

TEST(ParallelFor, WorksInTheCallerWhereThereIsNoMemoryForAThread) {
  for (const int allowed : {0, 1, 2, 3}) {  // of the list of threads, then of each thread
    std::atomic<std::int64_t> done{0};
    allocations_left = allowed;
    parallel_for(64, 8, [&](std::int64_t begin, std::int64_t end) { done += end - begin; });
    allocations_left = -1;
    EXPECT_EQ(done, 64) << allowed;
  }
}

// A thread's stack takes 8 MB of addresses; there are 4 left.
TEST(ParallelFor, WorksInTheCallerWhereNoThreadStarts) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer needs the addresses";
#endif
  const auto work = [] {
    std::int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + (4 << 20));
    setrlimit(RLIMIT_AS, &limit);
    std::atomic<std::int64_t> done{0};
    parallel_for(64, 64, [&](std::int64_t begin, std::int64_t end) { done += end - begin; });
    std::_Exit(done == 64 ? 0 : 1);
  };
  EXPECT_EXIT(work(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace fwht
