#include "variants/wgmma/wgmma.hpp"

#include <fmt/format.h>

#include <limits>

namespace fwht::wgmma {

// Why two forms. A block per row, scheduled by the hardware, keeps memory busiest once the data leaves the
// L2, as long as several blocks fit on an SM (n <= 8192). Inside the L2 the start-up of each block counts,
// and a resident block that always has the next rows in flight wins from n = 8192. Above, one row fills so
// much of an SM that only the ring overlaps load, tensor and store; out of the L2 its rows are handed out
// dynamically, because a static share leaves SMs idle at the end. A few long rows would leave most SMs idle:
// then a row is spread over a cluster. Its blocks all read the whole row (it comes from the L2 after the
// first) and each makes its share of the outputs, so that nothing but one barrier is exchanged; the bounds
// are where the reading of whole rows starts to cost more than it saves.
Launch choose_launch(const Problem& problem, const DeviceInfo& device) {
  const bool in_l2 = problem.elements() * 2 <= device.l2_bytes * 4 / 5;
  switch (log2_floor(problem.n)) {
    case 12:
      return {.form = Form::one_shot};
    case 13:
      if (!in_l2 || problem.rows <= 2 * device.sm_count) return {.form = Form::one_shot};
      return {.form = Form::ring, .warpgroups = 4, .slots = 8};
    case 14:
      if (problem.rows * 4 <= device.sm_count) return {.form = Form::one_shot, .log_cluster = 2};
      return {.form = Form::ring, .warpgroups = 2, .slots = 4, .dynamic = !in_l2};
    default:
      if (problem.rows <= 2) return {.form = Form::one_shot, .log_cluster = 3};
      if (problem.rows * 4 <= device.sm_count) return {.form = Form::one_shot, .log_cluster = 2};
      if (problem.rows * 2 <= device.sm_count) return {.form = Form::one_shot, .log_cluster = 1};
      return {.form = Form::ring, .warpgroups = 2, .slots = 2, .dynamic = !in_l2};
  }
}

std::int64_t shared_bytes(const Launch& launch, int log_n) {
  const Tile tile = tile_of(launch, log_n);
  if (launch.form == Form::one_shot) return tile.row_bytes() + 8 * kMostPieces;
  return std::int64_t{launch.slots} * (tile.row_bytes() + kBookkeepingBytesPerSlot) +
         std::int64_t{launch.warpgroups} * 4 * staged_bytes_per_warp(tile.columns());
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
  if (Support launch = require_ordinary_launch(problem); !launch) return launch;
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
