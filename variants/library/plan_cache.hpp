// The plans that transform keeps: at most so many, the least recently used one goes first. Knows no CUDA, so
// that its rules are tested on any machine.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <shared_mutex>
#include <thread>
#include <unordered_map>

#include "common/contract/variant.hpp"

namespace fwht {

/// Who orders the launches of one plan: a stream, or one capture of it. The per-thread default stream is
/// another stream in every thread.
struct LaunchOrder {
  std::uint64_t stream = 0;   ///< StreamState::id
  std::uint64_t capture = 0;  ///< 0: not captured
  std::thread::id thread;
  bool operator==(const LaunchOrder&) const = default;
};

struct PlanKey {
  int device = 0;
  Problem problem;
  LaunchOrder order;
  const Variant* variant = nullptr;
  bool operator==(const PlanKey&) const = default;
};

/// A plan serves every order, unless it says one_stream_at_a_time: then each order has its own. A plan that
/// was given to a capture is kept until clear(), whatever the limit, because the graph may refer to memory of
/// the plan. Thread-safe; a plan in someone's hands is not evicted.
class PlanCache {
 public:
  using Make = std::function<std::unique_ptr<Plan>()>;

  explicit PlanCache(std::size_t limit) : limit_(limit) {}

  /// nullptr when there is none.
  std::shared_ptr<const Plan> find(const PlanKey& key);
  /// As find, and where there is none, the plan that `make` returns; other threads wait meanwhile. Evicts
  /// what is beyond the limit. When `make` throws, nothing has changed.
  std::shared_ptr<const Plan> find_or_make(const PlanKey& key, const Make& make);
  /// The plan that serves every order, for someone who will not ask again: it is kept as a captured one is.
  /// nullptr when there is none, and once limit() plans have been lent since clear().
  std::shared_ptr<const Plan> lend(const PlanKey& key);

  std::size_t limit() const;
  /// Evicts at once what is beyond it. Plans that were captured do not count.
  void set_limit(std::size_t limit);
  /// Plans kept, captured ones included.
  std::size_t size() const;
  /// Destroys all plans, captured ones included, and says how many.
  std::size_t clear();

 private:
  struct Entry {
    std::shared_ptr<const Plan> plan;  // null: a mark that every order has a plan of its own
    std::atomic<std::uint64_t> last_use = 0;
    std::atomic<bool> captured = false;
  };
  struct Hash {
    std::size_t operator()(const PlanKey& key) const;
  };
  using Entries = std::unordered_map<PlanKey, Entry, Hash>;

  std::shared_ptr<const Plan> find_locked(const PlanKey& key);
  Entry& add_locked(const PlanKey& key, std::shared_ptr<const Plan> plan);
  void evict_locked(const Entry* keep);

  mutable std::shared_mutex mutex_;
  std::atomic<std::uint64_t> clock_ = 0;
  std::size_t limit_;
  std::size_t lent_ = 0;
  Entries entries_;
};

}  // namespace fwht
