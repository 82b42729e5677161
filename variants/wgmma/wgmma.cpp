#include "variants/wgmma/wgmma.hpp"

#include <fmt/format.h>

#include <limits>

namespace fwht::wgmma {

// Why several forms, and where each is used (measured on an H200, without clusters by wgmma_tune). A block
// per row, scheduled by the hardware, keeps memory busiest once the data leaves the L2, as long as several
// blocks fit on an SM (n <= 8192; at 4096 the A operand in shared memory makes room for eight of them, but
// starts later, which counts when there is one wave only). Inside the L2 the start-up of each block counts:
// once the rows are more than fit at once, resident blocks win that have several rows in flight. Registers
// matter most while all data arrive at the start (the rows of 2^23 elements fit in the shared memories of the
// chip), and then pieces of rows help. When rows keep arriving, a row is stored under the exact stage of the
// next one, and at n = 4096 twice the warps of half the registers win. Above 8192 a row fills so much of an
// SM that only the ring overlaps load, tensor and store. Out of the L2 rows are handed out dynamically,
// because a static share leaves SMs idle at the end; inside, the counter costs what it brings or more, but
// for two rows of 32768 an SM. hi and lo are joined where that was measured faster: not where a row is a
// block of its own, nor at 65536, nor in the rings of 16384 out of the L2 and of up to four rows an SM. At
// 4096 it brings nothing, and would take away that every number of rows gives the same bits. A few long rows
// would leave most SMs idle: then a row is spread over a cluster. Its blocks all read the whole row (it comes
// from the L2 after the first) and each makes its share of the outputs, so that nothing but one barrier is
// exchanged; that pays while every block has an SM to itself. Clusters of more than two reach ten elevenths
// of the SMs. One of eight instead of four halves the finish, which counts at 65536; at 32768 it brings
// something only where launches overlap. At 65536 a pair of blocks shares a row; it does twice the tensor
// work of one that makes it in two passes, which counts once there are more rows than pairs.
Launch choose_launch(const Problem& problem, const DeviceInfo& device) {
  const std::int64_t sms = device.sm_count, rows = problem.rows;
  const bool in_l2 = problem.elements() * 2 <= device.l2_bytes * 4 / 5;
  // Whether the blocks of so many launches fit on the device, so many on an SM. Larger clusters do not reach
  // all SMs.
  const auto fit = [&](const Launch& launch, int launches, int blocks_per_sm) {
    const std::int64_t reached = launch.cluster() > 2 ? sms * 10 / 11 : sms;
    return launches * rows * launch.cluster() <= reached * blocks_per_sm;
  };
  // An early trigger pays while this launch and the next find room side by side.
  const auto few_rows = [&](Launch launch) {
    launch.eager = problem.programmatic_launch && fit(launch, 2, launch.blocks_per_sm);
    return launch;
  };
  switch (log2_floor(problem.n())) {
    case 12:
      if (!in_l2) return kLaunches<12>[2];
      if (rows <= 6 * sms) return few_rows(kFewRows12);
      return kLaunches<12>[rows <= 20 * sms ? 3 : 4];
    case 13:
      if (!in_l2 || rows <= 4 * sms) return few_rows(kFewRows13);
      return kLaunches<13>[rows <= 8 * sms ? 2 : 3];
    case 14:
      if (fit(kClusterOf4For14, 1, 1)) return few_rows(kClusterOf4For14);
      if (rows <= 2 * sms) return few_rows(kFewRows14);
      return kLaunches<14>[!in_l2 ? 6 : (rows <= 4 * sms ? 4 : 5)];
    case 15:
      if (fit(kClusterOf8For15, 2, 1)) return few_rows(kClusterOf8For15);
      if (fit(kClusterOf4For15, 1, 1)) return few_rows(kClusterOf4For15);
      if (rows <= sms) return few_rows(kClusterOf2For15);
      return kLaunches<15>[in_l2 && rows > 2 * sms ? 6 : 7];
    default:
      if (fit(kClusterOf8For16, 1, 1)) return few_rows(kClusterOf8For16);
      if (fit(kClusterOf4For16, 1, 1)) return few_rows(kClusterOf4For16);
      if (fit(kPairLaunch, 1, 1)) return kPairLaunch;
      return in_l2 ? kPassesLaunch : kDynamicPassesLaunch;
  }
}

namespace {

#ifdef FWHT_WITHOUT_SM90A
constexpr bool kBuiltForHopper = false;
#else
constexpr bool kBuiltForHopper = true;
#endif

Support supports(const Problem& problem, const DeviceInfo& device) {
  if (problem.dtype() == Dtype::f32) return {"dtype f32 is not supported: the exact stage needs 16-bit data"};
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
  if (Support strides = require_one_row_stride(problem); !strides) return strides;
  if (Support n = require_sylvester(problem, 1 << kSmallestLogN, 1 << kLargestLogN); !n) return n;
  if (problem.row_stride() % 8 != 0) {
    return {fmt::format(
        "row_stride={} must be a multiple of 8 elements: rows travel by bulk copies of 16-byte units",
        problem.row_stride())};
  }
  constexpr std::int64_t kMostRows = std::numeric_limits<std::int32_t>::max() / 2;
  if (problem.rows > kMostRows)
    return {fmt::format("rows={} exceeds the limit of {}", problem.rows, kMostRows)};
  const std::int64_t bytes = shared_bytes(choose_launch(problem, device), log2_floor(problem.n()));
  if (bytes > device.shared_bytes_per_block) {
    return {fmt::format("n={} needs {} bytes of shared memory per block, this device allows {}", problem.n(),
                        bytes, device.shared_bytes_per_block)};
  }
  return {};
}

}  // namespace

const Variant variant{
    "wgmma", "Hopper: raw rows as wgmma operands straight from bulk copies, fp32 finish, one rounding",
    Memory::device, supports, make_plan};

}  // namespace fwht::wgmma
