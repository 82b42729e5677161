#include "variants/library/transform.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "common/device/device_info.hpp"
#include "common/device/stream_query.hpp"
#include "common/host/error.hpp"
#include "common/host/text.hpp"
#include "variants/library/plan_cache.hpp"
#include "variants/registry.hpp"

namespace fwht {
namespace {

PlanCache& plans() {
  // Never destroyed: at exit the CUDA runtime may be gone before the plans.
  static PlanCache* const all = new PlanCache(1024);
  return *all;
}

LaunchOrder order_of(Stream stream) {
  const StreamState state = state_of(stream);
  return {state.id, state.capture_id, state.is_per_thread ? std::this_thread::get_id() : std::thread::id{}};
}

/// What to do on a machine without a CUDA device, as the end of a sentence.
std::string way_out(const Problem& problem) {
  const DeviceInfo here = this_device();
  if (here.has_cuda()) return "";
  for (const Variant* variant : registry()) {
    if (variant->memory != Memory::host || !variant->supports(problem, here)) continue;
    return concat("; for rows in host memory use the variant ", variant->name, ": plan(find_variant(\"",
                  variant->name, "\"), problem, this_device())");
  }
  return "";
}

/// `device`, or the current one as a number. Throws NoCuda where this machine has none at all.
int resolve(int device, const Problem& problem) {
  try {
    const int current = current_device();
    return device == kCurrentDevice ? current : device;
  } catch (const NoCuda& error) {
    throw NoCuda(error.what() + way_out(problem));
  }
}

void require_all_reachable(const Operands& operands, const Problem& problem, int device) {
  if (problem.rows == 0) return;  // nothing is touched
  const std::pair<const char*, const void*> all[] = {{"in", operands.in},
                                                     {"out", operands.out},
                                                     {"scales", operands.scales},
                                                     {"signs", operands.signs},
                                                     {"dense", operands.dense},
                                                     {"tensor_scale_at", operands.tensor_scale_at},
                                                     {"weight", operands.prepared.weight},
                                                     {"cos_sin", operands.prepared.cos_sin},
                                                     {"positions", operands.prepared.positions},
                                                     {"slots", operands.prepared.slots},
                                                     {"scratch", operands.scratch}};
  for (const auto& [name, pointer] : all) {
    if (pointer != nullptr) require_reachable(name, pointer, device);  // Plan::execute speaks of null ones
  }
}

}  // namespace

const DeviceInfo& known_device(int ordinal) {
  static std::array<std::atomic<const DeviceInfo*>, kMostKnownDevices> known{};
  thread_local DeviceInfo missing;
  if (ordinal < 0 || ordinal >= kMostKnownDevices) return missing = this_device(ordinal);
  std::atomic<const DeviceInfo*>& slot = known[static_cast<std::size_t>(ordinal)];
  if (const DeviceInfo* info = slot.load(std::memory_order_acquire)) return *info;
  DeviceInfo asked = this_device(ordinal);
  if (!asked.has_cuda()) return missing = std::move(asked);
  const DeviceInfo* known_now = nullptr;
  auto mine = std::make_unique<const DeviceInfo>(std::move(asked));
  if (slot.compare_exchange_strong(known_now, mine.get())) known_now = mine.release();
  return *known_now;
}

void transform(const Variant& variant, const Operands& operands, const Problem& problem, Stream stream,
               int device) {
  validate(problem);
  if (variant.memory != Memory::device) {
    throw BadRequest(concat(variant.name, " works on host memory, and transform on that of a CUDA device"));
  }
  const DeviceScope scope(resolve(device, problem));
  const PlanKey key{scope.device(), problem, order_of(stream), &variant};
  std::shared_ptr<const Plan> kept = plans().find(key);
  if (kept == nullptr) {
    const CaptureAllowed allowed;  // making a plan may allocate, and an evicted one is freed
    require_all_reachable(operands, problem, key.device);
    kept = plans().find_or_make(key, [&] { return plan(variant, problem, known_device(key.device)); });
  }
  kept->execute(operands, stream);
}

void transform(const Operands& operands, const Problem& problem, Stream stream, int device) {
  transform(automatic::variant, operands, problem, stream, device);
}

void transform(const void* in, void* out, const Problem& problem, Stream stream, int device) {
  transform({in, out}, problem, stream, device);
}

std::shared_ptr<const Plan> kept_plan(const Variant& variant, const Problem& problem, int device) {
  validate(problem);
  return plans().lend({resolve(device, problem), problem, {}, &variant});
}

std::size_t transform_plan_limit() {
  return plans().limit();
}

void set_transform_plan_limit(std::size_t limit) {
  if (limit == 0) throw BadRequest("a limit of 0 plans is too low; transform keeps at least 1");
  if (plans().size() == 0) return plans().set_limit(limit);
  const CaptureAllowed allowed;
  plans().set_limit(limit);
}

std::size_t clear_transform_plans() {
  if (plans().size() == 0) return 0;
  const CaptureAllowed allowed;
  return plans().clear();
}

}  // namespace fwht
