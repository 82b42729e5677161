#include "variants/warp_kronecker/warp_kronecker.hpp"

#include <algorithm>

#include "common/host/text.hpp"

namespace fwht::warp_kronecker {

std::optional<WarpCut> cut_for(const Operator& op) {
  const std::optional<rows::FactorParts> parts = rows::factor_parts_of(op);
  if (!parts || parts->slow.basis != Basis::hadamard || parts->second.order != 1) return std::nullopt;
  for (const int halves : {1, 2}) {
    const std::int64_t columns = kColumns * halves, order = op.n() / columns;
    if (op.n() % columns != 0 || order % parts->slow.order != 0 || order > kMostOrder) continue;
    const WarpCut cut{static_cast<int>(order), halves, parts->slow};
    const auto serves = [&](const WarpLaunch& launch) { return launch.serves(cut); };
    if (std::ranges::any_of(kLaunches, serves)) return cut;
  }
  return std::nullopt;
}

WarpLaunch launch_for(const WarpCut& cut, std::int64_t rows, int multiprocessors) {
  return *std::ranges::find_if(kLaunches, [&](const WarpLaunch& launch) {
    return launch.serves(cut) &&
           rows <= std::int64_t{launch.most_rows_per_multiprocessor()} * multiprocessors;
  });
}

namespace {

Support supports(const Problem& problem, const DeviceInfo& device) {
  if (Support matrix_rows = rows::supports_matrix_rows(problem); !matrix_rows) return matrix_rows;
  if (!problem.encoding.is_plain()) return require_plain_rows(problem);
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  if (problem.programmatic_launch) {
    if (Support programmatic = require_programmatic_launch(device); !programmatic) return programmatic;
  }
  if (!cut_for(problem.op)) {
    return {concat("the operator ", to_string(problem.op), " is not offered by this variant: its rows are a ",
                   "named matrix times 2^k, ", kColumns, " or more up to n = ", kColumns * kMostOrder, ", ",
                   2 * kColumns, " or more up to n = ", 2 * kColumns * kMostOrder)};
  }
  if (Support grid = require_rows_on_16_byte_grid(problem); !grid) return grid;
  return require_rows_in_32_bits(problem);
}

}  // namespace

const Variant variant{"warp_kronecker",
                      "any tensor core from 8.0 on: a warp holds a row of m 2^k to 14336 in registers, one "
                      "rounding",
                      Memory::device, supports, make_plan};

}  // namespace fwht::warp_kronecker
