// The plans of a family that are kept between calls: at most so many, the least recently used one goes first.
// Knows no CUDA, so that its rules are tested on any machine.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/contract/variant.hpp"
#include "common/host/bits.hpp"

namespace fwht {

/// Who orders the launches of one plan: a stream, or one capture of it. The per-thread default stream is
/// another stream in every thread.
struct LaunchOrder {
  std::uint64_t stream = 0;   ///< StreamState::id
  std::uint64_t capture = 0;  ///< 0: not captured
  std::thread::id thread;
  bool operator==(const LaunchOrder&) const = default;
};

template <class Family>
struct PlanKeyOf {
  int device = 0;
  typename Family::Problem problem;
  LaunchOrder order;
  const VariantOf<Family>* variant = nullptr;
  bool operator==(const PlanKeyOf&) const = default;

  PlanKeyOf for_all_orders() const { return {device, problem, {}, variant}; }
};

/// A plan serves every order, unless it says one_stream_at_a_time: then each order has its own. A plan that
/// was given to a capture is kept until clear(), whatever the limit, because the graph may refer to memory of
/// the plan. Thread-safe; a plan in someone's hands is not evicted.
template <class Family>
class PlanCacheOf {
 public:
  using Plan = typename Family::Plan;
  using PlanKey = PlanKeyOf<Family>;
  using Make = std::function<std::unique_ptr<Plan>()>;

  explicit PlanCacheOf(std::size_t limit) : limit_(limit) {}

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
  struct KeptPlan {
    std::shared_ptr<const Plan> plan;  // null: a mark that every order has a plan of its own
    std::size_t own = 0;               // of a mark: how many such plans there are
    std::atomic<std::uint64_t> last_use = 0;
    std::atomic<bool> captured = false;
  };
  struct Hash {
    std::size_t operator()(const PlanKey& key) const;
  };
  using Entries = std::unordered_map<PlanKey, KeptPlan, Hash>;

  std::shared_ptr<const Plan> find_locked(const PlanKey& key);
  KeptPlan& add_locked(const PlanKey& key, std::shared_ptr<const Plan> plan);
  /// Plans that leave the cache. Destroyed once its lock is free: to free memory waits for the device, which
  /// may be waiting for a thread that asks this cache.
  using Evicted = std::vector<std::shared_ptr<const Plan>>;
  void evict_locked(const KeptPlan* keep, Evicted& evicted);

  mutable std::shared_mutex mutex_;
  std::atomic<std::uint64_t> clock_ = 0;
  std::size_t limit_;
  std::size_t lent_ = 0;
  Entries entries_;
};

template <class Family>
std::size_t PlanCacheOf<Family>::Hash::operator()(const PlanKey& key) const {
  Hasher mix;
  mix(hash_of(key.problem));
  mix(key.device);
  mix(key.order.stream);
  mix(key.order.capture);
  mix(std::hash<std::thread::id>{}(key.order.thread));
  mix(reinterpret_cast<std::uintptr_t>(key.variant));
  return mix.hash();
}

template <class Family>
auto PlanCacheOf<Family>::find(const PlanKey& key) -> std::shared_ptr<const Plan> {
  const std::shared_lock lock(mutex_);
  return find_locked(key);
}

// Called under a shared lock too: changes nothing but atomics.
template <class Family>
auto PlanCacheOf<Family>::find_locked(const PlanKey& key) -> std::shared_ptr<const Plan> {
  const auto use = [&](const PlanKey& which) -> KeptPlan* {
    const auto found = entries_.find(which);
    if (found == entries_.end()) return nullptr;
    found->second.last_use = ++clock_;
    return &found->second;
  };
  KeptPlan* entry = use(key.for_all_orders());
  if (entry != nullptr && entry->plan == nullptr) entry = use(key);
  if (entry == nullptr) return nullptr;
  if (key.order.capture != 0) entry->captured = true;
  return entry->plan;
}

template <class Family>
auto PlanCacheOf<Family>::find_or_make(const PlanKey& key, const Make& make) -> std::shared_ptr<const Plan> {
  Evicted evicted;
  const std::unique_lock lock(mutex_);
  if (std::shared_ptr<const Plan> found = find_locked(key)) return found;  // another thread was first
  std::shared_ptr<const Plan> made = make();
  const bool shared = !made->one_stream_at_a_time();
  if (!shared) ++add_locked(key.for_all_orders(), nullptr).own;
  KeptPlan& entry = add_locked(shared ? key.for_all_orders() : key, std::move(made));
  if (key.order.capture != 0) entry.captured = true;
  evict_locked(&entry, evicted);
  return entry.plan;
}

template <class Family>
auto PlanCacheOf<Family>::lend(const PlanKey& key) -> std::shared_ptr<const Plan> {
  const std::unique_lock lock(mutex_);
  const auto found = entries_.find(key.for_all_orders());
  if (found == entries_.end() || found->second.plan == nullptr) return nullptr;
  KeptPlan& entry = found->second;
  if (!entry.captured) {
    if (lent_ >= limit_) return nullptr;
    ++lent_;
    entry.captured = true;
  }
  return entry.plan;
}

template <class Family>
auto PlanCacheOf<Family>::add_locked(const PlanKey& key, std::shared_ptr<const Plan> plan) -> KeptPlan& {
  KeptPlan& entry = entries_[key];
  if (entry.plan == nullptr) entry.plan = std::move(plan);
  entry.last_use = ++clock_;
  return entry;
}

// With the exclusive lock no one can take a plan, so one that only the cache holds is in no one's hands.
template <class Family>
void PlanCacheOf<Family>::evict_locked(const KeptPlan* keep, Evicted& evicted) {
  std::vector<std::pair<std::uint64_t, const PlanKey*>> candidates;
  std::size_t counted = 0;
  for (const auto& [key, entry] : entries_) {
    if (entry.captured || entry.plan == nullptr) continue;
    ++counted;
    if (&entry != keep && entry.plan.use_count() <= 1) candidates.emplace_back(entry.last_use.load(), &key);
  }
  if (counted <= limit_) return;
  const std::size_t count = std::min(counted - limit_, candidates.size());
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count),
                    candidates.end());
  for (std::size_t i = 0; i < count; ++i) {
    const auto oldest = entries_.find(*candidates[i].second);
    const auto mark = entries_.find(oldest->first.for_all_orders());
    const bool last =
        mark != oldest && mark != entries_.end() && mark->second.plan == nullptr && --mark->second.own == 0;
    evicted.push_back(std::move(oldest->second.plan));
    entries_.erase(oldest);
    if (last) entries_.erase(mark);
  }
}

template <class Family>
std::size_t PlanCacheOf<Family>::limit() const {
  const std::shared_lock lock(mutex_);
  return limit_;
}

template <class Family>
void PlanCacheOf<Family>::set_limit(std::size_t limit) {
  Evicted evicted;
  const std::unique_lock lock(mutex_);
  limit_ = limit;
  evict_locked(nullptr, evicted);
}

template <class Family>
std::size_t PlanCacheOf<Family>::size() const {
  const std::shared_lock lock(mutex_);
  std::size_t plans = 0;
  for (const auto& [key, entry] : entries_)
    plans += entry.plan != nullptr;
  return plans;
}

template <class Family>
std::size_t PlanCacheOf<Family>::clear() {
  Entries cleared;  // see Evicted
  {
    const std::unique_lock lock(mutex_);
    cleared.swap(entries_);
    lent_ = 0;
  }
  return static_cast<std::size_t>(
      std::ranges::count_if(cleared, [](const auto& kept) { return kept.second.plan != nullptr; }));
}

using PlanKey = PlanKeyOf<Transforms>;
using PlanCache = PlanCacheOf<Transforms>;

}  // namespace fwht
