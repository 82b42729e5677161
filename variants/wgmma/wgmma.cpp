#include "variants/wgmma/wgmma.hpp"

#include <fmt/format.h>

#include <limits>

namespace fwht::wgmma {

// Why two forms, and where each is used (measured by wgmma_tune on an H200). A block per row, scheduled by
// the hardware, keeps memory busiest once the data leaves the L2, as long as several blocks fit on an SM
// (n <= 8192; at 4096 the A operand in shared memory makes room for eight of them, but starts later, which
// counts when there is one wave only). Inside the L2 the start-up of each block counts: once the rows are
// more than fit at once, resident blocks win that have several rows in flight. Registers matter most while
// all data arrive at the start (the rows of 2^23 elements fit in the shared memories of the chip), and then
// pieces of rows help; at n = 4096 twice the warps of half the registers win when rows keep arriving. Above
// 8192 a row fills so much of an SM that only the ring overlaps load, tensor and store; at 16384, once teams
// have two rows, they ask for the second when the first is there, which then arrives sooner. Out of the L2
// rows are handed out dynamically, because a static share leaves SMs idle at the end; inside, the counter
// costs more than it brings, except for the few rows of 32768. A few long rows would leave most SMs idle:
// then a row is spread over a cluster. Its blocks all read the whole row (it comes from the L2 after the
// first) and each makes its share of the outputs, so that nothing but one barrier is exchanged; the bounds
// are where the reading of whole rows starts to cost more than it saves. A row of 65536 needs two
// blocks in any case; clusters of four reach ten elevenths of the SMs.
Launch choose_launch(const Problem& problem, const DeviceInfo& device) {
  const std::int64_t sms = device.sm_count, rows = problem.rows;
  const bool in_l2 = problem.elements() * 2 <= device.l2_bytes * 4 / 5;
  // An early trigger pays while this kernel and the next leave most SMs free: a few blocks, and of clusters,
  // which need free places side by side, fewer.
  const auto eager = [&](std::int64_t most_rows) {
    return std::size_t{problem.programmatic_launch && rows <= most_rows};
  };
  switch (log2_floor(problem.n)) {
    case 12:
      if (!in_l2) return kLaunches<12>[2];
      if (rows <= 6 * sms) return kLaunches<12>[eager(16)];
      return kLaunches<12>[rows <= 20 * sms ? 3 : 4];
    case 13:
      if (!in_l2 || rows <= 4 * sms) return kLaunches<13>[eager(16)];
      return kLaunches<13>[rows <= 8 * sms ? 2 : 3];
    case 14:
      if (rows * 4 <= sms) return kLaunches<14>[eager(1)];
      if (!in_l2) return kLaunches<14>[4];
      return kLaunches<14>[rows <= 2 * sms ? 2 : 3];
    case 16:
      return kLaunches<16>[rows * 4 <= sms * 10 / 11 ? eager(1) : 2];
    default:
      if (rows * 4 <= sms) return kLaunches<15>[eager(1)];
      if (rows * 2 <= sms) return kLaunches<15>[2];
      return kLaunches<15>[rows <= sms ? 3 : 4];
  }
}

namespace {

#ifdef FWHT_WITHOUT_SM90A
constexpr bool kBuiltForHopper = false;
#else
constexpr bool kBuiltForHopper = true;
#endif

Support supports(const Problem& problem, const DeviceInfo& device) {
  if (problem.dtype == Dtype::f32) return {"dtype f32 is not supported: the exact stage needs 16-bit data"};
  if (!kBuiltForHopper) {
    return {"built without sm_90a code, which wgmma needs (CMAKE_CUDA_ARCHITECTURES lacks 90a)"};
  }
  if (Support cuda = require_cuda(device, 90); !cuda) return cuda;
  if (device.compute_capability() != 90) {
    return {fmt::format("{} has compute capability {}.{}; wgmma exists in 9.0 (Hopper) only", device.name,
                        device.compute_major, device.compute_minor)};
  }
  if (problem.programmatic_launch) {
    if (Support launch = require_programmatic_launch(device); !launch) return launch;
  }
  if (Support n = require_power_of_two(problem.n, 1 << kSmallestLogN, 1 << kLargestLogN); !n) return n;
  if (problem.row_stride % 8 != 0) {
    return {fmt::format(
        "row_stride={} must be a multiple of 8 elements: rows travel by bulk copies of 16-byte units",
        problem.row_stride)};
  }
  constexpr std::int64_t kMostRows = std::numeric_limits<std::int32_t>::max() / 2;
  if (problem.rows > kMostRows)
    return {fmt::format("rows={} exceeds the limit of {}", problem.rows, kMostRows)};
  const std::int64_t bytes = shared_bytes(choose_launch(problem, device), log2_floor(problem.n));
  if (bytes > device.shared_bytes_per_block) {
    return {fmt::format("n={} needs {} bytes of shared memory per block, this device allows {}", problem.n,
                        bytes, device.shared_bytes_per_block)};
  }
  return {};
}

}  // namespace

const Variant variant{
    "wgmma", "Hopper: raw rows as wgmma operands straight from bulk copies, fp32 finish, one rounding",
    Memory::device, supports, make_plan};

}  // namespace fwht::wgmma
