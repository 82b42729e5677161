#include <algorithm>
#include <iterator>

#include "common/device/sm90a.hpp"
#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "common/host/text.hpp"
#include "variants/linear/w4a16_pipelined/pipelined.hpp"
#include "variants/linear/w4a16_prefill/prefill.hpp"

namespace fwht::linear::prefill {
namespace {

/// Clocks by what was measured on an H200: a block's first step arrives after kStart; a whole tile ends with
/// kEnd.
constexpr std::int64_t kStart = 4000, kEnd = 2000;
/// Clocks of sharers that exchange sums. In a cluster of two a block reads 34 bytes a clock from the other
/// one, in a larger one 14, and through the workspace 8. `tokens`: of the tile.
constexpr std::int64_t clocks_of_sharing(const Division& division, std::int64_t tokens) {
  const std::int64_t bytes = tokens * kOutputs * 4, blocks = division.cluster,
                     clusters = division.sharers / blocks;
  std::int64_t clocks = 0;
  if (blocks > 1) clocks += 1000 + 4 * tokens + bytes * (blocks - 1) / blocks / (blocks == 2 ? 34 : 14);
  if (clusters > 1) clocks += 1500 + bytes / blocks * (clusters - 1) / clusters / 8;
  return clocks;
}
/// And of workers whose runs cut tiles: each gives one tile's sums and takes others', and they are at
/// different k at a time, so that tokens and weights are read again.
constexpr std::int64_t clocks_of_cuts(const Form& form) {
  return 2500 + 180 * form.tokens;
}

std::int64_t clocks_of(const Form& form, const Division& division, const LinearProblem& problem,
                       std::int64_t steps_of_unit) {
  const std::int64_t unit = steps_of_unit * form.step_clocks;
  std::int64_t clocks = kStart + division.whole_waves * (division.units * unit + kEnd);
  if (!division.cuts()) return clocks;
  const std::int64_t cut = std::int64_t{division.tiles()} - division.first_cut();
  clocks += ceil_div(cut * division.units, std::int64_t{division.runs()}) * unit + kEnd;
  if (!division.shares()) return clocks + clocks_of_cuts(form);
  return clocks + clocks_of_sharing(division, PreparedDivision(division).tokens_of(
                                                  0, form.tokens, static_cast<int>(problem.m)));
}

/// Whole tiles alone; the last wave's tiles, and those of the one before, cut into equal runs; and, where the
/// last wave has few tiles, each of them shared.
std::vector<Division> divisions_of(const Division& tiles, const Residents& residents) {
  std::vector<Division> all;
  const auto add = [&](int workers, int whole_waves, int sharers = 1, int cluster = 1) {
    Division division = tiles;
    division.workers = workers;
    division.whole_waves = whole_waves;
    division.sharers = sharers;
    division.cluster = cluster;
    all.push_back(division);
  };
  const int count = tiles.tiles(), multiprocessors = residents[1];
  add(std::min(count, multiprocessors), ceil_div(count, multiprocessors));
  if (count > multiprocessors && count % multiprocessors != 0)
    add(multiprocessors, count / multiprocessors - 1);
  if (count < multiprocessors && count * tiles.units >= 2 * multiprocessors) add(multiprocessors, 0);
  const int whole_waves = count / multiprocessors, left = count % multiprocessors;
  if (left == 0) return all;
  for (int sharers = 2; sharers <= kMostSharers && sharers <= tiles.units; ++sharers) {
    const int workers = whole_waves == 0 ? left * sharers : multiprocessors;
    for (int cluster = 1; cluster <= sharers; ++cluster)
      if (left * sharers <= workers && sharers % cluster == 0 && workers % cluster == 0 &&
          workers / cluster <= residents[static_cast<std::size_t>(cluster)])
        add(workers, whole_waves, sharers, cluster);
  }
  return all;
}

}  // namespace

Chosen choose(const LinearProblem& problem, const Residents& residents) {
  const int scales = pipelined::scales_of(problem), steps = steps_of_unit(scales);
  Chosen best;
  std::int64_t least = 0;
  for (int i = 0; i < static_cast<int>(std::size(kForms)); ++i) {
    const Form& form = kForms[i];
    Division tiles;
    tiles.outputs = static_cast<int>(ceil_div(problem.n, std::int64_t{kOutputs}));
    tiles.tokens = static_cast<int>(ceil_div(problem.m, std::int64_t{form.tokens}));
    tiles.units = static_cast<int>(ceil_div(problem.k / kStepK, std::int64_t{steps}));
    if (tiles.tiles() == 0) return {i, tiles};
    for (const Division& division : divisions_of(tiles, residents)) {
      const std::int64_t clocks = clocks_of(form, division, problem, steps);
      if (least != 0 && clocks >= least) continue;
      least = clocks;
      best = {i, division};
    }
  }
  return best;
}

namespace {

Support supports(const LinearProblem& problem, const DeviceInfo& device) {
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  if (!kBuiltForHopper)
    return {"built without sm_90a code, which wgmma needs (CMAKE_CUDA_ARCHITECTURES lacks 90a)"};
  if (device.compute_capability() != 90)
    return {concat("wgmma needs compute capability 9.0, ", device.name, " has ", device.compute_major, ".",
                   device.compute_minor)};
  if (Support launch = require_ordinary_launch(problem); !launch) return launch;
  if (Support rotation = require_no_rotation(problem); !rotation) return rotation;
  const std::int64_t rows = problem.group_rows();
  if (problem.k % kStepK != 0) return {concat("k = ", problem.k, ": a multiple of ", kStepK, " is needed")};
  if (rows % kStepK != 0 && kStepK % rows != 0)
    return {concat("group ", rows, ": 32, 64 or a multiple of ", kStepK, " is offered")};
  // Units of all tiles are counted in 32 bits, of the smallest tiles and units.
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  const std::int64_t units =
      ceil_div(problem.m, std::int64_t{kForms[0].tokens}) * ceil_div(problem.n, std::int64_t{kOutputs});
  if (problem.m > kMost || problem.n > kMost || units > kMost / (problem.k / kStepK))
    return {concat("m = ", problem.m, ", n = ", problem.n, ", k = ", problem.k, ": more than ", kMost,
                   " units of work")};
  return {};
}

}  // namespace

constinit const LinearVariant variant = {"w4a16_prefill",
                                         "many tokens: weights unpacked on the way into wgmma",
                                         Memory::device, supports, make_plan};

}  // namespace fwht::linear::prefill
