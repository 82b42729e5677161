#include "common/contract/family.hpp"

#include <cstdlib>
#include <fstream>
#include <mutex>
#include <unordered_set>

#include "common/device/architectures.hpp"

namespace fwht {
namespace {

constexpr const char* kTraceVariable = "FWHT_TRACE";

const char* trace_file() {
  const char* path = std::getenv(kTraceVariable);
  return path != nullptr && *path != '\0' ? path : nullptr;
}

}  // namespace

thread_local int OutermostPlan::depth_ = 0;

bool problems_are_traced() {
  return trace_file() != nullptr;
}

void trace_problem(const std::string& grid_block) {
  static std::mutex mutex;
  static std::unordered_set<std::string> written;
  const std::lock_guard lock(mutex);
  const char* path = trace_file();
  if (path == nullptr || written.contains(grid_block)) return;  // null: another thread ended the trace
  std::ofstream file(path, std::ios::app);
  file << grid_block << std::flush;  // at once: other processes may append, too
  if (!file) throw BadRequest(concat(kTraceVariable, "=", path, " cannot be written"));
  written.insert(grid_block);
}

Support require_cuda(const DeviceInfo& device, int compute_capability) {
  if (!device.has_cuda()) return {device.why_no_cuda};
  if (device.compute_capability() < compute_capability) {
    return {concat(device.name, " has compute capability ", device.compute_major, ".", device.compute_minor,
                   ", at least ", compute_capability / 10, ".", compute_capability % 10, " is needed")};
  }
  return {};
}

Support require_programmatic_launch(const DeviceInfo& device) {
  if (!device.has_cuda()) return {};
  constexpr int kNeeded = 90;
  if (device.compute_capability() < kNeeded) {
    return {concat(device.name, " has compute capability ", device.compute_major, ".", device.compute_minor,
                   "; programmatic dependent launch needs at least 9.0")};
  }
  const int code = code_on(FWHT_ARCHITECTURES, device);
  if (code >= kNeeded) return {};
  return {concat("built without code for sm_", device.compute_capability(), ", which programmatic dependent ",
                 "launch on ", device.name, " needs (CMAKE_CUDA_ARCHITECTURES)")};
}

}  // namespace fwht
