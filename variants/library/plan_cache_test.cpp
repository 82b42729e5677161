#include "variants/library/plan_cache.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "variants/registry.hpp"

namespace fwht {
namespace {

/// Counts how many of its kind are alive.
class CountedPlan final : public Plan {
 public:
  CountedPlan(const Problem& problem, bool ordered) : Plan(problem), ordered_(ordered) { ++alive; }
  ~CountedPlan() override { --alive; }
  Numerics numerics() const override { return {}; }
  Settings settings() const override { return {}; }
  bool one_stream_at_a_time() const override { return ordered_; }

  static inline std::atomic<int> alive = 0;

 private:
  void enqueue(const Operands&, Stream) const override {}
  bool ordered_;
};

PlanKey key(std::int64_t rows, std::uint64_t stream = 0, std::uint64_t capture = 0, int device = 0) {
  return {device, make_problem(Dtype::f16, 64, rows), {stream, capture, {}}};
}

/// The plan of the key, made where it is missing.
std::shared_ptr<const Plan> get(PlanCache& cache, const PlanKey& key, bool ordered = false) {
  return cache.find_or_make(key, [&] { return std::make_unique<CountedPlan>(key.problem, ordered); });
}

TEST(PlanCache, OnePlanServesAllStreamsOfOneProblemAndDevice) {
  PlanCache cache(10);
  EXPECT_EQ(cache.find(key(1)), nullptr);
  const auto plan = get(cache, key(1, 5));
  EXPECT_EQ(cache.find(key(1, 6)), plan);
  EXPECT_EQ(get(cache, key(1, 7, 3)), plan);
  EXPECT_NE(get(cache, key(2)), plan);
  EXPECT_NE(get(cache, key(1, 5, 0, /*device=*/1)), plan);
  PlanKey other_variant = key(1, 5);
  other_variant.variant = registry().front();
  EXPECT_NE(get(cache, other_variant), plan);
  EXPECT_EQ(cache.size(), 4U);
  EXPECT_EQ(CountedPlan::alive, 4);
  EXPECT_EQ(cache.clear(), 4U);
  EXPECT_EQ(CountedPlan::alive, 1) << "the one that is held here";
}

TEST(PlanCache, PlansThatChangeTheirStateAreOnePerStreamAndCapture) {
  PlanCache cache(10);
  const auto plan = get(cache, key(1, 5), true);
  EXPECT_EQ(CountedPlan::alive, 1) << "the plan that shows that it is ordered is the first stream's";
  EXPECT_EQ(cache.find(key(1, 5)), plan);
  EXPECT_EQ(cache.find(key(1, 6)), nullptr);
  EXPECT_NE(get(cache, key(1, 6), true), plan);
  EXPECT_NE(get(cache, key(1, 5, 1), true), plan) << "a capture of the same stream";
  PlanKey other_thread = key(1, 5);
  other_thread.order.thread = std::this_thread::get_id();
  EXPECT_NE(get(cache, other_thread, true), plan);
  EXPECT_EQ(cache.size(), 4U);
}

TEST(PlanCache, PlansThatWereLentStayUntilClear) {
  PlanCache cache(2);
  EXPECT_EQ(cache.lend(key(1)), nullptr) << "there is none yet";
  const Plan* first = get(cache, key(1, 5)).get();
  EXPECT_EQ(cache.lend(key(1, 6)).get(), first);
  get(cache, key(2, 5), true);
  EXPECT_EQ(cache.lend(key(2)), nullptr) << "every stream has its own";
  for (const int rows : {3, 4, 5})
    get(cache, key(rows));
  EXPECT_EQ(cache.find(key(1)).get(), first) << "though it was used longest ago";
  EXPECT_NE(cache.lend(key(5)), nullptr);
  EXPECT_EQ(cache.lend(key(4)), nullptr) << "as many as the limit were lent";
  EXPECT_NE(cache.lend(key(5)), nullptr) << "this one is lent already";
  const auto held = cache.lend(key(1));
  cache.clear();
  EXPECT_EQ(CountedPlan::alive, 1) << "the one that is held here";
  get(cache, key(6));
  EXPECT_NE(cache.lend(key(6)), nullptr);
}

TEST(PlanCache, TheLeastRecentlyUsedPlanGoesFirst) {
  PlanCache cache(3);
  for (const int rows : {1, 2, 3})
    get(cache, key(rows));
  EXPECT_NE(cache.find(key(1)), nullptr);  // used: 2 is the oldest now
  get(cache, key(4));
  EXPECT_EQ(cache.size(), 3U);
  EXPECT_EQ(cache.find(key(2)), nullptr);
  for (const int rows : {1, 3, 4})
    EXPECT_NE(cache.find(key(rows)), nullptr) << rows;
  EXPECT_EQ(CountedPlan::alive, 3) << "evicted plans are destroyed";
  cache.set_limit(1);
  EXPECT_EQ(cache.size(), 1U);
  EXPECT_NE(cache.find(key(4)), nullptr) << "the last that was used";
  EXPECT_EQ(cache.limit(), 1U);
}

TEST(PlanCache, APlanInUseOrJustMadeIsNotEvicted) {
  PlanCache cache(1);
  const auto held = get(cache, key(1));
  const auto newest = get(cache, key(2));
  EXPECT_EQ(cache.find(key(1)), held);
  EXPECT_EQ(cache.find(key(2)), newest);
}

TEST(PlanCache, ACapturedPlanStaysUntilClear) {
  PlanCache cache(1);
  get(cache, key(1, 5, /*capture=*/9));
  get(cache, key(2));
  EXPECT_EQ(cache.find(key(2, 5, /*capture=*/9))->problem().rows, 2) << "a plan that a later call captures";
  get(cache, key(100, 5, /*capture=*/9), true);
  for (int rows = 3; rows < 50; ++rows)
    get(cache, key(rows));
  EXPECT_NE(cache.find(key(1)), nullptr);
  EXPECT_NE(cache.find(key(2)), nullptr);
  EXPECT_NE(cache.find(key(49)), nullptr) << "captured plans do not count";
  EXPECT_EQ(CountedPlan::alive, 4);
  EXPECT_EQ(cache.clear(), 4U);
  EXPECT_EQ(CountedPlan::alive, 0);
}

TEST(PlanCache, ThrowsOnWhatMakeThrowsAndKeepsNothing) {
  PlanCache cache(4);
  EXPECT_THROW(cache.find_or_make(key(1), []() -> std::unique_ptr<Plan> { throw std::runtime_error("no"); }),
               std::runtime_error);
  EXPECT_EQ(cache.size(), 0U);
  EXPECT_EQ(cache.find(key(1)), nullptr);
}

// Far more problems than the limit from eight threads: every answer is the plan of its problem, and in the
// end no more are alive than may be.
TEST(PlanCache, HoldsUnderManyThreads) {
  PlanCache cache(5);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 2000; ++i) {
        const PlanKey wanted = key(i % 23, thread);
        const bool ordered = i % 23 < 4;
        std::shared_ptr<const Plan> plan = cache.find(wanted);
        if (plan == nullptr) plan = get(cache, wanted, ordered);
        wrong += plan->problem() != wanted.problem || plan->one_stream_at_a_time() != ordered;
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
  get(cache, key(1000));  // evicts what was in use before
  EXPECT_LE(cache.size(), 5U);
  EXPECT_EQ(CountedPlan::alive, static_cast<int>(cache.size()));
}

}  // namespace
}  // namespace fwht
