#include "variants/library/plan_cache.hpp"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace fwht {
namespace {

PlanKey for_all_orders(const PlanKey& key) {
  return {key.device, key.problem, {}, key.variant};
}

}  // namespace

std::size_t PlanCache::Hash::operator()(const PlanKey& key) const {
  std::size_t hash = hash_of(key.problem);
  for (const std::size_t part :
       {std::hash<int>{}(key.device), std::hash<std::uint64_t>{}(key.order.stream),
        std::hash<std::uint64_t>{}(key.order.capture), std::hash<std::thread::id>{}(key.order.thread),
        std::hash<const Variant*>{}(key.variant)}) {
    hash = (hash ^ part) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 32;
  }
  return hash;
}

std::shared_ptr<const Plan> PlanCache::find(const PlanKey& key) {
  const std::shared_lock lock(mutex_);
  return find_locked(key);
}

// Called under a shared lock too: changes nothing but atomics.
std::shared_ptr<const Plan> PlanCache::find_locked(const PlanKey& key) {
  const auto use = [&](const PlanKey& which) -> Entry* {
    const auto found = entries_.find(which);
    if (found == entries_.end()) return nullptr;
    found->second.last_use = ++clock_;
    return &found->second;
  };
  Entry* entry = use(for_all_orders(key));
  if (entry != nullptr && entry->plan == nullptr) entry = use(key);
  if (entry == nullptr) return nullptr;
  if (key.order.capture != 0) entry->captured = true;
  return entry->plan;
}

std::shared_ptr<const Plan> PlanCache::find_or_make(const PlanKey& key, const Make& make) {
  const std::unique_lock lock(mutex_);
  if (std::shared_ptr<const Plan> found = find_locked(key)) return found;  // another thread was first
  std::shared_ptr<const Plan> made = make();
  const bool shared = !made->one_stream_at_a_time();
  if (!shared) add_locked(for_all_orders(key), nullptr);
  Entry& entry = add_locked(shared ? for_all_orders(key) : key, std::move(made));
  if (key.order.capture != 0) entry.captured = true;
  evict_locked(&entry);
  return entry.plan;
}

std::shared_ptr<const Plan> PlanCache::lend(const PlanKey& key) {
  const std::unique_lock lock(mutex_);
  const auto found = entries_.find(for_all_orders(key));
  if (found == entries_.end() || found->second.plan == nullptr) return nullptr;
  Entry& entry = found->second;
  if (!entry.captured) {
    if (lent_ >= limit_) return nullptr;
    ++lent_;
    entry.captured = true;
  }
  return entry.plan;
}

PlanCache::Entry& PlanCache::add_locked(const PlanKey& key, std::shared_ptr<const Plan> plan) {
  Entry& entry = entries_[key];
  if (entry.plan == nullptr) entry.plan = std::move(plan);
  entry.last_use = ++clock_;
  return entry;
}

// With the exclusive lock no one can take a plan, so one that only the cache holds is in no one's hands.
void PlanCache::evict_locked(const Entry* keep) {
  std::vector<std::pair<std::uint64_t, const PlanKey*>> candidates;
  std::size_t counted = 0;
  for (const auto& [key, entry] : entries_) {
    if (entry.captured) continue;
    ++counted;
    if (&entry != keep && entry.plan.use_count() <= 1) candidates.emplace_back(entry.last_use.load(), &key);
  }
  if (counted <= limit_) return;
  const std::size_t count = std::min(counted - limit_, candidates.size());
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count),
                    candidates.end());
  for (std::size_t i = 0; i < count; ++i)
    entries_.erase(entries_.find(*candidates[i].second));
}

std::size_t PlanCache::limit() const {
  const std::shared_lock lock(mutex_);
  return limit_;
}

void PlanCache::set_limit(std::size_t limit) {
  const std::unique_lock lock(mutex_);
  limit_ = limit;
  evict_locked(nullptr);
}

std::size_t PlanCache::size() const {
  const std::shared_lock lock(mutex_);
  std::size_t plans = 0;
  for (const auto& [key, entry] : entries_)
    plans += entry.plan != nullptr;
  return plans;
}

std::size_t PlanCache::clear() {
  const std::unique_lock lock(mutex_);
  std::size_t plans = 0;
  for (const auto& [key, entry] : entries_)
    plans += entry.plan != nullptr;
  entries_.clear();
  lent_ = 0;
  return plans;
}

}  // namespace fwht
