// The machine a plan is made for, as plain data, so that `supports` can be asked about any machine on any
// machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fwht {

struct DeviceInfo {
  // The host.
  std::string host_name;  ///< CPU model
  int host_threads = 1;   ///< the most that a host variant starts; a plan may be given fewer
  std::int64_t host_memory_bytes = 0;

  // The CUDA device. `why_no_cuda` is empty when there is one, else a sentence ("no CUDA device: ...",
  // "built without CUDA: ..."), and the fields below are zero.
  std::string why_no_cuda = "no CUDA device";
  std::string name;
  int ordinal = -1;
  int compute_major = 0, compute_minor = 0;
  int sm_count = 0;
  int clock_khz = 0;
  int max_threads_per_sm = 0, max_blocks_per_sm = 0, registers_per_sm = 0;
  std::int64_t shared_bytes_per_block = 0;  ///< the opt-in limit, dynamic shared memory included
  std::int64_t shared_bytes_per_sm = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;
  int driver_version = 0, runtime_version = 0;  ///< as CUDA counts: 1000 * major + 10 * minor

  bool has_cuda() const { return why_no_cuda.empty(); }
  int compute_capability() const { return 10 * compute_major + compute_minor; }
};

/// The processors that this process may run on (taskset, cpusets of containers), not all that there are.
int usable_threads();

/// Limits the threads of host variants: host_threads(), and that of every this_device(), from now on. 0, the
/// beginning: as many as usable_threads(). Plans keep the number that they were made with. Throws BadRequest
/// for a negative number.
void set_host_threads(int most);
/// What this_device().host_threads is, without a look at the rest of the machine.
int host_threads();

/// This machine with CUDA device `ordinal` (the first by default). Never throws: what is missing is said in
/// `why_no_cuda`.
DeviceInfo this_device(int ordinal = 0);

/// Fixed descriptions for tests of pure functions: an H200 (132 SMs, compute capability 9.0, 227 KiB of
/// shared memory per block) and an A100 (108 SMs, 8.0, 163 KiB). No such machine is touched.
DeviceInfo h200_description();
DeviceInfo a100_description();
/// These two and an L40S, RTX 4090 and 5090, H100 and B200, by compute capability.
std::vector<DeviceInfo> described_devices();

}  // namespace fwht
