#include <algorithm>
#include <iterator>

#include "common/device/sm90a.hpp"
#include "common/host/bits.hpp"
#include "common/host/text.hpp"
#include "variants/linear/w4a16_pipelined/pipelined.hpp"
#include "variants/linear/w4a16_prefill/prefill.hpp"

namespace fwht::linear::prefill {
namespace {

/// Clocks by what was measured on an H100. A block's first step arrives after kStart.
constexpr std::int64_t kStart = 4200;
/// From a part's last step to the end, where a block finishes so many tokens.
constexpr std::int64_t clocks_of_end(std::int64_t tokens) {
  return 400 + 14 * tokens;
}
/// Of sharers that exchange sums, 9 bytes a clock, and some for each other one.
constexpr std::int64_t clocks_of_sharing(const Division& division, std::int64_t tokens) {
  const std::int64_t others = division.sharers - 1;
  return 1300 + 250 * others + tokens * kOutputs * 4 * others / division.sharers / 9;
}
/// Clocks of a run that cuts tiles: workers are at different k at a time, so that tokens and weights are read
/// again, and the chip takes more power and lowers its clock. Each gives one tile's sums and takes others'.
/// It is less where three workers have two tiles.
constexpr std::int64_t clocks_of_cut_run(const Form& form, const Division& division, std::int64_t steps) {
  const bool by_three = 2 * division.workers == 3 * division.tiles();
  return by_three ? steps * 11 / 10 + 2500 + 30 * form.tokens : steps * 5 / 4 + 2500 + 70 * form.tokens;
}

std::int64_t clocks_of(const Form& form, const Division& division, const LinearProblem& problem,
                       std::int64_t steps_of_unit) {
  const std::int64_t unit = steps_of_unit * form.step_clocks;
  std::int64_t clocks = kStart + division.whole_waves * (division.units * unit + clocks_of_end(form.tokens));
  if (!division.cuts()) return clocks;
  const std::int64_t cut = std::int64_t{division.tiles()} - division.first_cut();
  const std::int64_t run = ceil_div(cut * division.units, std::int64_t{division.runs()}) * unit;
  if (!division.shares()) return clocks + clocks_of_cut_run(form, division, run) + clocks_of_end(form.tokens);
  const std::int64_t tokens =
      PreparedDivision(division).tokens_of(0, form.tokens, static_cast<int>(problem.m));
  return clocks + run + clocks_of_sharing(division, tokens) + clocks_of_end(tokens / division.sharers);
}

/// Whole tiles alone; the last wave's tiles, and those of the one before, cut into equal runs, or two tiles
/// into three; and, where the last wave has few tiles, each of them shared.
std::vector<Division> divisions_of(const Division& tiles, int multiprocessors) {
  std::vector<Division> all;
  const auto add = [&](int workers, int whole_waves, int sharers = 1) {
    Division division = tiles;
    division.workers = workers;
    division.whole_waves = whole_waves;
    division.sharers = sharers;
    all.push_back(division);
  };
  const int count = tiles.tiles();
  add(std::min(count, multiprocessors), ceil_div(count, multiprocessors));
  if (count > multiprocessors && count % multiprocessors != 0)
    add(multiprocessors, count / multiprocessors - 1);
  if (count < multiprocessors && count * tiles.units >= 2 * multiprocessors) add(multiprocessors, 0);
  if (count % 2 == 0 && count / 2 * 3 <= multiprocessors && tiles.units % 3 == 0) add(count / 2 * 3, 0);
  const int whole_waves = count / multiprocessors, left = count % multiprocessors;
  if (left == 0) return all;
  for (int sharers = 2; sharers <= kMostSharers && sharers <= tiles.units; ++sharers) {
    const int workers = whole_waves == 0 ? left * sharers : multiprocessors;
    if (left * sharers <= workers && workers <= multiprocessors) add(workers, whole_waves, sharers);
  }
  return all;
}

}  // namespace

Chosen choose(const LinearProblem& problem, int multiprocessors) {
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
    for (const Division& division : divisions_of(tiles, multiprocessors)) {
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
