#include "variants/factors/factors.hpp"

#include <algorithm>
#include <array>

#include "common/host/text.hpp"

namespace fwht::factors {
namespace {

int order_of(const Factor& factor) {
  return static_cast<int>(factor.order);
}

/// The Sylvester factor whose bits are the fastest, as far as a warp does them; 0 where the last factor is
/// none.
int store_levels_of(const Operator& op) {
  const Factor& last = op.factors().back();
  return last.basis == Basis::sylvester ? std::min(kStoreLevels, log2_floor(last.order)) : 0;
}

/// Threads for the products of the largest matrix, which must all be under way at once.
int threads_needed(const Program& program, int elements) {
  int needed = static_cast<int>(ceil_div(elements, std::int64_t{kTileRows} * kTileColumns));
  for (const Stage& stage : program.stages) {
    if (stage.levels == 0 && !stage.items_are_apart()) needed = std::max(needed, stage.items(elements));
  }
  return static_cast<int>(ceil_div(needed, 32)) * 32;
}

}  // namespace

Program program_of(const Operator& op) {
  Program program;
  program.store_levels = store_levels_of(op);
  int stride = static_cast<int>(op.n());
  const auto count = static_cast<int>(op.factors().size());
  for (int f = 0; f < count; ++f) {
    const Factor& factor = op.factors()[static_cast<std::size_t>(f)];
    const auto add = [&](const Stage& stage) {
      program.stages.push_back(stage);
      program.factor_of.push_back(f);
    };
    stride /= order_of(factor);
    if (factor.basis != Basis::sylvester) {
      add({order_of(factor), stride, 0, nullptr});
      continue;
    }
    const int levels = log2_floor(factor.order);
    for (int done = f + 1 == count ? program.store_levels : 0; done < levels;) {
      const int now = std::min(kMostLevels, levels - done);
      add({1 << now, stride << done, now, nullptr});
      done += now;
    }
  }
  const std::int64_t n = op.n();
  program.rows_per_block = static_cast<int>(std::max<std::int64_t>(kSharedElements / n, 1));
  program.threads = threads_needed(program, program.rows_per_block * static_cast<int>(n));
  return program;
}

Numerics numerics_of(const Problem& problem) {
  Numerics numerics = single_rounding_by_factors(Sums::fp32, problem, Sums::fp32_any_order);
  // The fastest bits come last.
  std::vector<int>& bits = numerics.steps.back().bits;
  std::rotate(bits.begin(), bits.begin() + store_levels_of(problem.op), bits.end());
  return numerics;
}

namespace {

Support supports(const Problem& problem, const DeviceInfo& device) {
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  if (Support launch = require_ordinary_launch(problem); !launch) return launch;
  constexpr std::array kDtypes{Dtype::f16, Dtype::bf16, Dtype::f32};
  if (Support rows = require_plain_rows(problem, kDtypes); !rows) return rows;
  if (problem.op.is_sylvester()) {
    return {concat("the operator ", to_string(problem.op),
                   " is not offered by this variant, which is for those of several factors, or with signs")};
  }
  const std::int64_t n = problem.n();
  if (n < 2 || n > kLargestN) return {concat("n=", n, " must be between 2 and ", kLargestN)};
  for (const Factor& factor : problem.op.factors()) {
    if (factor.basis == Basis::sylvester && !is_power_of_two(factor.order)) {
      return {concat("operator ", to_string(problem.op), ": order ", factor.order,
                     " of a Sylvester factor must be a power of two")};
    }
  }
  const Program program = program_of(problem.op);
  if (program.threads > kMostThreads) {
    return {concat("the operator ", to_string(problem.op), " is not offered: its products take ",
                   program.threads, " threads, above the limit of ", kMostThreads)};
  }
  const std::int64_t shared = program.rows_per_block * n * std::int64_t{sizeof(float)};
  return require_shared_bytes(problem, shared, device);
}

}  // namespace

const Variant variant{"factors",
                      "any operator factor by factor in shared memory, fp32 multiply-add and additions",
                      Memory::device, supports, make_plan};

}  // namespace fwht::factors
