#include "common/device/device_info.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

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

/// Of every device of a compute capability, by the CUDA programming guide's table of technical specifications
/// (13.0); a block may have 1 KiB less than a multiprocessor.
struct Capability {
  int major, minor, threads_per_sm, blocks_per_sm, shared_kib_per_sm;
};
constexpr Capability kAmpere{8, 0, 2048, 32, 164}, kAda{8, 9, 1536, 24, 100}, kHopper{9, 0, 2048, 32, 228},
    kBlackwell{10, 0, 2048, 32, 228}, kBlackwellRtx{12, 0, 1536, 24, 100};

DeviceInfo cuda_description(const char* name, const Capability& capability, int sm_count, int l2_mib,
                            int memory_gib) {
  DeviceInfo info;
  info.host_name = "a described host";
  info.why_no_cuda.clear();
  info.name = std::string("NVIDIA ") + name + " (described)";
  info.ordinal = 0;
  info.compute_major = capability.major;
  info.compute_minor = capability.minor;
  info.sm_count = sm_count;
  info.max_threads_per_sm = capability.threads_per_sm;
  info.max_blocks_per_sm = capability.blocks_per_sm;
  info.registers_per_sm = 65536;
  info.shared_bytes_per_block = std::int64_t{capability.shared_kib_per_sm - 1} << 10;
  info.shared_bytes_per_sm = std::int64_t{capability.shared_kib_per_sm} << 10;
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

int host_threads() {
  const int usable = usable_threads(), most = most_host_threads;
  return most > 0 ? std::min(usable, most) : usable;
}

DeviceInfo this_device(int ordinal) {
  DeviceInfo info;
  info.host_name = first_value_of("/proc/cpuinfo", "model name");
  if (info.host_name.empty()) info.host_name = "unknown CPU";
  info.host_threads = host_threads();
  if (const std::string kibibytes = first_value_of("/proc/meminfo", "MemTotal"); !kibibytes.empty()) {
    // Not by stoll, which newer C libraries bind to a symbol that older ones lack.
    std::from_chars(kibibytes.data(), kibibytes.data() + kibibytes.size(), info.host_memory_bytes);
    info.host_memory_bytes *= 1024;
  }
  backend::describe_cuda(info, ordinal);
  return info;
}

DeviceInfo h200_description() {
  return cuda_description("H200", kHopper, 132, 60, 139);
}
DeviceInfo a100_description() {
  return cuda_description("A100", kAmpere, 108, 40, 79);
}

// Multiprocessors, L2 and memory by NVIDIA's architecture papers and data sheets (A100 and H100: SXM). The L2
// of a B200 is by reviews, which disagree; only `wgmma` asks for it, which does not run there.
std::vector<DeviceInfo> described_devices() {
  return {a100_description(),
          cuda_description("L40S", kAda, 142, 96, 44),
          cuda_description("GeForce RTX 4090", kAda, 128, 72, 23),
          cuda_description("H100", kHopper, 132, 50, 79),
          h200_description(),
          cuda_description("B200", kBlackwell, 148, 126, 178),
          cuda_description("GeForce RTX 5090", kBlackwellRtx, 170, 96, 31)};
}

}  // namespace fwht
