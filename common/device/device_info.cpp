#include "common/device/device_info.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>
#include <thread>

#include "common/device/memory_backend.hpp"
#include "common/host/error.hpp"

namespace fwht {
namespace {

std::atomic<int> most_host_threads = 0;  // 0: no limit

std::string first_value_of(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find(':');
    const std::size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

DeviceInfo cuda_description(std::string name, int major, int sm_count, int shared_kib, int shared_sm_kib,
                            int l2_mib, int memory_gib) {
  DeviceInfo info;
  info.host_name = "a described host";
  info.why_no_cuda.clear();
  info.name = std::move(name);
  info.ordinal = 0;
  info.compute_major = major;
  info.sm_count = sm_count;
  info.max_threads_per_sm = 2048;
  info.max_blocks_per_sm = 32;
  info.registers_per_sm = 65536;
  info.shared_bytes_per_block = std::int64_t{shared_kib} << 10;
  info.shared_bytes_per_sm = std::int64_t{shared_sm_kib} << 10;
  info.l2_bytes = std::int64_t{l2_mib} << 20;
  info.memory_bytes = std::int64_t{memory_gib} << 30;
  return info;
}

}  // namespace

int usable_threads() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return std::max(1, CPU_COUNT(&allowed));
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));  // more than 1024 processors
}

void set_host_threads(int most) {
  if (most < 0) throw BadRequest("host threads=" + std::to_string(most) + " must not be negative");
  most_host_threads = most;
}

DeviceInfo this_device(int ordinal) {
  DeviceInfo info;
  info.host_name = first_value_of("/proc/cpuinfo", "model name");
  if (info.host_name.empty()) info.host_name = "unknown CPU";
  info.host_threads = usable_threads();
  if (const int most = most_host_threads; most > 0) info.host_threads = std::min(info.host_threads, most);
  if (const std::string kibibytes = first_value_of("/proc/meminfo", "MemTotal"); !kibibytes.empty()) {
    info.host_memory_bytes = std::stoll(kibibytes) * 1024;
  }
  backend::describe_cuda(info, ordinal);
  return info;
}

DeviceInfo h200_description() {
  return cuda_description("NVIDIA H200 (described)", 9, 132, 227, 228, 60, 139);
}
DeviceInfo a100_description() {
  return cuda_description("NVIDIA A100 (described)", 8, 108, 163, 164, 40, 79);
}

}  // namespace fwht
