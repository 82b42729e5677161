#include "variants/mma_kronecker/mma_kronecker.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "common/host/bits.hpp"
#include "common/host/text.hpp"
#include "variants/kit/encode/offers.hpp"

namespace fwht::mma_kronecker {
namespace {

/// Rows of 2^k, which `auto` takes off Hopper for codes to 32768, and where row strides in and out differ.
constexpr std::int64_t kSmallestSylvester = 16384, kLargestSylvester = 65536;
constexpr std::int64_t kMostOrder = 448;  // of stage 1: 28 products for each element

/// Work of an element: k steps of stage 1, and what stands for stage 2, load and store, all of it done for
/// rows that fill up the last block of 16, too. 256 columns keep fewer warps on a multiprocessor. The
/// constants are a fit to times of 23 operators by every team on an H200, when that was half as many.
double work_of(const Shape& shape) {
  constexpr double kBesideStage1 = 10.0, kFewWarps = 1.25;
  const double filled = 16.0 * shape.k_steps() / shape.order;
  return filled * (shape.k_steps() + kBesideStage1) * (shape.columns > kTileColumns ? kFewWarps : 1.0);
}

}  // namespace

Results results_of(const Encoding& encoding) {
  if (encoding.is_plain()) return Results::rows;
  return encoding.scales.kind == ScaleGranularity::Kind::group ? Results::codes_of_groups
                                                               : Results::codes_of_rows;
}

int Cut::fewest_shared_bytes() const {
  int fewest = std::numeric_limits<int>::max();
  for (int warps = 1; warps <= std::min(most_warps(columns_at_once()), shares()); ++warps)
    fewest = std::min(fewest, shared_bytes(warps, 1));
  return fewest;
}

std::optional<Cut> cut_for(const Operator& op) {
  const std::optional<rows::FactorParts> parts = rows::factor_parts_of(op);
  if (!parts) return std::nullopt;
  const std::int64_t m = parts->slow.order, second = parts->second.order * parts->behind;
  std::optional<Cut> best;
  const auto consider = [&](int columns, int order_of_second) {
    const std::int64_t order = op.n() / columns;
    if (op.n() % columns != 0 || order % m != 0 || !is_power_of_two(order / m) || order > kMostOrder) return;
    const Cut cut{shape_of(static_cast<int>(order), columns, order_of_second), parts->slow, parts->second};
    if (!best || work_of(cut.shape) < work_of(best->shape)) best = cut;
  };
  if (parts->second.order == 1) {
    for (const int columns : kColumns)
      consider(columns, 1);
  } else if (parts->slow.basis != Basis::dense) {
    for (const TwoMatrices& two : kTwoMatrices)
      if (two.second == second) consider(two.columns, two.second);
  }
  return best;
}

std::vector<Cut> tilings_of(const Cut& cut) {
  std::vector<Cut> tilings;
  if (cut.shape.order > kMostWideOrder && cut.matrices() == Matrices::one && cut.results == Results::rows) {
    for (const NarrowTile& tile : kNarrowTiles) {
      if (tile.columns != cut.shape.columns) continue;
      tilings.push_back(cut);
      tilings.back().shape.rows = tile.rows;
      tilings.back().blocks_at_once = tile.blocks;
    }
  }
  if (tilings.empty()) tilings.push_back(cut);
  return tilings;
}

Cut tiling_for(const Cut& cut, std::int64_t rows, int multiprocessors) {
  // Measured on an H200: twice the rows take 5/3 of the time.
  const auto time_of = [&](const Cut& tiling) {
    const std::int64_t tiles = ceil_div(rows, std::int64_t{tiling.shape.rows});
    return ceil_div(tiles, std::int64_t{multiprocessors}) * (tiling.shape.tile_columns() == 32 ? 3 : 5);
  };
  const std::vector<Cut> tilings = tilings_of(cut);
  return *std::ranges::min_element(tilings, std::ranges::less{}, time_of);
}

Team team_for(const Cut& cut, const Resident& resident, std::int64_t tiles, int multiprocessors) {
  // Measured on an H200: what a team loses in idle warps it gains in blocks that cover each other's loads.
  constexpr double kNearlyAll = 0.85;
  const int shares = cut.shares(), enough = cut.shape.columns > kTileColumns ? 2 : 3;
  const auto at_work = [&](const Team& team) {
    return static_cast<double>(team.blocks_per_sm) * shares / cut.passes(team.warps);
  };
  std::vector<Team> teams;  // by the number of passes
  for (int passes = 1; passes <= shares; ++passes) {
    const int warps = static_cast<int>(ceil_div(std::int64_t{shares}, std::int64_t{passes}));
    if (warps > most_warps(cut.columns_at_once()) || cut.passes(warps) != passes) continue;
    const int fit = resident(warps, cut.shared_bytes(warps, 1));
    if (fit > 0) teams.push_back({warps, 1, fit});
  }
  if (teams.empty()) return {};
  Team best = teams.front();
  if (tiles > multiprocessors && !cut.is_narrow()) {
    double most = 0;
    for (const Team& team : teams)
      most = std::max(most, at_work(team));
    const auto busy = [&](const Team& team) { return at_work(team) >= kNearlyAll * most; };
    const auto busy_with = [&](int blocks_per_sm) {
      return std::find_if(teams.begin(), teams.end(), [&](const Team& team) {
        return busy(team) && team.blocks_per_sm >= blocks_per_sm;
      });
    };
    auto found = busy_with(enough);
    // What codes add between two loads takes a second block all the more.
    if (found == teams.end() && cut.results != Results::rows) found = busy_with(2);
    if (found == teams.end()) found = busy_with(1);
    best = *found;
  }
  // A block alone has nothing else to hide a load behind. Where codes are staged in place of the tile, the
  // next one could be asked for only behind them.
  const bool in_place = cut.results != Results::rows && cut.passes(best.warps) == 1;
  const bool gains = best.blocks_per_sm == 1 || in_place;
  if (gains && resident(best.warps, cut.shared_bytes(best.warps, 2)) == best.blocks_per_sm) best.slots = 2;
  return best;
}

namespace {

Support supports(const Problem& problem, const DeviceInfo& device) {
  if (Support matrix_rows = rows::supports_matrix_rows(problem); !matrix_rows) return matrix_rows;
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  if (problem.programmatic_launch) {
    if (Support programmatic = require_programmatic_launch(device); !programmatic) return programmatic;
  }
  if (!problem.encoding.is_plain()) {
    if (Support encoding = encoder::supports_rounded_first(problem); !encoding) return encoding;
  }
  if (problem.op.is_sylvester()) {
    Problem rows = problem;
    rows.encoding = {};
    rows.out.row_stride = rows.in.row_stride;
    if (Support n = require_sylvester(rows, kSmallestSylvester, kLargestSylvester); !n) return n;
  }
  std::optional<Cut> cut = cut_for(problem.op);
  if (!cut) {
    return {concat("the operator ", to_string(problem.op),
                   " is not offered by this variant, which takes a matrix of order m times 2^k, 2^k at least "
                   "16, or two named ones of which the second makes 56 or 72 with its 2^k, and signs")};
  }
  if (Support grid = require_rows_on_16_byte_grid(problem); !grid) return grid;
  if (Support rows = require_rows_in_32_bits(problem); !rows) return rows;
  cut->results = results_of(problem.encoding);
  return require_shared_bytes(problem, tilings_of(*cut).front().fewest_shared_bytes(), device);
}

}  // namespace

const Variant variant{
    "mma_kronecker", "any tensor core from 8.0 on: any matrix of order m times 2^k by mma.sync, one rounding",
    Memory::device, supports, make_plan};

}  // namespace fwht::mma_kronecker
