#include "variants/warp_kronecker/warp_kronecker.hpp"

#include <limits>

#include "common/host/text.hpp"

namespace fwht::warp_kronecker {

std::optional<WarpCut> cut_for(const Operator& op, const WarpLaunch& launch) {
  const std::int64_t order = op.n() / launch.columns;
  if (op.n() % launch.columns != 0 || order > kMostOrder) return std::nullopt;
  const rows::Shape shape{static_cast<int>(order), launch.columns};
  if (!launch.serves(shape)) return std::nullopt;
  const std::optional<rows::FactorParts> parts = rows::factor_parts_of(op);
  if (!parts || parts->slow.basis != Basis::hadamard || parts->second.order != 1) return std::nullopt;
  if (order % parts->slow.order != 0) return std::nullopt;
  return WarpCut{shape, parts->slow};
}

std::optional<WarpChoice> choice_for(const Operator& op, std::int64_t rows, int multiprocessors) {
  for (const WarpLaunch& launch : kLaunches) {
    const std::optional<WarpCut> cut = cut_for(op, launch);
    if (!cut) continue;
    const std::int64_t most = launch.most_rows_per_multiprocessor(cut->shape.order);
    if (rows <= most * multiprocessors) return WarpChoice{launch, *cut};
  }
  return std::nullopt;
}

bool has_one_cut(const Operator& op) {
  const std::optional<WarpChoice> many = choice_for(op, std::numeric_limits<int>::max(), 1);
  for (const WarpLaunch& launch : kLaunches) {
    if (!cut_for(op, launch)) continue;
    if (!many || launch.columns != many->launch.columns) return false;
    if (launch == many->launch) return true;
  }
  return false;
}

namespace {

Support supports(const Problem& problem, const DeviceInfo& device) {
  if (Support matrix_rows = rows::supports_matrix_rows(problem); !matrix_rows) return matrix_rows;
  if (!problem.encoding.is_plain()) return require_plain_rows(problem);
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  if (problem.programmatic_launch) {
    if (Support programmatic = require_programmatic_launch(device); !programmatic) return programmatic;
  }
  if (!choice_for(problem.op, problem.rows, device.sm_count)) {
    return {concat("the operator ", to_string(problem.op), " is not offered by this variant, which takes m ",
                   "2^k as D x 16 to 64 (D to ", kMostOrder, "), 128 (65 to ", kMostOrderOfTwo,
                   "), 256 or 512 (17 to 112), 1024 (33 to 64)")};
  }
  if (Support grid = require_rows_on_16_byte_grid(problem); !grid) return grid;
  return require_rows_in_32_bits(problem);
}

}  // namespace

const Variant variant{
    "warp_kronecker",
    "any tensor core from 8.0 on: up to 16 warps hold a row of m 2^k to 61440 in registers, one rounding",
    Memory::device, supports, make_plan};

}  // namespace fwht::warp_kronecker
