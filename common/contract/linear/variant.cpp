#include "common/contract/linear/variant.hpp"

#include <bit>
#include <cmath>

#include "common/contract/linear/rotation_layout.hpp"
#include "common/contract/scale_layout.hpp"
#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "common/host/overlap.hpp"
#include "common/host/text.hpp"

namespace fwht {
namespace {

void require_pointer(const char* name, const void* pointer) {
  if (pointer == nullptr) throw BadRequest(concat(name, " is a null pointer"));
  if (reinterpret_cast<std::uintptr_t>(pointer) % LinearPlan::kAlignment != 0)
    throw BadRequest(concat(name, " is no multiple of ", LinearPlan::kAlignment, " bytes"));
}

std::int64_t whole_part(std::int64_t bytes) {
  return round_up(bytes, kPartAlignment);
}

void check_workspace(const LinearPlan& plan, const LinearOperands& operands, std::int64_t x_bytes) {
  const std::int64_t needed = plan.workspace_bytes(), given = operands.workspace_bytes;
  if (needed == 0) return;
  if (operands.workspace == nullptr)
    throw BadRequest(concat("workspace is a null pointer; the plan needs ", needed, " bytes"));
  require_pointer("workspace", operands.workspace);
  if (given < needed) throw BadRequest(concat("workspace_bytes=", given, " must be at least ", needed));
  if (overlap(operands.workspace, needed, operands.x, x_bytes) ||
      overlap(operands.workspace, needed, operands.weights, plan.packed_bytes()) ||
      overlap(operands.workspace, needed, operands.y, plan.problem().bytes_written()))
    throw BadRequest("the workspace overlaps x, the weights or y");
}

}  // namespace

Numerics layer_numerics(const LinearProblem& problem, bool rounds_x) {
  Numerics numerics;
  if (problem.rotates() && !problem.rotation.is_sylvester()) {
    numerics.steps = single_rounding_by_factors(Sums::fp32, rotation_of(problem)).steps;
    numerics.steps.back().rounds = rounds_x;
  } else if (problem.rotates()) {
    const std::int64_t order = problem.rotation_order();
    const int levels = std::countr_zero(static_cast<std::uint64_t>(order));
    numerics.steps.push_back({.bits = index_bits(0, levels),
                              .constant = 1.0 / std::sqrt(static_cast<double>(order)),
                              .rounds = rounds_x,
                              .sum_rms = butterfly_rms(levels)});
  }
  numerics.steps.push_back({.factor = 0, .sums = Sums::fp32_any_order, .chained = 8});
  return numerics;
}

std::string LinearLayers::grid_block(const LinearProblem& problem, Memory /*memory*/) {
  return concat("# fwht_linear --problem ", to_string(problem), "\n");
}

void LinearLayers::check(const LinearPlan& plan, const LinearOperands& operands) {
  const LinearProblem& problem = plan.problem();
  require_pointer("x", operands.x);
  require_pointer("weights", operands.weights);
  require_pointer("y", operands.y);
  const std::int64_t x_bytes = problem.m * problem.k * bytes_of(problem.dtype);
  if (overlap(operands.x, x_bytes, operands.y, problem.bytes_written()))
    throw BadRequest("x and y overlap: every output needs all of x");
  if (overlap(operands.weights, plan.packed_bytes(), operands.y, problem.bytes_written()))
    throw BadRequest("weights and y overlap: every launch needs all weights");
  check_workspace(plan, operands, x_bytes);
}

std::int64_t LinearPlan::room_for(std::initializer_list<std::int64_t> parts) {
  std::int64_t bytes = 0;
  for (const std::int64_t part : parts)
    bytes += whole_part(part);
  return bytes == 0 ? 0 : bytes + kPartAlignment - static_cast<std::int64_t>(kAlignment);
}

void* LinearPlan::take_part(LinearOperands& operands, std::int64_t bytes) {
  auto* at = static_cast<std::byte*>(operands.workspace);
  at += whole_part(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(at))) -
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(at));
  std::byte* const behind = at + whole_part(bytes);
  operands.workspace_bytes -= behind - static_cast<std::byte*>(operands.workspace);
  operands.workspace = behind;
  return at;
}

std::vector<std::byte> LinearPlan::pack(const GptqWeights& weights) const {
  validate(weights);
  const LinearProblem& p = problem();
  const auto require_same = [](const char* what, std::int64_t got, std::int64_t want) {
    if (got != want)
      throw BadRequest(concat("the weights have ", what, " = ", got, ", the plan is for ", want));
  };
  require_same("n", weights.n, p.n);
  require_same("k", weights.k, p.k);
  require_same("group", weights.group_rows(), p.group_rows());
  if (weights.zero_points != p.zero_points)
    throw BadRequest("the weights store their zero points in another way than the problem says");
  const Operator& rotation = p.rotation;
  require_same("words of signs", static_cast<std::int64_t>(weights.signs.size()),
               rotation.has_signs() ? ceil_div(rotation.n(), 32) : 0);
  require_same("bytes of dense factors", static_cast<std::int64_t>(weights.dense.size()),
               dense_entry_count(rotation) * bytes_of(p.dtype));
  check_dense(rotation, p.dtype, weights.dense.data());
  require_same("act_order", weights.g_idx.empty() ? 0 : 1, p.act_order ? 1 : 0);
  std::vector<std::byte> packed(static_cast<std::size_t>(packed_bytes()));
  pack_into(weights, packed.data());
  return packed;
}

Support require_no_rotation(const LinearProblem& problem) {
  if (problem.rotates())
    return {concat("no rotation is offered, order ", problem.rotation_order(), " asked for")};
  return {};
}

Support require_sorted_rows(const LinearProblem& problem) {
  if (problem.act_order) return {"rows must be sorted by group: act_order is asked for"};
  return {};
}

}  // namespace fwht
