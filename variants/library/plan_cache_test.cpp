#include "variants/library/plan_cache.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "common/contract/linear/variant.hpp"

namespace fwht {
namespace {

Problem problem_of(Transforms, std::int64_t size) {
  return make_problem(Dtype::f16, 64, size);
}
LinearProblem problem_of(LinearLayers, std::int64_t size) {
  LinearProblem problem;
  problem.m = size;
  problem.n = problem.k = 128;
  return problem;
}

/// What a plan of linear layers must have besides.
template <class Plan>
class WithPacking : public Plan {
 protected:
  using Plan::Plan;
};
template <>
class WithPacking<LinearPlan> : public LinearPlan {
 public:
  std::int64_t packed_bytes() const override { return 0; }
  std::string packing() const override { return ""; }

 protected:
  using LinearPlan::LinearPlan;

 private:
  void pack_into(const GptqWeights&, std::byte*) const override {}
};

/// Counts how many of its kind are alive.
template <class Family>
class CountedPlan final : public WithPacking<typename Family::Plan> {
 public:
  CountedPlan(const typename Family::Problem& problem, bool ordered)
      : WithPacking<typename Family::Plan>(problem), ordered_(ordered) {
    ++alive;
  }
  ~CountedPlan() override { --alive; }
  Numerics numerics() const override { return {}; }
  Settings settings() const override { return {}; }
  bool one_stream_at_a_time() const override { return ordered_; }

  static inline std::atomic<int> alive = 0;

 private:
  void enqueue(const typename Family::Operands&, Stream) const override {}
  bool ordered_;
};

template <class Family>
class PlanCacheTest : public testing::Test {
 protected:
  using Cache = PlanCacheOf<Family>;
  using Key = PlanKeyOf<Family>;
  using Plan = typename Family::Plan;

  static Key key(std::int64_t size, std::uint64_t stream = 0, std::uint64_t capture = 0, int device = 0) {
    return {device, problem_of(Family{}, size), {stream, capture, {}}};
  }
  /// The plan of the key, made where it is missing.
  static std::shared_ptr<const Plan> get(Cache& cache, const Key& key, bool ordered = false) {
    return cache.find_or_make(key,
                              [&] { return std::make_unique<CountedPlan<Family>>(key.problem, ordered); });
  }
  static int alive() { return CountedPlan<Family>::alive; }
};

using Families = testing::Types<Transforms, LinearLayers>;
TYPED_TEST_SUITE(PlanCacheTest, Families);

TYPED_TEST(PlanCacheTest, OnePlanServesAllStreamsOfOneProblemAndDevice) {
  typename TestFixture::Cache cache(10);
  EXPECT_EQ(cache.find(TestFixture::key(1)), nullptr);
  const auto plan = TestFixture::get(cache, TestFixture::key(1, 5));
  EXPECT_EQ(cache.find(TestFixture::key(1, 6)), plan);
  EXPECT_EQ(TestFixture::get(cache, TestFixture::key(1, 7, 3)), plan);
  EXPECT_NE(TestFixture::get(cache, TestFixture::key(2)), plan);
  EXPECT_NE(TestFixture::get(cache, TestFixture::key(1, 5, 0, /*device=*/1)), plan);
  const VariantOf<TypeParam> other{};
  typename TestFixture::Key other_variant = TestFixture::key(1, 5);
  other_variant.variant = &other;
  EXPECT_NE(TestFixture::get(cache, other_variant), plan);
  EXPECT_EQ(cache.size(), 4U);
  EXPECT_EQ(TestFixture::alive(), 4);
  EXPECT_EQ(cache.clear(), 4U);
  EXPECT_EQ(TestFixture::alive(), 1) << "the one that is held here";
}

TYPED_TEST(PlanCacheTest, PlansThatChangeTheirStateAreOnePerStreamAndCapture) {
  typename TestFixture::Cache cache(10);
  const auto plan = TestFixture::get(cache, TestFixture::key(1, 5), true);
  EXPECT_EQ(TestFixture::alive(), 1) << "the plan that shows that it is ordered is the first stream's";
  EXPECT_EQ(cache.find(TestFixture::key(1, 5)), plan);
  EXPECT_EQ(cache.find(TestFixture::key(1, 6)), nullptr);
  EXPECT_NE(TestFixture::get(cache, TestFixture::key(1, 6), true), plan);
  EXPECT_NE(TestFixture::get(cache, TestFixture::key(1, 5, 1), true), plan) << "a capture of the same stream";
  typename TestFixture::Key other_thread = TestFixture::key(1, 5);
  other_thread.order.thread = std::this_thread::get_id();
  EXPECT_NE(TestFixture::get(cache, other_thread, true), plan);
  EXPECT_EQ(cache.size(), 4U);
}

/// As a plan that frees memory of its device, which may wait for another thread's work there.
class PlanThatWaits final : public Plan {
 public:
  PlanThatWaits(const Problem& problem, PlanCache& cache, std::atomic<int>& came_through)
      : Plan(problem), cache_(cache), came_through_(came_through) {}
  ~PlanThatWaits() override {
    std::thread other([this] {
      cache_.find({1, problem(), {}, nullptr});
      ++came_through_;
    });
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    const int before = came_through_;
    while (came_through_ == before && std::chrono::steady_clock::now() < limit)
      std::this_thread::yield();
    came_through_ == before ? other.detach() : other.join();
  }
  Numerics numerics() const override { return {}; }
  Settings settings() const override { return {}; }

 private:
  void enqueue(const Operands&, Stream) const override {}
  PlanCache& cache_;
  std::atomic<int>& came_through_;
};

TEST(PlanCache, HoldsNoOneUpWhileItDestroysPlans) {
  static std::atomic<int> came_through = 0;  // also of a thread that was left behind
  static PlanCache cache(1);
  const auto add = [&](std::int64_t rows) {
    const Problem problem = make_problem(Dtype::f16, 64, rows);
    cache.find_or_make({0, problem, {}, nullptr},
                       [&] { return std::make_unique<PlanThatWaits>(problem, cache, came_through); });
  };
  add(1);
  add(2);
  EXPECT_EQ(came_through, 1) << "the first was evicted";
  cache.set_limit(0);
  EXPECT_EQ(came_through, 2);
  cache.set_limit(1);
  add(3);
  EXPECT_EQ(cache.clear(), 1U);
  EXPECT_EQ(came_through, 3);
}

TYPED_TEST(PlanCacheTest, PlansThatWereLentStayUntilClear) {
  typename TestFixture::Cache cache(2);
  EXPECT_EQ(cache.lend(TestFixture::key(1)), nullptr) << "there is none yet";
  const auto* first = TestFixture::get(cache, TestFixture::key(1, 5)).get();
  EXPECT_EQ(cache.lend(TestFixture::key(1, 6)).get(), first);
  TestFixture::get(cache, TestFixture::key(2, 5), true);
  EXPECT_EQ(cache.lend(TestFixture::key(2)), nullptr) << "every stream has its own";
  for (const int rows : {3, 4, 5})
    TestFixture::get(cache, TestFixture::key(rows));
  EXPECT_EQ(cache.find(TestFixture::key(1)).get(), first) << "though it was used longest ago";
  EXPECT_NE(cache.lend(TestFixture::key(5)), nullptr);
  EXPECT_EQ(cache.lend(TestFixture::key(4)), nullptr) << "as many as the limit were lent";
  EXPECT_NE(cache.lend(TestFixture::key(5)), nullptr) << "this one is lent already";
  const auto held = cache.lend(TestFixture::key(1));
  cache.clear();
  EXPECT_EQ(TestFixture::alive(), 1) << "the one that is held here";
  TestFixture::get(cache, TestFixture::key(6));
  EXPECT_NE(cache.lend(TestFixture::key(6)), nullptr);
}

TYPED_TEST(PlanCacheTest, TheLeastRecentlyUsedPlanGoesFirst) {
  typename TestFixture::Cache cache(3);
  for (const int rows : {1, 2, 3})
    TestFixture::get(cache, TestFixture::key(rows));
  EXPECT_NE(cache.find(TestFixture::key(1)), nullptr);  // used: 2 is the oldest now
  TestFixture::get(cache, TestFixture::key(4));
  EXPECT_EQ(cache.size(), 3U);
  EXPECT_EQ(cache.find(TestFixture::key(2)), nullptr);
  for (const int rows : {1, 3, 4})
    EXPECT_NE(cache.find(TestFixture::key(rows)), nullptr) << rows;
  EXPECT_EQ(TestFixture::alive(), 3) << "evicted plans are destroyed";
  cache.set_limit(1);
  EXPECT_EQ(cache.size(), 1U);
  EXPECT_NE(cache.find(TestFixture::key(4)), nullptr) << "the last that was used";
  EXPECT_EQ(cache.limit(), 1U);
}

TYPED_TEST(PlanCacheTest, AsManyPlansOfOneStreamAsTheLimitAreKept) {
  for (const int limit : {1, 4}) {
    typename TestFixture::Cache cache(static_cast<std::size_t>(limit));
    int made = 0;
    for (int call = 0; call < 10 * limit; ++call) {
      const typename TestFixture::Key key = TestFixture::key(call % limit, 5);
      if (cache.find(key) != nullptr) continue;
      ++made;
      TestFixture::get(cache, key, true);
    }
    EXPECT_EQ(made, limit);
    TestFixture::get(cache, TestFixture::key(0, 6), true);
    EXPECT_EQ(cache.size(), static_cast<std::size_t>(limit));
    for (int problem = 100; problem < 100 + limit; ++problem)
      TestFixture::get(cache, TestFixture::key(problem, 5), true);
    EXPECT_EQ(cache.find(TestFixture::key(0, 6)), nullptr);
    TestFixture::get(cache, TestFixture::key(0, 6), true);
    EXPECT_NE(cache.find(TestFixture::key(0, 6)), nullptr) << "its mark went, and is there again";
    EXPECT_EQ(cache.find(TestFixture::key(0, 5)), nullptr);
  }
}

TYPED_TEST(PlanCacheTest, APlanInUseOrJustMadeIsNotEvicted) {
  typename TestFixture::Cache cache(1);
  const auto held = TestFixture::get(cache, TestFixture::key(1));
  const auto newest = TestFixture::get(cache, TestFixture::key(2));
  EXPECT_EQ(cache.find(TestFixture::key(1)), held);
  EXPECT_EQ(cache.find(TestFixture::key(2)), newest);
}

TYPED_TEST(PlanCacheTest, ACapturedPlanStaysUntilClear) {
  typename TestFixture::Cache cache(1);
  TestFixture::get(cache, TestFixture::key(1, 5, /*capture=*/9));
  TestFixture::get(cache, TestFixture::key(2));
  EXPECT_EQ(cache.find(TestFixture::key(2, 5, /*capture=*/9))->problem(), TestFixture::key(2).problem)
      << "a plan that a later call captures";
  TestFixture::get(cache, TestFixture::key(100, 5, /*capture=*/9), true);
  for (int rows = 3; rows < 50; ++rows)
    TestFixture::get(cache, TestFixture::key(rows));
  EXPECT_NE(cache.find(TestFixture::key(1)), nullptr);
  EXPECT_NE(cache.find(TestFixture::key(2)), nullptr);
  EXPECT_NE(cache.find(TestFixture::key(49)), nullptr) << "captured plans do not count";
  EXPECT_EQ(TestFixture::alive(), 4);
  EXPECT_EQ(cache.clear(), 4U);
  EXPECT_EQ(TestFixture::alive(), 0);
}

TYPED_TEST(PlanCacheTest, ThrowsOnWhatMakeThrowsAndKeepsNothing) {
  typename TestFixture::Cache cache(4);
  EXPECT_THROW(cache.find_or_make(
                   TestFixture::key(1),
                   []() -> std::unique_ptr<typename TestFixture::Plan> { throw std::runtime_error("no"); }),
               std::runtime_error);
  EXPECT_EQ(cache.size(), 0U);
  EXPECT_EQ(cache.find(TestFixture::key(1)), nullptr);
}

// Far more problems than the limit from eight threads: every answer is the plan of its problem, and in the
// end no more are alive than may be.
TYPED_TEST(PlanCacheTest, HoldsUnderManyThreads) {
  typename TestFixture::Cache cache(5);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 2000; ++i) {
        const typename TestFixture::Key wanted = TestFixture::key(i % 23, thread);
        const bool ordered = i % 23 < 4;
        auto plan = cache.find(wanted);
        if (plan == nullptr) plan = TestFixture::get(cache, wanted, ordered);
        wrong += plan->problem() != wanted.problem || plan->one_stream_at_a_time() != ordered;
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
  TestFixture::get(cache, TestFixture::key(1000));  // evicts what was in use before
  EXPECT_LE(cache.size(), 5U);
  EXPECT_EQ(TestFixture::alive(), static_cast<int>(cache.size()));
}

}  // namespace
}  // namespace fwht
