#include "python/src/engine.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <compare>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "common/device_info.hpp"
#include "common/error.hpp"
#include "common/stream_query.hpp"
#include "fwht.h"
#include "python/src/device.hpp"
#include "variants/registry.hpp"
#include "variants/transform.hpp"

namespace fwht::c_abi {
namespace {

constexpr std::int32_t kMostDevices = 64;

/// Below this many elements the threads cost more than they save.
constexpr std::int64_t kElementsOfOneThread = 64 * 1024;

const DeviceInfo& host_info() {
  static const DeviceInfo* const info = new DeviceInfo(this_device());
  return *info;
}

/// Asked once per device; a missing one is asked for again, and its description lives until this thread asks
/// for another.
const DeviceInfo& info_of(std::int32_t device) {
  if (device < 0) return host_info();
  static std::array<std::atomic<const DeviceInfo*>, kMostDevices> known{};
  std::atomic<const DeviceInfo*>& slot = known[static_cast<std::size_t>(device)];
  if (const DeviceInfo* info = slot.load(std::memory_order_acquire)) return *info;
  thread_local DeviceInfo missing;
  DeviceInfo asked = this_device(device);
  if (!asked.has_cuda()) return missing = std::move(asked);
  const DeviceInfo* known_now = nullptr;
  auto mine = std::make_unique<const DeviceInfo>(std::move(asked));
  if (slot.compare_exchange_strong(known_now, mine.get())) known_now = mine.release();
  return *known_now;
}

/// What a plan is made for: the host with as many threads as the work is worth and the caller allows.
const DeviceInfo& info_for(const Problem& problem, const Place& place) {
  if (place.device >= 0) return info_of(place.device);
  thread_local DeviceInfo host = host_info();
  host.host_threads = host_info().host_threads;
  if (place.threads > 0) host.host_threads = std::min(host.host_threads, static_cast<int>(place.threads));
  if (problem.elements() < kElementsOfOneThread) host.host_threads = 1;
  return host;
}

/// validate, then a missing device, then what the variant says.
void check(const Problem& problem, const Place& place) {
  validate(problem);
  const DeviceInfo& info = info_of(place.device);
  if (place.device >= 0 && !info.has_cuda()) throw std::runtime_error(info.why_no_cuda);
  if (const Support support = place.variant->supports(problem, info); !support)
    throw Unsupported(std::string(place.variant->name) + ": " + support.why_not);
}

/// Who orders the launches of a plan that serves one stream at a time: a stream, or one capture of it. The
/// per-thread default stream is another stream in every thread.
struct Order {
  Stream stream = nullptr;
  std::uint64_t capture = 0;
  std::thread::id thread;
  auto operator<=>(const Order&) const = default;
};

Order order_of(Stream stream, const StreamState& state) {
  return {stream, state.capture_id, state.is_per_thread ? std::this_thread::get_id() : std::thread::id{}};
}

/// Plans of variants that are asked for by name; those of `auto` are kept by fwht::transform. The least
/// recently used one goes when there are too many, but none that a graph was captured from.
class KeptPlans {
 public:
  std::shared_ptr<const Plan> get(const Problem& problem, const Place& place, Stream stream) {
    const StreamState state = state_of(stream);
    Key key{place.variant, place.device, to_string(problem), {}};
    std::shared_ptr<const Plan> found = find(key, state, problem, place);
    if (!found->one_stream_at_a_time()) return found;
    key.order = order_of(stream, state);
    return find(key, state, problem, place);
  }

  std::size_t clear() {
    const std::lock_guard lock(mutex_);
    const std::size_t count = plans_.size();
    plans_.clear();
    return count;
  }

 private:
  static constexpr std::size_t kMost = 256;

  struct Key {
    const Variant* variant;
    std::int32_t device;
    std::string problem;
    Order order;
    auto operator<=>(const Key&) const = default;
  };
  struct Kept {
    std::shared_ptr<const Plan> plan;
    std::uint64_t last_use = 0;
    bool captured = false;
  };

  std::shared_ptr<const Plan> find(const Key& key, const StreamState& state, const Problem& problem,
                                   const Place& place) {
    const std::lock_guard lock(mutex_);
    auto found = plans_.find(key);
    if (found == plans_.end()) {
      check(problem, place);
      const CaptureAllowed allowed;  // a plan may allocate while a stream is captured
      std::shared_ptr<const Plan> made = place.variant->make_plan(problem, info_for(problem, place));
      if (plans_.size() >= kMost && state.capture_id == 0) drop_the_oldest();
      found = plans_.emplace(key, Kept{std::move(made)}).first;
    }
    found->second.last_use = ++clock_;
    found->second.captured = found->second.captured || state.capture_id != 0;
    return found->second.plan;
  }

  void drop_the_oldest() {
    auto oldest = plans_.end();
    for (auto kept = plans_.begin(); kept != plans_.end(); ++kept) {
      if (kept->second.captured) continue;
      if (oldest == plans_.end() || kept->second.last_use < oldest->second.last_use) oldest = kept;
    }
    if (oldest != plans_.end()) plans_.erase(oldest);
  }

  std::mutex mutex_;
  std::map<Key, Kept> plans_;
  std::uint64_t clock_ = 0;
};

KeptPlans& kept_plans() {
  static KeptPlans* const all = new KeptPlans;  // never destroyed: at exit CUDA may be gone before it
  return *all;
}

}  // namespace

Place place_of(const char* name, std::int32_t device, std::int32_t threads) {
  if (device < FWHT_HOST || device >= kMostDevices) {
    throw BadRequest("device=" + std::to_string(device) + " must be -1 (the host) or between 0 and " +
                     std::to_string(kMostDevices - 1));
  }
  if (threads < 0) throw BadRequest("threads=" + std::to_string(threads) + " must not be negative");
  static const Variant& on_host = find_variant("cpu");
  static const Variant& on_device = find_variant("auto");
  const Variant& variant = name != nullptr ? find_variant(name) : device < 0 ? on_host : on_device;
  if ((variant.memory == Memory::device) != (device >= 0)) {
    throw Unsupported(std::string(variant.name) + " works on " +
                      (device < 0 ? "device memory, not on the host's" : "host memory, not on a device's"));
  }
  return {&variant, device, threads};
}

Support supports(const Problem& problem, const Place& place) {
  validate(problem);
  return place.variant->supports(problem, info_of(place.device));
}

std::unique_ptr<Plan> make_plan(const Problem& problem, const Place& place) {
  check(problem, place);
  if (place.device < 0) return place.variant->make_plan(problem, info_for(problem, place));
  const DeviceGuard guard(place.device);
  return place.variant->make_plan(problem, info_of(place.device));
}

void transform(const Problem& problem, const Place& place, const Operands& operands, Stream stream) {
  if (place.device < 0) {  // a host plan costs nothing to make
    make_plan(problem, place)->execute(operands);
    return;
  }
  if (const DeviceInfo& info = info_of(place.device); !info.has_cuda()) {
    validate(problem);
    throw std::runtime_error(info.why_no_cuda);
  }
  const DeviceGuard guard(place.device);
  if (place.variant->name != "auto") {
    kept_plans().get(problem, place, stream)->execute(operands, stream);
    return;
  }
  try {
    fwht::transform(operands.in, operands.out, problem, stream);
  } catch (const BadRequest&) {
    check(problem, place);  // tells apart what auto does not do
    throw;
  }
}

std::size_t clear_plans() {
  return kept_plans().clear() + clear_transform_plans();
}

}  // namespace fwht::c_abi
