#include "variants/transform.hpp"

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <tuple>

#include "common/device_info.hpp"
#include "common/error.hpp"
#include "common/stream_query.hpp"
#include "variants/registry.hpp"

namespace fwht {
namespace {

using ProblemKey = std::tuple<std::int64_t, std::int64_t, Dtype, Placement, std::int64_t, double, bool>;

ProblemKey key_of(const Problem& p) {
  return {p.n(), p.rows, p.dtype(), p.placement, p.row_stride(), p.scale, p.programmatic_launch};
}

/// Who orders the launches of one plan: a stream, or one capture of it. The per-thread default stream is
/// another stream in every thread.
struct Order {
  Stream stream = nullptr;
  std::uint64_t capture = 0;
  std::thread::id thread;
  auto operator<=>(const Order&) const = default;
};

Order order_of(Stream stream) {
  const StreamState state = state_of(stream);
  return {stream, state.capture_id, state.is_per_thread ? std::this_thread::get_id() : std::thread::id{}};
}

class Plans {
 public:
  const Plan& get(int ordinal, const Problem& problem, Stream stream) {
    const auto key = std::pair{ordinal, key_of(problem)};
    if (const Plan* found = find(shared_, key)) {
      if (!found->one_stream_at_a_time()) return *found;
    } else if (const Plan& made = keep(shared_, key, ordinal, problem); !made.one_stream_at_a_time()) {
      return made;
    }
    const auto ordered_key = std::pair{key, order_of(stream)};
    if (const Plan* found = find(ordered_, ordered_key)) return *found;
    return keep(ordered_, ordered_key, ordinal, problem);
  }

  std::size_t clear() {
    const std::unique_lock lock(mutex_);
    const std::size_t count = shared_.size() + ordered_.size();
    shared_.clear();
    ordered_.clear();
    return count;
  }

 private:
  using Key = std::pair<int, ProblemKey>;

  template <class Map>
  const Plan* find(const Map& plans, const typename Map::key_type& key) {
    const std::shared_lock lock(mutex_);
    const auto found = plans.find(key);
    return found == plans.end() ? nullptr : found->second.get();
  }

  template <class Map>
  const Plan& keep(Map& plans, const typename Map::key_type& key, int ordinal, const Problem& problem) {
    const std::unique_lock lock(mutex_);
    const auto found = plans.find(key);
    if (found != plans.end()) return *found->second;  // another thread was first
    const CaptureAllowed allowed;                     // a plan may allocate while a stream is captured
    return *plans.emplace(key, plan(find_variant("auto"), problem, device(ordinal))).first->second;
  }

  const DeviceInfo& device(int ordinal) {
    const auto found = devices_.find(ordinal);
    return found != devices_.end() ? found->second : devices_[ordinal] = this_device(ordinal);
  }

  std::shared_mutex mutex_;
  std::map<int, DeviceInfo> devices_;
  std::map<Key, std::unique_ptr<Plan>> shared_;
  std::map<std::pair<Key, Order>, std::unique_ptr<Plan>> ordered_;
};

Plans& plans() {
  // Never destroyed: at exit the CUDA runtime may be gone before the plans.
  static Plans* const all = new Plans;
  return *all;
}

}  // namespace

void transform(const void* in, void* out, const Problem& problem, Stream stream) {
  validate(problem);
  plans().get(current_device(), problem, stream).execute(in, out, stream);
}

std::size_t clear_transform_plans() {
  return plans().clear();
}

}  // namespace fwht
