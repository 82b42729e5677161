#include "variants/wgmma/wgmma.hpp"

#include "common/device/sm90a.hpp"
#include "common/host/text.hpp"

namespace fwht::wgmma {
namespace {

/// Whether the blocks of so many launches fit on the device, so many on an SM. Larger clusters do not reach
/// all SMs.
bool fit(const Launch& launch, std::int64_t rows, int sms, int launches, int blocks_per_sm) {
  const std::int64_t reached = launch.cluster() > 2 ? sms * 10 / 11 : sms;
  return launches * rows * launch.cluster() <= reached * blocks_per_sm;
}

}  // namespace

// Why each of them: beside the launches in wgmma.hpp. The rule: clusters while every block has an SM to
// itself, then one wave of blocks, then what is best inside and out of the L2.
Launch choose_launch(const Problem& problem, const DeviceInfo& device) {
  const std::int64_t sms = device.sm_count, rows = problem.rows;
  const bool in_l2 = problem.elements() * 2 <= device.l2_bytes * 4 / 5;
  const auto fits = [&](const Launch& launch, int launches) {
    return fit(launch, rows, device.sm_count, launches, 1);
  };
  switch (log2_floor(problem.n())) {
    case 12:
      if (!in_l2) return kOneShot12Table;
      if (rows <= 6 * sms) return kOneShot12;
      return rows <= 20 * sms ? kRing12 : kRing12Deferred;
    case 13:
      if (!in_l2 || rows <= 4 * sms) return kOneShot13;
      return rows <= 8 * sms ? kRing13Pieces : kRing13Deferred;
    case 14:
      if (fits(kCluster4For14, 1)) return kCluster4For14;
      if (rows <= 2 * sms) return kOneShot14;
      return !in_l2 ? kRing14Dynamic : rows <= 4 * sms ? kRing14Pieces : kRing14Joined;
    case 15:
      if (fits(kCluster8For15, 2)) return kCluster8For15;
      if (fits(kCluster4For15, 1)) return kCluster4For15;
      if (rows <= sms) return kCluster2For15;
      return in_l2 && rows > 2 * sms ? kRing15 : kRing15Dynamic;
    default:
      if (fits(kCluster8For16, 1)) return kCluster8For16;
      if (fits(kCluster4For16, 1)) return kCluster4For16;
      if (fits(kPair16, 1)) return kPair16;
      return in_l2 ? kPasses16 : kPasses16Dynamic;
  }
}

// That pays while this launch and the next find room side by side.
bool is_eager(const Launch& launch, const Problem& problem, const DeviceInfo& device) {
  return problem.programmatic_launch && launch.form == Form::one_shot &&
         fit(launch, problem.rows, device.sm_count, 2, launch.blocks_per_sm);
}

namespace {

Support supports(const Problem& problem, const DeviceInfo& device) {
  if (problem.dtype() == Dtype::f32) return {"dtype f32 is not supported: the exact stage needs 16-bit data"};
  if (!kBuiltForHopper) {
    return {"built without sm_90a code, which wgmma needs (CMAKE_CUDA_ARCHITECTURES lacks 90a)"};
  }
  if (Support cuda = require_cuda(device, 90); !cuda) return cuda;
  if (device.compute_capability() != 90) {
    return {concat(device.name, " has compute capability ", device.compute_major, ".", device.compute_minor,
                   "; wgmma exists in 9.0 (Hopper) only")};
  }
  if (problem.programmatic_launch) {
    if (Support launch = require_programmatic_launch(device); !launch) return launch;
  }
  if (Support n = require_sylvester(problem, 1 << kSmallestLogN, 1 << kLargestLogN); !n) return n;
  if (Support grid = require_rows_on_16_byte_grid(problem); !grid) return grid;
  if (Support rows = require_rows_in_32_bits(problem); !rows) return rows;
  return require_shared_bytes(problem, shared_bytes(choose_launch(problem, device)), device);
}

}  // namespace

const Variant variant{
    "wgmma", "Hopper: raw rows as wgmma operands straight from bulk copies, fp32 finish, one rounding",
    Memory::device, supports, make_plan};

}  // namespace fwht::wgmma
